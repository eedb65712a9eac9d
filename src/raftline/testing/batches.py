"""Record batches for tests: seal values into one, open one again.

A plain twin of the production codec, written from the format alone (record batch v2), so that the
two check each other. Slow and simple: a few microseconds per message.
"""

import struct
from collections.abc import Sequence

import msgspec
from crc32c import crc32c

from raftline.model.batch import split_batches

_HEAD = struct.Struct(">qiibIhiqqqhii")
_FROM_CRC = struct.Struct(">hiqqqhii")  # attributes .. count


class SimMessage(msgspec.Struct, frozen=True):
    """One message as a test sees it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def seal(
    values: Sequence[bytes],
    timestamps_ms: Sequence[int],
    *,
    keys: Sequence[bytes | None] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Return a sealed batch of ``values``, each with its timestamp."""
    assert values, "a batch holds at least one message"
    assert len(values) == len(timestamps_ms)
    base_ms = timestamps_ms[0]
    body = b"".join(
        _message(i, at_ms - base_ms, keys[i] if keys else None, value)
        for i, (value, at_ms) in enumerate(zip(values, timestamps_ms, strict=True))
    )
    head = _FROM_CRC.pack(
        0,
        len(values) - 1,
        base_ms,
        max(timestamps_ms),
        producer_id,
        producer_epoch,
        base_sequence,
        len(values),
    )
    crc = crc32c(body, crc32c(head))
    return struct.pack(">qiibI", 0, 9 + len(head) + len(body), 0, 2, crc) + head + body


def open_batches(batches: bytes, partition: int = 0) -> list[SimMessage]:
    """Return the messages of whole, uncompressed batches; the checksums are checked."""
    found: list[SimMessage] = []
    for start, length in split_batches(batches):
        (base, _, _, _, crc, attributes, _, base_ms, _, _, _, _, count) = _HEAD.unpack_from(
            batches, start
        )
        assert attributes == 0, "compressed batches are not opened here"
        assert crc32c(memoryview(batches)[start + 21 : start + length]) == crc, f"crc @{base}"
        position = start + _HEAD.size
        for _ in range(count):
            message, position = _open_message(batches, position, partition, base, base_ms)
            found.append(message)
    return found


def _message(delta: int, delta_ms: int, key: bytes | None, value: bytes) -> bytes:
    parts = (b"\0", _varint(delta_ms), _varint(delta), _sized(key), _sized(value), b"\0")
    body = b"".join(parts)
    return _varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    zigzag = number * 2 if number >= 0 else -number * 2 - 1
    if zigzag < 128:
        return bytes((zigzag,))
    out = bytearray()
    while zigzag >= 128:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _open_message(
    data: bytes, position: int, partition: int, base: int, base_ms: int
) -> tuple[SimMessage, int]:
    length, position = _read_varint(data, position)
    end = position + length
    delta_ms, at = _read_varint(data, position + 1)
    delta, at = _read_varint(data, at)
    key, at = _read_sized(data, at)
    value, at = _read_sized(data, at)
    return SimMessage(partition, base + delta, base_ms + delta_ms, key, value), end


def _read_sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position)
    if length < 0:
        return None, position
    return data[position : position + length], position + length


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    shift = zigzag = 0
    while True:
        byte = data[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 128:
            return (zigzag >> 1) ^ -(zigzag & 1), position
        shift += 7
