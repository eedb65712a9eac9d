"""A set of offsets that may hold a million ranges: an ``IntervalSet`` in chunks.

State
    A ``RangeTable`` without columns: ranges that touch are one.

Costs: as the table's, wherever in the set; ``freeze`` costs the loop a few microseconds. A small
set is better off as an ``IntervalSet``.
"""

from collections.abc import Callable, Iterable, Iterator

from raftline.model.intervals import Range
from raftline.model.range_table import RangeTable


class RangeSet:
    """Integers as sorted ranges that do not touch."""

    __slots__ = ("_table",)

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._table = RangeTable(0)
        for start, end in ranges:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Add ``[start, end)``."""
        if start < end and not self._table.extend(start, end):
            self._table.replace(start, end, ())

    def remove(self, start: int, end: int) -> None:
        """Remove ``[start, end)``."""
        self._table.remove(start, end)

    def clear(self) -> None:
        """Remove everything."""
        self._table.clear()

    def overlaps(self, start: int, end: int) -> bool:
        """Say whether any integer of ``[start, end)`` is in the set."""
        held = self._table.next_from(start) if start < end else None
        return held is not None and held[0] < end

    def covers(self, start: int, end: int) -> bool:
        """Say whether all of ``[start, end)`` is in the set."""
        held = self._table.find(start) if start < end else None
        return start >= end or (held is not None and held[1] >= end)

    def first_gap(self, start: int) -> int:
        """Return the smallest integer >= ``start`` that is not in the set."""
        held = self._table.find(start)
        return start if held is None else held[1]

    def first(self) -> Range | None:
        """Return the first range."""
        held = self._table.first()
        return held and held[:2]

    def next_from(self, offset: int) -> Range | None:
        """Return the first range that ends after ``offset``, whole."""
        held = self._table.next_from(offset)
        return held and held[:2]

    def gaps(self, start: int, end: int) -> Iterator[Range]:
        """Yield what of ``[start, end)`` is not in the set. Change nothing meanwhile."""
        return self._table.gaps(start, end)

    def within(self, start: int, end: int) -> Iterator[Range]:
        """Yield what of ``[start, end)`` is in the set. Change nothing meanwhile."""
        for held_start, held_end, _ in self._table.within(start, end):
            yield held_start, held_end

    def count(self) -> int:
        """Return how many integers are in the set. Walks all ranges."""
        ends = sum(sum(piece) for piece in self._table.column(-1))
        return ends - sum(sum(piece) for piece in self._table.column(-2))

    @property
    def bytes(self) -> int:
        """Return about how much memory the ranges take."""
        return self._table.bytes

    def freeze(self) -> "Callable[[], list[bytes]]":
        """Return what writes the set as it is now, in pieces. It may be called in a lane."""
        return self._table.freeze()

    def restore(self, data: "bytes | memoryview") -> None:
        """Replace the set by what the joined pieces of ``freeze`` say."""
        self._table.restore(data)

    def check(self) -> None:
        """Raise if an invariant is broken."""
        self._table.check()

    def __contains__(self, value: int) -> bool:
        return value in self._table

    def __iter__(self) -> Iterator[Range]:
        for start, end, _ in self._table:
            yield start, end

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._table)

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"
