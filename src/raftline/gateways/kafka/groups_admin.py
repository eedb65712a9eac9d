"""Groups as tools see them: DescribeGroups, ListGroups, DeleteGroups.

Stream groups of Raftline's own kind are shown too, in the words of consumers. Deleting forgets a
group's cursors; work groups are not Kafka's and are not listed.
"""

from typing import Any

from raftline.gateways.fan import Call, Fan
from raftline.gateways.kafka import groups_errors as ge
from raftline.gateways.kafka import schema_groups as schema
from raftline.gateways.kafka.dispatch import Context, Reply, Table
from raftline.gateways.kafka.errors import NONE
from raftline.gateways.kafka.groups_words import CONSUMER, assignment, subscription
from raftline.gateways.kafka.operations import ON_GROUP, may
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.model.classic_groups import (
    EMPTY,
    JOINING,
    STABLE,
    SYNCING,
    ClassicView,
    DescribeGroup,
)
from raftline.model.errors import RaftlineError, UnknownGroup
from raftline.model.groups import DeleteGroup, GroupList, GroupSummary, GroupView
from raftline.model.limits import TIMEOUT_MS_DEFAULT

NOT_FOUND_CODE = 6  # the first version of DescribeGroups with an error for unknown groups
REBALANCING = "rebalancing"  # as a summary says it
DEAD = "Dead"

_STATES = {
    EMPTY: "Empty",
    JOINING: "PreparingRebalance",
    SYNCING: "CompletingRebalance",
    REBALANCING: "PreparingRebalance",
    STABLE: "Stable",
}

Fields = dict[str, Any]


class GroupsAdminApi:
    """Shows groups, and deletes them."""

    __slots__ = ("_calls",)

    def __init__(self, calls: KafkaCalls) -> None:
        self._calls = calls

    def add_to(self, table: Table) -> None:
        """Serve them."""
        table.add(schema.DESCRIBE_GROUPS, 0, 6, self.describe)
        table.add(schema.LIST_GROUPS, 0, 5, self.list)
        table.add(schema.DELETE_GROUPS, 0, 2, self.delete)

    def describe(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Show groups with their members."""
        names: list[str] = request["groups"]
        is_asked: bool = request["include_authorized_operations"]

        def described(answers: list[Any]) -> None:
            pairs = zip(names, answers, strict=True)
            rows = [_described(name, answer, version) for name, answer in pairs]
            for row in rows:
                is_told = is_asked and row["error_code"] == NONE
                row["authorized_operations"] = may(ON_GROUP, is_told)
            reply({"groups": rows})

        calls = [self._asking(DescribeGroup(name)) for name in names]
        Fan(calls, context.guarded(described)).start()

    def list(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """List the groups that are coordinated here: who wants all asks all nodes."""
        states = {state.lower() for state in request["states_filter"]}
        types = {kind.lower() for kind in request["types_filter"]}

        def listed(answer: object) -> None:
            if isinstance(answer, RaftlineError):
                reply({"error_code": ge.member_code(answer)})
                return
            assert isinstance(answer, GroupList), answer
            rows = [_summary(row) for row in answer.groups]
            reply(
                {
                    "groups": [
                        row
                        for row in rows
                        if (not states or row["state"].lower() in states)
                        and (not types or row["type"] in types)
                    ]
                }
            )

        self._calls.groups_here(TIMEOUT_MS_DEFAULT, context.guarded(listed))

    def delete(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Forget groups without members."""
        names: list[str] = request["groups"]

        def deleted(answers: list[Any]) -> None:
            rows = [
                {"group": name, "error_code": _admin_code(name, answer)}
                for name, answer in zip(names, answers, strict=True)
            ]
            reply({"results": rows})

        calls = [self._asking(DeleteGroup(name)) for name in names]
        Fan(calls, context.guarded(deleted)).start()

    def _asking(self, wish: DescribeGroup | DeleteGroup) -> Call:
        return lambda take: self._calls.group_here(wish, TIMEOUT_MS_DEFAULT, take)


def _admin_code(name: str, answer: object) -> int:
    return ge.admin_code(answer, name) if isinstance(answer, RaftlineError) else NONE


def _summary(row: GroupSummary) -> Fields:
    return {
        "group": row.group,
        "protocol_type": row.protocol_type or (CONSUMER if row.members else ""),
        "state": _STATES[row.state],
        "type": "classic",
    }


def _described(name: str, answer: object, version: int) -> Fields:
    row: Fields = {"group": name, "error_code": NONE, "state": DEAD}
    if isinstance(answer, ClassicView):
        return {**row, **_classic(answer)}
    if isinstance(answer, GroupView):
        return {**row, **_stream(answer)}
    assert isinstance(answer, RaftlineError), answer
    if isinstance(answer, UnknownGroup) and version < NOT_FOUND_CODE:
        return row
    return {**row, "error_code": ge.admin_code(answer, name), "error_message": answer.message}


def _classic(view: ClassicView) -> Fields:
    stable = view.state == STABLE
    return {
        "state": _STATES[view.state],
        "protocol_type": view.protocol_type,
        "protocol": view.protocol if stable else "",
        "members": [
            {
                "member": row.id,
                "instance": row.instance or None,
                "client_id": row.client,
                "client_host": row.host,
                "metadata": row.metadata_of(view.protocol) if stable else b"",
                "assignment": row.assignment if stable else b"",
            }
            for row in view.members
        ],
    }


def _stream(view: GroupView) -> Fields:
    return {
        "state": _STATES[view.state],
        "protocol_type": CONSUMER if view.members else "",
        "protocol": view.assignor if view.members else "",
        "members": [
            {
                "member": row.member,
                "instance": None,
                "client_id": row.client,
                "client_host": "",
                "metadata": subscription(row.topics),
                "assignment": assignment(row.partitions),
            }
            for row in view.members
        ],
    }
