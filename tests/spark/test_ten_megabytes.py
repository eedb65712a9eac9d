"""Messages of 10 MB that do not compress: every gateway, Spark both ways, and the archive."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import raftline
from raftline.chaos.rig import Rig
from raftline.model.limits import BATCH_BYTES_MAX
from raftline.pipeline import restore
from raftline.pipeline.job import Job
from tests.spark import direct
from tests.spark.archives import archive_topic, archived_values
from tests.spark.conftest import servers_of

pytestmark = pytest.mark.spark

SIZE = 10_000_000
WAIT_S = 60.0


def values_of(servers: str, topic: str) -> list[bytes]:
    return sorted(row["value"] for row in direct.read(servers, topic))


@pytest.mark.parametrize("nodes", [1, pytest.param(3, marks=pytest.mark.full)])
def test_they_go_everywhere(
    spark: Any, make_rig: Callable[..., Rig], tmp_path: Path, nodes: int
) -> None:
    rig = make_rig(nodes=nodes)
    servers, node = servers_of(rig), rig.node(rig.names[0])
    rng = random.Random(5)
    over = {way: rng.randbytes(SIZE) for way in ("http", "grpc", "kafka", "spark")}
    with raftline.connect(servers, timeout="60s") as line:
        line.topics.create("large", partitions=1)
        line.send("large", over["http"], wait=True)
    with raftline.connect(f"grpc://{node.grpc}", timeout="60s") as line:
        line.send("large", over["grpc"], wait=True)
    produce(node.kafka, "large", over["kafka"])
    frame = spark.createDataFrame([(over["spark"],)], "value binary")
    frame.write.format("raftline").mode("append").option("servers", servers).option(
        "topic", "large"
    ).save()

    sent = sorted(over.values())
    table = spark.read.format("raftline").option("servers", servers).option("topic", "large").load()
    assert sorted(bytes(row.value) for row in table.select("value").collect()) == sent
    assert sorted(consumed(node.kafka, "large", len(sent))) == sent
    for way, address in {"http": servers, "grpc": f"grpc://{node.grpc}"}.items():
        assert sorted(received(address, way, len(sent))) == sent

    archive_topic(servers, "large", tmp_path / "archive")
    assert sorted(archived_values(tmp_path / "archive", "large")) == sent
    with Job("restore", servers) as job:
        restore.run(job, topic="large", to="again", directory=str(tmp_path / "archive"))
    assert values_of(servers, "again") == sent


def test_what_is_larger_than_a_batch_is_refused_everywhere(servers: str, topic: str) -> None:
    value = random.Random(6).randbytes(BATCH_BYTES_MAX)
    with raftline.connect(servers, timeout="60s") as line:
        line.topics.create(topic, partitions=1)
        with pytest.raises(raftline.RaftlineError, match=str(BATCH_BYTES_MAX)):
            line.send(topic, value, wait=True)
        with pytest.raises(raftline.RaftlineError):
            line.send(topic, value[: BATCH_BYTES_MAX - 40], wait=True)
        line.send(topic, b"goes on", wait=True)
    assert values_of(servers, topic) == [b"goes on"]


def produce(servers: str, topic: str, value: bytes) -> None:
    refused: list[str] = []
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": SIZE + 10_000})
    producer.produce(
        topic, value, on_delivery=lambda error, _: refused.append(str(error)) if error else None
    )
    assert producer.flush(WAIT_S) == 0
    assert not refused


def consumed(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "k"})
    found: list[bytes] = []
    until = time.monotonic() + WAIT_S
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(found) < count and time.monotonic() < until:
            for message in consumer.consume(count, 0.2):
                assert message.error() is None, message.error()
                found.append(message.value() or b"")
    finally:
        consumer.close()
    return found


def received(address: str, group: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    until = time.monotonic() + WAIT_S
    with raftline.connect(address, timeout="60s") as line:
        while len(found) < count and time.monotonic() < until:
            for message in line.receive_many("large", group=group, count=10, wait="2s"):
                found.append(message.value or b"")
                message.ack(wait=True)
    return found
