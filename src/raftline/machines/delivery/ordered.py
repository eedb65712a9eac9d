"""What the leader of an ordered group hands out next: one message per key at a time.

The log does not tell keys without opening batches, so whoever uses this reads ahead and ``feed``s
the hashes of keys (model/key_hash.py). It is memory of the leader and advice, as selection.py.

State
    ``_free``: messages that may go, a heap by offset, one per key (``_heads``). ``_chains``: per
    key the messages behind. ``_out``: what was chosen and whose Grant is on its way. What READY
    rows hold is taken from the group itself.

Order is promised per key *and priority*: the hash is of both. Apart from that lanes are ignored:
the lowest offset goes first, so nothing waits for its lane, only for its key.

Invariants
    O1  A message goes only if no other message of its key is in flight or in a row of the group
        (LEASED, RESTING, READY, DYING or DEAD), and none of its key before it is to go.
    O2  A key that is held parks its own later messages and nobody else's.
    O3  Each key with a chain has an earlier message in ``_free``, on its way, or in a row. When
        that row is gone ``freed`` lets the next one go. A sweep over a few chains a call makes up
        for whatever was not told.
    O4  Messages without a key wait for nobody.

Bounds: ``window_max`` messages that may go are read ahead; ``parked_max`` wait in chains, 8 bytes
each. When either is full nothing more is fed. So a dead key stops its neighbours only when a
million of its messages wait behind it. A choice is of at most ``RANGES_MAX`` messages.

Costs: about 3 us a message, fed or chosen.
"""

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice

from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.lanes import NORMAL
from raftline.machines.delivery.rows import KEY, attempt_of, generation_of
from raftline.machines.delivery.selection import RANGES_MAX, STEPS_MAX, Choice
from raftline.model.intervals import IntervalSet, Range
from raftline.model.key_hash import NO_KEY

WINDOW_MAX = 10_000
PARKED_MAX = 1_000_000
SWEEP = 8  # chains looked at in one call


