"""The kinds of number the system talks in.

Every id is its own type for the checker and a plain integer or string at run time.

A replica is one node's copy of one shard *in one incarnation*: a copy that lost its vote or its
log never comes back under the old number, so it can never vote twice. The number of a replica is
therefore ``node << 24 | incarnation`` and is what the Raft core knows as a voter.
"""

from typing import NewType

NodeId = NewType("NodeId", int)  # given by the catalog, from 1
ShardId = NewType("ShardId", int)
ReplicaId = NewType("ReplicaId", int)  # node << 24 | incarnation
Term = NewType("Term", int)
Index = NewType("Index", int)  # position of an entry in a shard's log
Offset = NewType("Offset", int)  # position of a message in a partition
TimeMs = NewType("TimeMs", int)  # Unix milliseconds

NO_REPLICA = ReplicaId(0)
CATALOG_SHARD = ShardId(1)
COORDINATION_SHARDS = range(2, 18)  # reserved: group coordination
PARTITION_SHARD_FIRST = ShardId(100)

INCARNATION_BITS = 24
INCARNATION_MAX = (1 << INCARNATION_BITS) - 1


def replica_id(node: NodeId, incarnation: int) -> ReplicaId:
    """Return the number of ``node``'s replica in its ``incarnation``."""
    assert 0 < incarnation <= INCARNATION_MAX, incarnation
    return ReplicaId(node << INCARNATION_BITS | incarnation)


def node_of(replica: ReplicaId) -> NodeId:
    """Return the node that hosts ``replica``."""
    return NodeId(replica >> INCARNATION_BITS)


def incarnation_of(replica: ReplicaId) -> int:
    """Return which incarnation ``replica`` is."""
    return replica & INCARNATION_MAX
