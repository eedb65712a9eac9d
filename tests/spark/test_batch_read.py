"""Batch reads of live topics."""

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import datasource as filters

import raftline
from raftline.chaos.rig import Rig
from raftline.client.caller import Caller
from raftline.client.fenced import Bounds, Fenced
from raftline.client.line import Line
from raftline.model.batch import COMPRESSIONS
from raftline.model.records import seal_batch
from raftline.spark.filters import Wanted, push
from tests.spark import direct
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


def test_batches_of_every_compression_and_large_messages_are_read(
    spark: Any, servers: str, line: Line, topic: str
):
    line.topics.create(topic, partitions=1)
    rng = random.Random(7)
    sent = [(None, rng.randbytes(rng.randrange(300)), [], DAY_MS + n) for n in range(500)]
    for compression in COMPRESSIONS:
        post_batch(servers, topic, 0, seal_batch(sent, compression=compression))
    large = b"".join(b"%032d" % n for n in range(10_000_000 // 32))
    post_batch(servers, topic, 0, seal_batch([(None, large, [], DAY_MS)], compression="zstd"))
    rows = read(spark, servers, topic).orderBy("offset").collect()
    values = [value for _, value, _, _ in sent]
    assert [bytes(row.value) for row in rows] == values * len(COMPRESSIONS) + [large]


def test_an_empty_topic_has_no_rows(spark: Any, servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=2)
    assert read(spark, servers, topic).collect() == []


def test_values_may_be_left_out(spark: Any, servers: str, line: Line, topic: str):
    publish(line, topic, [b"x" * 100] * 10)
    found = read(spark, servers, topic, includeValue="false")
    assert "value" not in found.columns
    assert found.count() == 10


class TestFilters:
    """Comparisons of partition, offset and timestamp are done by the source, exactly."""

    @pytest.fixture
    def sent(self, servers: str, line: Line, topic: str) -> None:
        line.topics.create(topic, partitions=3)
        for partition in range(3):
            for start in range(0, 100, 25):
                batch = [
                    (None, b"x", [], DAY_MS + 1000 * (start + n) + partition) for n in range(25)
                ]
                post_batch(servers, topic, partition, seal_batch(batch))

    @pytest.mark.parametrize(
        ("condition", "count"),
        [
            ("partition in (0, 2, 7) and offset >= 10 and offset < 20", 20),
            ("timestamp >= timestamp_millis(1790000050000)", 150),
            ("timestamp <= timestamp_millis(1790000050001) and partition = 1", 51),
        ],
    )
    def test_spark_leaves_them_to_the_source(
        self, spark: Any, servers: str, topic: str, sent: None, condition: str, count: int
    ):
        found = read(spark, servers, topic, pushFilters="true").where(condition)
        assert found.count() == count
        plan = found._jdf.queryExecution().optimizedPlan().toString()
        assert "Filter" not in plan, plan

    def test_one_use_of_a_frame_takes_nothing_from_another(
        self, spark: Any, servers: str, topic: str, sent: None
    ):
        """Spark has one plan for all uses; a filter that is taken over would count for all."""
        found = read(spark, servers, topic)
        first, second = found.where("partition = 0"), found.where("partition = 1")
        assert first.count() == 100
        assert found.count() == 300
        assert first.union(second).select("partition").distinct().count() == 2
        assert first.alias("a").join(second.alias("b"), "offset").count() == 100
        assert found.where("offset < 10").union(found).count() == 330

    def test_others_are_left_to_spark(self, spark: Any, servers: str, topic: str, sent: None):
        found = read(spark, servers, topic)
        assert found.where("(partition = 1 or offset = 3) and key is null").count() == 102

    @pytest.mark.parametrize(
        ("wanted", "count"),
        [
            ([filters.EqualTo(("partition",), 1)], 100),
            ([filters.EqualTo(("partition",), 1), filters.EqualTo(("partition",), 2)], 0),
            ([filters.In(("partition",), (0, 2, 7))], 200),
            ([filters.EqualTo(("offset",), 3)], 3),
            ([filters.GreaterThan(("offset",), 10), filters.LessThanOrEqual(("offset",), 20)], 30),
            ([filters.LessThan(("offset",), 0)], 0),
            ([filters.GreaterThanOrEqual(("offset",), 1000)], 0),
            ([filters.IsNotNull(("offset",)), filters.IsNotNull(("timestamp",))], 300),
        ],
        ids=str,
    )
    def test_of_partitions_and_offsets_are_exact(
        self, servers: str, topic: str, sent: None, wanted: list[Any], count: int
    ):
        assert len(direct.read(servers, topic, wanted)) == count

    @pytest.mark.parametrize(
        ("kind", "micros", "count"),
        [
            (filters.GreaterThan, 50_000_000, 149),
            (filters.GreaterThanOrEqual, 50_000_000, 150),
            (filters.GreaterThanOrEqual, 50_000_001, 149),
            (filters.LessThan, 50_000_000, 150),
            (filters.LessThan, 50_000_001, 151),
            (filters.LessThanOrEqual, 50_001_000, 152),
            (filters.EqualTo, 50_001_000, 1),
            (filters.EqualTo, 50_000_500, 0),
        ],
    )
    def test_of_times_are_exact(
        self, servers: str, topic: str, sent: None, kind: Any, micros: int, count: int
    ):
        moment = dt.datetime.fromtimestamp(DAY_MS / 1000, dt.UTC) + dt.timedelta(
            microseconds=micros
        )
        assert len(direct.read(servers, topic, [kind(("timestamp",), moment)])) == count

    def test_of_times_before_1970_are_exact(self, servers: str, line: Line, topic: str):
        line.topics.create(topic, partitions=1)
        batch = [(None, b"x", [], time_ms) for time_ms in (-5_000, -1, 0, DAY_MS)]
        post_batch(servers, topic, 0, seal_batch(batch))
        for seconds, count in ((-10, 4), (-5, 4), (-4, 3), (0, 2)):
            moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(seconds=seconds)
            wanted = [filters.GreaterThanOrEqual(("timestamp",), moment)]
            assert len(direct.read(servers, topic, wanted)) == count

    def test_what_is_not_ours_is_given_back(self):
        others = [
            filters.Not(filters.EqualTo(("partition",), 1)),
            filters.EqualTo(("key",), b"k"),
            filters.EqualTo(("partition",), None),
            filters.StringStartsWith(("topic",), "a"),
            filters.IsNull(("offset",)),
        ]
        wanted = Wanted()
        assert push(wanted, others) == others
        assert wanted == Wanted()


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
            ({"startingTimestamp": "2026-09-21T14:13:30Z", "endingTimestamp": "2030-01-01"}, 80),
            ({"endingOffsets": '{"0": 10, "1": 500}', "failOnDataLoss": "false"}, 60),
        ],
    )
    def test_are_options(
        self, servers: str, topic: str, sent: None, options: dict[str, Any], count: int
    ):
        assert len(direct.read(servers, topic, **options)) == count

    def test_a_log_that_grows_while_it_is_planned_ends_where_it_ended(
        self, servers: str, topic: str, sent: None, monkeypatch: pytest.MonkeyPatch
    ):
        look = Fenced.bounds

        def look_and_grow(log: Fenced, name: str, time_ms: int | None = None) -> list[Bounds]:
            found = look(log, name, time_ms)
            post_batch(servers, topic, 0, seal_batch([(None, b"x", [], DAY_MS)]))
            return found

        monkeypatch.setattr(Fenced, "bounds", look_and_grow)
        assert len(direct.read(servers, topic, endingTimestamp="2030-01-01")) == 100

    def test_outside_of_the_log_is_an_error(self, servers: str, topic: str, sent: None):
        with pytest.raises(raftline.RaftlineError, match=rf"{topic}/1@500 is not written yet"):
            direct.read(servers, topic, endingOffsets='{"0": 10, "1": 500}')
        with Caller(servers) as caller:
            caller.call("POST", f"/v1/topics/{topic}/partitions/0/trim", {"offset": 30})
        assert len(direct.read(servers, topic)) == 70
        wanted = {"startingOffsets": '{"0": 10, "1": 0}'}
        gone = rf"{topic}/0@10 is gone, the log begins at 30"
        with pytest.raises(raftline.RaftlineError, match=gone):
            direct.read(servers, topic, **wanted)
        assert len(direct.read(servers, topic, **wanted, failOnDataLoss="false")) == 70

    def test_what_retention_takes_while_a_task_reads(self, servers: str, topic: str, sent: None):
        for loss in ("true", "false"):
            made = direct.source(servers, topic, offsetsPerSplit=20, failOnDataLoss=loss)
            reader = made.reader(made.schema())
            planned = reader.partitions()
            with Caller(servers) as caller:
                end = 10 if loss == "true" else 30
                caller.call("POST", f"/v1/topics/{topic}/partitions/0/trim", {"offset": end})
            if loss == "true":
                with pytest.raises(raftline.RaftlineError, match=r"@0 is gone, the log begins at"):
                    direct.rows_of(reader, planned)
            else:
                assert len(direct.rows_of(reader, planned)) == 70


def test_a_cluster_is_read_from_leaders_and_copies_while_a_leader_dies(
    make_rig: Callable[..., Rig],
):
    rig = make_rig(nodes=3)
    servers = servers_of(rig)
    with raftline.connect(servers) as line:
        line.topics.create("orders", partitions=3)
        publish(line, "orders", [b"%d" % n for n in range(6000)])
    for source in ("leader", "any"):
        found = direct.read(servers, "orders", readFrom=source, offsetsPerSplit=500)
        assert len({row["value"] for row in found}) == 6000 == len(found)
    made = direct.source(servers, "orders", offsetsPerSplit=500)
    reader = made.reader(made.schema())
    planned = reader.partitions()
    half = direct.rows_of(reader, planned[::2])
    rig.kill(rig.leader_of("orders", 1))
    found = [*half, *direct.rows_of(reader, planned[1::2])]
    assert len({row["value"] for row in found}) == 6000 == len(found)
    for source in ("leader", "any"):
        found = direct.read(servers, "orders", readFrom=source, offsetsPerSplit=500)
        assert len({row["value"] for row in found}) == 6000 == len(found)
