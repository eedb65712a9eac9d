"""What the leader hands out next: one chooser per work group on a partition.

It is advice: a Grant is checked again when it is applied. The chooser is memory of the leader and
starts empty; what it must know it finds in the group's state as it goes.

State
    Per lane a *cursor* and what came *back* below it. Whatever is free in a lane is at or above
    its cursor, or in ``back``. So a choice looks at what it returns, and at little else.

Rules
    Inside a lane the lowest offset goes first. Between lanes, by the topic's ``priorities``:

    aged      The highest lane first; but what has waited for ``bound_ms`` since it was stored goes
              before, the oldest first, whatever its lane.
    weighted  Lanes take turns by weight (weights.py).
    strict    The highest lane first, always. Low lanes may wait for ever.

Invariants
    C1  Nothing is chosen that is settled, held by a row that is not READY, or reserved.
    C2  What was chosen is not chosen again until it is given ``returned``.
    C3  Everything free is chosen sooner or later, if whoever uses the chooser keeps to this:
        ``returned`` is called for every range whose reservation ends without a lease, and for
        every row that becomes READY; ``restart`` when the group was reset.
    C4  aged: a message that has waited for the bound is chosen before every younger one. So it
        waits no longer than the bound, plus the time workers take for those that are older and not
        delivered yet. Lanes change who is served, not how many: those are at most the ones that
        were waiting when it was stored (and came back since). Hence: wait <= bound + the wait it
        would have had in plain order. Where workers keep up, that second part is short; where they
        do not, lanes fade and the order becomes that of the log: prefer ``weighted`` there.

Costs: about 6 us for a run of fresh messages, however long; then about 3 us for each further range.
A choice ends at ``RANGES_MAX`` ranges, so that no turn is long, here or where its Grant is applied.
A walk over rows that are of no use to it is stopped after ``STEPS_MAX`` and goes on at the next
call: ``Choice.is_more`` says so.
"""

import heapq
from itertools import islice

import msgspec

from raftline.machines.delivery.ages import Ages
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.lanes import NORMAL, Lanes
from raftline.machines.delivery.walks import Look, Run, Walk
from raftline.machines.delivery.weights import Stride
from raftline.model.intervals import IntervalSet
from raftline.model.limits import OFFSET_MAX, PRIORITY_MAX, PRIORITY_MIN
from raftline.model.range_set import RangeSet

AGED, WEIGHTED, STRICT = "aged", "weighted", "strict"
OVERDUE = PRIORITY_MAX + 1  # the waiting lane of what waited for the bound, or more: how long since
STEPS_MAX = 4096  # ranges that a call may look at in vain
RANGES_MAX = 500  # ranges of one choice: each becomes a row, on every replica, in one turn
PIECES = 20  # weighted: in how many turns a choice is made


class Choice(msgspec.Struct):
    """Spans in the order in which they are to be delivered: start, end, attempt, generation."""

    first: list[int]  # never delivered in their generation
    again: list[int]  # READY rows: deliver when the Grant is committed
    count: int = 0  # messages in both
    is_more: bool = False  # the walk was cut short: ask again soon, also if nothing was found
    behind: list[int] = []  # of each span of ``again``: as much of ``first`` goes before it

    def has_room(self, count_max: int) -> bool:
        """Say whether it may grow, up to so many messages."""
        return self.count < count_max and len(self.first) + len(self.again) < 4 * RANGES_MAX

    def add(self, run: Run) -> None:
        """Put a run at the end."""
        start, end, attempt, generation, again = run
        spans = self.again if again else self.first
        self.count += end - start
        is_next = not self.again or again == (self.behind[-1] == len(self.first))
        if is_next and spans and spans[-3:] == [start, attempt, generation]:
            spans[-3] = end
            return
        if again:
            self.behind.append(len(self.first))
        spans += (start, end, attempt, generation)

    def spans(self) -> list[int]:
        """Return both in one: the order in which they were chosen."""
        found: list[int] = []
        at = 0
        for row, behind in enumerate(self.behind):
            found += self.first[at:behind]
            found += self.again[4 * row : 4 * row + 4]
            at = behind
        return found + self.first[at:]


