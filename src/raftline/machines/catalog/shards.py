"""Single shards: moving a replica, renewing one, going on after a loss.

Rules
    S1  Every replica that starts without the old one's vote and log has a new incarnation.
    S2  The catalog shard is moved by swapping seats: every node keeps a copy.
    S3  A survivor may sit on a node the shard was moving away from: it has the messages, the
        target may have none.
"""

import msgspec

from raftline.machines.catalog.commands import ForceReplicas, MoveReplica, ReplaceReplica
from raftline.machines.catalog.events import Event, ReplicaReplaced, ShardForced, ShardMoved
from raftline.machines.catalog.nodes import node_for
from raftline.machines.catalog.state import CatalogState, Shard, renew, swap
from raftline.model.errors import InvalidArgument, NodeExists
from raftline.model.ids import CATALOG_SHARD, NodeId, ReplicaId, incarnation_of, node_of


def move(state: CatalogState, command: MoveReplica) -> list[Event]:
    """Move a replica from one node to another."""
    shard = state.shard(command.shard)
    old = _voter(shard, command.from_node)
    to = node_for(state, command.to_node)
    if to.id in shard.nodes():
        raise NodeExists(to.id, f"{shard.place} has a replica there")
    if shard.id == CATALOG_SHARD:
        return _swap_seats(state, shard, old, to.id)
    renewed, new = renew(shard, to.id)
    return _moved(state, swap(renewed, old, new))


def replace_replica(state: CatalogState, command: ReplaceReplica) -> list[Event]:
    """Give a replica that is damaged or lost a new identity. S1."""
    shard = state.shard(command.shard)
    current = shard.replica_on(command.node)
    if current is None:
        raise InvalidArgument(f"node {command.node} has no replica of {shard.place}")
    if current != command.seen:
        return [ReplicaReplaced(shard.id, current)]
    renewed, new = renew(shard, command.node)
    return [ReplicaReplaced(shard.id, new), *_moved(state, swap(renewed, current, new))]


def force(state: CatalogState, command: ForceReplicas) -> list[Event]:
    """Go on with what is left, as a person decided."""
    shard = state.shard(command.shard)
    if shard.id == CATALOG_SHARD:
        raise InvalidArgument("the catalog is not recovered by its own log", "cluster recover")
    nodes = [node_of(replica) for replica in command.replicas]
    if not nodes or len(set(nodes)) < len(nodes):
        raise InvalidArgument(f"{shard.place} needs replicas on different nodes")
    replicas: list[ReplicaId] = []
    survivors: list[ReplicaId] = []
    for replica, number in zip(command.replicas, nodes, strict=True):
        if incarnation_of(replica):
            _check_survivor(state, shard, replica)
            survivors.append(replica)
            replicas.append(replica)
        else:
            node_for(state, number)
            shard, new = renew(shard, number)
            replicas.append(new)
    target = tuple(replicas)
    initial = shard.initial if survivors else target
    shard = msgspec.structs.replace(
        shard, initial=initial, replicas=target, forced=shard.forced + 1
    )
    state.put_shard(shard)
    return [ShardForced(shard.id, target, tuple(survivors))]


def _swap_seats(state: CatalogState, shard: Shard, old: ReplicaId, to: NodeId) -> list[Event]:
    """Make ``to``'s observer a voter and ``old`` an observer. S2."""
    new = shard.replica_on(to)
    assert new is not None, (shard, to)
    observers = (*(replica for replica in shard.observers if replica != new), old)
    replicas = tuple(new if replica == old else replica for replica in shard.replicas)
    by_node = tuple(sorted(observers, key=node_of))
    return _moved(state, msgspec.structs.replace(shard, replicas=replicas, observers=by_node))


def _moved(state: CatalogState, shard: Shard) -> list[Event]:
    state.put_shard(shard)
    return [ShardMoved(shard.id, shard.replicas, shard.observers)]


def _check_survivor(state: CatalogState, shard: Shard, replica: ReplicaId) -> None:
    """Refuse a replica that never was, or that a newer one on its node stands for. S1, S3."""
    node = state.node(node_of(replica))
    current = shard.replica_on(node.id)
    if incarnation_of(replica) >= shard.next_incarnation or current not in (None, replica):
        raise InvalidArgument(
            f"incarnation {incarnation_of(replica)} of {shard.place} on node {node.id} cannot be "
            "a survivor",
            "name what the node has on its disk: raftline cluster status",
        )


def _voter(shard: Shard, node: NodeId) -> ReplicaId:
    for replica in shard.replicas:
        if node_of(replica) == node:
            return replica
    raise InvalidArgument(f"node {node} has no replica of {shard.place} to move")
