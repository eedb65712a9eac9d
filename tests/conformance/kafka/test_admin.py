"""The admin APIs through librdkafka's admin client: topics, configs, records, groups, offsets."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    PartitionMetadata,
    ResourceType,
)

from raftline.chaos.rig import Rig, wait_for
from raftline.gateways.kafka.schema_admin import CREATE_TOPICS, DESCRIBE_CONFIGS, ELECT_LEADERS
from tests.conformance.kafka.conftest import MakeTopic, kafka_of
from tests.conformance.kafka.members import Member, fill, group_name, turn
from tests.conformance.kafka.wire import Wire

WAIT_S = 20
ELECTION_S = 70  # one that is given up takes all the time that the client names: a minute


@pytest.fixture
def admin(three: Rig) -> AdminClient:
    return AdminClient({"log_level": 2, "bootstrap.servers": kafka_of(three)})


def refused(call: Callable[[], Any]) -> tuple[int, str]:
    """Return the code and the text a call is refused with."""
    with pytest.raises(KafkaException) as caught:
        call()
    error: KafkaError = caught.value.args[0]
    return error.code(), error.str()


def create(admin: AdminClient, topic: NewTopic, **more: Any) -> None:
    admin.create_topics([topic], request_timeout=WAIT_S, **more)[topic.topic].result(WAIT_S)


def configs(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return admin.describe_configs([resource])[resource].result(WAIT_S)


def alter(admin: AdminClient, topic: str, *entries: ConfigEntry) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=list(entries))
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def entry(name: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def test_topics_are_created_described_grown_and_deleted(three: Rig, admin: AdminClient) -> None:
    name = group_name()
    create(admin, NewTopic(name, 2, 3, config={"retention.ms": "60000", "headers": "true"}))
    row = admin.list_topics(name, timeout=WAIT_S).topics[name]
    assert sorted(row.partitions) == [0, 1]
    assert all(len(p.replicas) == 3 and len(p.isrs) == 3 for p in row.partitions.values())
    shown = three.command("--json", "topic", "show", name).json()
    assert (shown["settings"]["retention_ms"], shown["settings"]["headers"]) == (60_000, True)

    admin.create_partitions([NewPartitions(name, 5)])[name].result(WAIT_S)
    assert len(admin.list_topics(name, timeout=WAIT_S).topics[name].partitions) == 5
    code, text = refused(
        lambda: admin.create_partitions([NewPartitions(name, 3)])[name].result(WAIT_S)
    )
    assert code == KafkaError.INVALID_PARTITIONS
    assert "has 5 partitions" in text

    admin.delete_topics([name])[name].result(WAIT_S)
    code, _ = refused(lambda: admin.delete_topics([name])[name].result(WAIT_S))
    assert code == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert three.command("topic", "show", name).exit == 4


def test_what_cannot_be_created_is_refused_with_a_reason(admin: AdminClient) -> None:
    name = group_name()
    create(admin, NewTopic(name, 1, 1), validate_only=True)
    assert name not in admin.list_topics(timeout=WAIT_S).topics
    create(admin, NewTopic(name, 1, 1))
    cases = [
        (NewTopic(name, 1, 1), KafkaError.TOPIC_ALREADY_EXISTS, "exists"),
        (NewTopic("a b", 1, 1), KafkaError.TOPIC_EXCEPTION, "' '"),
        (NewTopic("x1", 1, 7), KafkaError.INVALID_REPLICATION_FACTOR, "7 nodes"),
        (NewTopic("x2", 0, 1), KafkaError.INVALID_PARTITIONS, "1 to"),
        (NewTopic("x3", 1, 1, config={"cleanup.policy": "compact"}), KafkaError.INVALID_CONFIG, ""),
        (NewTopic("x4", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG, "no.such"),
        (NewTopic("x5", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG, "soon"),
        (NewTopic("x6", 1, 3, config={"min.insync.replicas": "3"}), KafkaError.INVALID_CONFIG, "2"),
        (NewTopic("x7", 1, replica_assignment=[[1]]), 39, "places"),
    ]  # fmt: skip
    for topic, wanted, text in cases:
        code, said = refused(lambda topic=topic: create(admin, topic))
        assert (code, text in said) == (wanted, True), (topic, code, said)
    assert not [t for t in admin.list_topics(timeout=WAIT_S).topics if t.startswith("x")]
    create(admin, NewTopic("defaults", -1, -1, config={"segment.ms": "1000"}))
    assert configs(admin, "defaults")["segment.ms"].value == "1000"  # kept, without effect
    assert len(admin.list_topics("defaults", timeout=WAIT_S).topics["defaults"].partitions) == 6


def test_who_only_asks_is_told_what_a_topic_would_be(three: Rig) -> None:
    name = group_name()
    given = [{"name": "retention.ms", "value": "86400000"}]
    none = {"assignments": [], "configs": []}
    topics = [
        {"name": name, "num_partitions": -1, "replication_factor": -1, **none},
        {**none, "name": "few", "num_partitions": 2, "replication_factor": 1, "configs": given},
        {"name": "no/name", "num_partitions": 1, "replication_factor": 1, **none},
    ]
    asked = {"topics": topics, "timeout_ms": 1_000, "validate_only": True}
    with Wire(three.node("node-1").kafka) as wire:
        dry = wire.ask(CREATE_TOPICS, 7, asked)["topics"]
        sizes = [(row["num_partitions"], row["replication_factor"]) for row in dry]
        assert sizes == [(6, 3), (2, 1), (-1, -1)]
        kept = {row["name"]: row["value"] for row in dry[1]["configs"]}
        assert kept["retention.ms"] == "86400000"
        real = {**asked, "topics": topics[:1], "validate_only": False}
        (made,) = wire.ask(CREATE_TOPICS, 7, real)["topics"]
        assert {**made, "topic_id": dry[0]["topic_id"]} == dry[0]


def test_replicas_may_be_assigned_where_the_cluster_has_no_choice(admin: AdminClient) -> None:
    name = group_name()
    create(admin, NewTopic(name, 2, replica_assignment=[[1, 2, 3], [3, 1, 2]]))
    rows = admin.list_topics(name, timeout=WAIT_S).topics[name].partitions.values()
    assert [sorted(row.replicas) for row in rows] == [[1, 2, 3]] * 2

    def grow(nodes: list[list[int]]) -> None:
        wish = NewPartitions(name, 3, replica_assignment=nodes)
        admin.create_partitions([wish])[name].result(WAIT_S)

    assert refused(lambda: grow([[1]]))[0] == 39
    assert refused(lambda: grow([[1, 2, 2]]))[0] == 39
    grow([[2, 3, 1]])
    assert len(admin.list_topics(name, timeout=WAIT_S).topics[name].partitions) == 3
    single = group_name()
    create(admin, NewTopic(single, 1, 1))
    wish = NewPartitions(single, 2, replica_assignment=[[1, 2, 3]])
    assert refused(lambda: admin.create_partitions([wish])[single].result(WAIT_S))[0] == 39


def test_configs_are_shown_and_changed_under_kafkas_names(
    three: Rig, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic = make_topic(three)
    found = configs(admin, topic)
    assert found["cleanup.policy"].value == "delete"
    assert found["cleanup.policy"].is_read_only
    assert found["compression.type"].value == "producer"
    assert found["min.insync.replicas"].value == "2"
    assert found["retention.ms"].is_default
    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    alter(admin, topic, entry("retention.ms", "3600000", set_), entry("lease_ms", "45000", set_))
    found = configs(admin, topic)
    assert (found["retention.ms"].value, found["lease_ms"].value) == ("3600000", "45000")
    assert not found["retention.ms"].is_default
    alter(
        admin, topic, entry("lease_ms", None, delete), entry("retention.ms", str(2**63 - 1), set_)
    )
    found = configs(admin, topic)
    assert (found["retention.ms"].value, found["lease_ms"].value) == ("-1", "30000")
    for name, value in (("cleanup.policy", "compact"), ("nonsense", "1"), ("segment.bytes", "x")):
        code, text = refused(lambda n=name, v=value: alter(admin, topic, entry(n, v, set_)))
        assert (code, name in text or value in text) == (KafkaError.INVALID_CONFIG, True)
    node = ConfigResource(ResourceType.BROKER, "1")
    of_node = admin.describe_configs([node])[node].result(WAIT_S)
    assert of_node["num.partitions"].value == "6"
    assert of_node["auto.create.topics.enable"].value == "true"
    places = {f"PLAINTEXT://{place}" for place in kafka_of(three).split(",")}
    assert of_node["advertised.listeners"].value in places


def test_a_node_shows_its_own_configs_with_texts(three: Rig) -> None:
    def shown(wire: Wire, node: int) -> dict[str, Any]:
        resource = {"resource_type": 4, "resource_name": str(node), "keys": None}
        asked = {"resources": [resource], "include_documentation": True}
        return wire.ask(DESCRIBE_CONFIGS, 4, asked)["results"][0]

    with Wire(kafka_of(three, "node-2")) as wire:
        assert all(row["documentation"] for row in shown(wire, 2)["configs"])
        other = shown(wire, 1)
        assert other["error_code"] == 42
        assert "node 1" in other["error_message"]


def test_the_cluster_is_described(three: Rig, admin: AdminClient) -> None:
    found = admin.describe_cluster().result(WAIT_S)
    assert {f"{node.host}:{node.port}" for node in found.nodes} == set(kafka_of(three).split(","))
    assert found.controller is not None
    assert found.cluster_id


def test_records_are_deleted_up_to_an_offset(
    three: Rig, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic, servers = make_topic(three, 2), kafka_of(three)
    fill(servers, topic, [f"m{i}" for i in range(20)], 2)
    rows = [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, -1)]
    futures = admin.delete_records(rows)
    assert [futures[row].result(WAIT_S).low_watermark for row in rows] == [4, 10]
    wanted = {TopicPartition(topic, p): OffsetSpec.earliest() for p in range(2)}
    found = {p.partition: f.result(WAIT_S).offset for p, f in admin.list_offsets(wanted).items()}
    assert found == {0: 4, 1: 10}
    past = TopicPartition(topic, 0, 99)
    code, _ = refused(lambda: admin.delete_records([past])[past].result(WAIT_S))
    assert code == KafkaError.OFFSET_OUT_OF_RANGE


def test_groups_are_listed_described_altered_and_deleted(
    three: Rig, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic, group, servers = make_topic(three, 2), group_name(), kafka_of(three)
    fill(servers, topic, ["a", "b", "c", "d"], 2)
    member = Member(servers, group, topic, "watched")
    try:
        turn([member], lambda: len(member.messages) == 4)
        member.consumer.commit(asynchronous=False)
        told: list[str] = []

        def is_listed() -> bool:  # each node is asked in turn: a leader may change meanwhile
            rows = admin.list_consumer_groups(request_timeout=WAIT_S).result(WAIT_S).valid
            told[:] = [row.state.name for row in rows if row.group_id == group]
            return bool(told)

        wait_for(is_listed, WAIT_S)
        assert told == ["STABLE"]
        shown = admin.describe_consumer_groups([group])[group].result(WAIT_S)
        assert (shown.state.name, shown.partition_assignor) == ("STABLE", "cooperative-sticky")
        (seen,) = shown.members
        assert seen.client_id == "watched"
        assert sorted(p.partition for p in seen.assignment.topic_partitions) == [0, 1]
        code, _ = refused(lambda: admin.delete_consumer_groups([group])[group].result(WAIT_S))
        assert code == KafkaError.NON_EMPTY_GROUP
    finally:
        member.close()

    wish = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0), TopicPartition(topic, 1)])
    found = admin.list_consumer_group_offsets([wish])[group].result(WAIT_S)
    assert [row.offset for row in found.topic_partitions] == [2, 2]
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    admin.alter_consumer_group_offsets([moved])[group].result(WAIT_S)
    found = admin.list_consumer_group_offsets([wish])[group].result(WAIT_S)
    assert [row.offset for row in found.topic_partitions] == [1, 2]
    admin.delete_consumer_groups([group])[group].result(WAIT_S)
    code, _ = refused(lambda: admin.delete_consumer_groups([group])[group].result(WAIT_S))
    assert code == KafkaError.GROUP_ID_NOT_FOUND


def test_a_topic_that_is_made_again_has_another_id_and_no_cursors(
    three: Rig, admin: AdminClient
) -> None:
    topic, group, servers = group_name(), group_name(), kafka_of(three)
    create(admin, NewTopic(topic, 1, 3))
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
        admin.delete_topics([topic])[topic].result(WAIT_S)
        create(admin, NewTopic(topic, 1, 3))
        found = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        assert found[0].offset in (-1001, 5)  # the group hears of it a moment later
        again = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
        assert again[0].offset == 1
    finally:
        consumer.close()


def test_leadership_goes_back_to_the_first_replica(
    three: Rig, make_topic: MakeTopic, admin: AdminClient
) -> None:
    """As metadata name them: Kafka's tools take the first for the preferred leader."""
    topic = make_topic(three, partitions=2)

    def rows() -> dict[int, PartitionMetadata]:
        return admin.list_topics(topic, WAIT_S).topics[topic].partitions

    def elect(kind: ElectionType, *partitions: int) -> dict[int, int]:
        asked = [TopicPartition(topic, number) for number in partitions]
        told = admin.elect_leaders(kind, asked).result(ELECTION_S)
        return {row.partition: error.code() if error else 0 for row, error in told.items()}

    not_needed = {0: 84, 1: 84}
    wait_for(lambda: elect(ElectionType.PREFERRED, 0, 1) == not_needed, 2 * ELECTION_S, str)
    assert elect(ElectionType.UNCLEAN, 0) == {0: 84}
    said: list[object] = []

    def is_given_back() -> bool:  # again if a transfer is given up: machines are busy
        first, other, *_ = rows()[1].replicas
        with three.client() as client:
            client.administer("transfer", topic=topic, partition=1, to_node=str(other))
        wait_for(lambda: rows()[1].leader in (first, other), 20, str)
        said[:] = [elect(ElectionType.PREFERRED, 0, 1, 7), rows()[1].leader == first]
        return said == [{0: 84, 1: 0, 7: 3}, True]

    wait_for(is_given_back, 2 * ELECTION_S, lambda: str(said))


def test_of_all_partitions_only_those_with_a_new_leader_are_told_of(three: Rig) -> None:
    with Wire(kafka_of(three)[: kafka_of(three).index(",")]) as wire:
        for version, kind in ((0, 0), (1, 1), (2, 0), (2, 1)):
            asked = {"election_type": kind, "topics": None, "timeout_ms": 10_000}
            answer = wire.ask(ELECT_LEADERS, version, asked)
            codes = [part["error_code"] for row in answer["topics"] for part in row["partitions"]]
            assert answer["error_code"] == 0
            assert 84 not in codes
            assert kind == 0 or not codes
