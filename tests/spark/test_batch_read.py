"""Batch reads of live topics in Spark."""

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import pytest

from raftline.client.caller import Caller
from raftline.client.line import Line
from raftline.model.batch import COMPRESSIONS
from raftline.model.records import seal_batch
from tests.cluster.rig import Rig
from tests.spark.conftest import post_batch, publish, servers_of

pytestmark = pytest.mark.spark
DAY_MS = 1_790_000_000_000


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


def test_columns_say_what_was_sent(spark: Any, servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=1)
    line.send_now(topic, b"\x00\xff", key="k", headers={"a": b"1", "b": "zwei"}, priority="high")
    line.send_now(topic, None)
    line.send_now(topic, b"", key=b"")
    first, second, third = read(spark, servers, topic).orderBy("offset").collect()
    assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
    assert (bytes(first.key), bytes(first.value), first.priority) == (b"k", b"\x00\xff", 10)
    headers = {one.key: bytes(one.value) for one in first.headers}
    assert headers == {"a": b"1", "b": b"zwei", "raftline-priority": b"10"}
    assert abs(first.timestamp.timestamp() - dt.datetime.now().timestamp()) < 3600  # noqa: DTZ005
    assert (second.key, second.value, second.priority, second.headers) == (None, None, 0, [])
    assert (bytes(third.key), bytes(third.value)) == (b"", b"")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_batches_of_every_compression_are_read(
    spark: Any, servers: str, line: Line, topic: str, compression: str
):
    line.topics.create(topic, partitions=1)
    rng = random.Random(7)
    sent = [(None, rng.randbytes(rng.randrange(300)), [], DAY_MS + n) for n in range(1000)]
    post_batch(servers, topic, 0, seal_batch(sent, compression=compression))
    rows = read(spark, servers, topic).orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == [value for _, value, _, _ in sent]


def test_an_empty_topic_has_no_rows(spark: Any, servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=2)
    assert read(spark, servers, topic).collect() == []


