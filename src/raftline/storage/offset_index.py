"""The sparse offset index of a segment: at which byte some of its batches begin.

Invariants
    O1  The first entry is the segment's first batch; offsets and positions both increase.
    O2  Two neighbouring entries are at least ``index_bytes`` apart, and the batch between them
        that begins last begins less than ``index_bytes`` after the first.

File: head (side_file.py), then 20 bytes per entry: offset i64, position i64, crc32c u32 seeded
with the segment's base offset.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right

from crc32c import crc32c

ENTRY = struct.Struct("<qqI")
_BODY = struct.Struct("<qq")


class OffsetIndex:
    """Entries in memory. Written by the lane; the loop may search (append-only while shared)."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")

    def add(self, offset: int, position: int) -> None:
        """Say that a batch of ``offset`` begins at ``position``."""
        self.positions.append(position)
        self.offsets.append(offset)

    def find(self, offset: int) -> tuple[int, int]:
        """Return the last (offset, position) at or before ``offset``."""
        row = bisect_right(self.offsets, offset) - 1
        return self.offsets[row], self.positions[row]

    def before(self, position: int) -> tuple[int, int]:
        """Return the last (offset, position) at or before byte ``position``."""
        row = bisect_right(self.positions, position) - 1
        return self.offsets[row], self.positions[row]

    def within(self, position: int, end: int, start: int) -> tuple[int, int]:
        """Return the last entry at or before both ``position`` and offset ``end``.

        As (offset, byte counted from ``start``).
        """
        row = min(bisect_right(self.positions, position), bisect_right(self.offsets, end)) - 1
        return self.offsets[row], self.positions[row] - start

    def after(self, position: int) -> tuple[int, int] | None:
        """Return the first (offset, position) at or after byte ``position``."""
        row = bisect_left(self.positions, position)
        return (self.offsets[row], self.positions[row]) if row < len(self.positions) else None

    def cut(self, position: int) -> None:
        """Drop the entries at or after byte ``position``."""
        row = bisect_left(self.positions, position)
        del self.offsets[row:]
        del self.positions[row:]

    def encode(self, first: int, seed: int) -> bytes:
        """Return the entries from number ``first`` on, for the file."""
        rows: list[bytes] = []
        for row in range(first, len(self.offsets)):
            body = _BODY.pack(self.offsets[row], self.positions[row])
            rows.append(body + crc32c(body, seed).to_bytes(4, "little"))
        return b"".join(rows)


def decode_offsets(data: bytes, count: int, seed: int) -> OffsetIndex | None:
    """Return the first ``count`` entries of the file's body, or None if any is damaged."""
    if len(data) < count * ENTRY.size:
        return None
    index = OffsetIndex()
    view = memoryview(data)
    for start in range(0, count * ENTRY.size, ENTRY.size):
        offset, position, crc = ENTRY.unpack_from(data, start)
        if crc32c(view[start : start + _BODY.size], seed) != crc:
            return None
        index.add(offset, position)
    return index
