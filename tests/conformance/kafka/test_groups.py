"""Groups of librdkafka's consumers: eager and cooperative, static members, commits, failures."""

import json
import subprocess
import sys
import time

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition

from raftline.chaos.rig import Rig
from raftline.chaos.traffic import Caller
from tests.conformance.kafka.conftest import MakeTopic, kafka_of
from tests.conformance.kafka.members import Member, fill, group_name, is_shared, turn

PARTITIONS = 6


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_three_members_share_six_partitions(
    three: Rig, make_topic: MakeTopic, strategy: str
) -> None:
    topic, group, servers = make_topic(three, PARTITIONS), group_name(), kafka_of(three)
    fill(servers, topic, [f"m{i}" for i in range(120)], PARTITIONS)
    config = {"partition.assignment.strategy": strategy}
    members = [Member(servers, group, topic, f"c{i}", **config) for i in range(3)]
    try:
        turn(members, lambda: is_shared(members, PARTITIONS))
        fill(servers, topic, [f"n{i}" for i in range(120)], PARTITIONS)
        turn(members, lambda: len(_values(members)) == 240)
        after = [row for member in members for row in member.messages if row[3][:1] == b"n"]
        assert len(after) == 120  # each once: nothing moved any more
        last = members.pop()
        last.close()
        turn(members, lambda: is_shared(members, PARTITIONS))
    finally:
        for member in members:
            member.close()


def test_with_cooperative_members_only_what_moves_pauses(three: Rig, make_topic: MakeTopic) -> None:
    topic, group, servers = make_topic(three, PARTITIONS), group_name(), kafka_of(three)
    producer = Producer({"log_level": 2, "bootstrap.servers": servers, "linger.ms": 1})
    sent = time.monotonic()

    def feed() -> bool:
        nonlocal sent
        if time.monotonic() - sent > 0.02:
            sent = time.monotonic()
            for partition in range(PARTITIONS):
                producer.produce(topic, b"x", partition=partition)
            producer.poll(0)
        return False

    first = Member(servers, group, topic, "first")
    members = [first]
    try:
        turn(members, lambda: feed() or first.reads == set(range(PARTITIONS)))
        turn(members, lambda: feed() or (len(first.messages) > 200 and _has_read(first)))
        members += [Member(servers, group, topic, name) for name in ("second", "third")]
        turn(members, lambda: feed() or is_shared(members, PARTITIONS))
        turn(members, lambda: feed() or all(_has_read(member) for member in members))
        kept, taken = first.reads, [p for _, rows in first.taken for p in rows]
        assert sorted(taken) == sorted(set(range(PARTITIONS)) - kept)  # each once, nothing else
        for partition in range(PARTITIONS):  # nobody committed: what moves begins anew
            readers = [m.name for m in members if any(p == partition for _, p, _, _ in m.messages)]
            assert (readers == ["first"]) == (partition in kept), (partition, readers)
        for partition in kept:  # librdkafka may wait a moment, and goes on where it was
            offsets = [offset for _, p, offset, _ in first.messages if p == partition]
            assert offsets == list(range(len(offsets)))

        before = {member.name: set(member.reads) for member in members}
        counts = {member.name: len(member.taken) for member in members}
        members.pop().close()
        turn(members, lambda: feed() or is_shared(members, PARTITIONS))
        for member in members:
            assert before[member.name] <= member.reads
            assert sum(len(rows) for _, rows in member.taken[counts[member.name] :]) == 0
    finally:
        for member in members:
            member.close()
        producer.flush(5)


def test_a_static_member_restarts_without_a_rebalance(three: Rig, make_topic: MakeTopic) -> None:
    topic, group, servers = make_topic(three, PARTITIONS), group_name(), kafka_of(three)
    members = [
        Member(servers, group, topic, f"c{i}", **{"group.instance.id": f"i{i}"}) for i in range(2)
    ]
    try:
        turn(members, lambda: is_shared(members, PARTITIONS))
        stays, goes = members
        had, events = goes.reads, (len(stays.given), len(stays.taken))
        goes.close()  # says nothing: it is a static member
        back = Member(servers, group, topic, "c1", **{"group.instance.id": "i1"})
        members[1] = back
        turn(members, lambda: back.reads == had)
        end = time.monotonic() + 2
        turn(members, lambda: time.monotonic() > end)
        assert (len(stays.given), len(stays.taken)) == events
    finally:
        for member in members:
            member.close()


