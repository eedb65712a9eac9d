"""Kafka's own tools, on Java clients 3.9 and 4: topics, groups, producers, consumers, offsets."""

import json
import re
from pathlib import Path

import pytest

from raftline.chaos.rig import Rig
from tests.conformance.kafka.conftest import MakeTopic, kafka_of
from tests.conformance.kafka.java import VERSIONS, Running, needs_java, run, until
from tests.conformance.kafka.members import group_name

pytestmark = [pytest.mark.full, needs_java, pytest.mark.parametrize("version", VERSIONS)]

GROUPS = "consumer.group.ConsumerGroupCommand"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
ROUND_ROBIN = "org.apache.kafka.clients.consumer.RoundRobinAssignor"


def groups(version: str, *words: str) -> str:
    """Run kafka-consumer-groups, with more patience than it has by itself."""
    return run(version, GROUPS, *words, "--timeout", "40000")


def test_kafka_topics(three: Rig, version: str) -> None:
    at, name = ("--bootstrap-server", kafka_of(three)), group_name()
    new = ("--partitions", "4", "--replication-factor", "3", "--config", "retention.ms=60000")
    said = run(version, "TopicCommand", *at, "--create", "--topic", name, *new)
    assert f"Created topic {name}" in said
    said = run(version, "TopicCommand", *at, "--describe", "--topic", name)
    assert len(re.findall(r"Partition: \d+\s+Leader: [123]\s+Replicas: [123,]{5}", said)) == 4
    assert "retention.ms=60000" in said
    assert name in run(version, "TopicCommand", *at, "--list").split()
    run(version, "TopicCommand", *at, "--alter", "--topic", name, "--partitions", "6")
    said = run(version, "TopicCommand", *at, "--describe", "--topic", name)
    assert "PartitionCount: 6" in said
    bad = ("--partitions", "1", "--config", "cleanup.policy=compact")
    said = run(version, "TopicCommand", *at, "--create", "--topic", f"{name}x", *bad, is_good=False)
    assert "compaction is not there yet" in said
    run(version, "TopicCommand", *at, "--delete", "--topic", name)
    assert name not in run(version, "TopicCommand", *at, "--list").split()


def test_verifiable_producer_and_consumer_and_offsets(
    three: Rig, make_topic: MakeTopic, version: str, tmp_path: Path
) -> None:
    at, topic, group = ("--bootstrap-server", kafka_of(three)), make_topic(three, 2), group_name()
    said = run(
        version, "VerifiableProducer", *at, "--topic", topic, "--max-messages", "1000",
        "--acks", "-1", "--value-prefix", "7", "--repeating-keys", "50",
    )  # fmt: skip
    assert '"sent":1000,"acked":1000' in said
    said = run(
        version, "VerifiableConsumer", *at, "--topic", topic, "--group-id", group,
        "--max-messages", "1000", "--reset-policy", "earliest",
    )  # fmt: skip
    read = [json.loads(text) for text in said.splitlines() if '"records_consumed"' in text]
    assert sum(event["count"] for event in read) == 1000
    said = groups(version, *at, "--describe", "--group", group)
    rows = [text.split() for text in said.splitlines() if topic in text.split()]
    assert sum(int(row[3]) for row in rows) == 1000
    assert [row[5] for row in rows] == ["0"] * 2
    said = run(version, "GetOffsetShell", *at, "--topic", topic, "--time", "-2")
    assert {f"{topic}:0:0", f"{topic}:1:0"} <= set(said.split())

    plan = tmp_path / "plan.json"
    rows_wanted = [{"topic": topic, "partition": 0, "offset": 10}]
    plan.write_text(json.dumps({"partitions": rows_wanted, "version": 1}))
    said = run(version, "DeleteRecordsCommand", *at, "--offset-json-file", str(plan))
    assert "low_watermark: 10" in said
    said = run(version, "GetOffsetShell", *at, "--topic", topic, "--time", "-2")
    assert f"{topic}:0:10" in said.split()

    to = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    said = groups(version, *at, *to)
    found = re.findall(rf"{topic}\s+(\d+)\s+(\d+)", said)
    assert sorted(found) == [("0", "10"), ("1", "0")]
    assert group in groups(version, *at, "--list").split()
    gone = ("--delete-offsets", "--group", group, "--topic", topic)
    assert "Successful" in groups(version, *at, *gone)
    groups(version, *at, "--delete", "--group", group)
    assert group not in groups(version, *at, "--list").split()


@pytest.mark.parametrize("assignor", [COOPERATIVE, ROUND_ROBIN])
def test_java_consumers_share_and_hand_over(
    three: Rig, make_topic: MakeTopic, version: str, assignor: str
) -> None:
    at, topic, group = ("--bootstrap-server", kafka_of(three)), make_topic(three, 6), group_name()
    words = (
        *at, "--topic", topic, "--group-id", group, "--reset-policy", "earliest",
        "--session-timeout", "6000", "--assignment-strategy", assignor,
    )  # fmt: skip
    first = Running(version, "VerifiableConsumer", *words)
    members = [first]
    try:
        until(lambda: len(first.reads()) == 6, lambda: first.events)
        second = Running(version, "VerifiableConsumer", *words)
        members.append(second)
        until(lambda: len(first.reads()) == len(second.reads()) == 3, lambda: second.events)
        taken = [row for event in first.named("partitions_revoked") for row in event["partitions"]]
        if assignor == COOPERATIVE:
            assert len(taken) == 3  # only what moved
        said = groups(version, *at, "--describe", "--group", group, "--members", "--verbose")
        assert len(re.findall(re.escape(group), said)) >= 2
        second.stop()
        members.pop()
        until(lambda: len(first.reads()) == 6, lambda: first.events)
    finally:
        for member in members:
            member.stop()


def test_a_static_java_consumer_comes_back(three: Rig, make_topic: MakeTopic, version: str) -> None:
    at, topic, group = ("--bootstrap-server", kafka_of(three)), make_topic(three, 2), group_name()
    words = (
        *at, "--topic", topic, "--group-id", group, "--reset-policy", "earliest",
        "--session-timeout", "30000",
    )  # fmt: skip
    members = [
        Running(version, "VerifiableConsumer", *words, "--group-instance-id", name)
        for name in ("one", "two")
    ]
    try:
        until(lambda: all(len(m.reads()) == 1 for m in members), lambda: members[0].events)
        stays, had = members[0], members[1].reads()
        before = len(stays.named("partitions_revoked"))
        members[1].stop()
        back = members[1] = Running(
            version, "VerifiableConsumer", *words, "--group-instance-id", "two"
        )
        until(lambda: back.reads() == had, lambda: back.events)
        assert len(stays.named("partitions_revoked")) == before
    finally:
        for member in members:
            member.stop()
