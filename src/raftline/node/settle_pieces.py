"""One call that settles a lot, piece by piece: a bounded turn for any call.

State
    The settles of the call, how far it got, and what was lost so far.

Invariants
    P1  A piece is proposed when the one before it was answered: others come in between.
    P2  The call is answered once: every message is settled, lost, or named with the error that
        kept it from being settled.
    P3  The first error ends the call where it is. What was settled before stays settled; what was
        not tried is in ``failed``, and may be sent to whoever leads now.

A piece is cut when its turn comes, by the rows it is about *then*: a range of a whole lease is one
row, in an ordered group each message is one, whether or not its Grant is applied already.

Costs: a round of the log for each ``PIECE_ROWS`` rows.
"""

from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from raftline.machines.delivery.commands import NACK, REJECT, Settle
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.outcomes import Outcome, SettledRanges
from raftline.machines.delivery.retries import is_last
from raftline.machines.machine import Refused
from raftline.model.calls import Settled
from raftline.model.errors import RaftlineError, TimedOut
from raftline.model.limits import RECEIVE_COUNT_MAX
from raftline.node.deliver_proposal import DeliverDone
from raftline.node.ports import Clock

PIECE_ROWS = 250  # about 4 ms on the loop of any replica
DEAD_ROWS = 4  # what is given up on is put into the outbox too: as much work as so many rows

Find = Callable[[str], WorkGroup | None]
Part = tuple[int, Settle]  # which settle of the call, and what of it
SettledDone = Callable[[Settled | RaftlineError], None]
Send = Callable[[list[Settle], int, DeliverDone], None]
"""Propose settles: (settles, rows, done)."""


