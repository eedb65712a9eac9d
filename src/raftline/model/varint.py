"""Integers of variable length: seven bits a byte, low bits first; signed ones zigzag-mapped.

Values are at most 64 bits (ten bytes); a longer run of bytes is refused with ValueError, as is an
input that ends inside a number.
"""

from raftline.model.batch import Buffer

_SHIFT_END = 70  # ten bytes of seven bits


def zigzag(value: int) -> int:
    """Map a signed 64-bit number to an unsigned one, small to small."""
    return (value << 1) ^ (value >> 63)


def unzigzag(value: int) -> int:
    """Undo ``zigzag``."""
    return (value >> 1) ^ -(value & 1)


def put_uvarint(out: bytearray, value: int) -> None:
    """Append ``value`` >= 0 to ``out``."""
    assert 0 <= value < 1 << 64, value
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_varint(out: bytearray, value: int) -> None:
    """Append a signed ``value`` to ``out``."""
    put_uvarint(out, zigzag(value))


def get_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the number at ``position`` and the position after it."""
    value = shift = 0
    end = len(buffer)
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, position
        shift += 7
        if shift == _SHIFT_END:
            break
    raise ValueError(f"no sound varint before byte {position}")


def get_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the signed number at ``position`` and the position after it."""
    value, position = get_uvarint(buffer, position)
    return unzigzag(value), position
