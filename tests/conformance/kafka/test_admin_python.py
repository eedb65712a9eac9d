"""The admin clients of kafka-python and aiokafka."""

import asyncio
import json
import subprocess
import sys

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from raftline.chaos.rig import Rig
from tests.conformance.kafka.conftest import MakeTopic, kafka_of
from tests.conformance.kafka.members import Member, fill, group_name, turn

STORY = """
import json, sys
from kafka.admin import KafkaAdminClient, NewTopic
servers, name, group = sys.argv[1:]
admin = KafkaAdminClient(bootstrap_servers=servers.split(","))
told = {}
admin.create_topics([NewTopic(name, 3, 3, topic_configs={"retention.ms": "60000"})])
told["listed"] = name in admin.list_topics()
told["partitions"] = len(admin.describe_topics([name])[0]["partitions"])
groups = [row["group_id"] for row in admin.list_groups()]
told["groups"] = groups.count(group)
told["offsets"] = sorted(
    [place.partition, cursor.offset]
    for place, cursor in admin.list_group_offsets(group)[group].items())
told["state"] = admin.describe_groups([group])[group]["group_state"]
admin.delete_topics([name])
told["left"] = name in admin.list_topics()
admin.close()
print(json.dumps(told))
"""


def test_kafka_pythons_admin(three: Rig, make_topic: MakeTopic) -> None:
    topic, group, servers = make_topic(three, 2), group_name(), kafka_of(three)
    fill(servers, topic, ["a", "b", "c"], 2)
    member = Member(servers, group, topic, "one")
    turn([member], lambda: len(member.messages) == 3)
    member.consumer.commit(asynchronous=False)
    member.close()
    command = [sys.executable, "-W", "ignore", "-c", STORY, servers, group_name(), group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "listed": True,
        "partitions": 3,
        "groups": 1,
        "offsets": [[0, 2], [1, 1]],
        "state": "Empty",
        "left": False,
    }


def test_aiokafkas_admin(three: Rig) -> None:
    name, servers = group_name(), kafka_of(three)

    async def story() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            new = NewTopic(name, 2, 3, topic_configs={"retention.ms": "60000"})
            created = await admin.create_topics([new])
            assert created.topic_errors[0][1] == 0
            assert name in await admin.list_topics()
            await admin.create_partitions({name: NewPartitions(4)})
            (described,) = await admin.describe_topics([name])
            assert len(described["partitions"]) == 4
            resource = ConfigResource(ConfigResourceType.TOPIC, name)
            (answer,) = await admin.describe_configs([resource])
            rows = {row[0]: row[1] for row in answer.resources[0][4]}
            assert rows["retention.ms"] == "60000"
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(story())


def test_our_own_commands_work_on_a_kafka_group(three: Rig, make_topic: MakeTopic) -> None:
    topic, group, servers = make_topic(three, 2), group_name(), kafka_of(three)
    fill(servers, topic, ["a", "b", "c", "d"], 2)
    member = Member(servers, group, topic, "watched")
    try:
        turn([member], lambda: len(member.messages) == 4)
        member.consumer.commit(asynchronous=False)
        shown = three.command("group", "show", group)
        assert f"{group}: classic group, stable, generation 1" in shown.out
        assert "watched" in shown.out
        to = ("group", "reset", group, "--topic", topic, "--to", "earliest")
        assert three.command(*to).exit == 6  # it has members
    finally:
        member.close()
    assert three.command(*to).exit == 0
    again = Member(servers, group, topic, "again")
    try:
        turn([again], lambda: len(again.messages) == 4)
    finally:
        again.close()
    assert three.command("group", "delete", group).exit == 0
    assert three.command("group", "show", group).exit == 4
