"""Log time where chance found it wrong."""

from raftline.node.log_time import ClusterTime, LogTime
from raftline.testing.world import EPOCH_MS, SimClock, WallClock, World


def test_the_first_stamp_of_a_leader_that_was_not_told_yet_is_cluster_time() -> None:
    """A batch collected in the turn of the election got the log time 1 and fell to retention."""
    world = World(1)
    clock = SimClock(world, world.new_process("p"), WallClock(world))
    time = LogTime(clock, ClusterTime(clock))
    world.run_to(1_000.0)
    assert time.stamp() == EPOCH_MS + 1_000
