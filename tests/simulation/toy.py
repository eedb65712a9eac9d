"""A toy program for the tests of the world: all its instances share one perfect log.

It keeps every promise by cheating (the store survives crashes outside the disk), so the world, the
workload, the nemesis and the checker can be tried without the production node. ``Toy`` also says
what it gets from the network, for the tests of links.
"""

from collections.abc import Callable
from typing import Any

from raftline.model.batch import PLACE, BatchInfo
from raftline.model.calls import (
    Appended,
    CatalogView,
    ClusterStatus,
    Looked,
    NodeRow,
    PartitionRow,
    ReadReply,
    TopicRow,
    Verified,
)
from raftline.model.errors import OffsetOutOfRange, RaftlineError
from raftline.testing.batches import open_batches
from raftline.testing.hosts import Parts
from raftline.wire.peer.hello import WIRE_FORMAT, Hello


class ToyStore:
    """What all toys of one run share."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], list[tuple[int, int, bytes]]] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.starts: dict[tuple[str, int], int] = {}
        self.sequences: dict[tuple[str, int, int, int], int] = {}
        self.producers = 0
        self.names: list[str] = []
        self.gone: list[int] = []  # numbers of nodes that left
        self.forget_acked_every = 0  # planted: lose each n-th batch
        self.stamp_twice = False  # planted: give an offset again
        self.flip = False  # planted: change a byte of what is read
        self.silent = False  # planted: never answer some calls
        self.refuse = False  # planted: send callers away

    def append(self, topic: str, partition: int, batch: bytes, info: BatchInfo) -> Appended:
        key = (topic, partition)
        self.logs.setdefault((topic, partition), [])
        sequence = (topic, partition, info.producer_id, info.base_sequence)
        if info.producer_id >= 0 and sequence in self.sequences:
            return Appended(self.sequences[sequence], info.count, partition, 0, duplicate=True)
        end = self.ends.get(key, 0)
        placed = PLACE.pack(end, len(batch) - 12, 1) + batch[16:]
        self.sequences[sequence] = end
        log = self.logs[key]
        if not (self.forget_acked_every and len(log) % self.forget_acked_every == 3):
            log.append((end, info.count, placed))
        if not (self.stamp_twice and len(log) == 5):
            self.ends[key] = end + info.count
        return Appended(end, info.count, partition, 0)


class Toy:
    """One instance."""

    def __init__(self, parts: Parts, store: ToyStore) -> None:
        self.parts = parts
        self.store = store
        self.name = parts.settings.node.name
        self.heard: list[tuple[str, bytes]] = []
        self.links: list[Any] = []
        self.failures: list[tuple[str, bool, str]] = []
        self.refuse_links = ""
        self.on_fatal: Callable[[str], None] = print
        if self.name not in store.names:
            store.names.append(self.name)

    def start(self) -> None:
        self.parts.disk.mkdir("wal")
        for address in self.parts.settings.node.peers.values():
            if address != self.parts.settings.listen.peer:
                self.parts.network.dial(address)

    def stop(self, done: Callable[[], None]) -> None:
        self.parts.clock.call_soon(done)

    # Links

    def hello(self) -> Hello:
        return Hello(WIRE_FORMAT, "c", 1, self.name, "d", "p", self.parts.settings.listen.peer)

    def link_up(self, link: Any) -> str:
        if not self.refuse_links:
            self.links.append(link)
        return self.refuse_links

    def link_frame(self, link: Any, frame: memoryview) -> None:
        self.heard.append((link.peer.name, bytes(frame)))

    def link_down(self, link: Any) -> None:
        self.links.remove(link)

    def dial_failed(self, address: str, refused: bool, reason: str) -> None:
        self.failures.append((address, refused, reason))

    # Calls

    def _later(self, done: Callable[[Any], None], answer: Any) -> None:
        if not (self.store.silent and self.parts.rng.randrange(50) == 0):
            self.parts.clock.call_later(1.0 + self.parts.rng.random(), lambda: done(answer))

    def append(self, topic, partition, batch, info, timeout_ms, done) -> None:
        if self.store.refuse and self.name == "node-2":
            from raftline.model.errors import NotLeader

            self._later(done, NotLeader(topic))
            return

        def write() -> Appended:
            file = self.parts.disk.open("wal/1", create=True)
            file.write_at(file.size(), [batch])
            file.fdatasync()
            return self.store.append(topic, partition, batch, info)

        def written(answer: Appended | None, error: BaseException | None) -> None:
            if error is not None:
                self.on_fatal(str(error))
            self._later(done, answer)

        self.parts.sync_lane.submit(write, written)

    def read(
        self, topic, partition, offset, bytes_max, wait_ms, timeout_ms, done,
        *, linearizable=False, any_replica=False,
    ) -> None:  # fmt: skip
        key = (topic, partition)
        end, start = self.store.ends.get(key, 0), self.store.starts.get(key, 0)
        if not start <= offset <= end:
            self._later(done, OffsetOutOfRange(f"{topic}/{partition}", offset, start, end))
            return
        found = [b for o, n, b in self.store.logs.get(key, []) if o + n > offset]
        batches = b"".join(found[:8])
        if self.store.flip and len(found) > 3:
            batches = batches[:70] + bytes([batches[70] ^ 1]) + batches[71:]
        self._later(done, ReadReply(batches, start, end))

    def look_up_time(self, topic, partition, time_ms, timeout_ms, done) -> None:
        key = (topic, partition)
        batches = b"".join(b for _, _, b in self.store.logs.get(key, []))
        start, end = self.store.starts.get(key, 0), self.store.ends.get(key, 0)
        for message in open_batches(batches):
            if message.timestamp_ms >= time_ms and message.offset >= start:
                self._later(done, Looked(message.offset, message.timestamp_ms, end))
                return
        self._later(done, Looked(-1, -1, end))

    def command(self, name, arguments, timeout_ms, done) -> None:
        if name == "producer.new":
            self.store.producers += 1
            self._later(done, {"producer_id": self.store.producers})
            return
        if name == "topic.create":
            for number in range(int(arguments.get("partitions", 1))):
                self.store.logs.setdefault((str(arguments["name"]), number), [])
        if name == "cluster.remove":
            self.store.gone.append(arguments["node"])
        if name == "topic.trim":
            key = (arguments["name"], arguments["partition"])
            self.store.starts[key] = max(self.store.starts.get(key, 0), arguments["offset"])
            start = self.store.starts[key]
            self.store.logs[key] = [r for r in self.store.logs.get(key, []) if r[0] + r[1] > start]
        self._later(done, {})

    def verify(self, timeout_ms, done) -> None:
        self._later(done, Verified(identical=True, shards=()))

    def catalog(self) -> CatalogView:
        return CatalogView(
            cluster="c",
            version=1 + len(self.store.gone),
            nodes=tuple(
                NodeRow(id=i, name=n, rack="", peer="", http="", grpc="", kafka="", state="live")
                for i, n in enumerate(self.store.names, 1)
                if i not in self.store.gone
            ),
            topics=tuple(
                TopicRow(
                    name=topic,
                    uuid="",
                    replication_factor=3,
                    created_ms=0,
                    settings={},
                    partitions=tuple(
                        PartitionRow(partition=p, shard=p, leader=1, term=1, replicas=(1, 2, 3))
                        for t, p in self.store.logs
                        if t == topic
                    ),
                )
                for topic in dict.fromkeys(t for t, _ in self.store.logs)
            ),
        )

    def status(self) -> ClusterStatus:
        return ClusterStatus(
            cluster="c",
            node=1,
            name=self.name,
            ready=True,
            reason="",
            catalog_leader=1,
            catalog_version=1,
            nodes=(),
            shards=1,
            leaderless=(),
            quarantined=(),
            wal_bytes=0,
            free_bytes=0,
            uptime_ms=0,
        )


def toy_builder(store: ToyStore | None = None) -> Callable[[Parts], Toy]:
    """Return a builder of toys that share one store."""
    shared = store or ToyStore()
    return lambda parts: Toy(parts, shared)


__all__ = ["RaftlineError", "Toy", "ToyStore", "toy_builder"]
