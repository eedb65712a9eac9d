"""The sparse time index of a segment: how late its messages are up to some of its batches.

An entry stands for one indexed batch: the greatest record timestamp *before* that batch in this
segment (so it never decreases, whatever producers stamp), the batch's log time, its offset and
its position. The first entry has TIMESTAMP_MIN.

Invariants
    T1  Every batch before entry i has timestamps <= maxima[i] and log time <= at_ms[i].
    T2  Same batches as the offset index.

File: head (side_file.py), then 36 bytes per entry: maximum, at_ms, offset, position (i64 each),
crc32c u32 seeded with the segment's base offset.
"""

import struct
from array import array
from bisect import bisect_left

from crc32c import crc32c

ENTRY = struct.Struct("<qqqqI")
_BODY = struct.Struct("<qqqq")


class TimeIndex:
    """Entries in memory, owned by the lane."""

    __slots__ = ("at_ms", "maxima", "offsets", "positions")

    def __init__(self) -> None:
        self.maxima = array("q")
        self.at_ms = array("q")
        self.offsets = array("q")
        self.positions = array("q")

    def add(self, maximum: int, at_ms: int, offset: int, position: int) -> None:
        """Add the entry of the batch at ``position``."""
        self.maxima.append(maximum)
        self.at_ms.append(at_ms)
        self.offsets.append(offset)
        self.positions.append(position)

    def find(self, time_ms: int) -> tuple[int, int]:
        """Return (offset, position) to search from: every earlier batch is before ``time_ms``."""
        row = max(0, bisect_left(self.maxima, time_ms) - 1)
        return self.offsets[row], self.positions[row]

    def find_log_time(self, at_ms: int) -> int:
        """Return an offset below which every batch was logged before ``at_ms``."""
        row = max(0, bisect_left(self.at_ms, at_ms) - 1)
        return self.offsets[row]

    def maximum_at(self, position: int) -> int:
        """Return the maximum of the last entry at or before byte ``position``."""
        return self.maxima[max(0, bisect_left(self.positions, position + 1) - 1)]

    def at_after(self, position: int) -> int | None:
        """Return the log time of the first entry at or after byte ``position``."""
        row = bisect_left(self.positions, position)
        return self.at_ms[row] if row < len(self.positions) else None

    def cut(self, position: int) -> None:
        """Drop the entries at or after byte ``position``."""
        row = bisect_left(self.positions, position)
        for column in (self.maxima, self.at_ms, self.offsets, self.positions):
            del column[row:]

    def encode(self, first: int, seed: int) -> bytes:
        """Return the entries from number ``first`` on, for the file."""
        rows: list[bytes] = []
        for row in range(first, len(self.offsets)):
            body = _BODY.pack(
                self.maxima[row], self.at_ms[row], self.offsets[row], self.positions[row]
            )
            rows.append(body + crc32c(body, seed).to_bytes(4, "little"))
        return b"".join(rows)


def decode_times(data: bytes, count: int, seed: int) -> TimeIndex | None:
    """Return the first ``count`` entries of the file's body, or None if any is damaged."""
    if len(data) < count * ENTRY.size:
        return None
    index = TimeIndex()
    view = memoryview(data)
    for start in range(0, count * ENTRY.size, ENTRY.size):
        maximum, at_ms, offset, position, crc = ENTRY.unpack_from(data, start)
        if crc32c(view[start : start + _BODY.size], seed) != crc:
            return None
        index.add(maximum, at_ms, offset, position)
    return index
