"""Members of classic groups: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A request is answered by the node that coordinates the group, and refused by others: clients find
the coordinator, and a join may wait for minutes, which is no thing to forward.
"""

from typing import Any

from raftline.gateways.fan import Call, Fan
from raftline.gateways.kafka import groups_errors as ge
from raftline.gateways.kafka import schema_groups as schema
from raftline.gateways.kafka.dispatch import Context, Reply, Table
from raftline.gateways.kafka.errors import INVALID_REQUEST, NONE
from raftline.gateways.kafka.groups_words import CONSUMER, places_of, topics_of
from raftline.gateways.kafka.metadata import broker_rows, live_ids
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.model.classic_groups import (
    ClassicBeat,
    ClassicJoin,
    ClassicJoined,
    ClassicLeave,
    ClassicLeft,
    ClassicSync,
    ClassicSynced,
    Leaver,
    MemberNamed,
    Offered,
    Share,
)
from raftline.model.errors import ERRORS, InvalidArgument, RaftlineError
from raftline.model.limits import (
    CLIENT_ID_CHARS_MAX,
    SESSION_MS_MAX,
    SESSION_MS_MIN,
    TIMEOUT_MS_DEFAULT,
)

GROUP_KEY = 0
WORDED = 3  # an older FindCoordinator asks again on 42, untold, till its time is over
FIND_MS = 5_000
NAMED_FIRST = 4  # the first version of JoinGroup in which a new member hears its name first
NULL_PROTOCOL = 7  # in which the name of the protocol may be null
SKIPPING = 9  # in which a leader may be told not to assign
BATCH_LEAVE = 3  # the first version of LeaveGroup for several members

Fields = dict[str, Any]


