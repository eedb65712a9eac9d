"""A replica: one node's copy of one shard, between the Raft core and its host.

The host is the shard's state: a partition (machine + log) or the catalog. The core decides what is
committed, the turn moves bytes, the host applies; this file ties the three and decides nothing.

State
    The core, its log (the tail of entries in memory), proposals waiting for their entry to be
    applied, reads waiting for the index that makes them linearizable.

Invariants
    R1  A proposal is answered by the entry at its (index, term) and by nothing else. An entry of a
        later term at its index or before proves that it never comes; silence is ``TimedOut``.
    R2  The commit mark learnt with an append is written before its entries, in the same write.
    R3  While catch-up rewrites the host nothing is applied.
    R4  ``applied`` of host, core and checkpoint move together.
    R5  Who does not vote forgets a silent leader too: one that was taken out is told nothing more,
        and must not send calls to a leader of the past for ever.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from raftline.config.settings import RaftSettings
from raftline.model.errors import NotLeader, OverLimit, RaftlineError
from raftline.model.ids import ReplicaId, ShardId, node_of
from raftline.model.limits import RPC_ENTRIES_BYTES_MAX
from raftline.node.log_time import LogTime
from raftline.node.ports import Clock, Rng
from raftline.node.turn import Turn
from raftline.raft.conf_change import ConfChangeV2, decode_conf_change
from raftline.raft.config import Config
from raftline.raft.core import Raft, Ready
from raftline.raft.errors import ProposalDropped, Refused
from raftline.raft.rpc import ConfState, Entry, EntryKind, HardState, Rpc, RpcKind, Snapshot
from raftline.raft.state import Role
from raftline.raft.storage import MemoryLog
from raftline.storage.checkpoint import Checkpoint
from raftline.storage.wal import Wal

_HEARTBEAT = int(RpcKind.HEARTBEAT)
_HEARTBEAT_RESP = int(RpcKind.HEARTBEAT_RESP)
TAIL_BYTES_HARD_FACTOR = 8  # a live but slow follower may hold back this many tails


class Proposal(Protocol):
    """Somebody who waits for an entry to be applied."""

    def refuse(self, error: RaftlineError) -> None:
        """The entry will never be applied."""
        ...

    def expire(self, now_ms: float) -> bool:
        """Answer what is overdue; say whether nobody waits any more."""
        ...


class Host(Protocol):
    """The state behind a replica."""

    directory: str
    applied_bytes: int  # since the last checkpoint

    def proposals(self, replica: "Replica") -> list[tuple[bytes, Proposal]]:
        """Return what was collected, as entries to propose."""
        ...

    def refuse_collected(self, error: RaftlineError) -> None:
        """Answer everything collected and not proposed."""
        ...

    def apply(self, entry: Entry, proposal: Proposal | None) -> None:
        """Apply one committed entry and answer who waits for it."""
        ...

    def applied(self) -> None:
        """A run of entries was applied: wake readers, plan flushes."""
        ...

    def offer(self, index: int) -> bytes:
        """Freeze the state at ``index`` for a replica that is far behind; return its descriptor."""
        ...

    def checkpoint(self) -> Callable[[], Checkpoint]:
        """Freeze what a checkpoint holds; the lane's half is returned."""
        ...

    def checkpointed(self, made: Checkpoint) -> None:
        """A checkpoint with these marks of the logs is durable."""
        ...

    def expire(self, now_ms: float) -> None:
        """Answer collected calls and parked readers that are overdue."""
        ...

    def close(self) -> None:
        """Answer everybody who waits; the replica is going away."""
        ...


class Start(msgspec.Struct):
    """Where a replica begins: what checkpoint and WAL said."""

    index: int = 0
    term: int = 0
    conf: ConfState = ConfState()
    hard_state: HardState = HardState()
    entries: list[Entry] = []


