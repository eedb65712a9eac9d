"""Where clients are sent: to known addresses, and to leaders that are none by guess."""

from collections.abc import Callable
from typing import Any

import pytest

from raftline.gateways.kafka.admin_cluster import ClusterApi
from raftline.gateways.kafka.codec import ZERO_UUID
from raftline.gateways.kafka.errors import LEADER_NOT_AVAILABLE, NONE
from raftline.gateways.kafka.groups import GroupsApi
from raftline.gateways.kafka.groups_errors import COORDINATOR_NOT_AVAILABLE
from raftline.gateways.kafka.leader_looks import LeaderLooks
from raftline.gateways.kafka.leaders import node_tag
from raftline.gateways.kafka.metadata import MetadataApi, broker_rows, live_ids, partition_row
from raftline.model.calls import NodeRow, PartitionRow, TopicRow
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import lead, node, stall_segments

Fields = dict[str, Any]
UNASKED = {
    "include_authorized_operations": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


class Asker:
    """Who asks: what its steps raise is the test's."""

    client_id = client_host = ""

    def is_wanted(self) -> bool:
        return True

    def guarded(self, step: Callable[..., None]) -> Callable[..., None]:
        return step


def row_of(number: int, kafka: str, state: str = "live", peer: str = "10.0.0.1:7000") -> NodeRow:
    return NodeRow(
        id=number, name="", rack="", peer=peer, http="", grpc="", kafka=kafka, state=state
    )


def ask(sim: SimCluster, call: Callable[..., None], request: Fields, version: int) -> Fields:
    answers: list[Fields] = []
    call({**UNASKED, **request}, version, Asker(), answers.append)
    sim.run_until(lambda: bool(answers))
    return answers[0]


def topic_at(sim: SimCluster, name: str) -> TopicRow:
    found = node(sim, name).find_topic("orders")
    assert found is not None
    return found


def test_a_node_without_an_address_is_left_out() -> None:
    rows = [row_of(1, "a:9092"), row_of(2, ""), row_of(3, "c:9092", "silent")]
    assert [row["node_id"] for row in broker_rows(rows)] == [1, 3]
    assert live_ids(rows) == {1}
    part = PartitionRow(partition=0, shard=7, leader=2, term=4, replicas=(2, 1))
    told = partition_row(part, live_ids(rows))
    assert (told["error_code"], told["leader_id"]) == (LEADER_NOT_AVAILABLE, -1)


def test_who_listens_everywhere_is_reached_where_its_peers_reach_it() -> None:
    rows = [row_of(1, ":9092"), row_of(2, "0.0.0.0:9092", peer="[::]:7000")]
    assert [row["host"] for row in broker_rows(rows)] == ["10.0.0.1", "localhost"]


def test_founders_answer_before_they_know_each_others_addresses() -> None:
    with cluster(nodes=3, seed=1) as sim:
        sim.run_until(
            lambda: all(len(node(sim, name).nodes_view().nodes) == 3 for name in sim.nodes)
        )
        unknown = 0
        for name in sim.nodes:
            here = node(sim, name)
            view = here.nodes_view()
            missing = [row.id for row in view.nodes if not row.kafka]
            unknown += len(missing)
            assert view.node not in missing
            known = {row.id for row in view.nodes} - set(missing)
            table = MetadataApi(here.clock, here, auto_create=False)
            asked = {"topics": [{"name": "none", "topic_id": ZERO_UUID}]}
            asked["allow_auto_topic_creation"] = False
            told = ask(sim, table.metadata, asked, 12)
            assert {row["node_id"] for row in told["brokers"]} >= known
            told = ask(sim, ClusterApi(here).describe_cluster, {"endpoint_type": 1}, 1)
            assert told["error_code"] == NONE
            assert view.node in [row["broker_id"] for row in told["brokers"]]
            assert node_tag(here, [1, 2, 3])
            for number in missing:
                found = GroupsApi(here)._coordinator("g", number, 4)
                assert found["error_code"] == COORDINATOR_NOT_AVAILABLE
        assert unknown, "the test came too late to see any"
        sim.advance("5s")
        for name in sim.nodes:
            rows = node(sim, name).nodes_view().nodes
            assert live_ids(rows) == {1, 2, 3}
            assert all(row.kafka for row in rows)


def test_who_makes_a_topic_by_asking_is_told_who_leads_it_once_that_is_known() -> None:
    with cluster(nodes=3, seed=1) as sim:
        sim.advance("5s")
        for name in sim.nodes:
            here = node(sim, name)
            topic = f"of-{name}"
            api = MetadataApi(here.clock, here, auto_create=True)
            asked = {"topics": [{"name": topic, "topic_id": ZERO_UUID}]}
            asked["allow_auto_topic_creation"] = True
            stall_segments(sim, name, 300)  # its own replicas are open later than the others
            (row,) = ask(sim, api.metadata, asked, 12)["topics"]
            first = row["partitions"][0]
            leader, _ = lead(sim, topic)
            assert sim.name_of(first["leader_id"]) == leader
            assert all(part["leader_epoch"] > 0 for part in row["partitions"])


def test_who_asks_for_all_topics_is_told_who_leads_a_new_one() -> None:
    with cluster(nodes=3, seed=1) as sim:
        sim.advance("5s")
        for name in sim.nodes:
            here = node(sim, name)
            topic = f"new-at-{name}"
            here.command("topic.create", {"name": topic}, 5_000, lambda _: None)
            sim.run_until(lambda here=here, topic=topic: topic in here.topic_names())
            found = here.find_topic(topic)
            assert found is not None
            assert not all(part.leader for part in found.partitions), "the test came too late"
            api = MetadataApi(here.clock, here, auto_create=False)
            asked = {"topics": None, "allow_auto_topic_creation": False}
            rows = {row["name"]: row for row in ask(sim, api.metadata, asked, 12)["topics"]}
            assert [part["error_code"] for part in rows[topic]["partitions"]] == [NONE] * len(
                found.partitions
            )


@pytest.mark.parametrize("names", [["orders"], None], ids=["by name", "all topics"])
def test_a_node_without_a_replica_hears_who_leads_now(names: list[str] | None) -> None:
    """Clients never tell it: the wrong node sends them back to ask, and it would say the same."""
    with cluster(nodes=4, seed=1) as sim:
        sim.advance("5s")
        sim.create_topic("orders", partitions=2, replication_factor=3)
        sim.advance("2s")
        hosts = [row.replicas for row in topic_at(sim, sim.nodes[0]).partitions]
        outside = next(n for n in sim.nodes if any(sim.number_of(n) not in row for row in hosts))
        here = node(sim, outside)
        api = MetadataApi(here.clock, here, auto_create=False)
        rows = names and [{"name": name, "topic_id": ZERO_UUID} for name in names]
        asked: Fields = {"topics": rows, "allow_auto_topic_creation": False}
        for turn in range(3):
            for partition, replicas in enumerate(hosts):
                to_node = str(replicas[turn])
                sim.command(
                    "cluster.transfer", topic="orders", partition=partition, to_node=to_node
                )
            sim.advance("3s")
            (row,) = ask(sim, api.metadata, asked, 12)["topics"]
            told = [part["leader_id"] for part in row["partitions"]]
            assert told == [replicas[turn] for replicas in hosts]


def test_of_many_partitions_those_are_asked_about_that_were_not_for_longest() -> None:
    names = [f"t{number:03}" for number in range(3)]
    parts = [
        PartitionRow(partition=n, shard=n, leader=2, term=0, replicas=(2,)) for n in range(200)
    ]
    here = PartitionRow(partition=200, shard=200, leader=1, term=4, replicas=(1,))

    class Elsewhere:
        now_ms = 0.0

        def mono_ms(self) -> float:
            return self.now_ms

        def find_topic(self, name: str) -> TopicRow:
            return TopicRow(
                name=name,
                uuid="",
                replication_factor=1,
                created_ms=0,
                settings={},
                partitions=(*parts, here),
            )

    node: Any = Elsewhere()
    looks = LeaderLooks(node, node)
    seen: list[tuple[str, int]] = []
    counts: list[int] = []
    for _ in range(4):
        found = looks.due(names)
        seen += found
        counts.append(len(found))
    assert counts == [256, 256, 88, 0]
    assert len(set(seen)) == 600
    node.now_ms = 1_000.0
    assert looks.due(names) == seen[:256]


def test_all_topics_are_told_of_in_time_though_nobody_leads_one() -> None:
    with cluster(nodes=3, seed=1) as sim:
        sim.advance("5s")
        sim.create_topic("orders")
        first, *others = sim.nodes
        for name in others:
            sim.kill(name)
        sim.advance("20s")
        here = node(sim, first)
        api = MetadataApi(here.clock, here, auto_create=False)
        asked = {"topics": None, "allow_auto_topic_creation": False}
        before_ms = sim.now_ms
        (row,) = ask(sim, api.metadata, asked, 12)["topics"]
        assert sim.now_ms - before_ms < 1_000
        assert {part["error_code"] for part in row["partitions"]} == {LEADER_NOT_AVAILABLE}


def test_who_makes_a_topic_while_nobody_can_is_told_to_ask_again() -> None:
    with cluster(nodes=3, seed=1) as sim:
        sim.advance("5s")
        first, *others = sim.nodes
        for name in others:
            sim.kill(name)
        here = node(sim, first)
        api = MetadataApi(here.clock, here, auto_create=True)
        asked = {"topics": [{"name": "orders", "topic_id": ZERO_UUID}]}
        asked["allow_auto_topic_creation"] = True
        (row,) = ask(sim, api.metadata, asked, 12)["topics"]
        assert (row["name"], row["error_code"]) == ("orders", LEADER_NOT_AVAILABLE)
