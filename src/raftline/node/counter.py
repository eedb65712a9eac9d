"""The counter of one work group at a partition's desk: who waits, and what is on its way.

State
    The receivers that wait, in the order they came; the offsets reserved by Grants that are on
    their way; the chooser that knows what goes out next; keys that were read and not fed to it.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.delivery.commands import Policy
from raftline.machines.delivery.ordered import Ordered
from raftline.machines.delivery.outcomes import Leased, Outcome
from raftline.machines.delivery.rows import READY
from raftline.machines.delivery.selection import Chooser
from raftline.model.calls import Received
from raftline.model.errors import RaftlineError
from raftline.model.intervals import IntervalSet, Range

if TYPE_CHECKING:
    from raftline.machines.delivery.group import WorkGroup
    from raftline.node.desk import DeskSettings
    from raftline.node.key_pages import KeyPage
    from raftline.node.partition import PartitionHost


def always() -> bool:
    """Say yes."""
    return True


class Receiver:
    """Somebody who waits for messages."""

    __slots__ = (
        "bytes_max",
        "chosen_mono",
        "count_max",
        "deadline",
        "done",
        "give_up",
        "group",
        "is_wanted",
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
        is_wanted: Callable[[], bool] = always,
    ) -> None:
        self.is_wanted = is_wanted  # no: whoever asked is gone, and is given nothing
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
        self.chosen_mono = 0.0  # when its messages were


class Watcher:
    """Somebody who wants to hear, once, that one of some partitions may have something."""

    __slots__ = ("_call", "deadline", "group", "is_told")

    def __init__(self, group: str, deadline: float, call: Callable[[], None]) -> None:
        self.group = group
        self.deadline = deadline  # then it is told in any case
        self.is_told = False
        self._call = call

    def tell(self) -> None:
        """Call, unless another partition already did."""
        if not self.is_told:
            self.is_told = True
            self._call()


class Counter:
    """One work group at one desk."""

    __slots__ = (
        "_chooser",
        "_ordered",
        "_reserved",
        "feeding",
        "is_more",
        "name",
        "opening",
        "page",
        "parked",
        "settings",
    )

    def __init__(self, name: str, settings: "DeskSettings") -> None:
        self.name = name
        self.settings = settings
        self.parked: deque[Receiver] = deque()
        self.opening = False
        self.feeding = False  # keys of an ordered group are being read
        self.page: KeyPage | None = None  # keys that were read: fed a little a turn
        self.is_more = False  # the last choice was cut short: ask again soon
        self._reserved = IntervalSet()
        self._chooser = Chooser(settings.priorities, settings.bound_ms)
        self._ordered = Ordered()

    def adopt(self, settings: "DeskSettings") -> None:
        """Go by other settings from now on."""
        self.settings = settings
        self._chooser.adopt(settings.priorities, settings.bound_ms)

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
        """Return spans to deliver, whether any is a redelivery, and their keys if it is ordered.

        In the order in which they were chosen: where bytes are short the last ones stay behind.
        """
        end = host.log.log_end
        if not group.policy.ordered:
            lanes, ages = host.machine.lanes, host.ages
            choice = self._chooser.choose(group, lanes, ages, self._reserved, end, count_max, at_ms)
            self.is_more = choice.is_more
            return choice.spans(), bool(choice.again), None
        choice, keys = self._ordered.choose(group, self._reserved, end, count_max)
        first = sum(choice.first[1::4]) - sum(choice.first[::4])
        return choice.again + choice.first, bool(choice.again), keys[first:] + keys[:first]

    def wants(self, group: "WorkGroup", host: "PartitionHost", count_max: int) -> Range | None:
        """Return the messages whose keys an ordered group must know before it can choose."""
        if not group.policy.ordered:
            return None
        return self._ordered.wants(group, host.log.log_end, count_max)

    def feed(self, group: "WorkGroup", offset: int, count_max: int) -> int:
        """Feed keys that were read, from ``offset`` on; return of how many messages. 0: read them.

        ``offset`` is what is wanted now: the group may have begun anew since they were read.
        """
        page = self.page
        if page is None:
            return 0
        at = offset - page.start
        hashes = page.hashes[at : at + count_max] if at >= 0 else ()
        if hashes:
            self._ordered.feed(group, offset, hashes)
        if not hashes or at + len(hashes) == len(page.hashes):
            self.page = None
        return len(hashes)

    @staticmethod
    def is_idle(group: "WorkGroup", host: "PartitionHost") -> bool:
        """Say whether surely nothing waits: all is settled, leased, resting or dead."""
        return not group.counts[READY] and group.fresh(host.log.log_end) <= 0

    def waiting_lane(self, group: "WorkGroup", host: "PartitionHost", at_ms: int) -> int | None:
        """Return the highest lane with something to deliver."""
        if group.policy.ordered:
            return self._ordered.waiting_lane(group, self._reserved, host.log.log_end)
        return self._chooser.waiting_lane(
            group, host.machine.lanes, host.ages, self._reserved, host.log.log_end, at_ms
        )

    def reserve(self, spans: list[int]) -> None:
        """Keep spans for a Grant on its way."""
        for at in range(0, len(spans), 4):
            self._reserved.add(spans[at], spans[at + 1])

    @property
    def has_reserved(self) -> bool:
        """Say whether a Grant is on its way."""
        return bool(self._reserved)

    def is_reserved(self, offset: int) -> bool:
        """Say whether a Grant of this message is on its way."""
        return offset in self._reserved

    def unreserve(self, spans: list[int]) -> None:
        """The Grant was applied: the machine knows from here on."""
        for at in range(0, len(spans), 4):
            self._reserved.remove(spans[at], spans[at + 1])

    def release(self, spans: list[int]) -> None:
        """Spans that were chosen and not granted are free again."""
        for at in range(0, len(spans), 4):
            self._reserved.remove(spans[at], spans[at + 1])
        self.returned([edge for at in range(0, len(spans), 4) for edge in spans[at : at + 2]])

    def leased(self, spans: list[int], outcome: Outcome) -> None:
        """A query's lease was applied: what was chosen for it is leased, or free again."""
        self.unreserve(spans)
        free = IntervalSet(zip(spans[::4], spans[1::4], strict=True))
        granted = outcome.granted if isinstance(outcome, Leased) else []
        for start, end in zip(granted[::4], granted[1::4], strict=True):
            free.remove(start, end)
        self.returned([edge for pair in free for edge in pair])

    def returned(self, ranges: list[int]) -> None:
        """Messages came back: to be delivered again."""
        for at in range(0, len(ranges), 2):
            self._chooser.returned(ranges[at], ranges[at + 1])
            self._ordered.returned(ranges[at], ranges[at + 1])

    def freed(self, group: "WorkGroup") -> None:
        """Keys of an ordered group are free again."""
        for key in group.freed:
            self._ordered.freed(group, key)

    def restart(self) -> None:
        """The group was reset: look at everything anew."""
        self._chooser.restart()
        self._ordered.restart()

    # ------------------------------------------------------------------ who waits

    @property
    def is_looking(self) -> bool:
        """Say whether nobody knows yet if there is something: who waits is not told otherwise."""
        return self.opening or self.feeding or self.is_more

    def take_given_up(self, now_ms: float) -> list[Receiver]:
        """Return the receivers that wait no longer, whether or not there is something."""
        late = [receiver for receiver in self.parked if receiver.give_up <= now_ms]
        if late:
            self.parked = deque(r for r in self.parked if r.give_up > now_ms)
        return late

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