class Ordered:
    """The leader's choice for one ordered group on one partition."""

    __slots__ = (
        "_chains",
        "_fed",
        "_free",
        "_heads",
        "_out",
        "_out_keys",
        "_parked_max",
        "_swept",
        "_window_max",
        "parked",
    )

    def __init__(self, window_max: int = WINDOW_MAX, parked_max: int = PARKED_MAX) -> None:
        self._window_max = window_max
        self._parked_max = parked_max
        self.restart()

    def restart(self) -> None:
        """Begin anew: the group was reset."""
        self._fed = 0  # everything fresh below was fed
        self._free: list[tuple[int, int]] = []  # a heap of (offset, key)
        self._heads: dict[int, int] = {}  # key -> its offset in ``_free``
        self._chains: dict[int, Chain] = {}
        self._out: dict[int, int] = {}  # offset -> key
        self._out_keys: dict[int, int] = {}  # key -> offset
        self._swept: list[int] = []
        self.parked = 0  # messages in chains

    # ------------------------------------------------------------------ feeding

    def wants(self, work: WorkGroup, end: int, count: int) -> Range | None:
        """Return the offsets to feed next, from the first on; None: there is no need or no room."""
        enough = min(count, 2 * RANGES_MAX, self._window_max)  # a query is given two choices
        if len(self._free) >= enough or self.parked >= self._parked_max:
            return None
        self._fed = max(self._fed, work.floor)
        for start, stop, row, _ in islice(work.pieces(self._fed, end), STEPS_MAX):
            self._fed = start
            if row is None:
                return start, end
            self._fed = stop
        return None if work.settled.first_gap(self._fed) >= end else (self._fed, end)

    def feed(self, work: WorkGroup, offset: int, hashes: Sequence[int]) -> None:
        """Take the keys of the messages from ``offset`` on; what was fed before is passed over."""
        fed, end = max(self._fed, work.floor), offset + len(hashes)
        if fed < offset and any(True for _ in work.pieces(fed, offset)):
            return  # not what is wanted next: an old answer
        for start, stop, row, _ in work.pieces(max(fed, offset), end):
            if row is None:
                for at in range(start, stop):
                    self._add(work, at, hashes[at - offset])
        self._fed = max(fed, end)

    def _add(self, work: WorkGroup, offset: int, key: int) -> None:
        if key != NO_KEY and (key in self._heads or key in self._chains or self._holds(work, key)):
            self._park(key).push(offset)
        else:
            self._release(offset, key)

    # ------------------------------------------------------------------ choosing

    def choose(
        self, work: WorkGroup, reserved: IntervalSet, end: int, count_max: int
    ) -> tuple[Choice, list[int]]:
        """Choose up to ``count_max`` messages; with the key of each, ``first`` then ``again``."""
        count_max = min(count_max, RANGES_MAX)
        self._tidy(work, reserved)
        choice = Choice([], [])
        again_keys = self._choose_again(work, reserved, end, choice, count_max)
        keys: list[int] = []
        while choice.count < count_max and self._next(work, reserved) is not None:
            offset, key = self._pop()
            self._went(offset, key)
            choice.add((offset, offset + 1, 1, work.base_generation, False))
            keys.append(key)
        return choice, keys + again_keys

    def waiting_lane(self, work: WorkGroup, reserved: IntervalSet, end: int) -> int | None:
        """Return lane 0 if something may be there to deliver or to feed; None: nothing is."""
        self._tidy(work, reserved)
        for start, stop in islice(work.ready.within(work.floor, end), STEPS_MAX):
            if next(reserved.gaps(start, stop), None) is not None:
                return NORMAL
        if self._next(work, reserved) is not None or self.wants(work, end, 1) is not None:
            return NORMAL
        return None

    def returned(self, start: int, end: int) -> None:
        """Take ``[start, end)`` back: chosen and not leased. READY rows are found anyway."""
        if len(self._out) < end - start:
            offsets: Iterable[int] = [offset for offset in self._out if start <= offset < end]
        else:
            offsets = range(start, end)
        for offset in offsets:
            key = self._out.pop(offset, None)
            if key is not None:
                self._out_keys.pop(key, None)
                later = self._heads.pop(key, None)
                if later is not None:
                    self._park(key).push_first(later)
                self._release(offset, key)

    def freed(self, work: WorkGroup, key: int) -> None:
        """Let the next message of a key go: the row that held it is gone. O3."""
        offset = self._out_keys.pop(key, None)
        if offset is not None:
            self._out.pop(offset, None)
        self._unpark(work, key)

    def _choose_again(
        self, work: WorkGroup, reserved: IntervalSet, end: int, choice: Choice, count_max: int
    ) -> list[int]:
        """Choose READY rows, which hold their keys themselves."""
        keys: list[int] = []
        for start, stop in islice(work.ready.within(work.floor, end), STEPS_MAX):
            for low, high in reserved.gaps(start, stop):
                for at, until, row in work.rows.within(low, high):
                    count = min(until - at, count_max - choice.count)
                    if not count:
                        return keys
                    choice.add((at, at + count, attempt_of(row) + 1, generation_of(row), True))
                    keys += [row[KEY]] * count
        return keys

    def _next(self, work: WorkGroup, reserved: IntervalSet) -> int | None:
        """Return the first message that may go; put those that may not where they belong. O1."""
        while self._free:
            offset, key = self._free[0]
            if key != NO_KEY and self._heads.get(key) != offset:
                heapq.heappop(self._free)  # an earlier one of its key came back
            elif offset in reserved:
                self._went(*self._pop())  # on its way since before a restart
            elif work.is_settled(offset) or offset in work.rows:
                self._pop()
                self._unpark(work, key)
            elif key != NO_KEY and self._holds(work, key):
                self._pop()
                self._park(key).push_first(offset)
            else:
                return offset
        return None

    def _holds(self, work: WorkGroup, key: int) -> bool:
        return key in work.keys or key in self._out_keys

    def _went(self, offset: int, key: int) -> None:
        self._out[offset] = key
        if key != NO_KEY:
            self._out_keys[key] = offset

    def _pop(self) -> tuple[int, int]:
        offset, key = heapq.heappop(self._free)
        self._heads.pop(key, None)
        return offset, key

    # ------------------------------------------------------------------ parking

    def _release(self, offset: int, key: int) -> None:
        """Let a message go when its turn comes."""
        if key != NO_KEY:
            self._heads[key] = offset
        heapq.heappush(self._free, (offset, key))

    def _park(self, key: int) -> "Chain":
        """Return the chain that one more message of a key is to wait in."""
        self.parked += 1
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = Chain()
        return chain

    def _unpark(self, work: WorkGroup, key: int) -> None:
        """Let the first of a chain go, if nothing holds its key."""
        chain = self._chains.get(key)
        if chain is None or key in self._heads or self._holds(work, key):
            return
        self.parked -= chain.drop_below(work.floor)  # trimmed: a million, perhaps
        if chain:
            self._release(chain.pop(), key)
            self.parked -= 1
        if not chain:
            del self._chains[key]

    def _tidy(self, work: WorkGroup, reserved: IntervalSet) -> None:
        """Forget what is on its way no longer; look at a few chains for keys that are free. O3.

        Not between a choice and its reservation: what was just chosen is on its way.
        """
        if len(self._out) > 64 and len(self._out) > 2 * reserved.count():
            self._out = {o: key for o, key in self._out.items() if o in reserved}
            self._out_keys = {key: o for o, key in self._out.items() if key != NO_KEY}
        if not self._swept:
            self._swept = list(self._chains)
        for _ in range(min(SWEEP, len(self._swept))):
            key = self._swept.pop()
            if self._out_keys.get(key, -1) not in reserved:
                self._out_keys.pop(key, None)
            self._unpark(work, key)


class Chain:
    """Offsets in order, taken from the front."""

    __slots__ = ("_at", "_offsets")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._at = 0

    def push(self, offset: int) -> None:
        """Add behind the last."""
        self._offsets.append(offset)

    def push_first(self, offset: int) -> None:
        """Add before the first."""
        if self._at:
            self._at -= 1
            self._offsets[self._at] = offset
        else:
            self._offsets.insert(0, offset)

    def pop(self) -> int:
        """Take the first."""
        offset = self._offsets[self._at]
        self._at += 1
        if self._at > len(self._offsets) // 2:
            del self._offsets[: self._at]
            self._at = 0
        return offset

    def drop_below(self, floor: int) -> int:
        """Drop what is below an offset; return how many those were."""
        at = bisect_left(self._offsets, floor, self._at)
        count, self._at = at - self._at, at
        return count

    def __bool__(self) -> bool:
        return self._at < len(self._offsets)
