"""Catch-up: a replica too far behind for entries is filled with state and log bytes.

The leader's core says SNAP and offers the machine state at an index. The receiver *fetches*: first
the log bytes it lacks, from its own end on if its prefix is the same (topic and chain agree), then
the machine state of the same index, in chunks, on the second link. When all of it is durable in a
checkpoint, the replica goes on from there under the same number.

Damaged ranges of a log are refilled by the same means and cost no vote.

Invariants
    X1  While bytes are fetched the replica applies nothing; given up, what was fetched is cut off.
    X2  The checkpoint that names the new state is durable before the replica goes on from it.
    X3  At most one catch-up per shard; a lost one is begun again by the leader's next offer. The
        leader offers again what nobody fetches: the offer was lost, or its receiver died.
    X4  What was acknowledged stays: entries above the new state that another leader gave meanwhile
        are kept. An offer of a leader that was voted out is not taken.
    X5  A log that was dropped to be filled anew, and that nobody fills, costs the replica its
        place: it can neither apply nor go back.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.partition.machine import PartitionMachine
from raftline.model.errors import Damaged, NotReady, RaftlineError
from raftline.model.ids import ReplicaId, node_of
from raftline.node.catalog import CatalogHost
from raftline.node.partition import Offer, PartitionHost
from raftline.node.remote import (
    VERB_FETCH,
    VERB_FETCH_STATE,
    VERB_RANGE,
    VERB_SNAPSHOT_FAILED,
    Answer,
    Reply,
)
from raftline.node.replica import Replica, Start
from raftline.raft.progress import ProgressState
from raftline.raft.rpc import Entry, HardState, Rpc, Snapshot
from raftline.storage.checkpoint import Checkpoint, write_checkpoint
from raftline.storage.log_words import CHAIN_UNKNOWN, DamagedRange, Exported, LogFault

if TYPE_CHECKING:
    from raftline.node.node import Node

CHUNK_BYTES = 1 << 20
FETCH_TIMEOUT_MS = 5_000
TRIES = 3
REPAIR_AGAIN_MS = 1_000
HOLLOW_MS = 15_000
OFFER_LOST_MS = 3_000  # without a fetch; a receiver that is only slow ignores the new offer

_pack = msgspec.msgpack.encode


class Fetch(msgspec.Struct, frozen=True, array_like=True):
    """Ask for log bytes of an offer; ``chain`` at ``start`` proves that the prefix is the same."""

    shard: int
    index: int
    start: int
    end: int
    chain: int  # CHAIN_UNKNOWN: do not check


class Fetched(msgspec.Struct, frozen=True, array_like=True):
    """Log bytes, or the word to drop what is there and begin at ``start``."""

    start: int
    chain: int
    at_ms: int
    reset: bool
    data: bytes


class FetchState(msgspec.Struct, frozen=True, array_like=True):
    """Ask for a piece of an offer's machine state."""

    shard: int
    index: int
    position: int


class SnapshotResult(msgspec.Struct, frozen=True, array_like=True):
    """Tell the leader how a catch-up ended."""

    shard: int
    replica: int
    ok: bool


