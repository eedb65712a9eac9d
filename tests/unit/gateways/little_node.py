"""A node in one dictionary: the calls a gateway makes, on a log in memory. No disk, no peers."""

from collections.abc import Callable, Sequence
from typing import Any

from raftline.machines.partition.dedup import Dedup
from raftline.machines.partition.side_car import SideCar, problem
from raftline.model.batch import PLACE, BatchInfo
from raftline.model.calls import (
    Appended,
    CatalogView,
    ClusterStatus,
    Looked,
    NewWaiting,
    NodeRow,
    PartitionRow,
    ReadReply,
    Scheduled,
    TopicRow,
    Verified,
)
from raftline.model.errors import (
    ErrorWire,
    InvalidArgument,
    OffsetOutOfRange,
    RaftlineError,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from raftline.model.overview import NodeGlance, Overview
from raftline.model.settings import effective
from raftline.telemetry.counters import Counters
from raftline.telemetry.metrics import Board

Done = Callable[[Any], None]


class LittleNode:
    """Topics with logs. ``later`` holds answers back until ``release``."""

    def __init__(self, partitions: int = 3) -> None:
        self.partitions = partitions
        self.logs: dict[str, list[list[tuple[int, bytes, BatchInfo]]]] = {}
        self.settings: dict[str, dict[str, Any]] = {}
        self.commands: list[tuple[str, dict[str, object]]] = []
        self.timeouts: list[int] = []
        self.later: list[tuple[Done, Any]] | None = None
        self.refuse: RaftlineError | None = None
        self.ready = True
        self.counters = Counters()
        self.hidden = 0  # how many more times a new topic is not seen
        self.dedup: dict[tuple[str, int], Dedup] = {}
        self.sides: list[tuple[str, int, int, SideCar]] = []  # topic, partition, base offset
        self.waiting: list[tuple[str, int, NewWaiting]] = []
        self._turn = 0
        self._parked: list[tuple[str, int, Callable[[], None]]] = []

    def topic(self, name: str, partitions: int | None = None) -> None:
        self.logs[name] = [[] for _ in range(partitions or self.partitions)]

    def release(self, order: Callable[[list[Any]], list[Any]] = list) -> None:
        waiting, self.later = self.later or [], None
        for done, answer in order(waiting):
            done(answer)

    def _answer(self, done: Done, answer: Any) -> None:
        if self.later is None:
            done(answer)
        else:
            self.later.append((done, answer))

    def _log(self, topic: str, partition: int) -> list[tuple[int, bytes, BatchInfo]]:
        if topic not in self.logs:
            raise UnknownTopic(topic)
        if partition >= len(self.logs[topic]):
            raise UnknownPartition(topic, partition, len(self.logs[topic]))
        return self.logs[topic][partition]

    def end_of(self, topic: str, partition: int) -> int:
        log = self.logs[topic][partition]
        return log[-1][0] + log[-1][2].count if log else 0

    def settings_of(self, topic: str) -> dict[str, Any]:
        return effective(self.settings.get(topic, {}))

    def append(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        info: BatchInfo,
        timeout_ms: int,
        done: Done,
        side: SideCar | None = None,
    ) -> None:
        self.timeouts.append(timeout_ms)
        if self.refuse is not None:
            self._answer(done, self.refuse)
            return
        if topic not in self.logs:
            self.topic(topic)
        try:
            log = self._log(topic, partition)
        except RaftlineError as error:
            self._answer(done, error)
            return
        base = self.end_of(topic, partition)
        if side is not None:
            assert not problem(side, info.count)
            dedup = self.dedup.setdefault((topic, partition), Dedup())
            refusal = dedup.admit(side.dedup, 0)
            if refusal is not None:
                self._answer(done, refusal)
                return
            dedup.stored(side.dedup, base, 1)
            self.sides.append((topic, partition, base, side))
        log.append((base, PLACE.pack(base, info.length - 12, 7) + batch[16:], info))
        self._answer(done, Appended(base, info.count, partition, 0))
        parked, self._parked = self._parked, []
        for row in parked:
            if row[:2] == (topic, partition):
                row[2]()
            else:
                self._parked.append(row)

    def schedule(
        self, topic: str, partition: int, items: list[NewWaiting], timeout_ms: int, done: Done
    ) -> None:
        if self.refuse is not None:
            self._answer(done, self.refuse)
            return
        dedup = self.dedup.setdefault((topic, partition), Dedup())
        numbers: list[int] = []
        refusals: dict[int, ErrorWire] = {}
        for at, item in enumerate(items):
            keys = [(0, item.dedup)] if item.dedup else []
            refusal = dedup.admit(keys, 0)
            if refusal is not None:
                refusals[at] = refusal.to_wire()
                numbers.append(0)
                continue
            self.waiting.append((topic, partition, item))
            numbers.append(len(self.waiting))
            dedup.stored(keys, -len(self.waiting), 1)
        self._answer(done, Scheduled(numbers, partition, 1_800_000_000_000, refusals))

    def partitions_for(
        self, topic: str, keys: Sequence[bytes | None]
    ) -> list[int] | RaftlineError | None:
        if topic.startswith("!"):
            return InvalidArgument("bad name")
        if topic not in self.logs:
            return None
        if self.hidden:
            self.hidden -= 1
            return None
        return [self._choose(key, len(self.logs[topic])) for key in keys]

    def _choose(self, key: bytes | None, count: int) -> int:
        if key is None:
            self._turn += 1
            return self._turn % count
        return sum(key) % count

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        bytes_max: int,
        wait_ms: int,
        timeout_ms: int,
        done: Done,
        *,
        linearizable: bool = False,
        any_replica: bool = False,
    ) -> None:
        try:
            log = self._log(topic, partition)
        except RaftlineError as error:
            self._answer(done, error)
            return
        end = self.end_of(topic, partition)
        if offset > end:
            self._answer(done, OffsetOutOfRange(f"{topic}/{partition}", offset, 0, end))
            return
        if offset == end and wait_ms:
            again = lambda: self.read(topic, partition, offset, bytes_max, 0, 0, done)  # noqa: E731
            self._parked.append((topic, partition, again))
            return
        out, size = [], 0
        for base, batch, info in log:
            if base + info.count > offset and (not out or size + len(batch) <= bytes_max):
                out.append(batch)
                size += len(batch)
        self._answer(done, ReadReply(b"".join(out), 0, end))

    def look_up_time(
        self, topic: str, partition: int, time_ms: int, timeout_ms: int, done: Done
    ) -> None:
        try:
            log = self._log(topic, partition)
        except RaftlineError as error:
            self._answer(done, error)
            return
        end = self.end_of(topic, partition)
        for base, _, info in log:
            if info.max_timestamp >= time_ms:
                self._answer(done, Looked(base, info.max_timestamp, end))
                return
        self._answer(done, Looked(-1, -1, end))

    def command(self, name: str, arguments: dict[str, object], timeout_ms: int, done: Done) -> None:
        self.commands.append((name, arguments))
        if self.refuse is not None:
            self._answer(done, self.refuse)
        elif name == "topic.create":
            topic = str(arguments["name"])
            if topic in self.logs:
                self._answer(done, TopicExists(topic))
                return
            self.topic(topic, arguments.get("partitions"))  # type: ignore[arg-type]
            self._answer(done, {})
        elif name == "topic.delete" and arguments["name"] not in self.logs:
            self._answer(done, UnknownTopic(str(arguments["name"])))
        elif name == "producer.new":
            self._answer(done, {"producer_id": 41, "epoch": 0})
        else:
            self._answer(done, {"ok": True})

    def verify(self, timeout_ms: int, done: Done) -> None:
        self._answer(done, Verified(True, ()))

    def metrics(self, done: Done) -> None:
        board = Board()
        board.put("raftline_ready", int(self.ready))
        self._answer(done, board)

    def overview(self, timeout_ms: int, done: Done) -> None:
        self._answer(done, Overview([NodeGlance(1)], []))

    def _nodes(self) -> tuple[NodeRow, ...]:
        return (
            NodeRow(
                id=1, name="n1", rack="", peer="p", http="h", grpc="g", kafka="k", state="live"
            ),
        )

    def catalog(self) -> CatalogView:
        topics = tuple(
            TopicRow(
                name=name,
                uuid="u",
                replication_factor=1,
                created_ms=5,
                settings=self.settings.get(name, {}),
                partitions=tuple(
                    PartitionRow(partition=p, shard=100 + p, leader=1, term=3, replicas=(1,))
                    for p in range(len(logs))
                ),
            )
            for name, logs in sorted(self.logs.items())
        )
        return CatalogView(cluster="c", version=1, nodes=self._nodes(), topics=topics)

    def status(self) -> ClusterStatus:
        return ClusterStatus(
            cluster="c",
            node=1,
            name="n1",
            ready=self.ready,
            reason="" if self.ready else "no catalog leader is known",
            catalog_leader=1,
            catalog_version=1,
            nodes=self._nodes(),
            shards=1,
            leaderless=(),
            quarantined=(),
            wal_bytes=0,
            free_bytes=1,
            uptime_ms=1,
        )

    # A catalog of its own, which is never behind.

    is_sure = True

    def check_catalog(self, timeout_ms: int, done: Done) -> None:
        done(None)

    def locate(self, topic: str, partition: int) -> int | RaftlineError:
        try:
            self._log(topic, partition)
        except RaftlineError as error:
            return error
        return 100 + partition

    def known_topic(self, name: str) -> TopicRow:
        for row in self.catalog().topics:
            if row.name == name:
                return row
        raise UnknownTopic(name)

    def known_topics(self) -> tuple[TopicRow, ...]:
        return self.catalog().topics
