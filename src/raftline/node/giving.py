"""Giving: the side of a catch-up that has the bytes (the other one: catch_up.py).

A leader's core offers the machine state at an index; its host holds it. Whoever is filled asks for
log bytes and for the state, piece by piece, and says how it ended.

Invariants
    G1  Bytes are given of an offer that still stands, and only after their sums are verified.
    G2  A prefix is kept only where its chain is the same; else the word is to begin anew.
    G3  What nobody fetches is offered again: the offer was lost, or its receiver died.
    G4  A side log may have let go of all that an offer holds of it, before it was fetched: then it
        begins, empty, where the offer ends.
"""

from typing import TYPE_CHECKING

import msgspec

from raftline.model.errors import NotReady
from raftline.node.partition import PartitionHost
from raftline.node.remote import VERB_FETCH, VERB_FETCH_STATE, VERB_SNAPSHOT_FAILED, Reply
from raftline.node.replica import Replica
from raftline.node.state_host import StateHost
from raftline.raft.progress import ProgressState
from raftline.storage.log_words import CHAIN_UNKNOWN, DamagedRange

if TYPE_CHECKING:
    from raftline.node.node import Node

CHUNK_BYTES = 1 << 20
CHAIN_ANY = 0  # of an empty log whose past nobody knows
OFFER_LOST_MS = 3_000  # without a fetch; a receiver that is only slow ignores the new offer

_pack = msgspec.msgpack.encode


class Fetch(msgspec.Struct, frozen=True, array_like=True):
    """Ask for log bytes of an offer; ``chain`` at ``start`` proves that the prefix is the same."""

    shard: int
    index: int
    start: int
    end: int
    chain: int  # CHAIN_UNKNOWN: do not check
    log: str = ""  # the name of a side log


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


class Giving:
    """Gives state and log bytes to replicas that are far behind."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._fetched_mono: dict[int, float] = {}  # shard -> last sign of a fetch

    def serve(self) -> None:
        """Answer other nodes."""
        remote = self._node.remote
        remote.handle(VERB_FETCH, self._on_fetch)
        remote.handle(VERB_FETCH_STATE, self._on_fetch_state)
        remote.handle(VERB_SNAPSHOT_FAILED, self._on_result)

    def watch(self, replica: Replica, now: float) -> None:
        """As a shard's leader: make an offer again that nobody fetches. G3."""
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

    def closed(self, shard: int) -> None:
        """Our replica of a shard went away."""
        self._fetched_mono.pop(shard, None)

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
        log = host.log_named(fetch.log) if isinstance(host, PartitionHost) else None
        if (
            not isinstance(host, PartitionHost)
            or log is None
            or host.offered_state(fetch.index) is None
        ):
            reply(NotReady(f"there is no offer at {fetch.index} any more"))
            return
        is_gone = bool(fetch.log) and log.log_start >= fetch.end > fetch.start  # G4
        start, end = fetch.start, fetch.end
        log_end = log.log_end
        from_start = log.export_job(log.log_start, 1)  # a trim may be inside a batch
        chain_job = log.chain_job(start)
        export_job = log.export_job(start, CHUNK_BYTES, end)

        def job() -> Fetched:
            if is_gone:
                return Fetched(end, CHAIN_ANY, 0, True, b"")
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

        self._node.segments.run(
            job, lambda got, error: self._give(host, fetch.log, got, error, reply)
        )

    def _give(
        self,
        host: PartitionHost,
        name: str,
        got: msgspec.Struct | None,
        error: BaseException | None,
        reply: Reply,
    ) -> None:
        if got is not None:
            reply(_pack(got))
        elif isinstance(error, DamagedRange):
            reply(self._node.segments.damaged(host, error, name))
        else:
            reply(NotReady(f"{host.name}: {error}"))

    def _on_fetch_state(self, body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        fetch = msgspec.msgpack.decode(body, type=FetchState)
        self._fetched_mono[fetch.shard] = self._node.clock.mono_ms()
        replica = self._node.shards.get(fetch.shard)
        host = replica.host if replica is not None else None
        state = None
        if isinstance(host, PartitionHost | StateHost):
            state = host.offered_state(fetch.index)
        if state is None:
            reply(NotReady(f"there is no offer at {fetch.index} any more"))
        else:
            reply(state[fetch.position : fetch.position + CHUNK_BYTES])