class Cutter:
    """Where a call is."""

    __slots__ = ("_at", "_find", "_index", "_settles", "_start")

    def __init__(self, settles: Sequence[Settle], find: Find) -> None:
        self._settles = settles
        self._find = find
        self._index = 0  # of the settle
        self._at = 0  # in its ranges
        self._start = -1  # in the range; -1: at its start

    def next(self, rows_max: int) -> tuple[list[Part], int]:
        """Return the next parts, of about ``rows_max`` rows; none: the call is through."""
        parts: list[Part] = []
        rows = 0
        while rows < rows_max and self._index < len(self._settles):
            settle = self._settles[self._index]
            group = self._find(settle.group)
            taken, count = self._ranges(settle, group, rows_max - rows)
            parts.append((self._index, msgspec.structs.replace(settle, ranges=taken)))
            rows += count
            if self._at >= len(settle.ranges):
                self._index, self._at = self._index + 1, 0
        return parts, rows

    def rest(self) -> list[Part]:
        """Return everything that is left."""
        parts: list[Part] = []
        for index in range(self._index, len(self._settles)):
            settle = self._settles[index]
            if index == self._index:
                ranges = settle.ranges[self._at :]
                if self._start >= 0:
                    ranges[0] = self._start
                settle = msgspec.structs.replace(settle, ranges=ranges)
            parts.append((index, settle))
        self._index = len(self._settles)
        return parts

    def _ranges(
        self, settle: Settle, group: WorkGroup | None, rows_max: int
    ) -> tuple[list[int], int]:
        """Take from one settle what is at most ``rows_max`` rows, one at least."""
        each, ranges = _rows_each(settle, group), settle.ranges
        taken: list[int] = []
        rows = 0
        while self._at < len(ranges) and (rows < rows_max or not rows):
            start, end = ranges[self._at], ranges[self._at + 1]
            if end <= start + 1:  # many single messages: the way for which this is made
                taken += (start, end)
                rows += each
                self._at += 2
                continue
            if self._start >= 0:
                start = self._start
            stop, count = _reach(group, start, end, max(1, (rows_max - rows) // each))
            taken += (start, stop)
            rows += count * each
            if stop < end:
                self._start = stop
            else:
                self._at, self._start = self._at + 2, -1
        return taken, max(1, rows)


class PiecewiseSettle:
    """One call on its way at the leader."""

    __slots__ = (
        "_clock",
        "_cutter",
        "_deadline",
        "_done",
        "_is_any",
        "_lost",
        "_name",
        "_parts",
        "_send",
        "_timeout_ms",
    )

    def __init__(
        self,
        clock: Clock,
        name: str,
        settles: Sequence[Settle],
        deadline: float,
        timeout_ms: int,
        find: Find,
        send: Send,
        done: SettledDone,
    ) -> None:
        self._clock = clock
        self._name = name
        self._deadline = deadline
        self._timeout_ms = timeout_ms
        self._cutter = Cutter(settles, find)
        self._send = send
        self._done = done
        self._parts: list[Part] = []  # of the piece under way
        self._lost: list[list[int]] = [[] for _ in settles]
        self._is_any = False  # a piece was applied

    def next(self) -> None:
        """Send the next piece. P1."""
        self._parts, rows = self._cutter.next(PIECE_ROWS)
        if not self._parts:
            self._done(Settled(self._lost))
        elif self._is_any and self._deadline <= self._clock.mono_ms():
            self._fail(TimedOut(f"a settle of {self._name}", self._timeout_ms))
        else:
            self._send([part for _, part in self._parts], rows, self._take)

    def _take(self, answer: Sequence[Outcome] | RaftlineError) -> None:
        if isinstance(answer, RaftlineError):
            self._fail(answer)
            return
        for (index, part), outcome in zip(self._parts, answer, strict=True):
            if isinstance(outcome, SettledRanges):
                _extend(self._lost[index], outcome.lost)
            elif isinstance(outcome, Refused):
                if len(self._lost) == 1 and not self._is_any:
                    self._done(outcome.error())
                    return
                _extend(self._lost[index], part.ranges)
        self._is_any = True
        self.next()

    def _fail(self, error: RaftlineError) -> None:
        """P3."""
        if not self._is_any:
            self._done(error)
            return
        failed: list[list[int]] = [[] for _ in self._lost]
        for index, part in (*self._parts, *self._cutter.rest()):
            _extend(failed[index], part.ranges)
        self._done(Settled(self._lost, failed, error.to_wire()))


def rows_of_all(settles: Sequence[Settle], find: Find) -> int:
    """Return how many rows' work settles are; above ``PIECE_ROWS`` they are more than a piece."""
    if len(settles) == 1:
        ranges = settles[0].ranges
        if len(ranges) == 2 and ranges[1] <= ranges[0] + 1:
            return 1  # nearly all are
    rows = 0
    for settle in settles:
        ranges = settle.ranges
        if len(ranges) % 2:
            return 1  # the machine refuses it, and says why
        group = find(settle.group)
        each = _rows_each(settle, group)
        rows += max(1, len(ranges) // 2) * each
        if rows > PIECE_ROWS:
            break
        if group is not None:
            for at in range(0, len(ranges), 2):
                if ranges[at + 1] > ranges[at] + 1:
                    rows += (_count(group, ranges[at], ranges[at + 1]) - 1) * each
    return rows


def rest_of(settles: Sequence[Settle], settled: Settled) -> list[Part]:
    """Return what of a call failed, as settles."""
    return [
        (index, msgspec.structs.replace(settles[index], ranges=ranges))
        for index, ranges in enumerate(settled.failed)
        if ranges
    ]


def joined(settled: Settled, parts: Sequence[Part], more: Settled | RaftlineError) -> Settled:
    """Return the outcome of a call whose rest (``parts``) was tried again."""
    if isinstance(more, RaftlineError):
        return Settled(settled.lost, settled.failed, more.to_wire())
    lost = [list(ranges) for ranges in settled.lost]
    failed: list[list[int]] = [[] for _ in lost] if more.failed else []
    for at, (index, _) in enumerate(parts):
        _extend(lost[index], more.lost[at])
        if failed:
            failed[index] = more.failed[at]
    return Settled(lost, failed, more.error)


def _rows_each(settle: Settle, group: WorkGroup | None) -> int:
    """Return how many rows' work a row of a settle is."""
    if settle.verb == REJECT:
        return DEAD_ROWS
    if settle.verb == NACK and group is not None and is_last(group.policy, settle.attempt):
        return DEAD_ROWS
    return 1


def _count(group: WorkGroup, start: int, end: int) -> int:
    """Return how many rows a range of more than one message is."""
    if _is_by_message(group, start, end):
        return end - start
    return max(1, group.rows.count(start, end))


def _reach(group: WorkGroup | None, start: int, end: int, rows_max: int) -> tuple[int, int]:
    """Return how far ``rows_max`` rows reach from ``start``, and how many there are."""
    if group is None or end <= start + 1:
        return end, 1
    if _is_by_message(group, start, end):
        stop = min(end, start + rows_max)
        return stop, stop - start
    held = list(islice(group.rows.overlapping(start, end), rows_max + 1))
    if len(held) <= rows_max:
        return end, max(1, len(held))
    return held[rows_max][0], rows_max


def _is_by_message(group: WorkGroup, start: int, end: int) -> bool:
    """Say whether a range is a row for each message, or will be once its Grant is applied."""
    return group.policy.ordered and end - start <= RECEIVE_COUNT_MAX


def _extend(ranges: list[int], more: Sequence[int]) -> None:
    """Put flat ranges behind others, joined where they touch."""
    if ranges and more and ranges[-1] == more[0]:
        ranges[-1] = more[1]
        more = more[2:]
    ranges += more
