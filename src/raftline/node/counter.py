"""The counter of one work group at a partition's desk: who waits, and what is on its way.

State
    The receivers that wait, in the order they came; the offsets reserved by Grants that are on
    their way; the chooser that knows what goes out next.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.delivery.commands import Policy
from raftline.machines.delivery.selection import Chooser
from raftline.model.calls import Received
from raftline.model.errors import RaftlineError
from raftline.model.intervals import IntervalSet

if TYPE_CHECKING:
    from raftline.machines.delivery.group import WorkGroup
    from raftline.node.desk import DeskSettings
    from raftline.node.partition import PartitionHost


class Receiver:
    """Somebody who waits for messages."""

    __slots__ = (
        "bytes_max",
        "count_max",
        "deadline",
        "done",
        "give_up",
        "group",
        "lease_ms",
        "member",
        "ordered",
        "start",
        "timeout_ms",
    )

    def __init__(
        self,
        group: str,
        count_max: int,
        bytes_max: int,
        lease_ms: int,
        member: str,
        deadline: float,
        give_up: float,
        timeout_ms: int,
        start: int,
        done: Callable[[Received | RaftlineError], None],
        *,
        ordered: bool,
    ) -> None:
        self.group = group
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.lease_ms = lease_ms
        self.member = member
        self.deadline = deadline  # then it is told that there is nothing
        self.give_up = give_up  # then it is told that a Grant on its way may or may not hold
        self.timeout_ms = timeout_ms
        self.start = start
        self.done = done
        self.ordered = ordered


class Counter:
    """One work group at one desk."""

    __slots__ = ("_chooser", "_reserved", "name", "opening", "parked", "settings")

    def __init__(self, name: str, settings: "DeskSettings") -> None:
        self.name = name
        self.settings = settings
        self.parked: deque[Receiver] = deque()
        self.opening = False
        self._reserved = IntervalSet()
        self._chooser = Chooser(settings.priorities, settings.bound_ms)

    # ------------------------------------------------------------------ policy

    def policy_for(self, *, ordered: bool) -> Policy:
        """Return how the group is to deliver."""
        return msgspec.structs.replace(self.settings.policy, ordered=ordered)

    def differs(self, policy: Policy) -> bool:
        """Say whether the topic's settings changed since the group adopted them."""
        return self.policy_for(ordered=policy.ordered) != policy

    # ------------------------------------------------------------------ choosing

    def choose(
        self, group: "WorkGroup", host: "PartitionHost", count_max: int, at_ms: int
    ) -> tuple[list[int], bool, list[int] | None]:
        """Return spans to deliver, whether any is a redelivery, and their keys if it is ordered."""
        choice = self._chooser.choose(
            group, host.machine.lanes, host.ages, self._reserved, host.log.log_end, count_max, at_ms
        )
        return choice.first + choice.again, bool(choice.again), None

    def waiting_lane(self, group: "WorkGroup", host: "PartitionHost", at_ms: int) -> int | None:
        """Return the highest lane with something to deliver."""
        return self._chooser.waiting_lane(
            group, host.machine.lanes, host.ages, self._reserved, host.log.log_end, at_ms
        )

    def reserve(self, spans: list[int]) -> None:
        """Keep spans for a Grant on its way."""
        for at in range(0, len(spans), 4):
            self._reserved.add(spans[at], spans[at + 1])

    def unreserve(self, spans: list[int]) -> None:
        """The Grant was applied: the machine knows from here on."""
        for at in range(0, len(spans), 4):
            self._reserved.remove(spans[at], spans[at + 1])

    def release(self, spans: list[int]) -> None:
        """Spans that were chosen and not granted are free again."""
        for at in range(0, len(spans), 4):
            self._reserved.remove(spans[at], spans[at + 1])
            self._chooser.returned(spans[at], spans[at + 1])

    def returned(self, ranges: list[int]) -> None:
        """Messages came back: to be delivered again."""
        for at in range(0, len(ranges), 2):
            self._chooser.returned(ranges[at], ranges[at + 1])

    def restart(self) -> None:
        """The group was reset: look at everything anew."""
        self._chooser.restart()

    # ------------------------------------------------------------------ who waits

    def take_overdue(self, now_ms: float) -> list[Receiver]:
        """Return the receivers whose time is up; they wait no more."""
        late = [receiver for receiver in self.parked if receiver.deadline <= now_ms]
        if late:
            self.parked = deque(r for r in self.parked if r.deadline > now_ms)
        return late

    def take_all(self) -> list[Receiver]:
        """Return everybody who waits; nobody waits any more."""
        parked, self.parked = self.parked, deque()
        return list(parked)
