"""Coordination shards: where the stream groups are kept.

There are sixteen numbers for them. One is placed when the first group whose name hashes to it is
used, so that a cluster without groups has none.

Rules
    Q1  A coordination shard has min(3, members) replicas: it grows by itself when nodes come, and
        does with fewer when nodes leave and there is no other. Its replicas are spread over all.
    Q2  It belongs to no topic and does not count where partitions are placed.
"""

from raftline.machines.catalog.commands import PlaceCoordination
from raftline.machines.catalog.events import Event, ShardMoved, ShardPlaced
from raftline.machines.catalog.placement import Loads, choose, place
from raftline.machines.catalog.state import FIRST_INCARNATION, CatalogState, Shard, renew
from raftline.model.errors import InvalidArgument, NotEnoughNodes
from raftline.model.ids import COORDINATION_SHARDS, ShardId, replica_id
from raftline.model.limits import COORDINATION_VOTERS

COORDINATION_UUID = "groups"


def place_shard(state: CatalogState, command: PlaceCoordination) -> list[Event]:
    """Place one coordination shard; one that is there stays where it is. Q1."""
    if command.shard not in COORDINATION_SHARDS:
        raise InvalidArgument(f"shard {command.shard} is not for groups")
    found = state.shards.get(command.shard)
    if found is not None:
        return [ShardPlaced(found.id, found.replicas)]
    seats = state.members()
    if not seats:
        raise NotEnoughNodes("a shard for groups", 1, 0)
    count = min(COORDINATION_VOTERS, len(seats))
    nodes = place(seats, count, coordination_loads(state), state.loads.copy())
    replicas = tuple(replica_id(node, FIRST_INCARNATION) for node in nodes)
    number = command.shard - COORDINATION_SHARDS.start
    state.put_shard(Shard(command.shard, "", COORDINATION_UUID, number, replicas, replicas))
    return [ShardPlaced(command.shard, replicas)]


def grow(state: CatalogState) -> list[Event]:
    """Give coordination shards the replicas they lack. Q1."""
    seats = state.members()
    wanted = min(COORDINATION_VOTERS, len(seats))
    loads = coordination_loads(state)
    events: list[Event] = []
    for number in COORDINATION_SHARDS:
        shard = state.shards.get(ShardId(number))
        if shard is None or len(shard.replicas) >= wanted:
            continue
        loads.remove(shard.nodes())
        while len(shard.replicas) < wanted:
            beside = [state.nodes[node] for node in shard.nodes()]
            home = choose(seats, beside, loads, state.loads).id
            shard, new = renew(shard, home)
            shard = shard.with_replicas((*shard.replicas, new))
        loads.add(shard.nodes())
        state.put_shard(shard)
        events.append(ShardMoved(shard.id, shard.replicas))
    return events


def coordination_loads(state: CatalogState) -> Loads:
    """Count the replicas and leaders of coordination shards."""
    loads = Loads()
    for number in COORDINATION_SHARDS:
        shard = state.shards.get(ShardId(number))
        if shard is not None:
            loads.add(shard.nodes())
    return loads
