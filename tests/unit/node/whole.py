"""Whole nodes for these tests: a simulated cluster and short ways into its parts."""

from collections.abc import Callable

from raftline.model.ids import ReplicaId, node_of
from raftline.node.node import Node
from raftline.node.partition import PartitionHost
from raftline.node.replica import Replica
from raftline.testing import SimCluster
from raftline.testing.world import SimLane


def node(sim: SimCluster, name: str) -> Node:
    """Return the node that runs on a host."""
    found = sim.host(name).node
    assert isinstance(found, Node)
    return found


def shard_of(sim: SimCluster, topic: str, partition: int = 0) -> int:
    """Return the shard of a partition."""
    rows = [node(sim, name).catalog_machine.topics.get(topic) for name in sim.running]
    return next(row for row in rows if row is not None).shards[partition]


def replica(sim: SimCluster, name: str, topic: str, partition: int = 0) -> Replica:
    """Return a host's open replica of a partition."""
    found = node(sim, name).shards.get(shard_of(sim, topic, partition))
    assert found is not None
    return found


def host(sim: SimCluster, name: str, topic: str, partition: int = 0) -> PartitionHost:
    """Return what stands behind a host's replica of a partition."""
    found = replica(sim, name, topic, partition).host
    assert isinstance(found, PartitionHost)
    return found


def lead(sim: SimCluster, topic: str) -> tuple[str, list[str]]:
    """Return the name of the leader of partition 0 and those of the other replicas' nodes."""
    sim.run_until(lambda: _leads(sim, topic) != "")
    leader = _leads(sim, topic)
    voters = replica(sim, leader, topic).conf.voters
    names = [sim.name_of(node_of(ReplicaId(voter))) for voter in voters]
    return leader, [name for name in names if name != leader]


def _leads(sim: SimCluster, topic: str) -> str:
    for name in sim.running:
        found = node(sim, name).shards.get(shard_of(sim, topic))
        if found is not None and found.is_leader:
            return name
    return ""


def stall_segments(sim: SimCluster, name: str, for_ms: float) -> None:
    """Let the segment lane of a node do nothing for a while; the sync lane goes on."""
    lane = node(sim, name)._segment_lane
    assert isinstance(lane, SimLane)
    lane.stalled_until_ms = sim.now_ms + for_ms


def answer_of(sim: SimCluster, call: Callable[[Callable[[object], None]], None]) -> object:
    """Make a call and run the world until it is answered."""
    answers: list[object] = []
    call(answers.append)
    sim.run_until(lambda: bool(answers))
    return answers[0]
