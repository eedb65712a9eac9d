"""Repairs: damaged ranges of a log are refilled from other replicas.

A range is asked for from one live replica after another, piece by piece: all of a segment may be
lost, and the other's segments may begin elsewhere. What comes must match the sums that are stored
beside the log. It costs no vote.

Invariants
    Q1  One repair of a range at a time.
    Q2  A range that no replica can give costs this one its place, where the rest is a majority.
        Only tries with all others alive count: one that is down may have those bytes.
    Q3  No piece is more than a frame can carry; the range is written when all of it is here.
    Q4  After a try that failed the range is looked at again, ever more rarely, whether or not
        anybody reads it: the first call to a node that returned may find a dead link.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.model.errors import Damaged, NotReady, RaftlineError
from raftline.model.ids import ReplicaId, node_of
from raftline.node.partition import PartitionHost
from raftline.node.remote import VERB_RANGE, Answer, Reply
from raftline.node.replica import Replica
from raftline.storage.batches import end_of
from raftline.storage.log_words import DamagedRange, Exported

if TYPE_CHECKING:
    from raftline.node.node import Node

TIMEOUT_MS = 5_000
TRIES = 3
AGAIN_MS = 1_000
AGAIN_MS_MAX = 30_000
PIECE_BYTES = 16 << 20

Key = tuple[int, str, int]  # shard, name of the log, start

_pack = msgspec.msgpack.encode


class Repairs:
    """Refills damaged ranges, and gives ranges to others."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._repairing: set[Key] = set()
        self._failures: dict[Key, tuple[int, int]] = {}  # all, and those with all others alive
        self._looking: set[Key] = set()  # a look at the range is due

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_RANGE, self._on_range)

    def repair(self, host: PartitionHost, start: int, end: int, log: str = "") -> None:
        """Refill a damaged range of a log from another replica; ``log`` names a side log."""
        replica = host.replica
        if replica is None or replica.is_closed or (replica.shard, log, start) in self._repairing:
            return
        key = (replica.shard, log, start)
        others = self._others(replica)
        nodes = [node for node in others if self._node.peers.is_live(node)]
        if not nodes and key not in self._failures:
            self._node.log("error", "log.no_source", partition=host.name, start=start, end=end)
        if others:
            self._repairing.add(key)
            self._ask_range(host, log, start, end, nodes)

    def _others(self, replica: Replica) -> list[int]:
        """Return the nodes that have another replica of the shard."""
        members = (*replica.conf.voters, *replica.conf.learners)
        nodes = [int(node_of(ReplicaId(member))) for member in members]
        return [node for node in nodes if node != self._node.id]

    def _ask_range(
        self, host: PartitionHost, name: str, start: int, end: int, nodes: Sequence[int]
    ) -> None:
        replica = host.replica
        assert replica is not None
        key = (replica.shard, name, start)
        log = host.log_named(name)
        if log is None or end <= log.log_start or replica.is_closed:  # nobody needs those bytes
            self._forget(key)
            return
        if not nodes:
            self._not_repaired(host, replica, key)
            return
        pieces: list[bytes] = []

        def ask(from_offset: int) -> None:
            body = [_pack((replica.shard, from_offset, end, name))]
            self._node.remote.call(
                nodes[0],
                VERB_RANGE,
                body,
                TIMEOUT_MS,
                lambda answer: answered(from_offset, answer),
                bulk=True,
            )

        def answered(from_offset: int, answer: Answer) -> None:
            if isinstance(answer, RaftlineError):
                self._ask_range(host, name, start, end, nodes[1:])
                return
            pieces.append(answer)
            self._node.segments.run(
                lambda: end_of(memoryview(answer), from_offset),
                lambda reached, _: looked(from_offset, reached),
            )

        def looked(from_offset: int, reached: int | None) -> None:
            if reached is not None and from_offset < reached < end:
                ask(reached)
            else:  # what is no batch, or does not end there, is refused with the rest
                good = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                self._node.segments.run(log.repair_job(start, end, good), repaired)

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
            self._forget(key)
            self._node.log("info", "log.repaired", partition=host.name, start=start, end=end)

        ask(start)

    def _forget(self, key: Key) -> None:
        self._repairing.discard(key)
        self._failures.pop(key, None)

    def _not_repaired(self, host: PartitionHost, replica: Replica, key: Key) -> None:
        """Try again later; a range nobody can give costs the replica its place. Q2, Q4."""
        failed, refused = self._failures.get(key, (0, 0))
        refused += all(self._node.peers.is_live(node) for node in self._others(replica))
        self._failures[key] = (failed + 1, refused)
        if refused < TRIES or len(replica.conf.voters) < 3:
            self._node.clock.call_later(AGAIN_MS, lambda: self._repairing.discard(key))
            self._look_later(host, replica, key)
            return
        self._forget(key)
        name = f"{host.name}:{key[1]}" if key[1] else host.name
        reason = f"{name}@{key[2]} is damaged and no other replica has those bytes any more"
        self._node.shards.stop_replica(replica, reason)

    def _look_later(self, host: PartitionHost, replica: Replica, key: Key) -> None:
        if key not in self._looking:
            self._looking.add(key)
            failed, _ = self._failures.get(key, (1, 0))
            pause_ms = min(AGAIN_MS_MAX, AGAIN_MS << min(failed - 1, 5))
            self._node.clock.call_later(pause_ms, lambda: self._look_again(host, replica, key))

    def _look_again(self, host: PartitionHost, replica: Replica, key: Key) -> None:
        """Repair a range if it is still damaged: meanwhile it may be trimmed or replaced."""
        _, name, start = key
        self._looking.discard(key)
        log = host.log_named(name)
        if log is None or replica.is_closed:
            self._forget(key)
            return
        if key in self._repairing:  # a reader was faster
            self._look_later(host, replica, key)
            return

        def looked(_: Exported | None, error: BaseException | None) -> None:
            if not isinstance(error, DamagedRange) or error.start_offset != start:
                self._failures.pop(key, None)
            if isinstance(error, DamagedRange):
                self.repair(host, error.start_offset, error.end_offset, name)

        self._node.segments.run(log.export_job(start, 1, log.log_end), looked)

    def _on_range(self, body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        shard, start, end, name = msgspec.msgpack.decode(body, type=tuple[int, int, int, str])
        replica = self._node.shards.get(shard)
        host = replica.host if replica is not None else None
        log = host.log_named(name) if isinstance(host, PartitionHost) else None
        if not isinstance(host, PartitionHost) or log is None or log.log_end < end:
            reply(NotReady(f"shard {shard} does not reach {end} here"))
            return
        job = log.export_job(start, PIECE_BYTES, end)  # Q3

        def exported(got: Exported | None, error: BaseException | None) -> None:
            if got is not None and got.start == start < got.end:
                reply(got.data)
            elif isinstance(error, DamagedRange):
                reply(Damaged(f"{host.name}@{start}", str(error)))
            else:
                reply(NotReady(f"{host.name}: [{start}, {end}) cannot be given: {error}"))

        self._node.segments.run(job, exported)
