"""Random runs with lost, repeated and reordered rpcs, crashes and changes of the configuration."""

import pytest

from tests.properties.raft.simulated_cluster import SimulatedCluster

SEEDS_PER_TEST = 30
STEPS = 700


def run(seed: int) -> SimulatedCluster:
    cluster = SimulatedCluster(seed)
    try:
        for _ in range(STEPS):
            cluster.random_step()
        cluster.heal()
    except BaseException:
        print(f"seed {seed}")
        raise
    return cluster


@pytest.mark.parametrize("start", range(0, 300, SEEDS_PER_TEST))
def test_what_raft_promises_holds(start: int) -> None:
    clusters = [run(seed) for seed in range(start, start + SEEDS_PER_TEST)]
    # The runs must have been worth something.
    assert sum(cluster.applied_last for cluster in clusters) > 10 * SEEDS_PER_TEST
    assert sum(len(cluster.leaders) for cluster in clusters) > SEEDS_PER_TEST
    assert sum(cluster.answered for cluster in clusters) > 0


def test_one_seed_is_one_run() -> None:
    first, second = run(7), run(7)
    assert first.applied == second.applied
    assert first.leaders == second.leaders
