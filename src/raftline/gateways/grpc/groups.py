"""Groups over gRPC: members, polls and cursors of stream groups; all groups, seen and reset."""

from collections.abc import Iterable
from typing import Any, TypeVar

from raftline.gateways.group_reports import GroupReports
from raftline.gateways.group_resets import EARLIEST, LATEST, GroupResets, ResetWish, Target
from raftline.gateways.grpc.bounds import bounded
from raftline.gateways.grpc.calling import Call, answer_of
from raftline.gateways.grpc.message_forms import to_message
from raftline.gateways.polls import Poll, PolledMessages, PollWish
from raftline.gateways.ports import Calls
from raftline.model.errors import FencedMember, InvalidArgument
from raftline.model.groups import (
    Beat,
    CommitCursors,
    CursorsCommitted,
    Done,
    GroupView,
    JoinGroup,
    LeaveGroup,
    MemberView,
    Offset,
    Offsets,
    Places,
    ShowGroup,
)
from raftline.model.limits import (
    OFFSET_MAX,
    READ_BYTES_DEFAULT,
    REVOKE_MS_DEFAULT,
    SESSION_MS_DEFAULT,
    SESSION_MS_MAX,
    SESSION_MS_MIN,
    WAIT_MS_MAX,
)
from raftline.node.ports import Clock
from raftline.wire.proto.raftline.v1 import groups_pb2 as pb

LIMIT_DEFAULT, LIMIT_MAX = 100, 10_000
WORK_FIELDS = (
    "floor", "next_offset", "log_start", "lag", "generation", "fresh", "leased", "resting",
    "ready", "dying", "dead",
)  # fmt: skip


class GroupService:
    """raftline.v1.GroupService."""

    __slots__ = ("_calls", "_clock", "_reply_bytes_max", "_reports", "_resets")

    def __init__(self, clock: Clock, calls: Calls, *, reply_bytes_max: int) -> None:
        self._clock = clock
        self._calls = calls
        self._reply_bytes_max = reply_bytes_max
        self._reports = GroupReports(calls)
        self._resets = GroupResets(calls)

    # ------------------------------------------------------------------ members

    async def join(self, request: pb.JoinGroupRequest, call: Call) -> pb.MemberReply:
        """Become a member."""
        session_ms = bounded(
            "session_ms", request.session_ms, SESSION_MS_DEFAULT, SESSION_MS_MIN, SESSION_MS_MAX
        )
        wanted = JoinGroup(
            request.group,
            tuple(request.topics),
            request.member,
            request.client,
            "",
            request.assignor,
            session_ms,
            bounded("revoke_ms", request.revoke_ms, REVOKE_MS_DEFAULT, 1, SESSION_MS_MAX),
        )
        return _member(await self._ask(wanted, call))

    async def heartbeat(self, request: pb.HeartbeatRequest, call: Call) -> pb.MemberReply:
        """Say that a member lives; hear what it has, and what it is to give up."""
        revoked = {row.topic: list(row.partitions) for row in request.revoked}
        beat = Beat(request.group, request.member, request.generation, revoked)
        return _member(await self._ask(beat, call))

    async def leave(self, request: pb.LeaveGroupRequest, call: Call) -> pb.LeaveGroupReply:
        """Stop being a member."""
        generation = request.generation if request.HasField("generation") else -1
        done: Done = await self._ask(LeaveGroup(request.group, request.member, generation), call)
        return pb.LeaveGroupReply(generation=done.generation)

    async def poll(self, request: pb.PollRequest, call: Call) -> pb.PollReply:
        """Read on in the member's partitions; counts as a heartbeat."""
        most = self._reply_bytes_max
        wait_ms, _ = call.waiting(bounded("wait_ms", request.wait_ms, 0, 0, WAIT_MS_MAX))
        wish = PollWish(
            request.group,
            request.member,
            request.generation,
            request.poll if request.HasField("poll") else -1,
            bounded("limit", request.limit, LIMIT_DEFAULT, 1, LIMIT_MAX),
            bounded("bytes_max", request.bytes_max, min(READ_BYTES_DEFAULT, most), 1, most),
            wait_ms,
        )
        polled: PolledMessages = await answer_of(
            lambda done: Poll(
                self._clock, self._calls, wish, call.timeout_ms, done, is_wanted=call.is_wanted
            ).start()
        )
        return pb.PollReply(
            member=_member(polled.view),
            messages=[to_message(*row) for row in polled.messages],
            next=[
                pb.Cursor(topic=topic, partition=partition, offset=offset)
                for topic, rows in polled.positions.items()
                for partition, offset in rows.items()
            ],
            poll=polled.number,
        )

    # ------------------------------------------------------------------ cursors

    async def commit(self, request: pb.CommitRequest, call: Call) -> pb.CommitReply:
        """Move cursors."""
        wanted = CommitCursors(
            request.group, request.member, request.generation, _offsets(request.cursors)
        )
        done: CursorsCommitted = await self._ask(wanted, call)
        if done.refused and not done.count:
            places = ", ".join(f"{t}/{p}" for t, rows in done.refused.items() for p in rows)
            why = f"it does not read {places}"
            raise FencedMember(request.group, request.member, request.generation, -1, why)
        return pb.CommitReply(committed=done.count, refused=_partitions(done.refused))

    async def list_cursors(self, request: pb.ListCursorsRequest, call: Call) -> pb.ListCursorsReply:
        """Show the cursors of a stream group."""
        view: GroupView = await self._ask(ShowGroup(request.group), call)
        return pb.ListCursorsReply(
            cursors=[
                pb.Cursor(
                    topic=row.topic,
                    partition=row.partition,
                    offset=row.offset,
                    metadata=row.metadata,
                    committed_ms=row.at_ms,
                )
                for row in view.partitions
                if row.offset >= 0
            ]
        )

    async def reset(self, request: pb.ResetGroupRequest, call: Call) -> pb.ResetGroupReply:
        """Set where a group goes on, or say where it would."""
        wish = ResetWish(
            request.group,
            request.topic,
            _target(request),
            list(request.partitions) or None,
            "work" if request.kind == pb.KIND_WORK else "stream",
            request.dry_run,
            request.create,
        )
        body = await answer_of(lambda done: self._resets.run(wish, call.timeout_ms, done))
        return pb.ResetGroupReply(
            dry_run=request.dry_run,
            partitions=[
                pb.ResetPartition(
                    topic=row["topic"],
                    partition=row["partition"],
                    from_offset=row["from"],
                    to_offset=row["to"],
                    log_start=row["log_start"],
                    commit_end=row["commit_end"],
                )
                for row in body["partitions"]
            ],
        )

    # ------------------------------------------------------------------ looking

    async def list(self, request: pb.ListGroupsRequest, call: Call) -> pb.ListGroupsReply:
        """List groups of both kinds."""
        topic = request.topic
        body = await answer_of(lambda done: self._reports.list_all(topic, call.timeout_ms, done))
        return pb.ListGroupsReply(groups=[_fill(pb.GroupSummary, row) for row in body["groups"]])

    async def show(self, request: pb.ShowGroupRequest, call: Call) -> pb.ShowGroupReply:
        """Show one group of either kind, or of both."""
        group, topic = request.group, request.topic
        body = await answer_of(lambda done: self._reports.show(group, topic, call.timeout_ms, done))
        work: dict[str, Any] = body["work"]
        return pb.ShowGroupReply(
            group=group,
            stream=None if body["stream"] is None else _stream(body["stream"]),
            work=[
                pb.WorkPartition(
                    topic=name,
                    partition=row["partition"],
                    policy=_fill(pb.GroupPolicy, row["policy"]),
                    **{field: row[field] for field in WORK_FIELDS},
                )
                for name in sorted(work)
                for row in work[name]
            ],
        )

    async def delete(self, request: pb.DeleteGroupRequest, call: Call) -> pb.DeleteGroupReply:
        """Forget a group: its cursors, and its work state on all topics or on one."""
        group, topic = request.group, request.topic
        body = await answer_of(
            lambda done: self._reports.delete(group, topic, call.timeout_ms, done)
        )
        return pb.DeleteGroupReply(work_partitions=body["work_partitions"])

    async def _ask(self, request: Any, call: Call) -> Any:
        return await answer_of(lambda done: self._calls.group(request, call.timeout_ms, done))


