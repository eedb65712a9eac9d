"""Commands about waiting messages in the log of a partition, and their bytes.

A waiting message is a sealed batch of one message, a due time and a priority; the partition gives
it a *number*. All commands begin ``B 0x04  B kind``, little-endian::

    1 Schedule  B flags  B 0  I count  q at_ms  q delay_ms_max  I extension bytes  I 0   32 bytes
                rows: I length  b priority  3x  q due_ms  q timestamp                24 bytes each
                extension, as many bytes as the head says; then the batches, back to back
    2 Cancel    H 0  I count  q at_ms                                                    16 bytes
                numbers: q each
    3 Move      H 0  I 0  q at_ms  q number  q due_ms  q delay_ms_max                    40 bytes
    4 Release   b priority  B 0  I count  q at_ms  q max_timestamp  I length  I 0        32 bytes
                numbers: q each; then one batch of their messages, in that order

``delay_ms_max`` is the topic's limit as the leader knew it: every replica decides by it. Flags and
extension are those of an Append (side_car.py), of which only dedup keys are taken.

The layout and the tags are permanent: golden bytes in tests/unit/machines/golden.
"""

import struct
from array import array
from collections.abc import Sequence

import msgspec

from raftline.machines.partition.commands import Malformed
from raftline.model.batch import Buffer
from raftline.model.limits import (
    ENTRY_BATCHES_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    WAITING_NUMBERS_MAX,
)

WAITING_TAG = 0x04
SCHEDULE, CANCEL, MOVE, RELEASE = 1, 2, 3, 4
STORING = (SCHEDULE, RELEASE)  # the kinds that bring messages to the disk

_SCHEDULE = struct.Struct("<BBBBIqqII")
_ROW = struct.Struct("<Ib3xqq")
_CANCEL = struct.Struct("<BBHIq")
_MOVE = struct.Struct("<BBHIqqqq")
_RELEASE = struct.Struct("<BBbBIqqII")

Row = tuple[int, int, int, int]  # length, priority, due_ms, timestamp
NewWaiting = tuple[Buffer, int, int, int]  # batch, priority, due_ms, timestamp


class Schedule(msgspec.Struct, frozen=True):
    """Let messages wait. Batches stay where they are in the entry's data, from ``body`` on."""

    at_ms: int
    delay_ms_max: int
    flags: int
    rows: list[Row]
    extension: bytes
    body: int


class Cancel(msgspec.Struct, frozen=True):
    """Forget messages that still wait."""

    at_ms: int
    numbers: list[int]


class Move(msgspec.Struct, frozen=True):
    """Give a waiting message another due time."""

    at_ms: int
    number: int
    due_ms: int
    delay_ms_max: int


class Release(msgspec.Struct, frozen=True):
    """Put the messages that are next of one priority into the log. The batch is at ``body``."""

    at_ms: int
    priority: int
    numbers: list[int]
    max_timestamp: int
    body: int
    length: int


Command = Schedule | Cancel | Move | Release


def encode_schedule(
    at_ms: int,
    delay_ms_max: int,
    items: Sequence[NewWaiting],
    flags: int = 0,
    extension: bytes = b"",
) -> bytes:
    """Return the entry data that lets ``items`` wait."""
    assert 0 < len(items) <= ENTRY_BATCHES_MAX, len(items)
    head = _SCHEDULE.pack(
        WAITING_TAG, SCHEDULE, flags, 0, len(items), at_ms, delay_ms_max, len(extension), 0
    )
    rows = [_ROW.pack(len(item[0]), *item[1:]) for item in items]
    return b"".join([head, *rows, extension, *(item[0] for item in items)])


def encode_cancel(at_ms: int, numbers: Sequence[int]) -> bytes:
    """Return the entry data that cancels ``numbers``."""
    return _CANCEL.pack(WAITING_TAG, CANCEL, 0, len(numbers), at_ms) + _numbers(numbers)


def encode_move(at_ms: int, number: int, due_ms: int, delay_ms_max: int) -> bytes:
    """Return the entry data that moves one message."""
    return _MOVE.pack(WAITING_TAG, MOVE, 0, 0, at_ms, number, due_ms, delay_ms_max)


