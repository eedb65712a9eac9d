"""What happened in the catalog. The first event answers the command, the rest are consequences."""

import msgspec

from raftline.machines.machine import Refused
from raftline.model.ids import NodeId, ReplicaId, ShardId


class Founded(msgspec.Struct, frozen=True):
    """The cluster exists."""

    cluster: str


class NodeAdmitted(msgspec.Struct, frozen=True):
    """The node belongs to the cluster under this number."""

    node: NodeId
    name: str
    how: str  # "new" | "known": same directory | "again": the disk is another, replicas start anew


class NodeLeaving(msgspec.Struct, frozen=True):
    """Nothing new is placed on the node, and its replicas move away."""

    node: NodeId


class NodeRemoved(msgspec.Struct, frozen=True):
    """The node belongs to the cluster no more."""

    node: NodeId


class TopicCreated(msgspec.Struct, frozen=True):
    """The topic exists; a ``ShardPlaced`` follows for each partition."""

    name: str
    uuid: str
    shards: tuple[ShardId, ...]


class TopicChanged(msgspec.Struct, frozen=True):
    """Settings, replication factor or the number of partitions changed."""

    name: str


class TopicDeleted(msgspec.Struct, frozen=True):
    """The topic and its messages are gone; replicas of ``shards`` are removed."""

    name: str
    uuid: str
    shards: tuple[ShardId, ...]


class ShardPlaced(msgspec.Struct, frozen=True):
    """A new shard starts on these replicas, the preferred leader first."""

    shard: ShardId
    replicas: tuple[ReplicaId, ...]
    observers: tuple[ReplicaId, ...] = ()


class ShardMoved(msgspec.Struct, frozen=True):
    """The shard's target changed; its leader carries it out."""

    shard: ShardId
    replicas: tuple[ReplicaId, ...]
    observers: tuple[ReplicaId, ...] = ()


class ShardForced(msgspec.Struct, frozen=True):
    """The shard goes on without its majority: ``survivors`` keep what they have."""

    shard: ShardId
    replicas: tuple[ReplicaId, ...]
    survivors: tuple[ReplicaId, ...]


class ReplicaReplaced(msgspec.Struct, frozen=True):
    """The node's replica of the shard is ``replica`` (already was, if asked for twice)."""

    shard: ShardId
    replica: ReplicaId


class ProducersAllocated(msgspec.Struct, frozen=True):
    """Producer ids ``[first, first + count)`` are the caller's."""

    first: int
    count: int


class FeatureLevelSet(msgspec.Struct, frozen=True):
    """The cluster's feature level."""

    level: int


Event = (
    Founded
    | NodeAdmitted
    | NodeLeaving
    | NodeRemoved
    | TopicCreated
    | TopicChanged
    | TopicDeleted
    | ShardPlaced
    | ShardMoved
    | ShardForced
    | ReplicaReplaced
    | ProducersAllocated
    | FeatureLevelSet
    | Refused
)
