"""Commands in the log of a partition, and their bytes.

The first byte of an entry says what it is::

    0x01  Append   fixed layout, little-endian, below
    0x02  others   a tagged msgpack struct: Trim | SetFeatureLevel | Noop | MarkLetters | SetTrace |
                   MarkArchived

Append::

    head       B tag  B flags  H 0  I batches  q at_ms  I extension bytes          20 bytes
    table      per batch: I length  I count  q max_timestamp  q producer_id
               i base_sequence  h producer_epoch  H 0                              32 bytes each
    extension  as many bytes as the head says: the batches' side cars (side_car.py)
    batches    back to back, as the producers sent them

``flags`` has one bit per kind of extension: 0x01 priorities, 0x02 dedup keys. A bit that the
shard's feature level does not know is refused at apply, by every replica alike.

The layout and the tags are permanent: golden bytes in tests/unit/machines/golden.
"""

import struct
from collections.abc import Sequence

import msgspec

from raftline.model.batch import BatchInfo, Buffer
from raftline.model.limits import ENTRY_BATCHES_MAX, ENTRY_BYTES_MAX

APPEND_TAG = 0x01
COMMAND_TAG = 0x02

LETTERS_REDRIVEN, LETTERS_PURGED = 1, 2  # what MarkLetters says

BatchItem = tuple[Buffer, BatchInfo]  # a sealed batch and what check_batch said of it
Row = tuple[int, int, int, int, int, int]
"""length, count, max_timestamp, producer_id, base_sequence, producer_epoch"""

_HEAD = struct.Struct("<BBHIqI")
_ROW = struct.Struct("<IIqqih2x")
_PREFIX = bytes([COMMAND_TAG])

HEAD_BYTES = _HEAD.size
ROW_BYTES = _ROW.size


class Trim(msgspec.Struct, frozen=True, tag="trim"):
    """Forget messages below ``log_start``."""

    log_start: int
    at_ms: int


class SetFeatureLevel(msgspec.Struct, frozen=True, tag="feature_level"):
    """Adopt the catalog's feature level for entries after this one."""

    level: int
    at_ms: int


class Noop(msgspec.Struct, frozen=True, tag="noop"):
    """Move log time on."""

    at_ms: int


class MarkLetters(msgspec.Struct, frozen=True, tag="letters"):
    """Note that dead letters of this partition are done with (letters.py)."""

    ranges: list[int]  # flat pairs of offsets
    state: int  # LETTERS_REDRIVEN or LETTERS_PURGED
    at_ms: int


class SetTrace(msgspec.Struct, frozen=True, tag="trace"):
    """Trace so many percent of the messages from now on; records below ``log_start`` go."""

    percent: int
    log_start: int
    at_ms: int


class MarkArchived(msgspec.Struct, frozen=True, tag="archived"):
    """Note that everything below ``offset`` is archived (archive.py)."""

    offset: int
    at_ms: int


Command = Trim | SetFeatureLevel | Noop | MarkLetters | SetTrace | MarkArchived


class Malformed(Exception):
    """An entry whose bytes are no command: refused whole."""


class AppendView:
    """A decoded Append. Batches stay where they are in ``data``."""

    __slots__ = ("at_ms", "body", "data", "extension", "flags", "rows")

    def __init__(
        self, data: bytes, at_ms: int, flags: int, rows: list[Row], extension: bytes, body: int
    ) -> None:
        self.data = data
        self.at_ms = at_ms
        self.flags = flags
        self.rows = rows
        self.extension = extension
        self.body = body  # where the first batch starts


def encode_append(
    at_ms: int, items: Sequence[BatchItem], flags: int = 0, extension: bytes = b""
) -> bytes:
    """Return the entry data that stores ``items``. One copy of the batches."""
    assert 0 < len(items) <= ENTRY_BATCHES_MAX, len(items)
    pack = _ROW.pack
    parts: list[Buffer] = [_HEAD.pack(APPEND_TAG, flags, 0, len(items), at_ms, len(extension))]
    for _, info in items:
        parts.append(
            pack(
                info.length,
                info.count,
                info.max_timestamp,
                info.producer_id,
                info.base_sequence,
                info.producer_epoch,
            )
        )
    parts.append(extension)
    parts += [batch for batch, _ in items]
    return b"".join(parts)


def append_bytes(items: int, batch_bytes: int) -> int:
    """Return how long an Append of so many batches with so many bytes is."""
    return HEAD_BYTES + items * ROW_BYTES + batch_bytes


def extension_room(data: bytes) -> int:
    """Return how many bytes of an entry may be side cars: an Append says so, others may be all."""
    if len(data) < HEAD_BYTES or data[0] != APPEND_TAG:
        return len(data)
    return _HEAD.unpack_from(data)[-1]


def decode_append(data: bytes, start: int = 0) -> AppendView:
    """Read the head and the table of an Append that begins at ``start`` and ends with ``data``.

    Raises:
        Malformed: the parts do not add up to ``data``.
    """
    table = start + HEAD_BYTES
    if len(data) < table:
        raise Malformed(f"an Append of {len(data) - start} bytes has no head")
    tag, flags, zero, count, at_ms, extension_bytes = _HEAD.unpack_from(data, start)
    table_end = table + count * ROW_BYTES
    body = table_end + extension_bytes
    if tag != APPEND_TAG or zero or not 0 < count <= ENTRY_BATCHES_MAX or body > len(data):
        raise Malformed(f"an Append of {len(data)} bytes with {count} batches")
    rows: list[Row] = list(_ROW.iter_unpack(memoryview(data)[table:table_end]))
    total = 0
    for row in rows:
        if not row[0] or not row[1]:
            raise Malformed("an Append with an empty batch")
        total += row[0]
    if body + total != len(data):
        raise Malformed(f"an Append of {len(data)} bytes whose batches end at {body + total}")
    return AppendView(data, at_ms, flags, rows, data[table_end:body], body)


def encode_command(command: Command) -> bytes:
    """Return the entry data of anything but an Append."""
    return _PREFIX + _encoder.encode(command)


def decode_command(data: bytes) -> Command:
    """Read anything but an Append.

    Raises:
        Malformed: no known command.
    """
    if data[:1] != _PREFIX or len(data) > ENTRY_BYTES_MAX:
        raise Malformed(f"no command starts with {data[:1].hex() or 'nothing'}")
    try:
        return _decoder.decode(memoryview(data)[1:])
    except msgspec.MsgspecError as error:
        raise Malformed(str(error)) from error


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
