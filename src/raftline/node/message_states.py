"""Questions about single messages of a work group: what they are to it, and which is next.

For callers that name a message instead of a lease: the leader tells them what a settle must name.
An offset whose Grant is on its way is looked at after that Grant.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raftline.machines.delivery.commands import START_FIRST, OpenGroup
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.outcomes import Outcome
from raftline.machines.delivery.rows import (
    LEASE,
    LEASED,
    SEQUENCE_MAX,
    STATES,
    TIME,
    attempt_of,
    error_of,
    generation_of,
    member_of,
    state_of,
)
from raftline.machines.machine import Refused
from raftline.model.errors import InvalidArgument, RaftlineError
from raftline.model.names import check_group_name
from raftline.node.partition import PartitionHost
from raftline.node.questions import Arguments, Done

if TYPE_CHECKING:
    from raftline.node.node import Node

MESSAGES_MAX = 1_000  # in one question
TERM_SHIFT = 40


class MessageStates:
    """Adds the questions to a node."""

    def __init__(self, node: "Node") -> None:
        self._clock = node.clock
        node.questions.add("group.messages", self._messages)
        node.questions.add("group.head", self._head)

    def _messages(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        """Tell what messages are to a group, by ``offsets`` or by ``numbers`` of waiting ones."""
        name = str(asked.get("group", ""))
        offsets = [int(offset) for offset in asked.get("offsets", ())]
        numbers = [int(number) for number in asked.get("numbers", ())]
        if len(offsets) + len(numbers) > MESSAGES_MAX:
            raise InvalidArgument(f"more than {MESSAGES_MAX} messages in one question")

        def look() -> None:
            rows = [_row(host, name, offset) for offset in offsets]
            rows += [_waiting_row(host, name, number) for number in numbers]
            machine = host.machine
            done(
                {
                    "rows": rows,
                    "at_ms": machine.at_ms,
                    "log_start": machine.log_start,
                    "next_offset": machine.next_offset,
                }
            )

        found = [host.machine.waiting.find(number).offset for number in numbers]
        self._after_grants(host, name, offsets + found, ms, done, look)

    def _after_grants(
        self, host: PartitionHost, name: str, offsets: list[int], ms: int, done: Done, look: Any
    ) -> None:
        desk = host.desk
        if desk is None or not any(desk.is_reserved(name, offset) for offset in offsets):
            look()
            return

        def applied(outcomes: Sequence[Outcome] | RaftlineError) -> None:
            if isinstance(outcomes, RaftlineError):
                done(outcomes)
            else:
                look()

        host.deliver((), self._clock.mono_ms() + ms, ms, applied)

    def _head(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        """Tell the first message that is not settled, -1 if all are; begin the group if need be."""
        name = str(asked.get("group", ""))
        check_group_name(name)
        machine = host.machine

        def look() -> None:
            group = machine.delivery.groups[name]
            offset = group.oldest(machine.next_offset)
            row = {} if offset is None else _row(host, name, offset)
            done(
                {
                    "offset": -1 if offset is None else offset,
                    "row": row,
                    "log_start": machine.log_start,
                    "next_offset": machine.next_offset,
                }
            )

        if name in machine.delivery.groups:
            look()
            return

        def opened(outcomes: Sequence[Outcome] | RaftlineError) -> None:
            if isinstance(outcomes, RaftlineError):
                done(outcomes)
            elif isinstance(outcomes[0], Refused):
                done(outcomes[0].error())
            else:
                look()

        policy = host.open_desk().settings.policy
        command = OpenGroup(name, policy, START_FIRST)
        host.deliver([command], self._clock.mono_ms() + ms, ms, opened)


def _waiting_row(host: PartitionHost, name: str, number: int) -> dict[str, Any]:
    found = host.machine.waiting.find(number)
    if found.state == "released" and found.offset >= 0:
        return {**_row(host, name, found.offset), "number": number}
    told = {"offset": -1, "number": number, "state": found.state, "attempts": 0}
    return {**told, "due_ms": found.due_ms, "priority": found.priority}


def _row(host: PartitionHost, name: str, offset: int) -> dict[str, Any]:
    """Return everything a settle of this message would have to name, and what is shown of it."""
    machine = host.machine
    group = machine.delivery.groups.get(name)
    told: dict[str, Any] = {"offset": offset, "attempts": 0, "priority": 0}
    if not machine.log_start <= offset < machine.next_offset:
        return {**told, "state": "unknown"}
    told["priority"] = machine.lanes.lane_of(offset)
    held = None if group is None else group.rows.find(offset)
    if group is None or held is None:
        is_settled = group is not None and group.is_settled(offset)
        generation = 0 if group is None else group.base_generation
        return {**told, "state": "settled" if is_settled else "fresh", "generation": generation}
    return {**told, **_held(group, held[2])}


def _held(group: WorkGroup, row: Any) -> dict[str, Any]:
    state = state_of(row)
    told = {
        "state": STATES[state],
        "attempts": attempt_of(row),
        "generation": generation_of(row),
        "time_ms": row[TIME],  # leased: its end; resting: when it is ready again
        "error": group.errors.text(error_of(row)),
    }
    if state == LEASED:
        told["member"] = group.members.text(member_of(row))
        told["term"] = row[LEASE] >> TERM_SHIFT
        told["sequence"] = row[LEASE] & SEQUENCE_MAX
    return told