class GroupsApi:
    """Speaks with members of groups."""

    __slots__ = ("_calls",)

    def __init__(self, calls: KafkaCalls) -> None:
        self._calls = calls

    def add_to(self, table: Table) -> None:
        """Serve them."""
        table.add(schema.FIND_COORDINATOR, 0, 6, self.find_coordinator)
        table.add(schema.JOIN_GROUP, 0, 9, self.join)
        table.add(schema.SYNC_GROUP, 0, 5, self.sync)
        table.add(schema.HEARTBEAT, 0, 4, self.heartbeat)
        table.add(schema.LEAVE_GROUP, 0, 5, self.leave)

    # -- finding

    def find_coordinator(
        self, request: Fields, version: int, context: Context, reply: Reply
    ) -> None:
        """Say which node coordinates each group."""
        keys = request["keys"] if version >= 4 else [request["key"]]

        def tell(rows: list[Fields]) -> None:
            reply({"coordinators": rows} if version >= 4 else rows[0])

        def found(answers: list[Any]) -> None:
            pairs = zip(keys, answers, strict=True)
            tell([self._coordinator(key, answer, version) for key, answer in pairs])

        if request["key_type"] != GROUP_KEY:
            refusal = InvalidArgument("only groups have a coordinator here, transactions have none")
            code = INVALID_REQUEST if version >= WORDED else ge.TRANSACTIONAL_ID_NOT_ALLOWED
            tell([{**self._coordinator(key, refusal, version), "error_code": code} for key in keys])
            return
        calls: list[Call] = [
            (lambda take, key=key: self._calls.find_coordinator(key, FIND_MS, take)) for key in keys
        ]
        Fan(calls, context.guarded(found)).start()

    def _coordinator(self, key: str, answer: int | RaftlineError, version: int) -> Fields:
        row: Fields = {"key": key, "node_id": -1, "host": "", "port": -1, "error_message": None}
        if isinstance(answer, RaftlineError):
            code = INVALID_REQUEST if isinstance(answer, InvalidArgument) else 0
            code = code or ge.COORDINATOR_NOT_AVAILABLE
            return {**row, "error_code": code, "error_message": answer.message}
        nodes = [node for node in self._calls.nodes_view().nodes if node.id == answer]
        if not live_ids(nodes):
            return {**row, "error_code": ge.COORDINATOR_NOT_AVAILABLE}
        return {**row, **broker_rows(nodes)[0], "error_code": NONE}

    # -- joining

    def join(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Join; the answer comes when the generation is formed."""
        code = _refused(request)
        if code:
            reply(_not_joined(request, version, code, request["member"]))
            return
        consumer = request["protocol_type"] == CONSUMER
        offers = tuple(Offered(row["name"], row["metadata"]) for row in request["protocols"])
        wish = ClassicJoin(
            request["group"],
            request["protocol_type"],
            offers,
            request["member"],
            request["instance"] or "",
            _shown(context.client_id),
            f"/{context.client_host}",
            request["session_ms"],
            request["rebalance_ms"] if request["rebalance_ms"] > 0 else request["session_ms"],
            topics_of(offers[0].metadata) if consumer and offers else (),
            is_named_first=version >= NAMED_FIRST,
            is_skipping=version >= SKIPPING,
        )

        def joined(answer: object) -> None:
            if isinstance(answer, ClassicJoined):
                reply(_joined(answer))
            elif isinstance(answer, MemberNamed):
                reply(_not_joined(request, version, ge.MEMBER_ID_REQUIRED, answer.member))
            else:
                assert isinstance(answer, RaftlineError), answer
                code = ge.member_code(answer)
                reply(_not_joined(request, version, code, request["member"]))

        self._calls.group_here(wish, TIMEOUT_MS_DEFAULT, context.guarded(joined))

    def sync(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Bring or fetch assignments; the answer comes when they are there."""
        shares = {
            row["member"]: Share(row["assignment"], places_of(row["assignment"]))
            for row in request["assignments"]
        }
        wish = ClassicSync(
            request["group"],
            request["member"],
            request["generation"],
            request["instance"] or "",
            request["protocol_type"] or "",
            request["protocol"] or "",
            shares,
        )

        def synced(answer: object) -> None:
            if isinstance(answer, ClassicSynced):
                reply(
                    {
                        "error_code": NONE,
                        "protocol_type": answer.protocol_type,
                        "protocol": answer.protocol,
                        "assignment": answer.assignment,
                    }
                )
            else:
                assert isinstance(answer, RaftlineError), answer
                reply({"error_code": ge.member_code(answer, request["group"])})

        self._calls.group_here(wish, TIMEOUT_MS_DEFAULT, context.guarded(synced))

    # -- being a member, and not any more

    def heartbeat(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Hear a member."""
        wish = ClassicBeat(
            request["group"], request["member"], request["generation"], request["instance"] or ""
        )

        def heard(answer: object) -> None:
            code = NONE
            if isinstance(answer, RaftlineError):
                code = ge.member_code(answer, request["group"])
            reply({"error_code": code})

        self._calls.group_here(wish, TIMEOUT_MS_DEFAULT, context.guarded(heard))

    def leave(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Take members out."""
        asked: list[Fields] = request["members"]
        if version < BATCH_LEAVE:
            asked = [{"member": request["member"], "instance": None}]
        leavers = tuple(Leaver(row["member"], row["instance"] or "") for row in asked)

        def left(answer: object) -> None:
            if isinstance(answer, RaftlineError):
                reply({"error_code": ge.member_code(answer, request["group"])})
                return
            assert isinstance(answer, ClassicLeft), answer
            codes = [_code(code) for code in answer.codes]
            if version < BATCH_LEAVE:
                reply({"error_code": codes[0]})
                return
            pairs = zip(asked, codes, strict=True)
            reply({"members": [{**row, "error_code": code} for row, code in pairs]})

        wish = ClassicLeave(request["group"], leavers)
        self._calls.group_here(wish, TIMEOUT_MS_DEFAULT, context.guarded(left))


def _refused(request: Fields) -> int:
    """Return why a join can never succeed, where the protocol has a code for it."""
    if not ge.is_group_name(request["group"]):
        return ge.INVALID_GROUP_ID
    if not SESSION_MS_MIN <= request["session_ms"] <= SESSION_MS_MAX:
        return ge.INVALID_SESSION_TIMEOUT
    if not request["protocol_type"] or not request["protocols"]:
        return ge.INCONSISTENT_GROUP_PROTOCOL  # it can agree on nothing with anybody
    return NONE


def _shown(client: str) -> str:
    """Return what a client calls itself as people see it: Kafka takes any text for that."""
    cut = client[:CLIENT_ID_CHARS_MAX]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)


def _not_joined(request: Fields, version: int, code: int, member: str) -> Fields:
    name = None if version >= NULL_PROTOCOL else ""
    return {"error_code": code, "protocol": name, "member": member}


def _joined(answer: ClassicJoined) -> Fields:
    return {
        "error_code": NONE,
        "generation": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol": answer.protocol,
        "leader": answer.leader,
        "skip_assignment": answer.is_skipped,
        "member": answer.member,
        "members": [
            {
                "member": row.id,
                "instance": row.instance or None,
                "metadata": row.metadata_of(answer.protocol),
            }
            for row in answer.members
        ],
    }


def _code(code: str) -> int:
    """Return the number of a refusal's code; 0 for none."""
    if not code:
        return NONE
    error = ERRORS[code].__new__(ERRORS[code])
    return ge.member_code(error)
