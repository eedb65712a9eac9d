"""Repairs: damaged ranges of a log are refilled from other replicas.

A range is asked for from one live replica after another; what comes must match the sums that are
stored beside the log. It costs no vote.

Invariants
    Q1  One repair of a range at a time.
    Q2  A range that no replica can give costs this one its place, where the rest is a majority.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.model.errors import Damaged, NotReady, RaftlineError
from raftline.model.ids import ReplicaId, node_of
from raftline.node.partition import PartitionHost
from raftline.node.remote import VERB_RANGE, Answer, Reply
from raftline.node.replica import Replica
from raftline.storage.log_words import DamagedRange, Exported

if TYPE_CHECKING:
    from raftline.node.node import Node

TIMEOUT_MS = 5_000
TRIES = 3
AGAIN_MS = 1_000

Key = tuple[int, str, int]  # shard, name of the log, start

_pack = msgspec.msgpack.encode


class Repairs:
    """Refills damaged ranges, and gives ranges to others."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._repairing: set[Key] = set()
        self._failures: dict[Key, int] = {}

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_RANGE, self._on_range)

    def repair(self, host: PartitionHost, start: int, end: int, log: str = "") -> None:
        """Refill a damaged range of a log from another replica; ``log`` names a side log."""
        replica = host.replica
        if replica is None or replica.is_closed or (replica.shard, log, start) in self._repairing:
            return
        others = [node_of(ReplicaId(r)) for r in (*replica.conf.voters, *replica.conf.learners)]
        nodes = [n for n in others if n != self._node.id and self._node.peers.is_live(n)]
        if not nodes:
            self._node.log("error", "log.no_source", partition=host.name, start=start, end=end)
            return
        self._repairing.add((replica.shard, log, start))
        self._ask_range(host, log, start, end, nodes)

    def _ask_range(
        self, host: PartitionHost, name: str, start: int, end: int, nodes: Sequence[int]
    ) -> None:
        replica = host.replica
        assert replica is not None
        key = (replica.shard, name, start)
        log = host.log_named(name)
        if log is None or end <= log.log_start:  # nobody needs those bytes any more
            self._repairing.discard(key)
            return
        if not nodes or replica.is_closed:
            self._not_repaired(host, replica, key)
            return

        def answered(answer: Answer) -> None:
            if isinstance(answer, RaftlineError):
                self._ask_range(host, name, start, end, nodes[1:])
            else:
                self._node.segments.run(log.repair_job(start, end, answer), repaired)

        def repaired(left: object, error: BaseException | None) -> None:
            if error is not None or left:
                self._node.log(
                    "warning",
                    "log.repair_failed",
                    partition=host.name,
                    start=start,
                    reason=str(error or left),
                )
                self._ask_range(host, name, start, end, nodes[1:])
                return
            self._repairing.discard(key)
            self._failures.pop(key, None)
            self._node.log("info", "log.repaired", partition=host.name, start=start, end=end)

        body = [_pack((replica.shard, start, end, name))]
        self._node.remote.call(nodes[0], VERB_RANGE, body, TIMEOUT_MS, answered, bulk=True)

    def _not_repaired(self, host: PartitionHost, replica: Replica, key: Key) -> None:
        """Try again later; a range nobody can give costs the replica its place."""
        self._failures[key] = self._failures.get(key, 0) + 1
        self._node.clock.call_later(AGAIN_MS, lambda: self._repairing.discard(key))
        if self._failures[key] < TRIES or replica.is_closed or len(replica.conf.voters) < 3:
            return
        del self._failures[key]
        name = f"{host.name}:{key[1]}" if key[1] else host.name
        reason = f"{name}@{key[2]} is damaged and no other replica has those bytes any more"
        self._node.shards.stop_replica(replica, reason)

    def _on_range(self, body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        shard, start, end, name = msgspec.msgpack.decode(body, type=tuple[int, int, int, str])
        replica = self._node.shards.get(shard)
        host = replica.host if replica is not None else None
        log = host.log_named(name) if isinstance(host, PartitionHost) else None
        if not isinstance(host, PartitionHost) or log is None or log.log_end < end:
            reply(NotReady(f"shard {shard} does not reach {end} here"))
            return
        job = log.export_job(start, 1 << 30, end)

        def exported(got: Exported | None, error: BaseException | None) -> None:
            if got is not None and (got.start, got.end) == (start, end):
                reply(got.data)
            elif isinstance(error, DamagedRange):
                reply(Damaged(f"{host.name}@{start}", str(error)))
            else:
                reply(NotReady(f"{host.name}: [{start}, {end}) cannot be given: {error}"))

        self._node.segments.run(job, exported)
