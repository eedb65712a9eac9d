"""Bytes that several protocols share: varints, compact strings, the checksum.

Compact form (Kafka's flexible versions, our peer frames): an unsigned varint of length + 1, then
the bytes; 0 stands for null.
"""

from crc32c import crc32c

from raftline.model.batch import Buffer
from raftline.model.varint import (
    get_uvarint,
    get_varint,
    put_uvarint,
    put_varint,
    unzigzag,
    zigzag,
)

__all__ = [
    "crc32c",
    "get_compact_bytes",
    "get_compact_text",
    "get_uvarint",
    "get_varint",
    "put_compact_bytes",
    "put_compact_text",
    "put_uvarint",
    "put_varint",
    "unzigzag",
    "zigzag",
]


def put_compact_bytes(out: bytearray, value: Buffer | None) -> None:
    """Append bytes, or null."""
    if value is None:
        out.append(0)
        return
    put_uvarint(out, len(value) + 1)
    out += value


def put_compact_text(out: bytearray, value: str | None) -> None:
    """Append text as UTF-8, or null."""
    put_compact_bytes(out, None if value is None else value.encode())


def get_compact_bytes(buffer: Buffer, position: int) -> tuple[bytes | None, int]:
    """Return the bytes (or None for null) at ``position`` and the position after them."""
    length, position = get_uvarint(buffer, position)
    if length == 0:
        return None, position
    end = position + length - 1
    if end > len(buffer):
        raise ValueError(f"byte {position}: {length - 1} bytes are announced, fewer are there")
    return bytes(buffer[position:end]), end


def get_compact_text(buffer: Buffer, position: int) -> tuple[str | None, int]:
    """Return the text (or None for null) at ``position`` and the position after it."""
    value, position = get_compact_bytes(buffer, position)
    return (None if value is None else value.decode()), position
