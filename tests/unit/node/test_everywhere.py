"""A change of topics is known to every live node when its caller hears of it."""

import pytest

from raftline.node.everywhere import REACH_MS_MAX
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, node


def topics_of(sim: SimCluster, name: str) -> set[str]:
    return {str(topic) for topic in node(sim, name).catalog_machine.topics}


def run(sim: SimCluster, via: str, command: str, arguments: dict[str, object]) -> None:
    answer = answer_of(sim, lambda done: node(sim, via).command(command, arguments, 10_000, done))
    assert isinstance(answer, dict), answer


@pytest.mark.parametrize("seed", range(3))
def test_who_creates_a_topic_finds_it_on_every_node_at_once(seed: int) -> None:
    with cluster(nodes=5, seed=seed) as sim:
        sim.wait_ready()
        for number, via in enumerate(sim.nodes):
            name = f"t{number}"
            run(sim, via, "topic.create", {"name": name, "partitions": 1})
            assert all(name in topics_of(sim, other) for other in sim.nodes), (name, via)
            run(sim, via, "topic.set", {"name": name, "settings": {"max_retries": 9}})
            for other in sim.nodes:
                rows = node(sim, other).catalog_machine.topics
                assert rows[name].settings["max_retries"] == 9
            run(sim, via, "topic.delete", {"name": name})
            assert not any(name in topics_of(sim, other) for other in sim.nodes), (name, via)


@pytest.mark.parametrize("fault", ["pause", "isolate", "kill"])
def test_a_node_that_does_not_answer_holds_nothing_up_for_long(fault: str) -> None:
    with cluster(nodes=3, seed=5) as sim:
        sim.wait_ready()
        sim.create_topic("before", partitions=1)
        leader = sim.name_of(sim.status().catalog_leader)
        via = next(name for name in sim.nodes if name != leader)
        away = next(name for name in sim.nodes if name not in (leader, via))
        getattr(sim, fault)(away)
        began = sim.now_ms
        run(sim, via, "topic.create", {"name": "during", "partitions": 1})
        assert sim.now_ms - began < REACH_MS_MAX + 500
        assert "during" in topics_of(sim, leader) & topics_of(sim, via)
        began = sim.now_ms
        run(sim, via, "topic.delete", {"name": "before"})
        assert sim.now_ms - began < REACH_MS_MAX + 500
        assert "before" not in topics_of(sim, leader) | topics_of(sim, via)
        sim.advance("3s")  # it is known to be away now
        began = sim.now_ms
        run(sim, via, "topic.create", {"name": "after", "partitions": 1})
        assert sim.now_ms - began < 300
