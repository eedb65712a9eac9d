"""Calls about stream groups: from any node to the coordinator of the group, and there.

A group belongs to one of sixteen shards by the checksum of its name. The first use of a shard has
the catalog place it; until then no group of it exists.
"""

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from crc32c import crc32c

from raftline.model.classic_groups import (
    ClassicJoin,
    ClassicLeave,
    ClassicRequest,
    DescribeGroup,
)
from raftline.model.errors import (
    Internal,
    InvalidArgument,
    NotReady,
    RaftlineError,
    UnknownGroup,
)
from raftline.model.groups import (
    AdvanceGroup,
    Answer,
    CommitCursors,
    DeleteGroup,
    Done,
    DropCursors,
    FetchCursors,
    FindGroup,
    GroupList,
    GroupSummary,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    Request,
    ShowGroup,
)
from raftline.model.ids import COORDINATION_SHARDS, ShardId
from raftline.model.names import check_group_name
from raftline.node.coordinator import Coordinator, Reply
from raftline.node.groups_host import GroupsHost
from raftline.node.remote import VERB_GROUP
from raftline.node.remote import Reply as RemoteReply
from raftline.node.replica import Replica

if TYPE_CHECKING:
    from raftline.node.node import Node

Found = Callable[[int | RaftlineError], None]
CLIENT_NAME_CHARS = 200  # of a client's name, in the name of its member
GroupRequest = (  # what is about one group
    ClassicRequest | DescribeGroup | CommitCursors | FetchCursors | DropCursors | DeleteGroup
)
NOT_REPEATED = (LeaveGroup, DeleteGroup, ClassicLeave, AdvanceGroup)
ListDone = Callable[[GroupList | RaftlineError], None]


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A request between nodes."""

    shard: int
    request: Request


_pack = msgspec.msgpack.encode
_decode_request = msgspec.msgpack.Decoder(Envelope).decode
_decode_answer = msgspec.msgpack.Decoder(Answer).decode


def shard_of(group: str) -> ShardId:
    """Return the coordination shard of a group."""
    return ShardId(COORDINATION_SHARDS[crc32c(group.encode()) % len(COORDINATION_SHARDS)])


class GroupCalls:
    """Sends requests to coordinators, and is one for the shards led here."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._coordinators: dict[int, Coordinator] = {}

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_GROUP, self._on_request)

    # ------------------------------------------------------------------ asking

    def run(self, request: Request, timeout_ms: int, done: Reply) -> None:
        """Have the group's coordinator answer."""
        node = self._node
        if not node.is_ready:
            done(NotReady(node.reason))
            return
        if isinstance(request, ListGroups):
            self._send(request.shard, request, timeout_ms, done)
            return
        try:
            check_group_name(request.group)
        except RaftlineError as error:
            done(error)
            return
        if isinstance(request, JoinGroup):
            request = self._named(request)
        elif isinstance(request, ClassicJoin):
            request = self._named_classic(request)
        shard = shard_of(request.group)
        if shard in node.catalog_machine.shards:
            self._send(shard, request, timeout_ms, done)
        elif isinstance(request, ShowGroup | DeleteGroup | DescribeGroup):
            self._send_if_placed(shard, request, timeout_ms, done)
        else:
            self._place(shard, request, timeout_ms, done)

    def _named(self, request: JoinGroup) -> JoinGroup:
        """Give a member a name, and its Join a mark by which a repeat is recognised."""
        made_up = self._node.rng.randbytes(8).hex()
        member = request.member or f"{request.client or 'member'}-{made_up}"
        nonce = request.nonce or self._node.rng.randbytes(8).hex()
        return msgspec.structs.replace(request, member=member, nonce=nonce)

    def _named_classic(self, request: ClassicJoin) -> ClassicJoin:
        """Have a name at hand, should the member be a new one."""
        made_up = str(uuid.UUID(bytes=self._node.rng.randbytes(16), version=4))
        begin = (request.instance or request.client or "member")[:CLIENT_NAME_CHARS]
        return msgspec.structs.replace(request, made_up=f"{begin}-{made_up}")

    def find(self, group: str, timeout_ms: int, done: Found) -> None:
        """Find the node that coordinates a group; place the group's shard if it has none."""
        node = self._node
        try:
            if not node.is_ready:
                raise NotReady(node.reason)
            check_group_name(group)
        except RaftlineError as error:
            done(error)
            return
        shard = shard_of(group)
        deadline = node.clock.mono_ms() + timeout_ms

        def answered(answer: Answer | RaftlineError) -> None:
            done(answer.count if isinstance(answer, Done) else _as_error(answer))

        def leader() -> None:
            replica = node.shards.get(shard)
            if replica is not None and replica.leader_node:
                done(replica.leader_node)
            else:
                left_ms = max(1, int(deadline - node.clock.mono_ms()))
                self._send(shard, FindGroup(group), left_ms, answered)

        def placed(answer: dict[str, object] | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
            else:
                leader()

        if shard in node.catalog_machine.shards:
            leader()
        else:
            node.admin.run("groups.place", {"shard": int(shard)}, timeout_ms, placed)

    def run_here(self, request: GroupRequest, timeout_ms: int, done: Reply) -> None:
        """Answer a request if this node coordinates the group: it may take as long as it takes.

        Otherwise NotLeader or NotReady: ask the coordinator.
        """
        node = self._node
        try:
            if not node.is_ready:
                raise NotReady(node.reason)
            check_group_name(request.group)
        except RaftlineError as error:
            done(error)
            return
        if isinstance(request, ClassicJoin):
            request = self._named_classic(request)
        replica = node.led(shard_of(request.group))
        if isinstance(replica, RaftlineError):
            done(replica)
        else:
            self._lead(replica, request, timeout_ms, done)

    def _place(self, shard: ShardId, request: Request, timeout_ms: int, done: Reply) -> None:
        """Have the shard placed first."""
        clock = self._node.clock
        deadline = clock.mono_ms() + timeout_ms

        def placed(answer: dict[str, object] | RaftlineError) -> None:
            left = int(deadline - clock.mono_ms())
            if isinstance(answer, RaftlineError):
                done(answer)
            elif left <= 0:
                done(NotReady("the shard for this group is being made; nothing was done"))
            else:
                self._send(shard, request, left, done)

        self._node.admin.run("groups.place", {"shard": int(shard)}, timeout_ms, placed)

    def _send_if_placed(
        self,
        shard: ShardId,
        request: ShowGroup | DeleteGroup | DescribeGroup,
        timeout_ms: int,
        done: Reply,
    ) -> None:
        """Have the coordinator answer, if there is one for all we can learn."""
        node = self._node

        def checked(left_ms: int) -> None:
            if shard in node.catalog_machine.shards:
                self._send(shard, request, left_ms, done)
            else:
                done(UnknownGroup(request.group))

        node.catalog_check.before(timeout_ms, done, checked)

    def _send(self, shard: int, request: Request, timeout_ms: int, done: Reply) -> None:
        def local(replica: Replica, left_ms: int, answer: Reply) -> None:
            self._lead(replica, request, left_ms, answer)

        self._node.router.send(
            shard,
            VERB_GROUP,
            [_pack(Envelope(int(shard), request))],
            timeout_ms,
            lambda answer: done(_decode_answer(answer) if isinstance(answer, bytes) else answer),
            local,
            repeatable=not isinstance(request, NOT_REPEATED),
        )

    def list_all(self, timeout_ms: int, done: ListDone) -> None:
        """List the groups of all shards; which there are is asked first."""
        check = self._node.catalog_check

        def checked(left_ms: int) -> None:
            placed = self._node.catalog_machine.shards
            self._list([n for n in COORDINATION_SHARDS if n in placed], left_ms, done)

        def refused(error: RaftlineError) -> None:
            if check.is_heard:  # what we know may do
                checked(max(1, timeout_ms // 2))
            else:
                done(error)

        check.before(timeout_ms // 2 or 1, refused, checked)

    def list_here(self, timeout_ms: int, done: ListDone) -> None:
        """List the groups of the shards that are led here."""
        self._list(sorted(self._coordinators), timeout_ms, done)

    def _list(self, shards: list[int], timeout_ms: int, done: ListDone) -> None:
        node = self._node
        found: dict[str, GroupSummary] = {}
        left = len(shards)
        failed: list[RaftlineError] = []

        def answered(answer: Answer | RaftlineError) -> None:
            nonlocal left
            left -= 1
            if isinstance(answer, RaftlineError):
                failed.append(answer)
            elif isinstance(answer, GroupList):
                found.update({row.group: row for row in answer.groups})
            if left == 0:
                rows = [found[name] for name in sorted(found)]
                done(failed[0] if failed else GroupList(rows))

        if not shards:
            done(GroupList([]) if node.is_ready else NotReady(node.reason))
        for shard in shards:
            self._send(shard, ListGroups(shard), timeout_ms, answered)

    # ------------------------------------------------------------------ leading

    def _on_request(self, body: memoryview, timeout_ms: int, reply: RemoteReply) -> None:
        envelope = _decode_request(body)
        replica = self._node.led(envelope.shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        self._lead(
            replica,
            envelope.request,
            timeout_ms,
            lambda answer: reply(answer if isinstance(answer, RaftlineError) else _pack(answer)),
        )

    def _lead(self, replica: Replica, request: Request, timeout_ms: int, answer: Reply) -> None:
        coordinator = self._coordinators.get(replica.shard)
        if not isinstance(replica.host, GroupsHost):
            answer(InvalidArgument(f"{replica.name} holds no groups"))
        elif coordinator is None or coordinator.replica is not replica:
            answer(NotReady(f"{replica.name} has a new leader"))
        elif isinstance(request, FindGroup):
            answer(Done(count=self._node.id))
        else:
            coordinator.answer(request, timeout_ms, answer)

    def replica_changed(self, replica: Replica) -> None:
        """A coordination shard's replica here opened, closed or changed its role."""
        host = replica.host
        if not isinstance(host, GroupsHost):
            return
        known = self._coordinators.get(replica.shard)
        leads = replica.is_leader and not replica.is_closed
        if known is not None:
            same = known.replica is replica
            if same and leads and known.term == replica.raft.term:
                return
            if same or leads:
                known.close()
                del self._coordinators[replica.shard]
        if leads:
            node = self._node
            raft = node.settings.raft
            made = Coordinator(
                node.clock,
                replica,
                host,
                lambda: node.catalog_machine,
                election_ms=raft.election_ticks * raft.tick_ms,
            )
            self._coordinators[replica.shard] = made
            made.start()

    def catalog_changed(self) -> None:
        """Topics may have come, gone or grown."""
        for coordinator in list(self._coordinators.values()):
            coordinator.catalog_changed()

    def sweep(self) -> None:
        """Now and then: forget what nobody used for long."""
        for coordinator in list(self._coordinators.values()):
            coordinator.sweep()


def _as_error(answer: object) -> RaftlineError:
    return answer if isinstance(answer, RaftlineError) else Internal(f"unexpected {answer!r}")
