"""The coordinator of a group dies in the middle: the group goes on, and no cursor is lost."""

import time

import pytest
from confluent_kafka import Producer, TopicPartition

from raftline.chaos.rig import Rig
from tests.cluster.conftest import MakeRig, make_rig
from tests.conformance.kafka.conftest import MakeTopic, kafka_of, wait_kafka
from tests.conformance.kafka.members import Member, fill, group_name, is_shared, turn
from tests.conformance.kafka.test_groups_wire import coordinator

PARTITIONS = 6
__all__ = ["make_rig"]


def node_of(rig: Rig, group: str) -> str:
    """Return the name of a group's coordinator."""
    address = coordinator(rig, group)
    return next(name for name in rig.names if rig.node(name).kafka == address)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "roundrobin"])
def test_a_killed_coordinator_costs_no_cursor(
    make_rig: MakeRig, make_topic: MakeTopic, strategy: str
) -> None:
    rig = make_rig(nodes=3)
    wait_kafka(rig)
    servers, group, topic = kafka_of(rig), group_name(), make_topic(rig, PARTITIONS)
    fill(servers, topic, [f"m{i}" for i in range(60)], PARTITIONS)
    config = {"partition.assignment.strategy": strategy}
    members = [Member(servers, group, topic, f"c{i}", **config) for i in range(3)]
    producer = Producer({"log_level": 2, "bootstrap.servers": servers, "enable.idempotence": True})
    try:
        turn(members, lambda: is_shared(members, PARTITIONS), 30)
        turn(members, lambda: len(values(members)) == 60, 30)
        for member in members:
            rows = [TopicPartition(topic, partition, 10) for partition in member.reads]
            member.consumer.commit(offsets=rows, asynchronous=False)

        victim = node_of(rig, group)
        rig.kill(victim)
        for i in range(60):
            producer.produce(topic, b"n%d" % i, partition=i % PARTITIONS)
        turn(members, lambda: len(values(members)) == 120, 40)
        turn(members, lambda: is_shared(members, PARTITIONS), 40)
        found = committed(members[0], topic)
        assert found == [10] * PARTITIONS
        for member in members:
            rows = [TopicPartition(topic, partition, 20) for partition in member.reads]
            commit(member, rows)
        assert committed(members[0], topic) == [20] * PARTITIONS

        rig.restart(victim)
        late = Member(servers, group, topic, "late", **config)
        members.append(late)
        turn(members, lambda: is_shared(members, PARTITIONS), 40)
    finally:
        for member in members:
            member.close()
        producer.flush(5)
    assert rig.verify().exit == 0


def values(members: list[Member]) -> set[bytes]:
    return {value for member in members for _, _, _, value in member.messages}


def committed(member: Member, topic: str) -> list[int]:
    rows = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    return [row.offset for row in member.consumer.committed(rows, timeout=20)]


def commit(member: Member, rows: list[TopicPartition]) -> None:
    """Commit as an application does: again, if the coordinator was lost meanwhile."""
    end = time.monotonic() + 20
    while True:
        try:
            member.consumer.commit(offsets=rows, asynchronous=False)
        except Exception:
            if time.monotonic() > end:
                raise
            member.poll(0.2)
        else:
            return
