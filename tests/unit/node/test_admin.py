"""Commands on the catalog: who may judge them, and when."""

import pytest

from raftline.model.errors import InvalidTopic, NotReady, RaftlineError, TopicExists
from raftline.model.ids import CATALOG_SHARD
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, node

TOPIC = {"name": "orders", "uuid": "a" * 32, "partitions": 1}


def catalog_leader(sim: SimCluster) -> str:
    for name in sim.running:
        found = node(sim, name).shards.get(CATALOG_SHARD)
        if found is not None and found.is_leader:
            return name
    return ""


def test_a_leader_that_did_not_apply_what_came_before_it_judges_nothing() -> None:
    """It would say "exists" of a topic whose deletion it has in its log, or deny its own work."""
    with cluster(nodes=3, seed=33) as sim:
        sim.run_until(lambda: catalog_leader(sim) != "")
        leading = node(sim, catalog_leader(sim))
        catalog = leading.shards.get(CATALOG_SHARD)
        assert catalog is not None
        sim.advance("500ms")
        heard: list[bytes | RaftlineError] = []
        catalog.applied_term -= 1  # as it is right after the election
        leading.admin._lead(catalog, "topic.create", dict(TOPIC), 1_000, heard.append)
        assert [type(answer) for answer in heard] == [NotReady]
        sim.advance("100ms")
        assert "orders" not in leading.catalog_machine.topics
        catalog.applied_term += 1
        made = answer_of(
            sim,
            lambda done: leading.admin._lead(catalog, "topic.create", dict(TOPIC), 1_000, done),
        )
        assert isinstance(made, bytes)


def test_topics_are_made_and_deleted_once_through_changes_of_leaders() -> None:
    """Every call is answered with what it did, whichever leader carried it out."""
    with cluster(nodes=3, seed=34) as sim:
        for number in range(6):
            name = f"topic-{number}"
            sim.run_until(lambda: catalog_leader(sim) != "")
            leader = catalog_leader(sim)
            via = next(other for other in sim.running if other != leader)
            heard: list[object] = []
            node(sim, via).command(
                "topic.create", {"name": name, "partitions": 1}, 8_000, heard.append
            )
            sim.advance(float(number))  # ms: before, while and after it is carried out
            sim.kill(leader)
            sim.run_until(lambda heard=heard: bool(heard))
            assert isinstance(heard[0], dict), heard
            assert heard[0]["name"] == name
            sim.start(leader)
            sim.wait_ready([leader])


def test_no_topic_hides_the_trace_of_another() -> None:
    """A publish to ``orders.trace`` made that topic, and the trace of orders was read no more."""
    with cluster(nodes=1, seed=36) as sim:
        sim.create_topic("orders", partitions=1)
        with pytest.raises(InvalidTopic, match="trace of orders"):
            sim.append("orders.trace", [b"x"])
        sim.append("app.trace", [b"nobody's trace"])


def test_a_leader_that_nobody_hears_does_not_say_that_a_topic_exists() -> None:
    """It may have been deleted by the next leader: chaos seed 12, 900 s, found it said so."""
    with cluster(nodes=3, seed=35) as sim:
        sim.run_until(lambda: catalog_leader(sim) != "")
        leader = catalog_leader(sim)
        leading = node(sim, leader)
        sim.create_topic("orders", partitions=1)
        catalog = leading.shards.get(CATALOG_SHARD)
        assert catalog is not None
        assert catalog.is_leader
        for other in sim.running:
            if other != leader:
                sim.cut(leader, other)
        heard: list[bytes | RaftlineError] = []
        again = {**TOPIC, "uuid": "b" * 32}
        leading.admin._lead(catalog, "topic.create", again, 1_000, heard.append)
        sim.advance("50ms")
        assert heard == []
        sim.run_until(lambda: bool(heard))
        assert isinstance(heard[0], RaftlineError)
        assert not isinstance(heard[0], TopicExists)
        sim.heal()
        said = answer_of(
            sim, lambda done: leading.command("topic.create", dict(again), 5_000, done)
        )
        assert isinstance(said, TopicExists)


def test_a_topic_named_catalog_is_moved_and_not_the_catalog() -> None:
    with cluster(nodes=4, seed=35) as sim:
        sim.create_topic("catalog", partitions=1)
        sim.advance("1s")
        machine = node(sim, "node-1").catalog_machine
        shard = machine.topics["catalog"].shards[0]
        nodes = machine.shards[shard].nodes()
        free = next(number for number in range(1, 5) if number not in nodes)
        seats = machine.shards[CATALOG_SHARD]
        sim.command(
            "cluster.move", topic="catalog", partition=0, from_node=nodes[0], to_node=free,
            via="node-1",
        )  # fmt: skip
        assert free in machine.shards[shard].nodes()
        assert machine.shards[CATALOG_SHARD] == seats