def encode_release(
    at_ms: int, priority: int, numbers: Sequence[int], max_timestamp: int, batch: Buffer
) -> bytes:
    """Return the entry data that releases ``numbers``, whose messages ``batch`` holds."""
    assert 0 < len(numbers) <= WAITING_NUMBERS_MAX, len(numbers)
    head = _RELEASE.pack(
        WAITING_TAG, RELEASE, priority, 0, len(numbers), at_ms, max_timestamp, len(batch), 0
    )
    return b"".join([head, _numbers(numbers), batch])


def decode_waiting(data: bytes) -> Command:
    """Read a command about waiting messages.

    Raises:
        Malformed: the parts do not add up to ``data``, or a value is out of bounds.
    """
    try:
        match data[1]:
            case 1:
                return _decode_schedule(data)
            case 2:
                return _decode_cancel(data)
            case 3:
                return _decode_move(data)
            case 4:
                return _decode_release(data)
            case kind:
                raise Malformed(f"no command about waiting messages is of kind {kind}")
    except (struct.error, IndexError, ValueError) as error:
        raise Malformed(f"{len(data)} bytes about waiting messages: {error}") from error


def stores_messages(data: bytes) -> bool:
    """Say whether an entry about waiting messages brings messages to the disk."""
    return len(data) > 1 and data[1] in STORING


def _decode_schedule(data: bytes) -> Schedule:
    _, _, flags, zero, count, at_ms, delay_ms_max, extension, zeros = _SCHEDULE.unpack_from(data)
    table_end = _SCHEDULE.size + count * _ROW.size
    body = table_end + extension
    if zero or zeros or not 0 < count <= ENTRY_BATCHES_MAX or body > len(data):
        raise Malformed(f"a Schedule of {len(data)} bytes with {count} messages")
    rows: list[Row] = list(_ROW.iter_unpack(memoryview(data)[_SCHEDULE.size : table_end]))
    if any(not row[0] or row[2] < 0 for row in rows):
        raise Malformed("a Schedule with an empty message or a time before all times")
    if body + sum(row[0] for row in rows) != len(data):
        raise Malformed(f"a Schedule of {len(data)} bytes whose messages end elsewhere")
    return Schedule(at_ms, delay_ms_max, flags, rows, data[table_end:body], body)


def _decode_cancel(data: bytes) -> Cancel:
    _, _, zero, count, at_ms = _CANCEL.unpack_from(data)
    numbers = _read_numbers(data, _CANCEL.size, count)
    if zero or _CANCEL.size + 8 * count != len(data):
        raise Malformed(f"a Cancel of {len(data)} bytes with {count} numbers")
    return Cancel(at_ms, numbers)


def _decode_move(data: bytes) -> Move:
    _, _, zero, zeros, at_ms, number, due_ms, delay_ms_max = _MOVE.unpack_from(data)
    if zero or zeros or len(data) != _MOVE.size or due_ms < 0:
        raise Malformed(f"a Move of {len(data)} bytes")
    return Move(at_ms, number, due_ms, delay_ms_max)


def _decode_release(data: bytes) -> Release:
    _, _, priority, zero, count, at_ms, max_timestamp, length, zeros = _RELEASE.unpack_from(data)
    body = _RELEASE.size + 8 * count
    numbers = _read_numbers(data, _RELEASE.size, count)
    if zero or zeros or not length or body + length != len(data):
        raise Malformed(f"a Release of {len(data)} bytes with {count} numbers")
    return Release(at_ms, priority, numbers, max_timestamp, body, length)


def _numbers(numbers: Sequence[int]) -> bytes:
    return array("q", numbers).tobytes()


def _read_numbers(data: bytes, start: int, count: int) -> list[int]:
    if not 0 < count <= WAITING_NUMBERS_MAX:
        raise Malformed(f"{count} numbers in one command")
    found = array("q")
    found.frombytes(data[start : start + 8 * count])
    if len(found) != count:
        raise Malformed(f"{len(found)} of {count} numbers are there")
    return found.tolist()


assert PRIORITY_MIN == -(1 << 7)
assert PRIORITY_MAX == (1 << 7) - 1  # priorities fit their byte