def test_messages_of_ten_megabytes_are_read(spark: Any, servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=1)
    large = b"".join(b"%032d" % n for n in range(10_000_000 // 32))
    sent = [(b"large", large, [], DAY_MS), (None, b"small", [], DAY_MS)]
    post_batch(servers, topic, 0, seal_batch(sent, compression="zstd"))
    first, second = read(spark, servers, topic).orderBy("offset").collect()
    assert bytes(first.value) == large
    assert bytes(second.value) == b"small"


def test_values_may_be_left_out(spark: Any, servers: str, line: Line, topic: str):
    publish(line, topic, [b"x" * 100] * 10)
    found = read(spark, servers, topic, includeValue="false")
    assert "value" not in found.columns
    assert found.count() == 10


class TestFilters:
    """Comparisons of partition, offset and timestamp are done by the source, exactly."""

    @pytest.fixture
    def frame(self, spark: Any, servers: str, line: Line, topic: str) -> Any:
        line.topics.create(topic, partitions=3)
        for partition in range(3):
            for start in range(0, 100, 25):
                batch = [
                    (None, b"x", [], DAY_MS + 1000 * (start + n) + partition) for n in range(25)
                ]
                post_batch(servers, topic, partition, seal_batch(batch))
        return read(spark, servers, topic)

    @pytest.mark.parametrize(
        ("condition", "count"),
        [
            ("partition = 1", 100),
            ("partition in (0, 2, 7)", 200),
            ("partition = 1 and partition = 2", 0),
            ("offset = 3", 3),
            ("offset >= 10 and offset < 20 and partition = 0", 10),
            ("offset > 10 and offset <= 20", 30),
            ("offset < 0", 0),
            ("offset >= 1000", 0),
            ("timestamp >= timestamp_millis(1790000050000)", 150),
            ("timestamp > timestamp_millis(1790000050000)", 149),
            ("timestamp < timestamp_millis(1790000050000)", 150),
            ("timestamp <= timestamp_millis(1790000050001)", 152),
            ("timestamp = timestamp_millis(1790000050001)", 1),
            ("timestamp > timestamp_micros(1790000050000500)", 149),
            ("timestamp = timestamp_micros(1790000050000500)", 0),
            ("timestamp between timestamp_millis(1790000010000) and now() and offset < 20", 30),
        ],
    )
    def test_they_give_what_spark_would(self, frame: Any, condition: str, count: int):
        found = frame.where(condition)
        assert found.count() == count
        assert len(found.collect()) == count
        plan = found._jdf.queryExecution().optimizedPlan().toString()
        assert "Filter" not in plan, plan

    @pytest.mark.parametrize(
        ("condition", "count"),
        [
            ("partition = 1 or offset = 3", 102),
            ("partition <> 1", 200),
            ("key is null and offset = 3", 3),
            ("offset % 2 = 0", 150),
        ],
    )
    def test_others_are_left_to_spark(self, frame: Any, condition: str, count: int):
        assert frame.where(condition).count() == count


class TestBounds:
    """Where a read begins and ends."""

    @pytest.fixture
    def sent(self, line: Line, servers: str, topic: str) -> None:
        line.topics.create(topic, partitions=2)
        for partition in range(2):
            batch = [(None, b"x", [], DAY_MS + 1000 * n) for n in range(50)]
            post_batch(servers, topic, partition, seal_batch(batch))

    @pytest.mark.parametrize(
        ("options", "count"),
        [
            ({}, 100),
            ({"startingOffsets": '{"0": 10, "1": "earliest"}'}, 90),
            ({"startingOffsets": '{"0": 10, "1": "latest"}'}, 40),
            ({"endingOffsets": '{"0": 10, "1": 20}'}, 30),
            ({"startingTimestamp": DAY_MS + 45_000}, 10),
            ({"endingTimestamp": DAY_MS + 5_000}, 10),
            ({"startingTimestamp": "2026-09-21T14:14:00Z", "endingTimestamp": "2030-01-01"}, 60),
            ({"endingOffsets": '{"0": 10, "1": 500}', "failOnDataLoss": "false"}, 60),
        ],
    )
    def test_are_options(
        self, spark: Any, servers: str, topic: str, sent: None, options: dict[str, Any], count: int
    ):
        assert read(spark, servers, topic, **options).count() == count

    def test_outside_of_the_log_is_an_error(self, spark: Any, servers: str, topic: str, sent: None):
        with pytest.raises(Exception, match=rf"{topic}/1@500 is not written yet"):
            read(spark, servers, topic, endingOffsets='{"0": 10, "1": 500}').count()
        with Caller(servers) as caller:
            caller.call("POST", f"/v1/topics/{topic}/partitions/0/trim", {"offset": 30})
        assert read(spark, servers, topic).count() == 70
        wanted = {"startingOffsets": '{"0": 10, "1": 0}'}
        with pytest.raises(Exception, match=rf"{topic}/0@10 is gone, the log begins at 30"):
            read(spark, servers, topic, **wanted).count()
        assert read(spark, servers, topic, **wanted, failOnDataLoss="false").count() == 70


def test_a_cluster_is_read_from_leaders_and_copies_while_a_leader_dies(
    spark: Any, make_rig: Callable[..., Rig]
):
    rig = make_rig(nodes=3)
    servers = servers_of(rig)
    import raftline

    with raftline.connect(servers) as line:
        line.topics.create("orders", partitions=3)
        publish(line, "orders", [b"%d" % n for n in range(6000)])
    for source in ("leader", "any"):
        found = read(spark, servers, "orders", readFrom=source, offsetsPerSplit=500)
        assert found.select("partition", "offset").distinct().count() == 6000
    rig.kill(rig.leader_of("orders", 1))
    for source in ("leader", "any"):
        found = read(spark, servers, "orders", readFrom=source, offsetsPerSplit=500)
        assert found.select("partition", "offset").distinct().count() == 6000
