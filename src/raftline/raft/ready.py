"""Work that follows from commands: what to write, send and apply.

With ``async_storage_writes`` a ``Ready`` holds two rpcs to the local helpers, ``append`` and
``apply``. Each helper works strictly in order; when an ``append`` is durable its responses are
sent (or stepped, where they are addressed to this replica), and so for ``apply``. Several may be
under way. Without it, the caller writes, sends and applies all of a ``Ready``, then ``advance``.

Invariant C1: an rpc that claims durability is only among the responses of an append, or (without
asynchronous writes) in a ``Ready`` whose entries the caller writes before it sends.
"""

import msgspec

from raftline.raft.config import Config
from raftline.raft.election import Election
from raftline.raft.members import Plan, members_from
from raftline.raft.rpc import (
    LOCAL_APPEND,
    LOCAL_APPLY,
    NOBODY,
    Entry,
    HardState,
    Rpc,
    RpcKind,
    Snapshot,
)
from raftline.raft.state import ReadState, Role
from raftline.raft.storage import LogStorage

_STORAGE_APPEND = int(RpcKind.STORAGE_APPEND)
_STORAGE_APPEND_RESP = int(RpcKind.STORAGE_APPEND_RESP)
_STORAGE_APPLY = int(RpcKind.STORAGE_APPLY)
_STORAGE_APPLY_RESP = int(RpcKind.STORAGE_APPLY_RESP)


class SoftState(msgspec.Struct, frozen=True):
    """Who leads, and what we are. Worth knowing, not worth storing."""

    leader: int
    role: Role


class Ready(msgspec.Struct):
    """Work the caller owes. ``append`` and ``apply`` are set with asynchronous writes only."""

    rpcs: list[Rpc]  # to other replicas, at once
    entries: list[Entry]  # to write
    committed: list[Entry]  # to apply
    hard_state: HardState | None  # to write, where it changed
    soft_state: SoftState | None  # where it changed
    snapshot: Snapshot | None  # to write, before entries
    reads: list[ReadState]
    must_sync: bool  # entries, term or vote: durable before the responses leave. So is a snapshot
    append: Rpc | None = None
    apply: Rpc | None = None


class Handout(Election):
    """Hands out work, and each piece once."""

    __slots__ = (
        "_async",
        "_on_advance",
        "_told_commit",
        "_told_leader",
        "_told_role",
        "_told_term",
        "_told_vote",
    )

    def __init__(self, config: Config, log: LogStorage) -> None:
        super().__init__(config, log)
        hard_state, conf = log.initial_state()
        members = members_from(conf)
        self._install(Plan(members, tuple(members.everyone())))
        self._load(hard_state, config.applied)
        self._become_follower(self.term, NOBODY)
        self._async = config.async_storage_writes
        self._on_advance: list[Rpc] = []
        self._told_leader, self._told_role = self.leader, self.role
        self._told_term, self._told_vote = self.term, self.vote
        self._told_commit = self.log.commit

    def has_ready(self) -> bool:
        """Say whether ``ready`` would return any work."""
        log = self.log
        commit = log.commit
        if (
            self._rpcs
            or self._rpcs_after_append
            or log.writing_end <= log.last_index
            or commit != self._told_commit
            or self.term != self._told_term
            or self.vote != self._told_vote
            or self.leader != self._told_leader
            or self.role is not self._told_role
            or self._read_states
        ):
            return True
        if log.snapshot is not None:
            return log.unwritten_snapshot() is not None
        # As log.has_committed: asked after every rpc, so without a call.
        last = min(commit, log.offset - 1) if self._async else commit
        return log.applying < last and not log.applying_paused

    def ready(self) -> Ready:
        """Hand out the work that waits."""
        assert not self._on_advance, "the last ready was not advanced"
        log = self.log
        committed = log.take_committed(unstable_too=not self._async)
        entries = log.take_unwritten()
        snapshot = log.unwritten_snapshot()
        if snapshot is not None:
            log.snapshot_writing = True
        rpcs, self._rpcs = self._rpcs, []
        after, self._rpcs_after_append = self._rpcs_after_append, []
        reads = self._read_states
        if reads:
            self._read_states = []
        voted = self.term != self._told_term or self.vote != self._told_vote
        hard = self._news_hard() if voted or log.commit != self._told_commit else None
        soft = self._news_soft()
        must_sync = voted or bool(entries)
        ready = Ready(rpcs, entries, committed, hard, soft, snapshot, reads, must_sync)
        if self._async:
            self._queue_storage(ready, after)
        else:
            self._queue_advance(ready, after)
        return ready

    def advance(self) -> None:
        """Say that all work of the last ``ready`` is done. Not with asynchronous writes."""
        assert not self._async
        steps, self._on_advance = self._on_advance, []
        for rpc in steps:
            self._step(rpc)

    def _step(self, rpc: Rpc) -> None:
        raise NotImplementedError

    def _news_hard(self) -> HardState:
        self._told_term, self._told_vote = self.term, self.vote
        self._told_commit = self.log.commit
        return HardState(self.term, self.vote, self.log.commit)

    def _news_soft(self) -> SoftState | None:
        if self.leader == self._told_leader and self.role is self._told_role:
            return None
        self._told_leader, self._told_role = self.leader, self.role
        return SoftState(self.leader, self.role)

    def _queue_storage(self, ready: Ready, after: list[Rpc]) -> None:
        hard, snapshot, entries = ready.hard_state, ready.snapshot, ready.entries
        if entries or after or hard is not None or snapshot is not None:
            done = self._stored_rpc(snapshot)
            if done is not None:
                after.append(done)
            term, vote, commit = (hard.term, hard.vote, hard.commit) if hard else (0, NOBODY, 0)
            ready.append = Rpc(
                _STORAGE_APPEND, LOCAL_APPEND, self.id, term, 0, 0, entries, commit, vote,
                snapshot, False, 0, b"", after,
            )  # fmt: skip
        if ready.committed:
            done = self._applied_rpc(ready.committed)
            ready.apply = Rpc(
                _STORAGE_APPLY, LOCAL_APPLY, self.id, entries=ready.committed, responses=[done]
            )

    def _queue_advance(self, ready: Ready, after: list[Rpc]) -> None:
        steps = self._on_advance
        for rpc in after:
            (steps if rpc.to == self.id else ready.rpcs).append(rpc)
        done = self._stored_rpc(ready.snapshot)
        if done is not None:
            steps.append(done)
        if ready.committed:
            steps.append(self._applied_rpc(ready.committed))

    def _stored_rpc(self, snapshot: Snapshot | None) -> Rpc | None:
        """Return what tells us that everything handed out so far is durable.

        It names the end of the whole tail, not of the entries written with it, and our term: when
        a tail was replaced and later replaced back, the first write must not count for the last.
        """
        log = self.log
        if log.unstable:
            index, term = log.last_index, log.last_term
        elif snapshot is not None:
            index = term = 0
        else:
            return None
        done = _STORAGE_APPEND_RESP
        return Rpc(done, self.id, LOCAL_APPEND, self.term, term, index, snapshot=snapshot)

    def _applied_rpc(self, committed: list[Entry]) -> Rpc:
        return Rpc(_STORAGE_APPLY_RESP, self.id, LOCAL_APPLY, entries=committed)
