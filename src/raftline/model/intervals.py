"""A set of offsets kept as half-open ranges.

State
    Two arrays of the same length: where each range starts and where it ends.

Invariants
    I1  Ranges are in order, not empty, and do not touch: start < end < next start.

Costs: O(log ranges) to look up; adding or removing also shifts the arrays' tails.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

Range = tuple[int, int]  # [start, end)


class IntervalSet:
    """Integers as sorted ranges that do not touch."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    def add(self, start: int, end: int) -> int:
        """Add ``[start, end)``; return how many integers are new."""
        if start >= end:
            return 0
        # Every range that overlaps or touches [start, end) is merged into one.
        low = bisect_left(self._ends, start)
        high = bisect_right(self._starts, end)
        if low == high:
            self._starts.insert(low, start)
            self._ends.insert(low, end)
            return end - start
        first, last = min(start, self._starts[low]), max(end, self._ends[high - 1])
        held = sum(self._ends[low:high]) - sum(self._starts[low:high])
        self._starts[low:high] = [first]
        self._ends[low:high] = [last]
        return last - first - held

    def remove(self, start: int, end: int) -> int:
        """Remove ``[start, end)``; return how many integers are gone."""
        if start >= end:
            return 0
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        if low >= high:
            return 0
        kept: list[Range] = []
        if self._starts[low] < start:
            kept.append((self._starts[low], start))
        if self._ends[high - 1] > end:
            kept.append((end, self._ends[high - 1]))
        held = sum(self._ends[low:high]) - sum(self._starts[low:high])
        self._starts[low:high] = [s for s, _ in kept]
        self._ends[low:high] = [e for _, e in kept]
        return held - sum(e - s for s, e in kept)

    def overlaps(self, start: int, end: int) -> bool:
        """Say whether any integer of ``[start, end)`` is in the set."""
        low = bisect_right(self._ends, start)
        return start < end and low < len(self._starts) and self._starts[low] < end

    def covers(self, start: int, end: int) -> bool:
        """Say whether all of ``[start, end)`` is in the set."""
        low = bisect_right(self._starts, start) - 1
        return start >= end or (low >= 0 and self._ends[low] >= end)

    def first_gap(self, start: int) -> int:
        """Return the smallest integer >= ``start`` that is not in the set."""
        low = bisect_right(self._starts, start) - 1
        return max(start, self._ends[low]) if low >= 0 else start

    def gaps(self, start: int, end: int) -> Iterator[Range]:
        """Yield the ranges of ``[start, end)`` that are not in the set, in order."""
        for held_start, held_end in self.within(start, end):
            if start < held_start:
                yield start, held_start
            start = held_end
        if start < end:
            yield start, end

    def within(self, start: int, end: int) -> Iterator[Range]:
        """Yield the parts of ``[start, end)`` that are in the set, in order."""
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        for at in range(low, high):
            yield max(start, self._starts[at]), min(end, self._ends[at])

    def count(self) -> int:
        """Return how many integers are in the set."""
        return sum(self._ends) - sum(self._starts)

    def copy(self) -> "IntervalSet":
        """Return an independent set with the same ranges."""
        other = IntervalSet()
        other._starts, other._ends = self._starts.copy(), self._ends.copy()
        return other

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert len(self._starts) == len(self._ends)
        edges = [edge for pair in self for edge in pair]
        assert all(a < b for a, b in pairwise(edges)), edges  # I1

    def __contains__(self, value: int) -> bool:
        low = bisect_right(self._starts, value) - 1
        return low >= 0 and value < self._ends[low]

    def __iter__(self) -> Iterator[Range]:
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"IntervalSet({list(self)})"