class Chooser:
    """The leader's choice for one group on one partition."""

    __slots__ = ("_bound_ms", "_came_back", "_mode", "_stride", "_walks")

    def __init__(self, mode: str, bound_ms: int) -> None:
        self.adopt(mode, bound_ms)
        self._stride = Stride()
        self._walks: dict[int, Walk] = {}
        self._came_back = RangeSet()  # not sorted into lanes yet

    def choose(
        self,
        work: WorkGroup,
        lanes: Lanes,
        ages: Ages,
        reserved: IntervalSet,
        end: int,
        count_max: int,
        at_ms: int,
    ) -> Choice:
        """Choose up to ``count_max`` messages below ``end`` and count them as gone. C1, C2."""
        look = self._look(work, lanes, reserved, end)
        choice = Choice([], [])
        if self._mode == WEIGHTED and len(lanes.lanes()) > 1:
            self._choose_by_weight(look, choice, count_max)
        else:
            if self._mode == AGED and len(lanes.lanes()) > 1:
                below = ages.end_at(at_ms - self._bound_ms)
                self._choose_overdue(look, choice, count_max, below)
            self._choose_by_lane(look, choice, count_max)
        look.close()
        choice.is_more = look.is_cut and choice.has_room(count_max)
        return choice

    def waiting_lane(
        self,
        work: WorkGroup,
        lanes: Lanes,
        ages: Ages,
        reserved: IntervalSet,
        end: int,
        at_ms: int,
    ) -> int | None:
        """Return the lane that is next, to compare with other partitions; None: nothing waits.

        The highest goes first. What waited for the bound is ``OVERDUE`` plus the ms since then.
        Weighted lanes are all the same from outside: partitions take turns.
        """
        look = self._look(work, lanes, reserved, end)
        found = self._overdue_ms(look, ages, at_ms) if self._mode == AGED else None
        if found is not None:
            found += OVERDUE
        else:
            found = next((n for n in lanes.lanes() if self._open(n, look).head is not None), None)
            if found is not None and self._mode == WEIGHTED:
                found = NORMAL
        look.close()
        return PRIORITY_MIN if found is None and look.is_cut else found

    def returned(self, start: int, end: int) -> None:
        """Take ``[start, end)`` back: READY again, or reserved and not leased. C3."""
        if self._walks and start < end:
            self._came_back.add(start, end)

    def restart(self) -> None:
        """Begin anew: the group was reset."""
        self._walks.clear()
        self._came_back.clear()

    def adopt(self, mode: str, bound_ms: int) -> None:
        """Go by these rules: the topic's settings."""
        assert mode in (AGED, WEIGHTED, STRICT), mode
        self._mode = mode
        self._bound_ms = bound_ms

    def _look(self, work: WorkGroup, lanes: Lanes, reserved: IntervalSet, end: int) -> Look:
        look = Look(work, lanes, reserved, end, STEPS_MAX)
        if self._came_back:
            rows = list(islice(self._came_back, STEPS_MAX))
            for start, stop in rows:
                self._sort(lanes, start, stop)
            self._came_back.remove(0, rows[-1][1])
            look.is_cut = bool(self._came_back)
        return look

    def _sort(self, lanes: Lanes, start: int, end: int) -> None:
        """Give what came back to the walks of its lanes."""
        for lane, walk in self._walks.items():
            if walk.cursor > start:
                for low, high in lanes.within(lane, start, end):
                    walk.returned(low, high)

    def _open(self, lane: int, look: Look) -> Walk:
        """Return a lane's walk, opened for this look."""
        walk = self._walks.get(lane)
        if walk is None:
            walk = self._walks[lane] = Walk(lane)
        if walk not in look.opened:
            walk.open(look)
        return walk

    def _choose_by_lane(self, look: Look, choice: Choice, count_max: int) -> None:
        """Choose from the highest lane that has something, then the next."""
        for lane in look.lanes.lanes():
            if not choice.has_room(count_max):
                return
            walk = self._open(lane, look)
            while walk.head is not None and choice.has_room(count_max):
                choice.add(walk.take(OFFSET_MAX, count_max - choice.count))

    def _choose_overdue(self, look: Look, choice: Choice, count_max: int, below: int) -> None:
        """Choose what waited for the bound, the oldest first: that is the lowest offset. C4."""
        heads = [(walk.head[0], walk.lane) for walk in self._heads(look, below) if walk.head]
        heapq.heapify(heads)
        while heads and heads[0][0] < below and choice.has_room(count_max):
            _, lane = heapq.heappop(heads)
            walk = self._walks[lane]
            stop = min(below, heads[0][0]) if heads else below
            choice.add(walk.take(stop, count_max - choice.count))
            if walk.head is not None:
                heapq.heappush(heads, (walk.head[0], lane))

    def _overdue_ms(self, look: Look, ages: Ages, at_ms: int) -> int | None:
        """Return for how long the oldest that waited for the bound is overdue, if there is one."""
        since_ms = at_ms - self._bound_ms
        below = ages.end_at(since_ms)
        heads = [walk.head[0] for walk in self._heads(look, below) if walk.head]
        oldest = min(heads, default=below)
        return since_ms - ages.at(oldest) if oldest < below else None

    def _heads(self, look: Look, below: int) -> list[Walk]:
        """Open the lanes that may have something below an offset."""
        lanes = look.lanes.lanes()
        known = [self._walks.get(lane) for lane in lanes]
        return [
            self._open(lane, look)
            for lane, walk in zip(lanes, known, strict=True)
            if walk is None or walk.may_have_below(below)
        ]

    def _choose_by_weight(self, look: Look, choice: Choice, count_max: int) -> None:
        """Let the lanes that have something take turns."""
        waiting = [n for n in look.lanes.lanes() if self._open(n, look).head is not None]
        piece = max(1, count_max // PIECES)
        while waiting and choice.has_room(count_max):
            lane = self._stride.next(waiting)
            walk, before = self._walks[lane], choice.count
            choice.add(walk.take(OFFSET_MAX, min(piece, count_max - before)))
            self._stride.used(lane, choice.count - before)
            if walk.head is None:
                waiting.remove(lane)
