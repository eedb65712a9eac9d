"""Catch-up: a replica too far behind for entries is filled with state and log bytes.

The leader's core says SNAP and offers the machine state at an index. The receiver *fetches*: first
the bytes each log lacks (the partition's own, then its side logs), from its own end on if its
prefix is the same (topic and chain agree), then the machine state of the same index, in chunks, on
the second link. When all of it is durable in a checkpoint, the replica goes on from there under the
same number.

The side that gives is in giving.py. Damaged ranges of a log: repairs.py.

Invariants
    X1  While bytes are fetched the replica applies nothing; given up, what was fetched is cut off.
    X2  The checkpoint that names the new state is durable before the replica goes on from it.
    X3  At most one catch-up per shard; a lost one is begun again by the leader's next offer.
    X4  What was acknowledged stays: entries above the new state that another leader gave meanwhile
        are kept. An offer of a leader that was voted out is not taken.
    X5  A log that was dropped to be filled anew, and that nobody fills, costs the replica its
        place: it can neither apply nor go back.
    X6  A full disk costs nobody its place: the checkpoint is written when there is room.
    X7  What was applied is checkpointed first: it may have left memory, and none is made meanwhile,
        so the WAL could let go of no file before the end.
"""

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.partition.machine import PartitionMachine
from raftline.model.errors import RaftlineError
from raftline.model.ids import ReplicaId, node_of
from raftline.node.command_proposal import Offer
from raftline.node.giving import CHUNK_BYTES, Fetch, Fetched, FetchState, SnapshotResult
from raftline.node.partition import SIDE_START, PartitionHost
from raftline.node.remote import VERB_FETCH, VERB_FETCH_STATE, VERB_SNAPSHOT_FAILED, Answer
from raftline.node.replica import Replica, Start
from raftline.node.segments import RETRY_FLUSH_MS
from raftline.node.state_host import StateHost
from raftline.raft.rpc import Entry, HardState, Rpc, Snapshot
from raftline.storage.checkpoint import Checkpoint, write_checkpoint
from raftline.storage.log import PartitionLog
from raftline.storage.log_words import CHAIN_UNKNOWN, LogFault

if TYPE_CHECKING:
    from raftline.node.node import Node

FETCH_TIMEOUT_MS = 5_000
TRIES = 3
HOLLOW_MS = 15_000
ALL_BYTES = 1 << 62

_pack = msgspec.msgpack.encode


class CatchUps:
    """The replicas being filled here."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._running: dict[int, CatchUp] = {}
        self._hollow_mono: dict[int, float] = {}  # shard -> since when nobody fills it

    def busy(self, shard: int) -> bool:
        """Say whether a shard is being filled."""
        return shard in self._running

    def offered(self, replica: Replica, rpc: Rpc) -> None:
        """The leader's core offers a snapshot. X3."""
        snapshot = rpc.snapshot
        if snapshot is None or replica.shard in self._running or replica.is_leader:
            return
        if rpc.term < replica.raft.term:
            return  # from a leader that was voted out: what it offers may be behind what we acked
        source = node_of(ReplicaId(rpc.sender))
        if snapshot.index <= replica.applied_index or _reaches(replica, snapshot):
            self.tell(replica, source, ok=True)
            return
        self._node.log(
            "info",
            "replica.catching_up",
            shard=replica.name,
            index=snapshot.index,
            source=source,
        )
        catch_up = CatchUp(self._node, replica, snapshot, source, self._ended)
        self._running[replica.shard] = catch_up
        catch_up.start()

    def not_here(self, shard: int, rpc: Rpc) -> None:
        """An offer for a replica that is not open yet, or no more: let it be made again."""
        source = node_of(ReplicaId(rpc.sender))
        self._tell(source, SnapshotResult(shard, rpc.to, ok=False))

    def look_after(self, replica: Replica, now: float) -> None:
        """As any replica: give a hollow one up that its leader offers nothing. X5."""
        if not replica.hollow or replica.shard in self._running or not replica.raft.leader:
            self._hollow_mono.pop(replica.shard, None)
        elif now - self._hollow_mono.setdefault(replica.shard, now) > HOLLOW_MS:
            self._node.shards.stop_replica(replica, "its log was dropped and nobody fills it")

    def closed(self, shard: int) -> None:
        """The replica went away under a catch-up."""
        self._running.pop(shard, None)
        self._hollow_mono.pop(shard, None)

    def _ended(self, catch_up: "CatchUp", *, ok: bool) -> None:
        if self._running.get(catch_up.replica.shard) is catch_up:
            del self._running[catch_up.replica.shard]
        self.tell(catch_up.replica, catch_up.source, ok=ok)

    def tell(self, replica: Replica, node: int, *, ok: bool) -> None:
        """Let the leader's core go on with appends, or offer again."""
        self._tell(node, SnapshotResult(replica.shard, replica.id, ok))

    def _tell(self, node: int, result: SnapshotResult) -> None:
        body = [_pack(result)]
        self._node.remote.call(node, VERB_SNAPSHOT_FAILED, body, FETCH_TIMEOUT_MS, _ignore)


