"""ElectLeaders: asked of any node, and while the replica that is named first is not there."""

from typing import Any

from raftline.gateways.kafka.elections import PREFERRED_LEADER_NOT_AVAILABLE, ElectionsApi
from raftline.testing import SimCluster, cluster
from tests.unit.gateways.kafka.test_addresses import Asker, topic_at
from tests.unit.node.whole import lead, node

NOT_NEEDED = 84


def elect(sim: SimCluster, name: str, timeout_ms: int = 20_000) -> tuple[int, float]:
    """Ask one node for the election; return the code it tells and how long that took."""
    here = node(sim, name)
    api = ElectionsApi(here.clock, here)
    topics = [{"topic": "orders", "partitions": [0]}]
    asked: dict[str, Any] = {"election_type": 0, "topics": topics, "timeout_ms": timeout_ms}
    answers: list[dict[str, Any]] = []
    begun = sim.now_ms
    api.elect(asked, 2, Asker(), answers.append)
    sim.run_until(lambda: bool(answers), "30s")
    return answers[0]["topics"][0]["partitions"][0]["error_code"], sim.now_ms - begun


def test_a_node_without_a_replica_sees_who_leads() -> None:
    """It guesses who leads, and nobody corrects it."""
    with cluster(nodes=4, seed=1) as sim:
        sim.advance("5s")
        sim.create_topic("orders", partitions=1, replication_factor=3)
        sim.advance("2s")
        replicas = topic_at(sim, sim.nodes[0]).partitions[0].replicas
        first, other, _ = replicas
        outside = next(name for name in sim.nodes if sim.number_of(name) not in replicas)
        for _ in range(3):
            sim.command("cluster.transfer", topic="orders", partition=0, to_node=str(other))
            sim.advance("3s")
            assert sim.number_of(lead(sim, "orders")[0]) == other
            code, took_ms = elect(sim, outside)
            assert code == 0
            assert took_ms < 5_000
            assert sim.number_of(lead(sim, "orders")[0]) == first
            assert elect(sim, outside)[0] == NOT_NEEDED


def test_nothing_is_handed_to_a_node_that_is_silent() -> None:
    """The leader would take nothing while it waits for that one."""
    with cluster(nodes=3, seed=1) as sim:
        sim.advance("5s")
        sim.create_topic("orders", partitions=1, replication_factor=3)
        sim.advance("2s")
        first = sim.name_of(topic_at(sim, sim.nodes[0]).partitions[0].replicas[0])
        sim.kill(first)
        sim.advance("15s")
        leader, _ = lead(sim, "orders")
        code, took_ms = elect(sim, leader)
        assert code == PREFERRED_LEADER_NOT_AVAILABLE
        assert took_ms < 1_000


def test_partitions_are_not_looked_for_one_by_one_in_all_of_their_topic() -> None:
    """A row of a topic has all of its partitions: ten thousand times ten thousand of them."""
    with cluster(nodes=3, seed=1) as sim:
        sim.advance("5s")
        sim.create_topic("orders", partitions=30, replication_factor=3)
        sim.advance("3s")
        for row in topic_at(sim, sim.nodes[0]).partitions:
            to_node = str(row.replicas[1])
            sim.command(
                "cluster.transfer", topic="orders", partition=row.partition, to_node=to_node
            )
        sim.advance("3s")
        here = node(sim, sim.nodes[0])
        calls: Any = Counting(here)
        answers: list[dict[str, Any]] = []
        topics = [{"topic": "orders", "partitions": list(range(30))}]
        asked = {"election_type": 0, "topics": topics, "timeout_ms": 20_000}
        ElectionsApi(here.clock, calls).elect(asked, 2, Asker(), answers.append)
        sim.run_until(lambda: bool(answers), "30s")
        assert {row["error_code"] for row in answers[0]["topics"][0]["partitions"]} == {0}
        assert calls.looks <= 2


class Counting:
    """A node that counts how often it is asked for a whole topic."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self.looks = 0

    def find_topic(self, name: str) -> Any:
        self.looks += 1
        return self._whole.find_topic(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)
