"""The memory tail of a log: its newest batches, flushed or not.

State
    Batches in order, each a fresh 16-byte head and the untouched rest of the producer's bytes.
    The rest is a view on the entry it came in; entries are immutable, so it is kept, not copied.
    A small one is copied: it is shorter than a view, and nothing the garbage collector looks at.
    Everything at or above ``flushed_end`` is in memory; below it, as much as the bound allows.

Threads
    Owned by the loop. Items are immutable tuples and are handed to the lane as they are.

Costs
    About 0.6 us per appended batch; a read is a bisection and one step per batch returned.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from raftline.model.batch import LENGTH_FROM, PLACE
from raftline.storage.files import Buffer
from raftline.storage.log_words import Item

COPIED_BYTES_MAX = 1 << 11


class LogTail:
    """The batches of a log that are in memory."""

    __slots__ = ("_bases", "_items", "flushed_end", "size", "unflushed_bytes")

    def __init__(self, end: int) -> None:
        self._bases: list[int] = []
        self._items: list[Item] = []
        self.size = 0
        self.flushed_end = end
        self.unflushed_bytes = 0

    def append(
        self, offset: int, term: int, at_ms: int, batches: Iterable[tuple[Buffer, int, int]]
    ) -> int:
        """Add batches of (bytes, message count, greatest timestamp); return the end offset."""
        bases, items, pack = self._bases, self._items, PLACE.pack
        added = 0
        for batch, count, max_timestamp in batches:
            size = len(batch)
            end = offset + count
            if size <= COPIED_BYTES_MAX:
                rest = bytes(batch[16:])
            else:
                rest = (batch if type(batch) is memoryview else memoryview(batch))[16:]
            head = pack(offset, size - LENGTH_FROM, term)
            bases.append(offset)
            items.append((offset, end, size, at_ms, max_timestamp, head, rest))
            added += size
            offset = end
        self.size += added
        self.unflushed_bytes += added
        return offset

    def extend(self, items: list[Item], size: int) -> None:
        """Add batches that have their heads already."""
        self._bases.extend([item[0] for item in items])
        self._items.extend(items)
        self.size += size
        self.unflushed_bytes += size

    def read(self, offset: int, bytes_max: int, end: int) -> list[Buffer] | None:
        """Return whole batches from the one that holds ``offset``; None if it is not here."""
        row = bisect_right(self._bases, offset) - 1
        if row < 0:
            return None
        items = self._items
        found: list[Buffer] = []
        total = 0
        for row in range(row, len(items)):  # noqa: B020  (starts where it was found)
            _, after, size, _, _, head, rest = items[row]
            total += size
            if after > end or (total > bytes_max and found):
                break
            found.append(head)
            found.append(rest)
        return found

    def logged_at(self, offset: int) -> int | None:
        """Return the log time of the batch that holds ``offset``; None if it is not here."""
        row = bisect_right(self._bases, offset) - 1
        return self._items[row][3] if row >= 0 else None

    def bytes_from(self, offset: int) -> int:
        """Return the bytes of the batches at or above ``offset``."""
        if offset == self.flushed_end:
            return self.unflushed_bytes
        return sum([item[2] for item in self._items[bisect_left(self._bases, offset) :]])

    def unflushed(self, bytes_max: int) -> tuple[tuple[Item, ...], int]:
        """Return the oldest batches that are not known to be flushed, and their bytes."""
        first = bisect_left(self._bases, self.flushed_end)
        if self.unflushed_bytes <= bytes_max:
            return tuple(self._items[first:]), self.unflushed_bytes
        total, stop = 0, first
        while stop < len(self._items) and total < bytes_max:
            total += self._items[stop][2]
            stop += 1
        return tuple(self._items[first:stop]), total

    def confirm(self, end: int, bytes_max: int) -> None:
        """Note that everything below ``end`` is in the segments; keep ``bytes_max`` in memory."""
        first = bisect_left(self._bases, self.flushed_end)
        stop = bisect_left(self._bases, end)
        if stop > first:
            self.unflushed_bytes -= sum([item[2] for item in self._items[first:stop]])
            self.flushed_end = end
        drop = 0
        while self.size > bytes_max and drop < stop:
            self.size -= self._items[drop][2]
            drop += 1
        if drop:
            del self._items[:drop], self._bases[:drop]

    def cut(self, offset: int) -> bool:
        """Drop batches from ``offset`` on; False if it falls inside one of them."""
        row = bisect_left(self._bases, offset)
        if row and self._items[row - 1][1] > offset:
            return False
        for item in self._items[row:]:
            self.size -= item[2]
            if item[0] >= self.flushed_end:
                self.unflushed_bytes -= item[2]
        del self._items[row:], self._bases[row:]
        self.flushed_end = min(self.flushed_end, offset)
        return True
