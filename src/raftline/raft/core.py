"""A replica of one shard: commands go in, work comes out (``ready``).

Commands: ``tick``, ``step``, ``propose``, ``propose_conf_change``, ``campaign``,
``transfer_leadership``, ``read_index``, ``forget_leader``, ``report_unreachable``,
``report_snapshot``, ``flush_commit``, ``apply_conf_change``. They change memory and nothing else.

Invariant C2: ``step`` trusts no rpc. It refuses (``Refused``), or raises a ``RaftFault`` before
anything but term, leader and timers was touched.
"""

from raftline.raft.conf_change import ConfChange, ConfChangeV2, encode_conf_change
from raftline.raft.config import Config
from raftline.raft.errors import LocalOnly, RaftFault, UnknownSender
from raftline.raft.ready import Handout, Ready, SoftState
from raftline.raft.rpc import KIND_COUNT, LOCAL_APPLY, Entry, Rpc, RpcKind
from raftline.raft.state import LEADER, Handler, ReadState, Role

__all__ = ["Config", "Raft", "ReadState", "Ready", "Role", "SoftState"]

_LOCAL, _ANSWER, _TERMED = 1, 2, 4  # what holds for a kind of rpc

_LOCAL_KINDS = (
    RpcKind.HUP,
    RpcKind.BEAT,
    RpcKind.UNREACHABLE,
    RpcKind.SNAP_STATUS,
    RpcKind.CHECK_QUORUM,
    RpcKind.STORAGE_APPEND,
    RpcKind.STORAGE_APPEND_RESP,
    RpcKind.STORAGE_APPLY,
    RpcKind.STORAGE_APPLY_RESP,
)
_ANSWER_KINDS = (
    RpcKind.APP_RESP,
    RpcKind.VOTE_RESP,
    RpcKind.HEARTBEAT_RESP,
    RpcKind.READ_INDEX_RESP,
    RpcKind.PRE_VOTE_RESP,
)
_TERMLESS_KINDS = (
    *_LOCAL_KINDS,
    RpcKind.PROPOSE,
    RpcKind.READ_INDEX,
    RpcKind.TRANSFER_LEADER,
    RpcKind.FORGET_LEADER,
)
_FLAGS = tuple(
    (kind in _LOCAL_KINDS) * _LOCAL
    + (kind in _ANSWER_KINDS) * _ANSWER
    + (kind not in _TERMLESS_KINDS) * _TERMED
    for kind in RpcKind
)