class CatchUp:
    """One replica being filled."""

    def __init__(
        self,
        node: "Node",
        replica: Replica,
        snapshot: Snapshot,
        source: int,
        ended: Callable[..., None],
    ) -> None:
        self._node = node
        self.replica = replica
        self.source = source
        self._snapshot = snapshot
        self._ended = ended
        self._state = bytearray()
        self._tries = 0
        self._offer = msgspec.msgpack.decode(snapshot.data, type=Offer)
        self._began = node.clock.mono_ms()
        self._fetched_bytes = 0
        self._ends: dict[str, int] = {}  # of our logs, before anything was fetched
        self._left = ["", *self._offer.side_ends]  # the logs to fetch, by name

    @property
    def _stale(self) -> bool:
        return self._node.shards.get(self.replica.shard) is not self.replica

    def start(self) -> None:
        """Stop applying, then fetch. X1, X7."""
        if self._node.segments.checkpoint_due(self.replica, ALL_BYTES, 0):
            self._node.segments.checkpoint(self.replica)
        self.replica.frozen = True
        host = self.replica.host
        if not isinstance(host, PartitionHost):
            self._fetch_state()
            return
        self._ends = {name: log.log_end for name, log in host.side.items()}
        self._next_log()

    # ------------------------------------------------------------------ the logs

    def _log(self) -> PartitionLog:
        """Return the log that is being fetched."""
        host = self.replica.host
        assert isinstance(host, PartitionHost)
        return host.side_log(self._left[0]) if self._left[0] else host.log

    def _log_end(self) -> int:
        """Return where the log that is being fetched ends in the offer."""
        name = self._left[0]
        return self._offer.side_ends[name] if name else self._offer.log_end

    def _next_log(self) -> None:
        if not self._left:
            self._fetch_state()
            return
        log = self._log()

        def chained(chain: int | None, error: BaseException | None) -> None:
            if self._stale:
                return
            if chain is None:
                self._give_up(f"our own log cannot be read: {error}")
            else:
                self._fetch(chain)

        self._node.segments.run(log.chain_job(log.log_end), chained)

    def _fetched_all(self) -> None:
        del self._left[0]
        self._next_log()

    def _fetch(self, chain: int) -> None:
        fetch = Fetch(
            self.replica.shard,
            self._snapshot.index,
            self._log().log_end,
            self._log_end(),
            chain,
            self._left[0],
        )
        if self.replica.is_leader:
            self._give_up("this replica leads now")
            return
        self._node.remote.call(
            self.source,
            VERB_FETCH,
            [_pack(fetch)],
            FETCH_TIMEOUT_MS,
            lambda answer: self._on_fetched(chain, answer),
            bulk=True,
        )

    def _on_fetched(self, chain: int, answer: Answer) -> None:
        if self._stale:
            return
        if isinstance(answer, RaftlineError):
            self._again(answer, lambda: self._fetch(chain))
            return
        self._tries = 0
        got = msgspec.msgpack.decode(answer, type=Fetched)
        if got.reset:
            self._reset(got)
            return
        host, log = self.replica.host, self._log()
        assert isinstance(host, PartitionHost)
        if got.data:
            try:
                log.import_batches(got.data, got.at_ms)
            except LogFault as error:
                self._give_up(str(error))
                return
            self._fetched_bytes += len(got.data)
            self._node.segments.appended(host)
        if log.log_end >= self._log_end():
            self._fetched_all()
            return
        if not got.data:
            self._give_up(f"the source ends at {got.start}, before {self._log_end()}")
            return
        self._pace(lambda: self._fetch(CHAIN_UNKNOWN))

    def _reset(self, got: Fetched) -> None:
        """Our prefix is not the source's, or older than it keeps: begin at its start."""
        log = self._log()
        self.replica.hollow = True
        job = log.reset(got.start, got.chain)

        def done(_: object, error: BaseException | None) -> None:
            if self._stale:
                return
            if error is not None:
                self._node.shards.stop_replica(self.replica, f"log reset failed: {error}")
            elif log.log_end >= self._log_end():
                self._fetched_all()
            else:
                self._fetch(CHAIN_UNKNOWN)

        self._node.segments.run(job, done)

    def _pace(self, call: Callable[[], None]) -> None:
        rate = self._node.settings.log.catch_up_bytes_per_second
        due = self._fetched_bytes * 1000 / rate if rate else 0
        wait = self._began + due - self._node.clock.mono_ms()
        host = self.replica.host
        unflushed = self._log().unflushed_bytes if isinstance(host, PartitionHost) else 0
        is_late = wait > 0 or unflushed > 32 * CHUNK_BYTES
        if is_late and not self.replica.is_leader:  # a full disk may take nothing for long
            self._node.clock.call_later(
                max(wait, 5), lambda: None if self._stale else self._pace(call)
            )
        else:
            call()

    # ------------------------------------------------------------------ the state

    def _fetch_state(self) -> None:
        fetch = FetchState(self.replica.shard, self._snapshot.index, len(self._state))
        self._node.remote.call(
            self.source,
            VERB_FETCH_STATE,
            [_pack(fetch)],
            FETCH_TIMEOUT_MS,
            self._on_state,
            bulk=True,
        )

    def _on_state(self, answer: Answer) -> None:
        if self._stale:
            return
        if isinstance(answer, RaftlineError):
            self._again(answer, self._fetch_state)
            return
        self._tries = 0
        self._state += answer
        if len(self._state) < self._offer.state_bytes and answer:
            self._fetch_state()
        else:
            self._install(bytes(self._state))

    def _install(self, state: bytes) -> None:
        """Make it durable, then go on from it. X2."""
        node, replica, snapshot = self._node, self.replica, self._snapshot
        if replica.is_leader:
            self._give_up("this replica leads now")
            return
        hard = replica.hard_state
        hard = HardState(hard.term, hard.vote, max(hard.commit, snapshot.index))
        head = msgspec.structs.replace(
            replica.checkpoint_head(),
            index=snapshot.index,
            term=snapshot.term,
            hard_state=hard,
            conf_state=snapshot.conf,
            term_runs=((snapshot.index, snapshot.term),),
            state=state,
        )
        host = replica.host
        if isinstance(host, PartitionHost):
            machine = PartitionMachine()
            machine.restore(state)
            if machine.next_offset != host.log.log_end:
                self._give_up(f"log ends at {host.log.log_end}, state at {machine.next_offset}")
                return
            side = {name: host.side[name] for name in self._offer.side_ends}
            short = [
                name for name, log in side.items() if log.log_end != self._offer.side_ends[name]
            ]
            if short:
                self._give_up(f"the logs {short} end elsewhere than in the state")
                return
            host.log.trim(machine.log_start)
            fresh = node.shards.new_host(
                replica.shard, host.name, host.identity, machine, host.log, side
            )
            sync = host.log.sync_job()
            side_syncs = [(name, log.sync_job()) for name, log in side.items()]
            at_ms, level = machine.at_ms, machine.feature_level
            identity = host.identity
            build = lambda: msgspec.structs.replace(  # noqa: E731
                head,
                log=sync(),
                side={name: sync_side() for name, sync_side in side_syncs},
                at_ms=at_ms,
                feature_level=level,
                topic_uuid=identity.topic_uuid,
                partition=identity.partition,
            )
        else:
            assert isinstance(host, StateHost)
            fresh = host.fresh()
            fresh.restore(state)
            build = lambda: head  # noqa: E731
        directory = host.directory

        def job() -> Checkpoint:
            checkpoint = build()
            write_checkpoint(node.disk, directory, checkpoint)
            return checkpoint

        def done(made: Checkpoint | None, error: BaseException | None) -> None:
            if self._stale:
                return
            if made is not None:
                if isinstance(host, PartitionHost):
                    host.checkpointed(made)
                self._go_on(fresh, made)
            elif isinstance(error, OSError) and error.errno == errno.ENOSPC:  # X6
                node.segments.note_full(error)
                node.clock.call_later(RETRY_FLUSH_MS, lambda: None if self._stale else write())
            else:
                node.shards.stop_replica(replica, f"catch-up checkpoint failed: {error}")

        def write() -> None:
            if replica.is_leader:
                self._give_up("this replica leads now")
            else:
                node.segments.run(job, done)

        write()

    def _go_on(self, fresh: PartitionHost | StateHost, made: Checkpoint) -> None:
        replica = self.replica
        hard = replica.hard_state
        entries = self._acknowledged(made)
        last = entries[-1].index if entries else made.index
        commit = min(max(hard.commit, made.index), last)
        start = Start(
            made.index,
            made.term,
            made.conf_state,
            HardState(hard.term, hard.vote, commit),
            entries,
        )
        self._node.log(
            "info",
            "replica.caught_up",
            shard=replica.name,
            index=made.index,
            bytes=self._fetched_bytes,
            ms=int(self._node.clock.mono_ms() - self._began),
        )
        self._node.shards.reopen(replica, fresh, start)
        self._ended(self, ok=True)

    def _acknowledged(self, made: Checkpoint) -> list[Entry]:
        """Return the entries above the new state that came while it was fetched. X4."""
        log = self.replica.log
        last = log.last_index()
        if last <= made.index or log.term(made.index) != made.term:
            return []  # where our log parts from committed entries, nobody counts on it
        return log.entries(made.index + 1, last + 1, 1 << 62)

    # ------------------------------------------------------------------ giving up

    def _again(self, error: RaftlineError, call: Callable[[], None]) -> None:
        self._tries += 1
        if self._tries > TRIES:
            self._give_up(error.message)
        else:
            self._node.clock.call_later(50 * self._tries, lambda: None if self._stale else call())

    def _give_up(self, reason: str) -> None:
        """Cut off what was fetched and apply again what was held back. X1."""
        if self._stale:
            return
        replica, host = self.replica, self.replica.host
        self._node.log("warning", "replica.catch_up_failed", shard=replica.name, reason=reason)
        if replica.hollow and replica.is_leader:
            self._node.shards.stop_replica(replica, f"its log could not be filled: {reason}")
            return
        if replica.hollow or replica.applied_index == 0:
            self._ended(self, ok=False)  # nothing to go back to: wait for the next offer
            return
        if not isinstance(host, PartitionHost):
            replica.thaw()
            self._ended(self, ok=False)
            return
        self._cut_back(host, {"": host.machine.next_offset, **self._ends})

    def _cut_back(self, host: PartitionHost, ends: dict[str, int]) -> None:
        """Cut each log back to where it was before the first fetch."""
        replica = self.replica
        jobs: list[Callable[[], None]] = []

        def done(_: object, error: BaseException | None) -> None:
            if self._stale:
                return
            if error is not None:
                self._node.shards.stop_replica(replica, f"cutting back failed: {error}")
                return
            replica.thaw()
            self._ended(self, ok=False)

        try:
            for name, log in {"": host.log, **host.side}.items():
                end = ends.get(name, SIDE_START)  # it is here only since it was fetched
                jobs.append(log.cut_to(end, end))
        except LogFault as error:
            self._node.shards.stop_replica(replica, str(error))
            return

        def job() -> None:
            for cut in jobs:
                cut()

        self._node.segments.run(job, done)


def _reaches(replica: Replica, snapshot: Snapshot) -> bool:
    """Say whether our log holds what is offered, so that entries are enough."""
    return not replica.frozen and replica.raft.log.term_at(snapshot.index) == snapshot.term


def _ignore(_: Answer) -> None:
    """Nobody waits for this answer."""
