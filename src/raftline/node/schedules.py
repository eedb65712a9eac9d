"""Messages on their way to wait: collected on the leader, proposed in one entry, answered at apply.

Invariants
    K1  Every call is answered once: by the outcomes at apply, by a refusal before it was proposed,
        or by ``TimedOut``.
    K2  A delay counts from the log time of the entry it is proposed with.
    K3  A turn proposes at most ``TURN_ITEMS`` messages, or one call: what is left goes with the
        next one, so that a burst of calls makes no turn long.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from raftline.machines.partition.side_car import DEDUP_FLAG, SideCar, encode_extension
from raftline.machines.partition.waiting import Scheduled as Outcomes
from raftline.machines.partition.waiting_commands import NewWaiting as Item
from raftline.machines.partition.waiting_commands import encode_schedule
from raftline.model.calls import NewWaiting, Scheduled
from raftline.model.errors import ErrorWire, OverLimit, RaftlineError, TimedOut
from raftline.model.limits import ENTRY_BATCHES_MAX

if TYPE_CHECKING:
    from raftline.node.appends import Pressure
    from raftline.node.partition import PartitionHost
    from raftline.node.replica import Proposal, Replica

ENTRY_BYTES = 1 << 20  # messages of one turn share entries up to about this size
TURN_ITEMS = 500  # messages proposed in one turn
ITEM_BYTES = 128  # what a message weighs besides its batch
NEVER = float("inf")

ScheduleDone = Callable[[Scheduled | RaftlineError], None]


class ScheduleCall:
    """Some messages of one caller, and who hears what became of them."""

    __slots__ = ("deadline", "done", "items", "size", "timeout_ms", "timestamps")

    def __init__(
        self,
        items: Sequence[NewWaiting],
        timestamps: Sequence[int],
        deadline: float,
        timeout_ms: int,
        done: ScheduleDone,
    ) -> None:
        self.items = items
        self.timestamps = timestamps
        self.size = sum([len(item.batch) + ITEM_BYTES for item in items])
        self.deadline = deadline
        self.timeout_ms = timeout_ms
        self.done: ScheduleDone | None = done

    def answer(self, answer: Scheduled | RaftlineError) -> None:
        """Tell the caller, once. K1."""
        done, self.done = self.done, None
        if done is not None:
            done(answer)

    def is_late(self, name: str, now_ms: float) -> bool:
        """Answer an overdue caller; say whether nobody waits any more."""
        if self.done is not None and self.deadline <= now_ms:
            self.answer(TimedOut(f"messages to wait in {name}", self.timeout_ms))
        return self.done is None


class ScheduleProposal:
    """The callers of one Schedule entry."""

    __slots__ = ("_calls", "_host", "_pressure", "_size")

    def __init__(
        self, host: "PartitionHost", calls: list[ScheduleCall], pressure: "Pressure"
    ) -> None:
        self._host = host
        self._calls = calls
        self._pressure = pressure
        self._size = sum([call.size for call in calls])

    def answer(self, outcomes: Outcomes) -> None:
        """Hand every caller the numbers of its own messages."""
        self._settle()
        start = 0
        for call in self._calls:
            end = start + len(call.items)
            call.answer(self._part(outcomes, start, end))
            start = end

    def _part(self, outcomes: Outcomes, start: int, end: int) -> Scheduled:
        numbers: list[int] = []
        refusals: dict[int, ErrorWire] = {}
        for at, outcome in enumerate(outcomes.outcomes[start:end]):
            if isinstance(outcome, int):
                numbers.append(outcome)
            else:
                numbers.append(0)
                refusals[at] = outcome.to_wire()
        return Scheduled(numbers, self._host.identity.partition, outcomes.at_ms, refusals)

    def refuse(self, error: RaftlineError) -> None:
        """Nothing of it will be applied."""
        self._settle()
        for call in self._calls:
            call.answer(error)

    def expire(self, now_ms: float) -> bool:
        """Answer the overdue; say whether nobody waits any more."""
        late = [call.is_late(self._host.name, now_ms) for call in self._calls]
        if all(late):
            self._settle()
        return all(late)

    def _settle(self) -> None:
        self._pressure.bytes -= self._size
        self._size = 0


class Schedules:
    """What was collected for one partition while this replica leads it."""

    __slots__ = ("_bytes", "_bytes_max", "_calls", "_host", "_pressure", "dedup_ms", "delay_ms_max")

    def __init__(self, host: "PartitionHost", pressure: "Pressure", bytes_max: int) -> None:
        self._host = host
        self._pressure = pressure
        self._bytes_max = bytes_max
        self._calls: list[ScheduleCall] = []
        self._bytes = 0
        self.delay_ms_max = 0  # of the topic, as the latest caller knew it
        self.dedup_ms = 0

    def collect(self, replica: "Replica", call: ScheduleCall) -> None:
        """Take a call for the next turn."""
        if self._calls and self._bytes + call.size > self._bytes_max:
            what = f"bytes waiting to be proposed to {self._host.name}"
            call.answer(OverLimit(what, self._bytes + call.size, self._bytes_max))
            return
        self._calls.append(call)
        self._bytes += call.size
        self._pressure.bytes += call.size
        self._host.watch()
        replica.collected(call.size)

    def proposals(self, at_ms: int) -> "list[tuple[bytes, Proposal]]":
        """Return what was collected, as entries of bounded size."""
        calls = self._take()
        found: list[tuple[bytes, Proposal]] = []
        some: list[ScheduleCall] = []
        size = count = 0
        for call in calls:
            if some and (
                size + call.size > ENTRY_BYTES or count + len(call.items) > ENTRY_BATCHES_MAX
            ):
                found.append(self._entry(at_ms, some))
                some, size, count = [], 0, 0
            some.append(call)
            size += call.size
            count += len(call.items)
        if some:
            found.append(self._entry(at_ms, some))
        return found

    def _take(self) -> list[ScheduleCall]:
        """Take what a turn may propose; the next one is told of the rest. K3."""
        count = taken = 0
        for call in self._calls:
            count += len(call.items)
            if taken and count > TURN_ITEMS:
                break
            taken += 1
        calls, self._calls = self._calls[:taken], self._calls[taken:]
        self._bytes = sum([call.size for call in self._calls])
        if self._calls:
            replica = self._host.replica
            assert replica is not None
            replica.collected(0)
        return calls

    def _entry(self, at_ms: int, calls: list[ScheduleCall]) -> "tuple[bytes, Proposal]":
        items: list[Item] = []
        sides: list[tuple[int, SideCar]] = []
        for call in calls:
            for item, timestamp in zip(call.items, call.timestamps, strict=True):
                due_ms = item.due_ms if item.due_ms >= 0 else at_ms - item.due_ms  # K2
                if item.dedup and self.dedup_ms > 0:
                    sides.append((len(items), SideCar((), ((0, item.dedup),), self.dedup_ms)))
                items.append((item.batch, item.priority, due_ms, timestamp))
        flags, extension = encode_extension(sides)
        assert flags in (0, DEDUP_FLAG)
        data = encode_schedule(at_ms, self.delay_ms_max, items, flags, extension)
        return data, ScheduleProposal(self._host, calls, self._pressure)

    def refuse(self, error: RaftlineError) -> None:
        """Answer what was collected and not proposed. K1."""
        calls, self._calls = self._calls, []
        self._pressure.bytes -= sum([call.size for call in calls])
        self._bytes = 0
        for call in calls:
            call.answer(error)

    def expire(self, now_ms: float) -> bool:
        """Answer the overdue; say whether somebody still waits here."""
        late = [call for call in self._calls if call.is_late(self._host.name, now_ms)]
        if late:
            self._calls = [call for call in self._calls if call.done is not None]
            size = sum([call.size for call in late])
            self._bytes -= size
            self._pressure.bytes -= size
        return bool(self._calls)
