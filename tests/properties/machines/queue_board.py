"""A partition with one work group, and a leader that hands out what a chooser says.

What is free is found message by message in the group's state: the naive twin of every chooser.
"""

from raftline.machines.delivery.ages import Ages
from raftline.machines.delivery.commands import (
    ACK,
    NACK,
    REJECT,
    START_FIRST,
    Buried,
    Command,
    Deliver,
    Forget,
    Grant,
    OpenGroup,
    Policy,
    Reset,
    Revive,
    Settle,
)
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.lanes import Lanes
from raftline.machines.delivery.machine import DeliveryMachine
from raftline.machines.delivery.outcomes import Granted, Outcome, SettledRanges
from raftline.machines.delivery.rows import READY, attempt_of, generation_of, state_of
from raftline.model.intervals import IntervalSet

GROUP = "g"
TERM = 3
VERBS = {"ack": ACK, "nack": NACK, "reject": REJECT}
Out = tuple[int, list[int], list[int] | None]  # sequence, spans, keys: a Grant on its way
Lease = tuple[int, int, int, int]  # sequence, offset, attempt, generation


class Board:
    """The committed state, and what the leader has on its way."""

    def __init__(self, policy: Policy) -> None:
        self.machine, self.lanes, self.ages = DeliveryMachine(), Lanes(), Ages()
        self.reserved = IntervalSet()
        self.at_ms, self.end, self.index, self.sequence = 1_000_000, 0, 0, 0
        self.lane: list[int] = []
        self.stored_ms: list[int] = []
        self.out: list[Out] = []
        self.leases: list[Lease] = []
        self.apply(OpenGroup(GROUP, policy, START_FIRST))

    @property
    def group(self) -> WorkGroup:
        return self.machine.groups[GROUP]

    def apply(self, *commands: Command) -> list[Outcome]:
        self.index += 1
        entry = Deliver(self.at_ms, list(commands))
        outcomes = self.machine.apply(TERM, self.index, entry, 0, self.end)
        self.after_apply()
        self.machine.check(0, self.end)
        return outcomes

    def after_apply(self) -> None:
        """Tell the chooser what came back."""

    def give_back(self, start: int, end: int) -> None:
        """Tell the chooser that a reservation came to nothing."""

    def arrive(self, count: int, lane: int) -> None:
        self.lanes.add(self.end, self.end + count, lane)
        self.lane += [lane] * count
        self.stored_ms += [self.at_ms] * count
        self.end += count
        self.ages.note(self.end, self.at_ms)

    def free(self) -> dict[int, tuple[int, int, bool]]:
        """Return attempt, generation and whether it is a redelivery, by offset."""
        found: dict[int, tuple[int, int, bool]] = {}
        for start, end, row, _ in self.group.pieces(0, self.end):
            for offset in range(start, end):
                if offset in self.reserved:
                    continue
                if row is None:
                    found[offset] = (1, self.group.base_generation, False)
                elif state_of(row) == READY:
                    found[offset] = (attempt_of(row) + 1, generation_of(row), True)
        return found

    def reserve(self, first: list[int], again: list[int], keys: list[int] | None) -> list[int]:
        """Check spans against what is free, keep them for a Grant, return their offsets."""
        free, offsets = self.free(), list[int]()
        for spans, is_again in ((first, False), (again, True)):
            for at in range(0, len(spans), 4):
                start, end, attempt, generation = spans[at : at + 4]
                for offset in range(start, end):
                    assert free.pop(offset) == (attempt, generation, is_again)  # once, and free
                    offsets.append(offset)
                self.reserved.add(start, end)
        self.sequence += 1
        if offsets:
            self.out.append((self.sequence, first + again, keys))
        return offsets

    def grant(self, at: int, *, lease_ms: int = 1000) -> None:
        """Apply a Grant that is on its way."""
        sequence, spans, keys = self.out.pop(at)
        for row in range(0, len(spans), 4):
            self.reserved.remove(spans[row], spans[row + 1])
        until_ms = self.at_ms + lease_ms
        (outcome,) = self.apply(Grant(GROUP, sequence, "w", until_ms, spans, keys))
        assert isinstance(outcome, Granted)
        for row in range(0, len(outcome.lost), 2):
            self.give_back(outcome.lost[row], outcome.lost[row + 1])
        for row in range(0, len(outcome.spans), 4):
            start, end, attempt, generation = outcome.spans[row : row + 4]
            self.leases += [(sequence, o, attempt, generation) for o in range(start, end)]

    def lose(self, at: int) -> None:
        """Give up a Grant before it is proposed: its messages could not be read."""
        _, spans, _ = self.out.pop(at)
        for row in range(0, len(spans), 4):
            self.reserved.remove(spans[row], spans[row + 1])
            self.give_back(spans[row], spans[row + 1])

    def settle(self, verb: str, at: int, delay_ms: int = 0) -> bool:
        """Settle a lease; say whether it still was one."""
        sequence, offset, attempt, generation = self.leases.pop(at)
        ranges = [offset, offset + 1]
        settle = Settle(
            GROUP, VERBS[verb], TERM, sequence, attempt, generation, ranges, delay_ms=delay_ms
        )
        (outcome,) = self.apply(settle)
        assert isinstance(outcome, SettledRanges)
        return not outcome.lost

    def bury(self) -> None:
        """The dead-letter topic has all it is owed."""
        self.apply(Buried(1 << 40))

    def revive(self, start: int, end: int) -> None:
        self.apply(Revive(GROUP, [start, end]))

    def forget(self, start: int, end: int) -> None:
        self.apply(Forget(GROUP, [start, end]))

    def reset(self, offset: int) -> None:
        self.apply(Reset(GROUP, offset))

    def wait(self, ms: int) -> None:
        """Let log time pass."""
        self.at_ms += ms
        self.apply()
