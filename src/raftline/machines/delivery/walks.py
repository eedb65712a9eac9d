"""Walks over what is free in a group: never delivered, or READY to be delivered again.

A *look* is the state that one call sees. A *walk* is a lane's place between calls, and while a
look is open the next free run of the lane.

Invariants
    K1  Whatever is free in a lane is at or above the walk's cursor, or in ``back``, below it.
    K2  A walk never goes back by itself. What becomes free below its cursor is ``returned``.
    K3  A look ends after ``steps`` ranges that were of no use; the walk goes on there next time.
"""

from collections.abc import Iterator

from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.lanes import Lanes
from raftline.machines.delivery.rows import READY, attempt_of, generation_of, state_of
from raftline.model.intervals import IntervalSet, Range
from raftline.model.range_set import RangeSet

Run = tuple[int, int, int, int, bool]  # start, end, attempt, generation, again


class Look:
    """The state that one call sees. It does not change while the look is open."""

    __slots__ = ("_reserved", "_steps", "_work", "end", "floor", "is_cut", "lanes", "opened")

    def __init__(
        self, work: WorkGroup, lanes: Lanes, reserved: IntervalSet, end: int, steps: int
    ) -> None:
        self._work = work
        self._reserved = reserved
        self._steps = steps
        self.lanes = lanes
        self.floor = work.floor
        self.end = end
        self.is_cut = False
        self.opened: list[Walk] = []

    def runs(self, ranges: Iterator[Range]) -> Iterator[Run]:
        """Yield what is free in ``ranges``; an empty run where the look was cut short. K3."""
        reserved = self._reserved
        for wide_start, wide_end in ranges:
            for start, end in reserved.gaps(wide_start, wide_end):
                yield from self._free(start, end)
            self._steps -= 1
            if self._steps < 0:
                yield self._cut(wide_end)

    def _free(self, start: int, end: int) -> Iterator[Run]:
        generation = self._work.base_generation
        for low, high, row, _ in self._work.pieces(start, end):
            if row is None:
                self._steps += 1  # only what is in vain counts
                yield low, high, 1, generation, False
            elif state_of(row) == READY:
                self._steps += 1
                yield low, high, attempt_of(row) + 1, generation_of(row), True
            else:
                self._steps -= 1
                if self._steps < 0:
                    yield self._cut(high)

    def _cut(self, at: int) -> Run:
        self.is_cut = True
        return at, at, 0, 0, False

    def close(self) -> None:
        """Let the walks keep their places."""
        for walk in self.opened:
            walk.close()


class Walk:
    """One lane of one group."""

    __slots__ = ("_at", "_back", "_runs", "cursor", "head", "lane")

    def __init__(self, lane: int) -> None:
        self.lane = lane
        self.cursor = 0
        self.head: Run | None = None
        self._back = RangeSet()
        self._runs: Iterator[Run] = iter(())
        self._at = 0

    def returned(self, start: int, end: int) -> None:
        """Take back what became free; what is above the cursor is found anyway. K1."""
        end = min(end, self.cursor)
        if start < end:
            self._back.add(start, end)

    def may_have_below(self, offset: int) -> bool:
        """Say, without a look, whether something below ``offset`` may be free."""
        return self.cursor < offset or bool(self._back)

    def open(self, look: Look) -> None:
        """Find the next free run."""
        look.opened.append(self)
        self._runs = look.runs(self._ranges(look))
        self._at = look.end
        self._advance()

    def take(self, below: int, count: int) -> Run:
        """Take from the next free run at most ``count`` messages below an offset."""
        assert self.head is not None
        start, end, attempt, generation, again = self.head
        stop = min(end, below, start + count)
        if stop < end:
            self.head = (stop, end, attempt, generation, again)
        else:
            self._advance()
        return start, stop, attempt, generation, again

    def close(self) -> None:
        """Keep the place: before the next free run, or where the look ended. K2."""
        at = self.head[0] if self.head is not None else self._at
        if self._back:
            self._back.remove(0, min(at, self.cursor))
        self.cursor = max(self.cursor, at)
        self.head = None
        self._runs = iter(())

    def _ranges(self, look: Look) -> Iterator[Range]:
        yield from self._back.within(look.floor, self.cursor)
        yield from look.lanes.within(self.lane, max(self.cursor, look.floor), look.end)

    def _advance(self) -> None:
        run = next(self._runs, None)
        if run is not None and run[0] == run[1]:  # the look was cut short
            self._at, run = run[0], None
            self._runs = iter(())
        self.head = run
