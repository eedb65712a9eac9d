"""A work group on one partition: what every message is to it.

State
    ``floor`` and ``settled`` (done with), ``rows`` (something is known, rows.py), ``policy``,
    ``base_generation``, the highest generation given, texts that rows name by number, and what
    queries hold (query_leases.py).
    Derived from the rows and not part of a snapshot: ``counts`` by state, ``ready`` (offsets whose
    row is READY), ``keys`` (held by rows of an ordered group), timers.

Invariants
    G1  A message of the log is exactly one of: settled (below ``floor``, or in ``settled``), in a
        row, or *fresh* (neither; never delivered in this generation).
    G2  ``floor`` is the first offset that is not settled; ``settled`` is above it.
    G3  In an ordered group a key is held by one message at most.
    G4  What is derived is what a look at every row gives.

Costs: a lease or a settle of one range about 15 us, whatever the group holds; 64 bytes a row, and
16 for its timer and the rest of its chunk.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from raftline.machines.delivery.commands import Policy
from raftline.machines.delivery.rows import (
    COLUMNS,
    DEAD,
    DYING,
    KEY,
    LEASED,
    MARK,
    READY,
    RESTING,
    TEXT_MASK,
    TIME,
    TIMED,
    WHO,
    check_row,
    error_of,
    generation_of,
    member_of,
    state_of,
)
from raftline.machines.delivery.texts import Texts
from raftline.machines.delivery.timers import BUCKET_BITS, Timers
from raftline.model.limits import DELIVERY_ERRORS_MAX, DELIVERY_MEMBERS_MAX
from raftline.model.range_set import RangeSet
from raftline.model.range_table import RangeTable, Row

if TYPE_CHECKING:
    from raftline.machines.delivery.queries import QueryLease

Piece = tuple[int, int, Row | None, int]
"""start, end, row (None: fresh), end of the whole row: a part of a range that is all alike"""


class WorkGroup:
    """The messages of one partition, as one group sees them."""

    __slots__ = (
        "base_generation",
        "counts",
        "errors",
        "expired",
        "floor",
        "freed",
        "generation_max",
        "keys",
        "members",
        "name",
        "policy",
        "queries",
        "ready",
        "returned",
        "rows",
        "settled",
        "settled_count",
        "timers",
    )

    def __init__(self, name: str, policy: Policy, floor: int, generation: int) -> None:
        self.name = name
        self.policy = policy
        self.floor = floor
        self.base_generation = generation  # of fresh messages
        self.generation_max = generation
        self.rows = RangeTable(COLUMNS)
        self.settled = RangeSet()
        self.settled_count = 0  # messages in ``settled``
        self.counts = [0, 0, 0, 0, 0, 0]  # messages in rows, by state
        self.ready = RangeSet()
        self.keys: set[int] = set()
        self.members = Texts(DELIVERY_MEMBERS_MAX)
        self.errors = Texts(DELIVERY_ERRORS_MAX)
        self.queries: dict[str, QueryLease] = {}
        self.timers = Timers()
        self.expired = 0  # leases that ran out while this process looked; no part of the state
        self.returned: list[tuple[int, int]] = []  # ranges that became READY; whoever asks clears
        self.freed: list[int] = []  # keys that a row let go, perhaps to be held by its next state

    # ------------------------------------------------------------------ questions

    def pieces(self, start: int, end: int) -> Iterable[Piece]:
        """Return what of ``[start, end)`` is not settled, in order. Change nothing meanwhile."""
        start = max(start, self.floor)
        if start >= end:
            return ()
        held = self.rows.next_from(start)
        if held is not None and held[0] < end:
            if held[0] <= start and end <= held[1]:
                return ((start, end, held[2], held[1]),)
            return self._walk(start, end)
        if self.settled.overlaps(start, end):
            return self._walk(start, end)
        return ((start, end, None, end),)

    def is_settled(self, offset: int) -> bool:
        """Say whether a message is done with."""
        return offset < self.floor or offset in self.settled

    def fresh(self, next_offset: int) -> int:
        """Return how many messages were never delivered in this generation."""
        return next_offset - self.floor - self.settled_count - sum(self.counts)

    def lag(self, next_offset: int) -> int:
        """Return how many messages still are to be settled by workers."""
        counts = self.counts
        return self.fresh(next_offset) + counts[LEASED] + counts[RESTING] + counts[READY]

    def oldest(self, next_offset: int) -> int | None:
        """Return the first message that still is to be settled by workers. Walks the dead."""
        for start, _, row, _ in self.pieces(self.floor, next_offset):
            if row is None or state_of(row) not in (DYING, DEAD):
                return start
        return None

    def next_due_ms(self) -> int | None:
        """Return when the next lease or backoff ends."""
        timers = self.timers
        while (note := timers.first()) is not None:
            if self.row_at(*note) is not None:
                return note[0]
            timers.pop()
        return None

    def due_ms_least(self) -> int | None:
        """Return a time before which no lease and no backoff ends: a quick look."""
        note = self.timers.first()
        return note and note[0]

    def row_at(self, time_ms: int, start: int) -> tuple[int, Row] | None:
        """Return end and row of what waits for ``time_ms`` from ``start`` on; None if nothing."""
        held = self.rows.find(start)
        if held is None or held[0] != start or held[2][TIME] != time_ms:
            return None
        return held[1], held[2]

    # ------------------------------------------------------------------ changes

    def change(self, piece: Piece, new: Row | None) -> None:
        """Give a piece another row; None settles it."""
        start, end, old, _ = piece
        if new is not None:
            self.rows.replace(start, end, new)
            self._count_in(start, end, new)  # before the old is left: they may share texts
        elif old is not None:
            self.rows.remove(start, end)
        if old is not None:
            self._leave(piece)
        if new is None:
            self._settle(start, end)
        else:
            self._mark(start, end, new)

    def ack(self, start: int, end: int, lease: int, mark: int) -> bool:
        """Settle what lies in one row of this lease and mark; False: it does not, look closer."""
        held = self.rows.cut(start, end, (mark, lease))
        if held is None:
            return False
        self._leave((start, end, held[2], held[1]))
        self._settle(start, end)
        return True

    def trim(self, log_start: int) -> None:
        """Forget everything below ``log_start``."""
        for held_start, held_end, row in list(self.rows.overlapping(0, log_start)):
            piece = (held_start, min(held_end, log_start), row, held_end)
            self.rows.remove(held_start, piece[1])
            self._leave(piece)
        if log_start > self.floor:
            for start, end in self.settled.within(self.floor, log_start):
                self.settled_count -= end - start
            self.settled.remove(0, log_start)
            self.floor = log_start
            self._raise_floor()

    def reset(self, offset: int) -> None:
        """Begin again at ``offset``: below it all is settled, from it on all is fresh."""
        self.rows.clear()
        self.settled.clear()
        self.ready.clear()
        self.timers.clear()
        self.members.clear()
        self.errors.clear()
        self.keys.clear()
        self.settled_count = 0
        self.counts = [0, 0, 0, 0, 0, 0]
        self.returned.clear()
        self.freed.clear()
        for query in self.queries.values():
            query.reset()
        self.floor = offset
        self.generation_max += 1
        self.base_generation = self.generation_max

    def index(self) -> None:
        """Find out what is derived from rows and ranges just restored. G4."""
        counts, who_counts = self.counts, dict[int, int]()
        arm, add_ready, add_key = self.timers.arm, self.ready.add, self.keys.add
        columns = [self.rows.column(number) for number in (-2, -1, MARK, TIME, WHO, KEY)]
        for pieces in zip(*columns, strict=True):
            for start, end, mark, time_ms, who, key in zip(*pieces, strict=True):
                count, state = end - start, mark & 7
                counts[state] += count
                if time_ms:
                    arm(time_ms, start, count)
                elif state == READY:
                    add_ready(start, end)
                if who:
                    who_counts[who] = who_counts.get(who, 0) + count
                if key:
                    add_key(key)
        for who, count in who_counts.items():
            self._hold(who, count)
        self.settled_count = self.settled.count()

    def check(self, log_start: int, next_offset: int) -> None:
        """Raise if an invariant is broken."""
        self.rows.check()
        self.settled.check()
        assert log_start <= self.floor <= next_offset
        bounds = [self.rows.first(), self.rows.last()]
        assert all(self.floor <= low < high <= next_offset for low, high, _ in filter(None, bounds))
        assert not any(self.settled.overlaps(low, high) for low, high, _ in self.rows)  # G1
        first = self.settled.first()
        assert first is None or first[0] > self.floor  # G2
        assert self.settled_count == self.settled.count()
        for low, high, row in self.rows:
            check_row(row)
            assert not row[KEY] or high == low + 1  # G3
            assert generation_of(row) <= self.generation_max
        for query in self.queries.values():
            query.check()
        self._check_derived()

    def _check_derived(self) -> None:
        """G4."""
        counts, ready = [0] * 6, RangeSet()
        members: dict[int, int] = {}
        errors: dict[int, int] = {}
        waiting: dict[int, int] = {}
        notes = self.timers.notes()
        for low, high, row in self.rows:
            count, state = high - low, state_of(row)
            counts[state] += count
            members[member_of(row)] = members.get(member_of(row), 0) + count
            errors[error_of(row)] = errors.get(error_of(row), 0) + count
            if state == READY:
                ready.add(low, high)
            if state in TIMED:
                number = row[TIME] >> BUCKET_BITS
                waiting[number] = waiting.get(number, 0) + count
                assert (row[TIME], low) in notes, (low, row)
        assert (counts, list(ready)) == (self.counts, list(self.ready))
        assert waiting == self.timers.counts()
        self.members.check(members)
        self.errors.check(errors)
        keys = [row[KEY] for _, _, row in self.rows if row[KEY]]
        assert sorted(keys) == sorted(self.keys)  # G3

    # ------------------------------------------------------------------ inside

    def _walk(self, start: int, end: int) -> Iterator[Piece]:
        at = start
        for held_start, held_end, row in self.rows.overlapping(start, end):
            if at < held_start:
                for low, high in self.settled.gaps(at, held_start):
                    yield low, high, None, high
            yield max(start, held_start), min(end, held_end), row, held_end
            at = held_end
        if at < end:
            for low, high in self.settled.gaps(at, end):
                yield low, high, None, high

    def _settle(self, start: int, end: int) -> None:
        """Count a range that is in no row as done with. G2."""
        if start == self.floor:
            self.floor = end
            self._raise_floor()
        else:
            self.settled.add(start, end)
            self.settled_count += end - start

    def _raise_floor(self) -> None:
        first = self.settled.first()
        if first is not None and first[0] == self.floor:
            self.settled.remove(*first)
            self.settled_count -= first[1] - first[0]
            self.floor = first[1]

    def _mark(self, start: int, end: int, row: Row) -> None:
        """Note what is ready, and whose key is held. After the row before it was left."""
        if row[MARK] & 7 == READY:
            self.ready.add(start, end)
            self.returned.append((start, end))
        if row[KEY]:
            self.keys.add(row[KEY])

    def _count_in(self, start: int, end: int, row: Row) -> None:
        count = end - start
        state = row[MARK] & 7
        self.counts[state] += count
        if state in TIMED:
            self.timers.arm(row[TIME], start, count)
        if row[WHO]:
            self._hold(row[WHO], count)

    def _hold(self, who: int, count: int) -> None:
        self.members.hold(who & TEXT_MASK, count)
        self.errors.hold(who >> 32, count)

    def _leave(self, piece: Piece) -> None:
        start, end, row, row_end = piece
        assert row is not None
        count = end - start
        state = row[MARK] & 7
        self.counts[state] -= count
        if state in TIMED:
            self.timers.disarm(row[TIME], count, end if row_end > end else -1)
        elif state == READY:
            self.ready.remove(start, end)
        who = row[WHO]
        if who:
            self.members.drop(who & TEXT_MASK, count)
            if who > TEXT_MASK:
                self.errors.drop(who >> 32, count)
        if row[KEY]:
            self.keys.discard(row[KEY])
            self.freed.append(row[KEY])
