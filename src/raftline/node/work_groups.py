"""Questions about the work groups of a partition: list, show, reset, drop.

A work group lives on every partition of its topic by itself; who wants to see or change the whole
asks all of them.
"""

from typing import TYPE_CHECKING, Any

from raftline.machines.delivery.commands import Command, DropGroup, OpenGroup, Reset
from raftline.machines.delivery.rows import DEAD, DYING, LEASED, READY, RESTING, STATES
from raftline.model.errors import InvalidArgument, UnknownGroup
from raftline.node.partition import PartitionHost
from raftline.node.query_leases import queries_of
from raftline.node.questions import Arguments, Done, answering

if TYPE_CHECKING:
    from raftline.machines.delivery.group import WorkGroup
    from raftline.node.node import Node

TO_FIRST, TO_END = "first", "end"


class WorkGroupQuestions:
    """Adds the questions to a node."""

    def __init__(self, node: "Node") -> None:
        self._clock = node.clock
        add = node.questions.add
        add("group.list", self._list)
        add("group.show", self._show)
        add("group.reset", self._reset)
        add("group.drop", self._drop)

    def _list(self, host: PartitionHost, _arguments: Arguments, _ms: int, done: Done) -> None:
        groups = host.machine.delivery.groups
        done({"groups": [_summary(host, group) for group in groups.values()]})

    def _show(self, host: PartitionHost, arguments: Arguments, _ms: int, done: Done) -> None:
        group = _group_of(host, arguments)
        policy = group.policy
        done(
            {
                **_summary(host, group),
                "queries": queries_of(group),
                "policy": {
                    "max_retries": policy.max_retries,
                    "backoff_ms": policy.backoff_ms,
                    "backoff_ms_max": policy.backoff_ms_max,
                    "dead_letters": policy.dead_letters,
                    "ordered": policy.ordered,
                },
            }
        )

    def _reset(self, host: PartitionHost, arguments: Arguments, ms: int, done: Done) -> None:
        """Deliver again from an offset on; ``dry_run`` only says what that would be.

        ``open``: a group that is not there yet begins at that offset.
        """
        machine = host.machine
        name = str(arguments.get("group", ""))
        is_new = bool(arguments.get("open", False)) and name not in machine.delivery.groups
        floor = machine.log_start if is_new else _group_of(host, arguments).floor
        offset = _offset_of(arguments.get("offset"), machine.log_start, machine.next_offset)
        answer: dict[str, Any] = {
            "group": name,
            "offset": offset,
            "floor_before": floor,
            "again": max(0, machine.next_offset - offset),
            "dry_run": bool(arguments.get("dry_run", False)),
        }
        if answer["dry_run"]:
            done(answer)
        elif is_new:
            policy = host.open_desk().settings.policy
            self._propose(host, OpenGroup(name, policy, offset), ms, answer, done)
        else:
            self._propose(host, Reset(name, offset), ms, answer, done)

    def _drop(self, host: PartitionHost, arguments: Arguments, ms: int, done: Done) -> None:
        name = str(arguments.get("group", ""))
        if name not in host.machine.delivery.groups:
            done({"group": name, "dropped": False})  # a repeat
            return
        answer: dict[str, Any] = {"group": name, "dropped": True}
        self._propose(host, DropGroup(name), ms, answer, done)

    def _propose(
        self, host: PartitionHost, command: Command, ms: int, answer: dict[str, Any], done: Done
    ) -> None:
        host.deliver([command], self._clock.mono_ms() + ms, ms, answering(answer, done))


def _group_of(host: PartitionHost, arguments: Arguments) -> "WorkGroup":
    name = str(arguments.get("group", ""))
    group = host.machine.delivery.groups.get(name)
    if group is None:
        raise UnknownGroup(name)
    return group


def _offset_of(given: object, log_start: int, next_offset: int) -> int:
    if given == TO_FIRST:
        return log_start
    if given == TO_END:
        return next_offset
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise InvalidArgument(f"{given!r} is no place to reset to", "an offset, first or end")
    return max(log_start, min(given, next_offset))


def _summary(host: PartitionHost, group: "WorkGroup") -> dict[str, Any]:
    machine = host.machine
    return {
        "group": group.name,
        "kind": "work",
        "floor": group.floor,
        "next_offset": machine.next_offset,
        "log_start": machine.log_start,
        "lag": group.lag(machine.next_offset),
        "generation": group.base_generation,
        "fresh": group.fresh(machine.next_offset),
        **{STATES[state]: group.counts[state] for state in (LEASED, RESTING, READY, DYING, DEAD)},
    }