class CatchUps:
    """Fetching and giving of state."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._running: dict[int, CatchUp] = {}
        self._repairing: set[tuple[int, int]] = set()
        self._fetched_mono: dict[int, float] = {}  # as leader: shard -> last sign of a fetch
        self._hollow_mono: dict[int, float] = {}  # shard -> since when nobody fills it
        self._failures: dict[tuple[int, int], int] = {}

    def serve(self) -> None:
        """Answer other nodes."""
        remote = self._node.remote
        remote.handle(VERB_FETCH, self._on_fetch)
        remote.handle(VERB_FETCH_STATE, self._on_fetch_state)
        remote.handle(VERB_SNAPSHOT_FAILED, self._on_result)
        remote.handle(VERB_RANGE, self._on_range)

    def busy(self, shard: int) -> bool:
        """Say whether a shard is being filled."""
        return shard in self._running

    # ------------------------------------------------------------------ receiving

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

    def watch(self, replica: Replica, now: float) -> None:
        """As a shard's leader: make an offer again that nobody fetches. X3."""
        waiting = [
            other
            for other, progress in replica.raft.progress.items()
            if progress.state == ProgressState.SNAPSHOT
        ]
        if not waiting:
            self._fetched_mono.pop(replica.shard, None)
            return
        if now - self._fetched_mono.setdefault(replica.shard, now) < OFFER_LOST_MS:
            return
        self._fetched_mono[replica.shard] = now
        for other in waiting:
            self._node.log("info", "replica.offer_lost", shard=replica.name, replica=other)
            replica.snapshot_ended(other, ok=False)

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
        self._fetched_mono.pop(shard, None)

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

    # ------------------------------------------------------------------ giving

    def _on_result(self, body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        result = msgspec.msgpack.decode(body, type=SnapshotResult)
        replica = self._node.shards.get(result.shard)
        if replica is not None and replica.is_leader:
            replica.snapshot_ended(result.replica, ok=result.ok)
        reply(b"")

    def _on_fetch(self, body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        fetch = msgspec.msgpack.decode(body, type=Fetch)
        self._fetched_mono[fetch.shard] = self._node.clock.mono_ms()
        replica = self._node.shards.get(fetch.shard)
        host = replica.host if replica is not None else None
        if not isinstance(host, PartitionHost) or host.offered_state(fetch.index) is None:
            reply(NotReady(f"there is no offer at {fetch.index} any more"))
            return
        log = host.log
        start, end = fetch.start, fetch.end
        log_end = log.log_end
        from_start = log.export_job(log.log_start, 1)  # a trim may be inside a batch
        chain_job = log.chain_job(start)
        export_job = log.export_job(start, CHUNK_BYTES, end)

        def job() -> Fetched:
            first = from_start()
            if not first.start <= start <= log_end or fetch.chain not in (
                CHAIN_UNKNOWN,
                chain_job(),
            ):
                return Fetched(first.start, first.chain_start, 0, True, b"")
            if start >= end:
                return Fetched(start, CHAIN_UNKNOWN, 0, False, b"")
            got = export_job()
            return Fetched(got.start, got.chain_start, got.at_ms, False, got.data)

        self._node.segments.run(job, lambda got, error: self._give(host, got, error, reply))

    def _give(
        self,
        host: PartitionHost,
        got: msgspec.Struct | None,
        error: BaseException | None,
        reply: Reply,
    ) -> None:
        if got is not None:
            reply(_pack(got))
        elif isinstance(error, DamagedRange):
            reply(self._node.segments.damaged(host, error))
        else:
            reply(NotReady(f"{host.name}: {error}"))

    def _on_fetch_state(self, body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        fetch = msgspec.msgpack.decode(body, type=FetchState)
        self._fetched_mono[fetch.shard] = self._node.clock.mono_ms()
        replica = self._node.shards.get(fetch.shard)
        host = replica.host if replica is not None else None
        state = None
        if isinstance(host, PartitionHost | CatalogHost):
            state = host.offered_state(fetch.index)
        if state is None:
            reply(NotReady(f"there is no offer at {fetch.index} any more"))
        else:
            reply(state[fetch.position : fetch.position + CHUNK_BYTES])

    # ------------------------------------------------------------------ repairing

    def repair(self, host: PartitionHost, start: int, end: int) -> None:
        """Refill a damaged range of a log from another replica."""
        replica = host.replica
        if replica is None or replica.is_closed or (replica.shard, start) in self._repairing:
            return
        others = [node_of(ReplicaId(r)) for r in (*replica.conf.voters, *replica.conf.learners)]
        nodes = [n for n in others if n != self._node.id and self._node.peers.is_live(n)]
        if not nodes:
            self._node.log("error", "log.no_source", partition=host.name, start=start, end=end)
            return
        self._repairing.add((replica.shard, start))
        self._ask_range(host, start, end, nodes)

    def _ask_range(self, host: PartitionHost, start: int, end: int, nodes: Sequence[int]) -> None:
        replica = host.replica
        assert replica is not None
        key = (replica.shard, start)
        if not nodes or replica.is_closed:
            self._not_repaired(host, replica, key)
            return

        def answered(answer: Answer) -> None:
            if isinstance(answer, RaftlineError):
                self._ask_range(host, start, end, nodes[1:])
            else:
                self._node.segments.run(host.log.repair_job(start, end, answer), repaired)

        def repaired(left: object, error: BaseException | None) -> None:
            if error is not None or left:
                self._node.log(
                    "warning",
                    "log.repair_failed",
                    partition=host.name,
                    start=start,
                    reason=str(error or left),
                )
                self._ask_range(host, start, end, nodes[1:])
                return
            self._repairing.discard(key)
            self._failures.pop(key, None)
            self._node.log("info", "log.repaired", partition=host.name, start=start, end=end)

        body = [_pack((replica.shard, start, end))]
        self._node.remote.call(nodes[0], VERB_RANGE, body, FETCH_TIMEOUT_MS, answered, bulk=True)

    def _not_repaired(self, host: PartitionHost, replica: Replica, key: tuple[int, int]) -> None:
        """Try again later; a range nobody can give costs the replica its place."""
        self._failures[key] = self._failures.get(key, 0) + 1
        self._node.clock.call_later(REPAIR_AGAIN_MS, lambda: self._repairing.discard(key))
        if self._failures[key] < TRIES or replica.is_closed or len(replica.conf.voters) < 3:
            return
        del self._failures[key]
        reason = f"{host.name}@{key[1]} is damaged and no other replica has those bytes any more"
        self._node.shards.stop_replica(replica, reason)

    def _on_range(self, body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        shard, start, end = msgspec.msgpack.decode(body, type=tuple[int, int, int])
        replica = self._node.shards.get(shard)
        host = replica.host if replica is not None else None
        if not isinstance(host, PartitionHost) or host.log.log_end < end:
            reply(NotReady(f"shard {shard} does not reach {end} here"))
            return
        job = host.log.export_job(start, 1 << 30, end)

        def exported(got: Exported | None, error: BaseException | None) -> None:
            if got is not None and (got.start, got.end) == (start, end):
                reply(got.data)
            elif isinstance(error, DamagedRange):
                reply(Damaged(f"{host.name}@{start}", str(error)))
            else:
                reply(NotReady(f"{host.name}: [{start}, {end}) cannot be given: {error}"))

        self._node.segments.run(job, exported)


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

    @property
    def _stale(self) -> bool:
        return self._node.shards.get(self.replica.shard) is not self.replica

    def start(self) -> None:
        """Stop applying, then fetch. X1."""
        self.replica.frozen = True
        host = self.replica.host
        if not isinstance(host, PartitionHost):
            self._fetch_state()
            return

        def chained(chain: int | None, error: BaseException | None) -> None:
            if self._stale:
                return
            if chain is None:
                self._give_up(f"our own log cannot be read: {error}")
            else:
                self._fetch(chain)

        self._node.segments.run(host.log.chain_job(host.log.log_end), chained)

    # ------------------------------------------------------------------ the log

    def _fetch(self, chain: int) -> None:
        host = self.replica.host
        assert isinstance(host, PartitionHost)
        fetch = Fetch(
            self.replica.shard, self._snapshot.index, host.log.log_end, self._offer.log_end, chain
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
        host = self.replica.host
        assert isinstance(host, PartitionHost)
        if got.data:
            try:
                host.log.import_batches(got.data, got.at_ms)
            except LogFault as error:
                self._give_up(str(error))
                return
            self._fetched_bytes += len(got.data)
            self._node.segments.appended(host)
        if host.log.log_end >= self._offer.log_end:
            self._fetch_state()
            return
        if not got.data:
            self._give_up(f"the source ends at {got.start}, before {self._offer.log_end}")
            return
        self._pace(lambda: self._fetch(CHAIN_UNKNOWN))

    def _reset(self, got: Fetched) -> None:
        """Our prefix is not the source's, or older than it keeps: begin at its start."""
        host = self.replica.host
        assert isinstance(host, PartitionHost)
        self.replica.hollow = True
        job = host.log.reset(got.start, got.chain)

        def done(_: object, error: BaseException | None) -> None:
            if self._stale:
                return
            if error is not None:
                self._node.shards.stop_replica(self.replica, f"log reset failed: {error}")
            elif host.log.log_end >= self._offer.log_end:
                self._fetch_state()
            else:
                self._fetch(CHAIN_UNKNOWN)

        self._node.segments.run(job, done)

    def _pace(self, call: Callable[[], None]) -> None:
        rate = self._node.settings.log.catch_up_bytes_per_second
        due = self._fetched_bytes * 1000 / rate if rate else 0
        wait = self._began + due - self._node.clock.mono_ms()
        host = self.replica.host
        unflushed = host.log.unflushed_bytes if isinstance(host, PartitionHost) else 0
        if wait > 0 or unflushed > 32 * CHUNK_BYTES:
            self._node.clock.call_later(max(wait, 5), lambda: None if self._stale else call())
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
            host.log.trim(machine.log_start)
            fresh = node.shards.new_host(replica.shard, host.name, host.identity, machine, host.log)
            sync = host.log.sync_job()
            at_ms, level = machine.at_ms, machine.feature_level
            identity = host.identity
            build = lambda: msgspec.structs.replace(  # noqa: E731
                head,
                log=sync(),
                at_ms=at_ms,
                feature_level=level,
                topic_uuid=identity.topic_uuid,
                partition=identity.partition,
            )
        else:
            assert isinstance(host, CatalogHost)
            fresh = node.new_catalog_host()
            fresh.machine.restore(state)
            build = lambda: head  # noqa: E731
        directory = host.directory

        def job() -> Checkpoint:
            checkpoint = build()
            write_checkpoint(node.disk, directory, checkpoint)
            return checkpoint

        def done(made: Checkpoint | None, error: BaseException | None) -> None:
            if self._stale:
                return
            if made is None:
                node.shards.stop_replica(replica, f"catch-up checkpoint failed: {error}")
                return
            if made.log is not None and isinstance(host, PartitionHost):
                host.checkpointed(made.log)
            self._go_on(fresh, made)

        node.segments.run(job, done)

    def _go_on(self, fresh: PartitionHost | CatalogHost, made: Checkpoint) -> None:
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
        end = host.machine.next_offset

        def done(_: object, error: BaseException | None) -> None:
            if self._stale:
                return
            if error is not None:
                self._node.shards.stop_replica(replica, f"cutting back failed: {error}")
                return
            replica.thaw()
            self._ended(self, ok=False)

        try:
            job = host.log.cut_to(end, end)
        except LogFault as error:
            self._node.shards.stop_replica(replica, str(error))
            return
        self._node.segments.run(job, done)


def _reaches(replica: Replica, snapshot: Snapshot) -> bool:
    """Say whether our log holds what is offered, so that entries are enough."""
    return not replica.frozen and replica.raft.log.term_at(snapshot.index) == snapshot.term


def _ignore(_: Answer) -> None:
    """Nobody waits for this answer."""
