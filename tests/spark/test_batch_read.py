"""Batch reads of live topics in Spark."""

from typing import Any

import pytest

from raftline.client.line import Line
from tests.spark.conftest import publish

pytestmark = pytest.mark.spark


def read(spark: Any, servers: str, topic: str, **options: object) -> Any:
    reader = spark.read.format("raftline").option("servers", servers).option("topic", topic)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def test_all_messages_of_a_topic_are_read_once(spark: Any, servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=3)
    values = [b"value %d" % n for n in range(5000)]
    publish(line, topic, values)
    found = read(spark, servers, topic, offsetsPerSplit=700)
    assert found.columns == [
        "topic", "partition", "offset", "timestamp", "key", "value", "headers", "priority",
    ]  # fmt: skip
    rows = found.collect()
    assert sorted(bytes(row.value) for row in rows) == sorted(values)
    assert len({(row.partition, row.offset) for row in rows}) == 5000
    assert found.rdd.getNumPartitions() >= 8
