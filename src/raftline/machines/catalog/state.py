"""What the catalog holds: rows, the counters ids come from, and two indexes over the rows.

Rows are frozen and replaced whole. Only ``put_shard`` and ``remove_shard`` touch ``shards``, so the
indexes (``loads``, ``on_node``) follow. Dictionaries are read in the order of their keys wherever
order could show.
"""

import msgspec

from raftline.machines.catalog.placement import Loads
from raftline.model.errors import InvalidArgument, OverLimit, UnknownNode, UnknownTopic
from raftline.model.ids import (
    CATALOG_SHARD,
    INCARNATION_MAX,
    PARTITION_SHARD_FIRST,
    NodeId,
    ReplicaId,
    ShardId,
    node_of,
    replica_id,
)
from raftline.model.settings import Value

MEMBER = "member"  # holds replicas, gets new ones
LEAVING = "leaving"  # still there, gets nothing new
REMOVED = "removed"  # gone; the row keeps its number and directory from coming back

FIRST_INCARNATION = 1  # of every replica a shard starts with


class Node(msgspec.Struct, frozen=True, array_like=True):
    """One node of the cluster."""

    id: NodeId
    name: str
    directory: str
    peer: str
    http: str
    grpc: str
    kafka: str
    rack: str
    state: str = MEMBER


class Topic(msgspec.Struct, frozen=True, array_like=True):
    """One topic; ``shards[p]`` is partition p. ``settings`` has only what was set."""

    name: str
    uuid: str
    replication_factor: int
    created_ms: int
    settings: dict[str, Value]
    shards: tuple[ShardId, ...]


class Shard(msgspec.Struct, frozen=True, array_like=True):
    """One shard and where it should live.

    ``initial`` is the configuration it started with, ``replicas`` the voters it should have now,
    preferred leader first; the shard's own leader carries the difference out. ``observers`` are
    learners that stay learners (the catalog only). ``forced`` counts ForceReplicas.
    """

    id: ShardId
    topic: str  # "" for the catalog and coordination shards
    topic_uuid: str
    partition: int
    initial: tuple[ReplicaId, ...]
    replicas: tuple[ReplicaId, ...]
    next_incarnation: int = FIRST_INCARNATION + 1
    observers: tuple[ReplicaId, ...] = ()
    forced: int = 0

    @property
    def place(self) -> str:
        """Return how people write it: ``orders/2``, ``catalog`` or ``groups-3``."""
        if self.topic:
            return f"{self.topic}/{self.partition}"
        return "catalog" if self.id == CATALOG_SHARD else f"groups-{self.partition}"

    def replica_on(self, node: NodeId) -> ReplicaId | None:
        """Return the node's replica, voter or observer."""
        for replica in (*self.replicas, *self.observers):
            if node_of(replica) == node:
                return replica
        return None

    def with_replicas(self, replicas: tuple[ReplicaId, ...]) -> "Shard":
        """Return the row with other voters."""
        return msgspec.structs.replace(self, replicas=replicas)

    def nodes(self) -> tuple[NodeId, ...]:
        """Return the nodes of the voters, preferred leader first."""
        return tuple(node_of(replica) for replica in self.replicas)


class Tombstone(msgspec.Struct, frozen=True, array_like=True):
    """A deleted topic: whoever still has a replica of ``shards`` removes it."""

    uuid: str
    name: str
    shards: tuple[ShardId, ...]
    at_ms: int
    request: str = ""  # of the delete


class CatalogState:
    """The rows and their indexes."""

    __slots__ = (
        "at_ms",
        "cluster",
        "feature_level",
        "loads",
        "next_node",
        "next_producer",
        "next_shard",
        "nodes",
        "on_node",
        "shards",
        "tombstones",
        "topics",
        "version",
    )

    def __init__(self) -> None:
        self.cluster = ""
        self.version = 0
        self.at_ms = 0
        self.feature_level = 1
        self.next_node = 1
        self.next_shard = int(PARTITION_SHARD_FIRST)
        self.next_producer = 1
        self.nodes: dict[NodeId, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.shards: dict[ShardId, Shard] = {}
        self.tombstones: dict[str, Tombstone] = {}
        self.loads = Loads()
        self.on_node: dict[NodeId, dict[ShardId, None]] = {}

    def members(self) -> list[Node]:
        """Return the nodes that may hold replicas, by number."""
        return [node for _, node in sorted(self.nodes.items()) if node.state == MEMBER]

    def node(self, node: NodeId) -> Node:
        """Return the node, or raise UnknownNode."""
        found = self.nodes.get(node)
        if found is None or found.state == REMOVED:
            raise UnknownNode(node)
        return found

    def node_named(self, name: str) -> Node | None:
        """Return the node of that name that is not removed."""
        for node in self.nodes.values():
            if node.name == name and node.state != REMOVED:
                return node
        return None

    def topic(self, name: str) -> Topic:
        """Return the topic, or raise UnknownTopic."""
        found = self.topics.get(name)
        if found is None:
            raise UnknownTopic(name)
        return found

    def shard(self, shard: ShardId) -> Shard:
        """Return the shard, or raise InvalidArgument."""
        found = self.shards.get(shard)
        if found is None:
            raise InvalidArgument(f"there is no shard {shard}", "raftline cluster status")
        return found

    def topic_loads(self, topic: Topic) -> Loads:
        """Count the replicas and leaders of one topic."""
        loads = Loads()
        for shard in topic.shards:
            loads.add(self.shards[shard].nodes())
        return loads

    def put_shard(self, shard: Shard) -> None:
        """Add or replace a shard's row."""
        self._unindex(shard.id)
        self.shards[shard.id] = shard
        for replica in (*shard.replicas, *shard.observers):
            self.on_node.setdefault(node_of(replica), {})[shard.id] = None
        if shard.id >= PARTITION_SHARD_FIRST:
            self.loads.add(shard.nodes())

    def remove_shard(self, shard: ShardId) -> None:
        """Remove a shard's row."""
        self._unindex(shard)
        del self.shards[shard]

    def shards_on(self, node: NodeId) -> list[Shard]:
        """Return the shards with a replica on ``node``, by number."""
        return [self.shards[shard] for shard in sorted(self.on_node.get(node, {}))]

    def _unindex(self, shard: ShardId) -> None:
        old = self.shards.get(shard)
        if old is None:
            return
        for replica in (*old.replicas, *old.observers):
            self.on_node[node_of(replica)].pop(shard, None)
        if shard >= PARTITION_SHARD_FIRST:
            self.loads.remove(old.nodes())


def renew(shard: Shard, node: NodeId) -> tuple[Shard, ReplicaId]:
    """Take the next incarnation of ``shard`` for a replica on ``node``."""
    if shard.next_incarnation > INCARNATION_MAX:
        raise OverLimit(f"incarnations of {shard.place}", shard.next_incarnation, INCARNATION_MAX)
    replica = replica_id(node, shard.next_incarnation)
    return msgspec.structs.replace(shard, next_incarnation=shard.next_incarnation + 1), replica


def swap(shard: Shard, old: ReplicaId, new: ReplicaId) -> Shard:
    """Put ``new`` where ``old`` sits, voter or observer."""
    return msgspec.structs.replace(
        shard,
        replicas=tuple(new if replica == old else replica for replica in shard.replicas),
        observers=tuple(new if replica == old else replica for replica in shard.observers),
    )
