"""What clients may do is told to those that ask: everything, as there are no rules of access."""

from typing import Any

from raftline.gateways.kafka import operations
from raftline.gateways.kafka.admin_cluster import ClusterApi
from raftline.gateways.kafka.codec import ZERO_UUID
from raftline.gateways.kafka.groups_admin import GroupsAdminApi
from raftline.gateways.kafka.metadata import MetadataApi
from raftline.model.groups import CommitCursors, CursorsCommitted, Offset
from raftline.testing import SimCluster, cluster
from tests.unit.gateways.kafka.test_addresses import ask
from tests.unit.node.whole import lead, node

TOPIC, CLUSTER, GROUP = 3576, 8096, 328  # as a Kafka broker without an authorizer says them

Fields = dict[str, Any]


def metadata(sim: SimCluster, topic: str, **more: bool) -> Fields:
    here = node(sim, next(iter(sim.nodes)))
    asked = {"topics": [{"name": topic, "topic_id": ZERO_UUID}], **more}
    asked["allow_auto_topic_creation"] = True
    return ask(sim, MetadataApi(here.clock, here, auto_create=True).metadata, asked, 10)


def test_metadata_tell_what_may_be_done_to_topics_and_the_cluster() -> None:
    with cluster(nodes=1, seed=1) as sim:
        sim.advance("2s")
        told = metadata(sim, "t", include_topic_authorized_operations=True)
        assert told["topics"][0]["topic_authorized_operations"] == TOPIC
        assert told["cluster_authorized_operations"] == operations.NOT_TOLD
        told = metadata(sim, "t", include_cluster_authorized_operations=True)
        assert told["topics"][0]["topic_authorized_operations"] == operations.NOT_TOLD
        assert told["cluster_authorized_operations"] == CLUSTER


def test_the_cluster_and_its_topics_are_described_with_what_may_be_done_to_them() -> None:
    with cluster(nodes=1, seed=1) as sim:
        sim.advance("2s")
        metadata(sim, "t")
        api = ClusterApi(node(sim, next(iter(sim.nodes))))
        asked: Fields = {"endpoint_type": 1}
        told = ask(sim, api.describe_cluster, asked, 1)
        assert told["cluster_authorized_operations"] == operations.NOT_TOLD
        asked["include_cluster_authorized_operations"] = True
        told = ask(sim, api.describe_cluster, asked, 1)
        assert told["cluster_authorized_operations"] == CLUSTER
        asked = {"topics": [{"name": "t"}], "response_partition_limit": 10, "cursor": None}
        (row,) = ask(sim, api.describe_partitions, asked, 0)["topics"]
        assert row["topic_authorized_operations"] == TOPIC


def test_a_group_is_described_with_what_may_be_done_to_it() -> None:
    with cluster(nodes=1, seed=1) as sim:
        sim.advance("2s")
        metadata(sim, "t")
        lead(sim, "t")
        here = node(sim, next(iter(sim.nodes)))
        found: list[object] = []
        here.find_coordinator("g", 5_000, found.append)
        sim.run_until(lambda: bool(found))
        answers: list[object] = []
        here.group_here(CommitCursors("g", "", -1, {"t": {0: Offset(0)}}), 5_000, answers.append)
        sim.run_until(lambda: bool(answers))
        assert isinstance(answers[0], CursorsCommitted), answers
        for is_asked, expected in ((True, GROUP), (False, operations.NOT_TOLD)):
            asked = {"groups": ["g", "none"], "include_authorized_operations": is_asked}
            known, unknown = ask(sim, GroupsAdminApi(here).describe, asked, 6)["groups"]
            assert known["authorized_operations"] == expected
            assert unknown["authorized_operations"] == operations.NOT_TOLD