def test_a_second_instance_fences_the_first(one: Rig, make_topic: MakeTopic) -> None:
    topic, group, servers = make_topic(one), group_name(), kafka_of(one)
    first = Member(servers, group, topic, "first", **{"group.instance.id": "same"})
    second = None
    try:
        turn([first], lambda: first.reads == {0})
        second = Member(servers, group, topic, "second", **{"group.instance.id": "same"})
        turn([second], lambda: second.reads == {0})
        turn([first, second], lambda: bool(first.errors))
        codes = {error.code() for error in first.errors}
        assert codes & {KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID}
    finally:
        first.close()
        if second is not None:
            second.close()


def test_commits_hold_and_reading_goes_on_there(three: Rig, make_topic: MakeTopic) -> None:
    topic, group, servers = make_topic(three, 2), group_name(), kafka_of(three)
    fill(servers, topic, [f"m{i}" for i in range(20)], 2)
    first = Member(servers, group, topic, "first")
    turn([first], lambda: len(first.messages) == 20)
    rows = [TopicPartition(topic, 0, 4, "note"), TopicPartition(topic, 1, 7)]
    assert all(row.error is None for row in first.consumer.commit(offsets=rows, asynchronous=False))
    first.close()
    second = Member(servers, group, topic, "second")
    try:
        turn([second], lambda: len(second.messages) == 9)
        assert min(offset for _, p, offset, _ in second.messages if p == 0) == 4
        assert min(offset for _, p, offset, _ in second.messages if p == 1) == 7
        found = second.consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        assert [(row.offset, row.metadata or "") for row in found] == [(4, "note"), (7, "")]
    finally:
        second.close()
    shown = three.command("--json", "group", "show", group).json()["stream"]
    assert (shown["kind"], shown["lag"]) == ("classic", 9)
    text = three.command("group", "show", group)
    assert text.exit == 0, text


def test_a_consumer_seeks_by_time(one: Rig, make_topic: MakeTopic) -> None:
    topic, servers = make_topic(one), kafka_of(one)
    producer = Producer({"log_level": 2, "bootstrap.servers": servers, "linger.ms": 50})
    base = 1_700_000_000_000
    for i in range(100):
        producer.produce(topic, b"%d" % i, partition=0, timestamp=base + i * 10)
    assert producer.flush(10) == 0
    member = Member(servers, group_name(), topic, "seeker")
    try:
        wanted = [TopicPartition(topic, 0, base + 425), TopicPartition(topic, 0, base + 99_999)]
        found = [member.consumer.offsets_for_times([row], timeout=10)[0].offset for row in wanted]
        assert found == [43, -1]
        turn([member], lambda: len(member.messages) == 100)
        member.messages.clear()
        member.consumer.seek(TopicPartition(topic, 0, 43))
        turn([member], lambda: len(member.messages) == 57)
        assert member.messages[0][3] == b"43"
    finally:
        member.close()


DYING = """
import sys
from confluent_kafka import Consumer
c = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
              "session.timeout.ms": 6000, "heartbeat.interval.ms": 300})
c.subscribe([sys.argv[3]])
while not c.assignment():
    c.poll(0.1)
print("assigned", flush=True)
while True:
    c.poll(0.1)
"""


def test_what_a_dead_member_had_goes_to_the_others(three: Rig, make_topic: MakeTopic) -> None:
    topic, group, servers = make_topic(three, 4), group_name(), kafka_of(three)
    command = [sys.executable, "-c", DYING, servers, group, topic]
    dying = subprocess.Popen(command, stdout=subprocess.PIPE)  # closed below
    member = None
    try:
        assert dying.stdout is not None
        assert dying.stdout.readline() == b"assigned\n"
        member = Member(servers, group, topic, "heir", **{"partition.assignment.strategy": "range"})
        turn([member], lambda: len(member.reads) == 2)
        dying.kill()
        turn([member], lambda: len(member.reads) == 4)
    finally:
        dying.kill()
        dying.communicate()
        if member is not None:
            member.close()


def test_a_group_has_members_of_one_kind(one: Rig, make_topic: MakeTopic) -> None:
    topic, group, servers = make_topic(one), group_name(), kafka_of(one)
    caller = Caller(one)
    body = json.dumps({"topics": [topic]}).encode()
    joined = caller.call(one.names[0], "POST", f"/v1/groups/{group}/join", body)
    caller.close()
    assert joined.status == 200, joined
    member = Member(servers, group, topic, "kafka")
    try:
        turn([member], lambda: bool(member.errors))
        assert member.errors[0].code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    finally:
        member.close()


def _values(members: list[Member]) -> set[bytes]:
    return {value for member in members for _, _, _, value in member.messages}


def _has_read(member: Member) -> bool:
    return {p for _, p, _, _ in member.messages[-200:]} >= member.reads
