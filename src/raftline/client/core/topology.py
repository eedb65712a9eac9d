"""Where the partitions are: nodes, topics, leaders, and which nodes are better left alone.

State
    The seeds a client was given, the nodes the cluster named since, and per topic how many
    partitions it has, who leads each, and how keys choose.

Rules
    T1  A leader is asked first. One that did not answer is left alone for a moment, and any other
        node is asked: it forwards.
    T2  Where every node is left alone, one of them is asked all the same.
    T3  Seeds stay usable for ever, the addresses nodes give themselves may be of no use from here.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.model.partitioner import PARTITIONERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KEYS_KEPT = 20_000  # whose partition is remembered, per topic
SUSPECT_MS = 1_000  # a node that did not answer is left alone for so long


class TopicMap:
    """One topic as a sender needs it."""

    __slots__ = ("_by_key", "_choose", "count", "lanes", "leaders", "lease_ms", "name")

    def __init__(self, name: str, count: int, partitioner: str, lanes: int) -> None:
        self.name = name
        self.count = count
        self._choose: Callable[[bytes, int], int] = PARTITIONERS.get(
            partitioner, PARTITIONERS["murmur2"]
        )
        self._by_key: dict[bytes, int] = {}  # keys seen lately
        self.lanes = lanes
        self.lease_ms = 30_000
        self.leaders: list[int] = [0] * count

    def partition_of(self, key: bytes) -> int:
        """Return the partition of a key."""
        partition = self._by_key.get(key)
        if partition is None:
            if len(self._by_key) >= KEYS_KEPT:
                self._by_key.clear()
            partition = self._by_key[key] = self._choose(key, self.count)
        return partition


class _Shard(msgspec.Struct):
    topic: str
    partition: int
    leader: int


class _Node(msgspec.Struct):
    id: int
    http: str = ""
    grpc: str = ""


class ShardsInfo(msgspec.Struct):
    """The answer of ``/shards-info``."""

    shards: list[_Shard]
    nodes: list[_Node]


class _Leader(msgspec.Struct):
    partition: int
    leader: int


class TopicInfo(msgspec.Struct):
    """The answer of ``/v1/topics/{t}``, as far as it matters here."""

    name: str
    num_partitions: int
    partitions: list[_Leader]
    settings: dict[str, Any] = {}


class Topology:
    """What is known of the cluster."""

    __slots__ = (
        "_discover",
        "_hosts",
        "_is_grpc",
        "_suspects",
        "_turn",
        "nodes",
        "seeds",
        "topics",
    )

    def __init__(
        self, seeds: list[str], turn: int = 0, *, discover: bool = True, is_grpc: bool = False
    ) -> None:
        self.seeds = seeds
        self.nodes: dict[int, str] = {}
        self.topics: dict[str, TopicMap] = {}
        self._hosts = list(seeds)
        self._suspects: dict[str, float] = {}  # host -> until
        self._turn = turn
        self._discover = discover
        self._is_grpc = is_grpc  # which of their addresses nodes are asked at

    def take_shards(self, info: ShardsInfo, asked: Sequence[str] = ()) -> None:
        """Take over who leads what.

        A topic that was asked for and is gone, or has other partitions now, is forgotten: who needs
        it finds it anew.
        """
        counts = Counter(shard.topic for shard in info.shards)
        for name in asked:
            known = self.topics.get(name)
            if known is not None and known.count != counts[name]:
                self.forget(name)
        if self._discover:
            places = {node.id: node.grpc if self._is_grpc else node.http for node in info.nodes}
            self.nodes = {node: place for node, place in places.items() if place}
            self._hosts = list(dict.fromkeys([*self.nodes.values(), *self.seeds]))
        for shard in info.shards:
            topic = self.topics.get(shard.topic)
            if topic is not None and shard.partition < topic.count:
                topic.leaders[shard.partition] = shard.leader

    def take_topic(self, info: TopicInfo) -> TopicMap:
        """Take over a topic."""
        settings: Mapping[str, Any] = info.settings
        topic = TopicMap(
            info.name,
            info.num_partitions,
            str(settings.get("partitioner", "murmur2")),
            int(settings.get("lanes", 5)),
        )
        topic.lease_ms = int(settings.get("lease_ms", topic.lease_ms))
        for row in info.partitions:
            if row.partition < topic.count:
                topic.leaders[row.partition] = row.leader
        self.topics[info.name] = topic
        return topic

    def forget(self, topic: str) -> None:
        """Drop a topic that is not there."""
        self.topics.pop(topic, None)

    def host_of(self, topic: str, partition: int, now_ms: float) -> str:
        """Return whom to ask about a partition. T1."""
        found = self.topics.get(topic)
        if found is not None and 0 <= partition < found.count:
            host = self.nodes.get(found.leaders[partition], "")
            if host and not self._is_suspect(host, now_ms):
                return host
        return self.any_host(now_ms)

    def any_host(self, now_ms: float) -> str:
        """Return a node that probably answers, the same one until it does not. T2."""
        hosts = self._hosts
        for step in range(len(hosts)):
            host = hosts[(self._turn + step) % len(hosts)]
            if not self._is_suspect(host, now_ms):
                self._turn += step
                return host
        self._turn += 1
        return hosts[self._turn % len(hosts)]

    def failed(self, host: str, now_ms: float) -> None:
        """Leave a node alone for a moment."""
        self._suspects[host] = now_ms + SUSPECT_MS

    def answered(self, host: str) -> None:
        """Trust a node again."""
        if self._suspects:
            self._suspects.pop(host, None)

    def _is_suspect(self, host: str, now_ms: float) -> bool:
        return self._suspects.get(host, 0.0) > now_ms