class ReplicaLog(MemoryLog):
    """The entries in memory; snapshots are offers made by the host."""

    offer: Callable[[], Snapshot]

    def snapshot(self) -> Snapshot:
        """Return an offer of the present state (its bytes are fetched by the receiver)."""
        return self.offer()


class Replica:
    """One shard on this node."""

    def __init__(
        self,
        clock: Clock,
        rng: Rng,
        turn: Turn,
        shard: ShardId,
        replica: ReplicaId,
        cluster: str,
        host: Host,
        time: LogTime,
        settings: RaftSettings,
        start: Start,
        on_change: Callable[["Replica"], None],
    ) -> None:
        self.shard = shard
        self.id = replica
        self.name = f"shard {shard}"  # "catalog" or "orders/2" once the catalog told
        self._cluster = cluster
        self.host = host
        self.time = time
        self.is_dirty = False
        self.is_collecting = False
        self.is_closed = False
        self.frozen = False  # R3
        self.hollow = False  # frozen, and its log was dropped to be filled anew
        self.unsynced = 0  # replies that wait for a sync
        self.unwritten = 0  # those of them that wait for the next group
        self.conf = start.conf
        self.applied_index = start.index
        self.applied_term = start.term
        self.waiting: dict[int, tuple[int, Proposal]] = {}
        self.quiet = False
        turn.awake[self] = None
        self.active_mono = clock.mono_ms()
        self._clock = clock
        self._turn = turn
        self._settings = settings
        self._on_change = on_change
        self._held: list[Rpc] = []
        self._reads: dict[bytes, Callable[[RaftlineError | None], None]] = {}
        self._ready_reads: list[tuple[int, bytes]] = []
        self._read_count = 0
        self._tail_bytes = 0
        self._trim_at_bytes = 2 * settings.tail_bytes_max
        self.log = ReplicaLog()
        self.log.offer = self._offer
        if start.index:
            self.log.apply_snapshot(Snapshot(start.index, start.term, start.conf, b""))
        if start.entries:
            self.log.append(start.entries)
        self.log.set_hard_state(start.hard_state)
        self.hard_state = start.hard_state
        message_bytes_max = min(settings.message_bytes_max, RPC_ENTRIES_BYTES_MAX)
        self.raft = Raft(
            Config(
                id=replica,
                rng=rng,
                election_ticks=settings.election_ticks,
                heartbeat_ticks=1,
                applied=start.index,
                async_storage_writes=True,
                message_bytes_max=message_bytes_max,
                committed_bytes_max=message_bytes_max * 4,
                uncommitted_bytes_max=settings.uncommitted_bytes_max,
                inflight_max=settings.inflight_max,
                check_quorum=True,
                pre_vote=True,
                proposal_forwarding_disabled=True,
                step_down_on_removal=True,
                commit_rides=True,
                heartbeats_ride=True,
                own_vote_first=True,
            ),
            self.log,
        )
        self._seen = (self.raft.role, self.raft.leader, self.raft.term)
        self._commit_seen = self.raft.commit
        self.commit_timer = False

    # ------------------------------------------------------------------ questions

    @property
    def is_leader(self) -> bool:
        """Say whether this replica leads its shard (as far as it knows). A closed one does not."""
        return self.raft.role is Role.LEADER and not self.is_closed

    @property
    def leader_node(self) -> int:
        """Return the node of the known leader, 0 if none is known."""
        return node_of(ReplicaId(self.raft.leader))

    # ------------------------------------------------------------------ inputs

    @property
    def is_about_to_stand(self) -> bool:
        """Say whether the next tick makes it a candidate that others may vote against."""
        raft = self.raft
        return (
            raft.election_elapsed + 1 >= raft.election_timeout_ticks
            and not self.quiet
            and not self.is_leader
            and len(self.conf.voters) > 1
        )

    def tick(self) -> None:
        """Let one tick pass, unless the shard is quiet."""
        if not self.quiet:
            raft = self.raft
            raft.tick()
            if raft.election_elapsed >= raft.election_timeout_ticks and raft.leader != raft.id:
                raft.forget_leader()  # R5: a voter would stand
                self._turn.dirty(self)
            elif raft.has_ready():
                self._turn.dirty(self)

    def step(self, rpc: Rpc) -> None:
        """Take an rpc of another replica. Heartbeats alone keep no shard from going quiet."""
        kind = rpc.kind
        if kind in (_HEARTBEAT, _HEARTBEAT_RESP):
            if self.quiet:
                if kind == _HEARTBEAT_RESP and rpc.term == self.raft.term:
                    return  # a late answer: it was level when we said quiet
                self.wake()
        else:
            self.wake()
        raft = self.raft
        try:
            raft.step(rpc)
        except Refused:
            return  # an answer to a question we no longer ask
        if not self.is_dirty and raft.has_ready():  # most answers change nothing
            self._turn.dirty(self)

    def campaign(self) -> None:
        """Stand for election now."""
        self.wake()
        self.raft.campaign()
        self._turn.dirty(self)

    def forget_leader(self) -> None:
        """There is proof that the leader is gone: vote for others, do not wait for it."""
        self.wake()
        self.raft.forget_leader()
        self._turn.dirty(self)

    def wake(self) -> None:
        """Leave quiet: something happens in this shard."""
        if self.quiet:
            self.quiet = False
            self._turn.awake[self] = None
            self.raft.reset_election_timer()
        self.active_mono = self._clock.mono_ms()

    @property
    def is_waited_for(self) -> bool:
        """Say whether somebody waits for a proposal or a read of ours."""
        return bool(self.waiting or self._reads or self._ready_reads)

    def rest(self) -> None:
        """Go quiet: no ticks, until something wakes us."""
        self.quiet = True
        self._turn.awake.pop(self, None)

    def collected(self, size: int, *, is_patient: bool = False) -> None:
        """The host holds ``size`` more bytes to propose; a patient call waits for others."""
        if self.quiet:
            self.wake()
        self._turn.collect(self, size, is_patient=is_patient)

    def lingers(self, size: int) -> None:
        """The host holds ``size`` more bytes to propose, for which nobody waits."""
        if self.quiet:
            self.wake()
        self._turn.linger(self, size)

    def expect(self, callers: int) -> None:
        """So many patient callers are about to be answered."""
        self._turn.expect(callers)

    def propose_collected(self) -> None:
        """Propose what the host collected: step 1 of the turn."""
        self.active_mono = self._clock.mono_ms()
        for data, proposal in self.host.proposals(self):
            self.propose(data, proposal)

    def propose(self, data: bytes, proposal: Proposal) -> None:
        """Propose one entry; the proposal hears when it is applied, or that it never will be."""
        if self.quiet:
            self.wake()
        try:
            term, index = self.raft.propose([data])
        except ProposalDropped:
            proposal.refuse(self._dropped(len(data)))
            return
        before = self.waiting.pop(index, None)
        if before is not None:  # of an earlier term, cut off our log: nobody knows. R1
            before[1].expire(float("inf"))
        self.waiting[index] = (term, proposal)
        self._turn.dirty(self)

    def read_index(self, done: Callable[[RaftlineError | None], None]) -> None:
        """Call ``done`` once this replica has applied all that was committed when asked."""
        if not self.is_leader:
            done(self._not_leader())
            return
        self.wake()
        self._read_count += 1
        context = self._read_count.to_bytes(8, "big")
        self._reads[context] = done
        self.raft.read_index(context)
        self._turn.dirty(self)

    def change_conf(self, change: ConfChangeV2) -> bool:
        """Propose a membership change; False if one is under way."""
        self.wake()
        try:
            self.raft.propose_conf_change(change)
        except ProposalDropped:
            return False
        self._turn.dirty(self)
        return True

    def transfer(self, to: ReplicaId) -> None:
        """Hand leadership to another voter."""
        self.wake()
        self.raft.transfer_leadership(to)
        self._turn.dirty(self)

    def snapshot_ended(self, replica: int, *, ok: bool) -> None:
        """A follower finished or gave up fetching what was offered to it."""
        self.wake()
        self.raft.report_snapshot(replica, ok)
        self._turn.dirty(self)

    def flush_commit(self) -> None:
        """Tell followers the commit index that found no append to ride on."""
        self.commit_timer = False
        if not self.is_closed and self.is_leader:
            self.raft.flush_commit()
            self._turn.dirty(self)

    def _dropped(self, size: int) -> RaftlineError:
        if self.is_leader and not self.raft.lead_transferee:
            limit = self._settings.uncommitted_bytes_max
            return OverLimit(f"bytes of {self.name} that wait for a majority", size, limit)
        return self._not_leader()

    def _not_leader(self) -> NotLeader:
        return NotLeader(self.name, self.leader_node)

    # ------------------------------------------------------------------ the turn's half

    def persist(self, wal: Wal, rpc: Rpc) -> bool:
        """Put what the core wants stored into the WAL's group; say whether it must be synced."""
        must_sync = False
        assert rpc.snapshot is None, "snapshots are adopted by catch-up, never by the core"
        if rpc.term:
            hard_state = HardState(rpc.term, rpc.vote, rpc.commit)
            if hard_state != self.hard_state:
                if (rpc.term, rpc.vote) != (self.hard_state.term, self.hard_state.vote):
                    must_sync = True
                self.hard_state = hard_state
                self.log.set_hard_state(hard_state)
                wal.add_hard_state(self.shard, rpc.term, rpc.vote, rpc.commit)  # R2
        entries = rpc.entries
        if entries:
            wal.add_entries(self.shard, entries)
            self.log.append(entries)
            must_sync = True
        return must_sync

    def apply(self, rpc: Rpc) -> None:
        """Apply committed entries, answer who waits, tell the core."""
        if self.frozen:
            self._held.append(rpc)  # R3
            return
        waiting = self.waiting
        host = self.host
        for entry in rpc.entries:
            self.applied_index, self.applied_term = entry.index, entry.term  # R4
            self._tail_bytes += len(entry.data)
            if entry.kind != EntryKind.NORMAL:
                self._apply_conf(entry)
                continue
            proposal = None
            if waiting:
                found = waiting.pop(entry.index, None)
                if found is not None:
                    term, proposal = found
                    if term != entry.term:  # R1
                        proposal.refuse(self._not_leader())
                        proposal = None
                if waiting and next(iter(waiting.values()))[0] < entry.term:  # oldest first
                    self._refuse_behind(entry)
            host.apply(entry, proposal)
        host.applied()
        for response in rpc.responses:
            self.raft.step(response)
        if self._ready_reads:
            self._finish_reads()
        if self._tail_bytes > self._trim_at_bytes:
            self._trim_tail()

    def _refuse_behind(self, entry: Entry) -> None:
        """Answer what was proposed behind this entry in an earlier term: it never comes. R1."""
        waiting = self.waiting
        dead = [at for at, (term, _) in waiting.items() if at > entry.index and term < entry.term]
        for _, proposal in [waiting.pop(at) for at in dead]:
            proposal.refuse(self._not_leader())

    def thaw(self) -> None:
        """Catch-up was given up: apply what was held back."""
        self.frozen = False
        held, self._held = self._held, []
        for rpc in held:
            self.apply(rpc)
        self._turn.dirty(self)

    def _apply_conf(self, entry: Entry) -> None:
        self.conf = self.raft.apply_conf_change(decode_conf_change(entry), entry.index)
        self._on_change(self)

    def after_ready(self, ready: Ready) -> None:
        """Notice what changed: reads that may go on, leadership, a commit index to announce."""
        if ready.reads:
            for state in ready.reads:
                self._ready_reads.append((state.index, state.context))
            self._finish_reads()
        raft = self.raft
        seen = (raft.role, raft.leader, raft.term)
        if seen != self._seen:
            before, self._seen = self._seen, seen
            self._changed_role(before)
        if raft.commit != self._commit_seen:
            self._commit_seen = raft.commit
            if raft.role is Role.LEADER and not self.commit_timer and len(self.conf.voters) > 1:
                self.commit_timer = True
                self._clock.call_later(self._settings.commit_flush_ms, self.flush_commit)

    def _changed_role(self, before: tuple[Role, int, int]) -> None:
        self._count_change(before)
        if self.is_leader:
            self.time.lead()
        else:
            self.time.follow()
            error = self._not_leader()
            self.host.refuse_collected(error)
            reads, self._reads = self._reads, {}
            self._ready_reads.clear()
            for done in reads.values():
                done(error)
        self._on_change(self)

    def _count_change(self, before: tuple[Role, int, int]) -> None:
        counters, raft = self._turn.counters, self.raft
        if raft.role is not before[0]:
            if raft.role is Role.LEADER:
                counters.elections_won += 1
            if before[0] is Role.FOLLOWER:
                counters.campaigns += 1
        if raft.leader and (raft.leader, raft.term) != before[1:]:
            counters.leader_changes += 1

    def _finish_reads(self) -> None:
        later: list[tuple[int, bytes]] = []
        for index, context in self._ready_reads:
            if index > self.applied_index:
                later.append((index, context))
                continue
            done = self._reads.pop(context, None)
            if done is not None:
                done(None)
        self._ready_reads = later

    # ------------------------------------------------------------------ memory and time

    def _trim_tail(self) -> None:
        """Keep about one tail of applied entries; more while a live follower still needs them."""
        limit = self._settings.tail_bytes_max
        keep_from = self.applied_index
        if self._tail_bytes < limit * TAIL_BYTES_HARD_FACTOR and self.is_leader:
            for follower, progress in self.raft.progress.items():
                if follower != self.id and progress.recent_active:
                    keep_from = min(keep_from, progress.match)
        size = 0
        first = self.log.first_index()
        index = self.applied_index
        for entry in reversed(self.log.entries(first, self.applied_index + 1, 1 << 62)):
            size += len(entry.data)
            if size > limit:
                break
            index = entry.index
        index = min(index, keep_from)
        if index > first:
            dropped = sum(len(e.data) for e in self.log.entries(first, index, 1 << 62))
            self.log.compact(index - 1)
            self._tail_bytes -= dropped
        # What a slow follower holds back is looked through once a tail, not at every entry.
        self._trim_at_bytes = limit + max(limit, self._tail_bytes)

    def checkpoint_head(self) -> Checkpoint:
        """Return the shard's part of a checkpoint taken now. R4."""
        hard = self.hard_state
        return Checkpoint(
            cluster=self._cluster,
            shard=self.shard,
            replica=self.id,
            index=self.applied_index,
            term=self.applied_term,
            hard_state=HardState(hard.term, hard.vote, max(hard.commit, self.applied_index)),
            conf_state=self.conf,
            term_runs=((self.applied_index, self.applied_term),),
            log=None,
            state=b"",
            at_ms=0,
            feature_level=1,
        )

    def _offer(self) -> Snapshot:
        descriptor = self.host.offer(self.applied_index)
        return Snapshot(self.applied_index, self.applied_term, self.conf, descriptor)

    def expire(self, now_ms: float) -> None:
        """Answer the overdue."""
        self.host.expire(now_ms)
        if self.waiting:
            for index in [i for i, (_, p) in self.waiting.items() if p.expire(now_ms)]:
                del self.waiting[index]

    def close(self, error: RaftlineError) -> None:
        """Take the replica out of service."""
        self.is_closed = True
        self._turn.awake.pop(self, None)
        for _, proposal in self.waiting.values():
            proposal.expire(float("inf"))
        self.waiting.clear()
        reads, self._reads = self._reads, {}
        for done in reads.values():
            done(error)
        self.host.refuse_collected(error)
        self.host.close()