class Raft(Handout):
    """One replica of one shard."""

    __slots__ = ()

    def step(self, rpc: Rpc) -> None:
        """Take an rpc from another replica, or a response of our own storage.

        Raises:
            Refused: it is not for us, or the proposal in it was dropped; nothing changed.
            RaftFault: no correct replica sends it.
        """
        kind = rpc.kind
        if not 0 <= kind < KIND_COUNT:
            raise RaftFault(f"rpc of unknown kind {kind}")
        flags = _FLAGS[kind]
        if flags and rpc.sender < LOCAL_APPLY:
            if flags & _LOCAL:
                raise LocalOnly(RpcKind(kind).name)
            if flags & _ANSWER and rpc.sender not in self.progress:
                raise UnknownSender(f"{rpc.sender:x}")
            if flags & _TERMED and not rpc.term:
                raise RaftFault(f"{RpcKind(kind).name} from {rpc.sender:x} names no term")
        self._step(rpc)

    def propose(self, datas: list[bytes]) -> tuple[int, int]:
        """Propose one entry per data; return their term and the index of the first.

        A follower forwards the proposal and returns ``(0, 0)``: it cannot know where it lands.

        Raises:
            ProposalDropped: nobody took it.
        """
        if not datas:
            raise RaftFault("a proposal without entries")
        if self.role is LEADER:
            return self._propose_data(datas)
        entries = [Entry(0, 0, 0, data) for data in datas]
        self._step(Rpc(RpcKind.PROPOSE, sender=self.id, entries=entries))
        return 0, 0

    def propose_conf_change(self, change: ConfChange | ConfChangeV2) -> None:
        """Propose a change. A leader that finds it untimely logs an empty entry instead.

        Raises:
            ProposalDropped: nobody took it.
        """
        kind, data = encode_conf_change(change)
        self._step(Rpc(RpcKind.PROPOSE, sender=self.id, entries=[Entry(0, 0, kind, data)]))

    def read_index(self, context: bytes) -> None:
        """Ask for an index whose state is fresh enough for a read named ``context``."""
        self._step(Rpc(RpcKind.READ_INDEX, entries=[Entry(0, 0, 0, context)]))

    def transfer_leadership(self, replica: int) -> None:
        """Hand leadership to ``replica``, or ask the leader to."""
        self._step(Rpc(RpcKind.TRANSFER_LEADER, sender=replica))

    def report_unreachable(self, replica: int) -> None:
        """Learn that the last rpc to ``replica`` may be lost."""
        self._step(Rpc(RpcKind.UNREACHABLE, sender=replica))

    def report_snapshot(self, replica: int, ok: bool) -> None:  # noqa: FBT001
        """Learn whether the snapshot reached ``replica``."""
        self._step(Rpc(RpcKind.SNAP_STATUS, sender=replica, reject=not ok))

    def _step(self, rpc: Rpc) -> None:
        term = rpc.term
        if term and term != self.term:
            if term < self.term:
                self._on_old_term(rpc)
                return
            if not self._enter_term(rpc):
                return
        handler = self._handlers[rpc.kind]
        if handler is not None:
            handler(self, rpc)

    def _on_append(self, rpc: Rpc) -> None:
        self.election_elapsed = 0
        self.leader = rpc.sender
        self._take_append(rpc)

    def _on_heartbeat(self, rpc: Rpc) -> None:
        self.election_elapsed = 0
        self.leader = rpc.sender
        self._answer_heartbeat(rpc)

    def _on_snapshot(self, rpc: Rpc) -> None:
        self.election_elapsed = 0
        self.leader = rpc.sender
        self._take_snapshot(rpc)

    def _on_rival(self, rpc: Rpc) -> None:
        """Give way, as a candidate, to the leader that the term already has."""
        self._become_follower(self.term, rpc.sender)
        self._step(rpc)

    def _on_forget(self, _rpc: Rpc) -> None:
        self.forget_leader()

    @classmethod
    def bind_handlers(cls) -> None:
        """Set up who handles which kind in which role; no handler means ignore."""
        everyone: dict[RpcKind, Handler] = {
            RpcKind.VOTE: cls._on_vote_asked,
            RpcKind.PRE_VOTE: cls._on_vote_asked,
            RpcKind.STORAGE_APPEND_RESP: cls._on_stored,
            RpcKind.STORAGE_APPLY_RESP: cls._on_applied,
        }
        follower: dict[RpcKind, Handler] = {
            RpcKind.PROPOSE: cls._on_forward_proposal,
            RpcKind.APP: cls._on_append,
            RpcKind.HEARTBEAT: cls._on_heartbeat,
            RpcKind.SNAP: cls._on_snapshot,
            RpcKind.TRANSFER_LEADER: cls._on_forward_transfer,
            RpcKind.FORGET_LEADER: cls._on_forget,
            RpcKind.TIMEOUT_NOW: cls._on_timeout_now,
            RpcKind.READ_INDEX: cls._on_forward_read,
            RpcKind.READ_INDEX_RESP: cls._on_read_answer,
        }
        candidate: dict[RpcKind, Handler] = {
            RpcKind.PROPOSE: cls._on_lost_proposal,
            RpcKind.APP: cls._on_rival,
            RpcKind.HEARTBEAT: cls._on_rival,
            RpcKind.SNAP: cls._on_rival,
            RpcKind.VOTE_RESP: cls._on_vote,
            RpcKind.PRE_VOTE_RESP: cls._on_vote,
        }
        leader: dict[RpcKind, Handler] = {
            RpcKind.PROPOSE: cls._on_propose,
            RpcKind.READ_INDEX: cls._on_read,
            RpcKind.APP_RESP: cls._on_append_answer,
            RpcKind.HEARTBEAT_RESP: cls._on_heartbeat_answer,
            RpcKind.SNAP_STATUS: cls._on_snapshot_status,
            RpcKind.UNREACHABLE: cls._on_unreachable,
            RpcKind.TRANSFER_LEADER: cls._on_transfer,
        }
        by_role = (follower, candidate, leader, candidate)  # as numbered in Role
        tables = [{**everyone, **handlers} for handlers in by_role]
        cls._tables = tuple(tuple(table.get(kind) for kind in RpcKind) for table in tables)


Raft.bind_handlers()