Shown = TypeVar("Shown", pb.GroupSummary, pb.GroupPolicy, pb.GroupPauses)


def _fill(kind: type[Shown], row: dict[str, Any]) -> Shown:
    """Return what the contract has fields for."""
    known = kind.DESCRIPTOR.fields_by_name
    return kind(**{name: value for name, value in row.items() if name in known})


def _member(view: MemberView) -> pb.MemberReply:
    return pb.MemberReply(
        member=view.member,
        generation=view.generation,
        state=view.state,
        partitions=_partitions(view.partitions),
        revoke=_partitions(view.revoke),
        members=view.members,
    )


def _partitions(places: Places) -> "list[pb.Partitions]":
    return [pb.Partitions(topic=topic, partitions=rows) for topic, rows in sorted(places.items())]


def _offsets(cursors: Iterable[pb.Cursor]) -> Offsets:
    offsets: Offsets = {}
    for row in cursors:
        if not 0 <= row.offset <= OFFSET_MAX:
            raise InvalidArgument(f"offset={row.offset} is out of bounds", "from 0 on")
        offsets.setdefault(row.topic, {})[row.partition] = Offset(row.offset, row.metadata)
    return offsets


def _target(request: pb.ResetGroupRequest) -> Target:
    match request.WhichOneof("to"):
        case "end":
            return Target(end=LATEST if request.end == pb.END_LATEST else EARLIEST)
        case "offset" if 0 <= request.offset <= OFFSET_MAX:
            return Target(offset=request.offset)
        case "time_ms" if request.time_ms >= 0:
            return Target(time_ms=request.time_ms)
        case _:
            raise InvalidArgument("a reset goes to one place", "end, offset or time_ms, from 0 on")


def _stream(stream: dict[str, Any]) -> pb.StreamGroup:
    members = [
        pb.GroupMember(
            member=row["member"],
            client=row["client"],
            topics=row["topics"],
            session_ms=row["session_timeout_ms"],
            joined_ms=row["joined_ms"],
            state=row["state"],
            partitions=_partitions(row["partitions"]),
            revoke=_partitions(row["revoke"]),
        )
        for row in stream["members"]
    ]
    fields = (
        "topic", "partition", "offset", "metadata", "owner", "target", "pause_ms", "commit_end",
        "lag",
    )  # fmt: skip
    return pb.StreamGroup(
        kind=stream["kind"],
        created_ms=stream["created_ms"],
        pauses=_fill(pb.GroupPauses, stream["pauses"]),
        state=stream["state"],
        generation=stream["generation"],
        assignor=stream["assignor"],
        members=members,
        partitions=[
            pb.GroupPartition(committed_ms=row["at_ms"], **{field: row[field] for field in fields})
            for row in stream["partitions"]
        ],
        lag=stream["lag"],
    )
