"""What a leader knows of one replica's log, and how much it may send.

States: *probe* (where the log matches is a guess: one append at a time), *replicate* (the match
is known: a pipeline of appends, bounded by count and bytes), *snapshot* (no append helps).

Invariants:
    P1  ``match < next``: what is known to be there lies before what is sent next.
    P2  ``sent_commit`` is at most the commit mark that the replica was told.
"""

from collections import deque
from enum import IntEnum


class ProgressState(IntEnum):
    """How a leader feeds a replica."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2


# Plain numbers for the hot path: looking up a member of an enum costs more than the comparison.
PROBE = int(ProgressState.PROBE)
REPLICATE = int(ProgressState.REPLICATE)
SNAPSHOT = int(ProgressState.SNAPSHOT)


class Inflights:
    """Appends sent and not answered: a queue of (last index, bytes)."""

    __slots__ = ("bytes", "bytes_max", "count_max", "queue")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self.count_max = count_max
        self.bytes_max = bytes_max  # 0: no limit
        self.bytes = 0
        self.queue: deque[tuple[int, int]] = deque()

    def is_full(self) -> bool:
        """Say whether nothing more may be sent."""
        return len(self.queue) >= self.count_max or 0 < self.bytes_max <= self.bytes

    def add(self, index: int, size: int) -> None:
        """Note that an append up to ``index`` was sent."""
        assert not self.is_full(), index
        self.queue.append((index, size))
        self.bytes += size

    def free_to(self, index: int) -> None:
        """Forget the appends that ended at or before ``index``."""
        queue = self.queue
        while queue and queue[0][0] <= index:
            self.bytes -= queue.popleft()[1]

    def clear(self) -> None:
        """Forget all."""
        self.queue.clear()
        self.bytes = 0


class Progress:
    """What the leader knows of one replica."""

    __slots__ = (
        "flow_paused",
        "inflights",
        "is_learner",
        "match",
        "next",
        "pending_snapshot",
        "recent_active",
        "sent_commit",
        "state",
        "was_sent",
    )

    def __init__(self, next_index: int, inflights: Inflights, *, is_learner: bool) -> None:
        self.inflights = inflights
        self.is_learner = is_learner
        self.reset(next_index)
        self.recent_active = True  # a new replica gets a full interval to show itself

    def reset(self, next_index: int) -> None:
        """Forget everything but who it is: a new term begins."""
        self.match = 0
        self.next = next_index
        self.sent_commit = 0
        self.state = PROBE
        self.pending_snapshot = 0  # index of the snapshot on its way
        self.recent_active = False
        self.flow_paused = False
        self.was_sent = False  # an append, since the last heartbeat
        self.inflights.clear()

    def is_paused(self) -> bool:
        """Say whether appends must wait for an answer."""
        return self.flow_paused or self.state == SNAPSHOT

    def become_probe(self) -> None:
        """Guess again where the log matches; after a snapshot, right behind it."""
        after = self.pending_snapshot if self.state == SNAPSHOT else 0
        self._enter(PROBE)
        self.next = max(self.match, after) + 1
        self.sent_commit = min(self.sent_commit, self.next - 1)

    def become_replicate(self) -> None:
        """Send a pipeline of appends from the known match on."""
        self._enter(REPLICATE)
        self.next = self.match + 1

    def become_snapshot(self, index: int) -> None:
        """Wait for the snapshot at ``index`` to arrive."""
        self._enter(SNAPSHOT)
        self.pending_snapshot = index
        self.next = index + 1
        self.sent_commit = index

    def sent_entries(self, count: int, size: int) -> None:
        """Note that an append of ``count`` entries was sent; it may have been empty."""
        if self.state == REPLICATE:
            if count:
                self.next += count
                self.inflights.add(self.next - 1, size)
            self.flow_paused = self.inflights.is_full()
        elif count:
            self.flow_paused = True

    def can_bump_commit(self, commit: int) -> bool:
        """Say whether an empty append would tell the replica of a later commit mark."""
        return commit > self.sent_commit and self.sent_commit < self.next - 1

    def update(self, index: int) -> bool:
        """Learn that the log matches up to ``index``; say whether that was news."""
        if index <= self.match:
            return False
        self.match = index
        if self.next <= index:
            self.next = index + 1
        self.flow_paused = False
        return True

    def back_off(self, rejected: int, hint: int) -> bool:
        """Learn that an append after ``rejected`` was refused; say whether that was news.

        An answer that fits nothing sent lately is old and changes nothing. Nor does one that denies
        the match: it is old, or the replica lost what it had, and the next heartbeat tells it so.
        """
        if self.state == REPLICATE:
            if rejected <= self.match:
                return False
            self.next = self.match + 1
        else:
            if self.next - 1 != rejected or rejected == self.match:
                return False
            self.next = max(min(rejected, hint + 1), self.match + 1)
            self.flow_paused = False
        self.sent_commit = min(self.sent_commit, self.next - 1)
        return True

    def _enter(self, state: int) -> None:
        self.state = state
        self.flow_paused = False
        self.pending_snapshot = 0
        self.inflights.clear()
