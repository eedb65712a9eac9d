"""Batch and stream writes: what rows become, and that each is written once whatever fails."""

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

import raftline
from raftline.chaos.rig import Rig
from raftline.client.line import Line
from raftline.model.partitioner import murmur2, partition_of
from raftline.spark import options as option_table
from raftline.spark import writers
from raftline.spark.chunks import runs_of
from raftline.spark.routing import murmur2_all, partitions_of
from tests.spark import direct, faulty
from tests.spark.conftest import publish, servers_of
from tests.spark.streams import run, stream

pytestmark = pytest.mark.spark
NOW = dt.datetime(2026, 11, 16, 12, 0, 0, 123_000, tzinfo=dt.UTC)


def write(frame: Any, servers: str, **options: object) -> None:
    writer = frame.write.format("raftline").mode("append").option("servers", servers)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def values_of(servers: str, topic: str) -> Counter[bytes]:
    return Counter(row["value"] for row in direct.read(servers, topic))


# ---------------------------------------------------------------------- what rows become


def test_a_frame_becomes_messages(spark: Any, servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=3)
    rows = [
        (f"k{n}" if n % 3 else None, f"v{n}", [("h", b"x")] if n % 2 else None, n % 5 - 2, NOW)
        for n in range(300)
    ]
    frame = spark.createDataFrame(
        rows,
        "key string, value string, headers array<struct<key: string, value: binary>>, "
        "priority int, timestamp timestamp",
    )
    write(frame.repartition(3), servers, topic=topic, compression="lz4")
    found = direct.read(servers, topic)
    assert sorted(row["value"] for row in found) == sorted(row[1].encode() for row in rows)
    by_value = {row["value"].decode(): row for row in found}
    for key, value, headers, priority, _ in rows:
        row = by_value[value]
        assert row["key"] == (key.encode() if key else None)
        assert row["priority"] == priority
        assert row["timestamp"] == NOW
        if key:
            assert row["partition"] == partition_of("murmur2", key.encode(), 3)
        plain = [one for one in row["headers"] if one["key"] != "raftline-priority"]
        assert plain == ([{"key": "h", "value": b"x"}] if headers else [])
    received = [message.priority for message in take(line, topic, 10)]
    assert received[:5] == [2] * 5


def take(line: Line, topic: str, count: int) -> list[Any]:
    found: list[Any] = []
    with line.receive(topic, group="workers") as receiving:
        for message in receiving:
            message.ack()
            found.append(message)
            if len(found) == count:
                break
    return found


def test_topics_and_partitions_come_from_columns(servers: str, line: Line, topic: str):
    line.topics.create(f"{topic}-a", partitions=4)
    table = {
        "value": ["1", "2", "3"],
        "topic": [f"{topic}-a", f"{topic}-b", f"{topic}-a"],
        "partition": pa.array([3, None, 0], pa.int32()),
        "offset": pa.array([7, 8, 9], pa.int64()),
    }
    write_direct(servers, table)
    assert [(r["partition"], r["value"]) for r in direct.read(servers, f"{topic}-a")] == [
        (0, b"3"), (3, b"1"),
    ]  # fmt: skip
    assert values_of(servers, f"{topic}-b") == {b"2": 1}


def test_due_times_and_dedup_keys_come_from_columns(servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=2)
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    table = {
        "value": ["now", "later", "again", "other"],
        "deliver_at": pa.array([None, later, None, None], pa.timestamp("us", tz="UTC")),
        "dedup_key": ["a", None, "a", "b"],
    }
    write_direct(servers, table, topic=topic)
    found = values_of(servers, topic)
    assert found == {b"now": 1, b"other": 1}
    waiting = line.scheduled.list(topic)["messages"]
    assert len(waiting) == 1
    assert abs(waiting[0]["due_ms"] - later.timestamp() * 1000) < 2


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"chunkBytes": "6MiB"}], ids=str)
def test_rows_that_wait_go_with_every_option(
    servers: str, line: Line, topic: str, options: dict[str, str]
):
    line.topics.create(topic, partitions=1)
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    values = [b"%d" % at + b"." * 1_000_000 for at in range(6)]
    table = {"value": values, "deliver_at": pa.array([later] * 6, pa.timestamp("us", tz="UTC"))}
    write_direct(servers, table, topic=topic, **options)
    assert len(line.scheduled.list(topic)["messages"]) == 6


def test_chunks_are_no_larger_than_the_topic_takes(servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=1, batch_bytes_max=4096)
    values = [b"%04d" % at + b"." * 96 for at in range(200)]
    write_direct(servers, {"value": values}, topic=topic)
    assert [row["value"] for row in direct.read(servers, topic)] == values
    dedup = [b"%d" % at for at in range(200)]
    write_direct(servers, {"value": values, "dedup_key": dedup}, topic=topic)
    assert len(direct.read(servers, topic)) == 400


@pytest.mark.parametrize("more", [{}, {"dedup_key": ["a", "b"]}], ids=str)
def test_priorities_stay_with_their_rows_over_arrow_batches(
    servers: str, line: Line, topic: str, more: dict[str, list[str]]
):
    line.topics.create(topic, partitions=1)
    tables = [
        {"value": ["1", "2"], "priority": pa.array([0, 0], pa.int32())},
        {"value": ["3", "urgent"], "priority": pa.array([0, 9], pa.int32()), **more},
        {"value": ["5", "6"], "priority": pa.array([None, None], pa.int32())},
    ]
    given = {"servers": servers, "topic": topic}
    made = writers.RaftlineWriter(option_table.parse(given, option_table.BATCH_WRITE))
    made.commit([made.write(iter([pa.RecordBatch.from_pydict(table) for table in tables]))])
    received = [message.value for message in take(line, topic, 6)]
    assert received == [b"urgent", b"1", b"2", b"3", b"5", b"6"]


def test_maps_are_headers_and_nulls_are_kept(servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=1)
    table = {
        "value": pa.array([None, b"", b"x"], pa.binary()),
        "key": pa.array([None, b"", b"k"], pa.binary()),
        "headers": pa.array(
            [[("a", b"1"), ("b", None)], None, []], pa.map_(pa.string(), pa.binary())
        ),
    }
    write_direct(servers, table, topic=topic)
    rows = direct.read(servers, topic)
    assert [row["value"] for row in rows] == [None, b"", b"x"]
    assert [row["key"] for row in rows] == [None, b"", b"k"]
    pairs = [[(one["key"], one["value"]) for one in row["headers"]] for row in rows]
    assert pairs == [[("a", b"1"), ("b", None)], [], []]


def test_large_messages_and_many_chunks(servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=2)
    rng = random.Random(1)
    values = [
        rng.randbytes(3_000_000),
        b"y" * 10_000_000,
        *(rng.randbytes(900) for _ in range(500)),
    ]
    write_direct(servers, {"value": values}, topic=topic, compression="zstd", chunkBytes="32KiB")
    assert values_of(servers, topic) == Counter(values)
    with pytest.raises(raftline.RaftlineError, match=r"takes \d+ bytes of at most .*zstd"):
        write_direct(servers, {"value": [rng.randbytes(13_000_000)]}, topic=topic)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("key string", "there is no column value"),
        ("value int", "column value is int: make it binary or string"),
        ("value string, color string", "column 'color' is not known: there are value, key"),
        ("value string, priority double", "column priority is double: make it int or string"),
        ("value string, headers array<string>", "column headers is array<string>"),
        ("value string, deliver_at string", "column deliver_at is string: make it timestamp"),
        ("value string", "where to write is not said"),
    ],
)
def test_frames_that_cannot_be_written(servers: str, columns: str, said: str):
    made = direct.source(servers, "" if "said" in said else "x")
    with pytest.raises(raftline.RaftlineError, match=said):
        made.writer(columns_of(columns), False)
    with pytest.raises(raftline.RaftlineError, match="a log cannot be overwritten"):
        direct.source(servers, "x").writer(columns_of("value string"), True)


def columns_of(columns: str) -> Any:
    """Return columns as Spark has them, without a JVM."""
    from pyspark.sql import types

    kinds = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "double": types.DoubleType(),
        "array<string>": types.ArrayType(types.StringType()),
    }
    found = types.StructType()
    for one in columns.split(", "):
        name, kind = one.split(" ")
        found.add(name, kinds[kind])
    return found


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({"priority": ["urgent"]}, "priority 'urgent' is not known"),
        ({"priority": pa.array([300], pa.int32())}, "priority 300 is out of bounds"),
        ({"partition": pa.array([9], pa.int32())}, "which is not there: partitions are 0 to 1"),
        ({"key": [b"k" * 70_000]}, "bytes of a key"),
    ],
)
def test_rows_that_cannot_be_written(
    servers: str, line: Line, topic: str, column: dict[str, Any], said: str
):
    line.topics.create(topic, partitions=2)
    with pytest.raises(raftline.RaftlineError, match=said):
        write_direct(servers, {"value": ["x"], **column}, topic=topic)
    assert values_of(servers, topic) == {}


def test_keys_hash_as_everywhere():
    rng = random.Random(2)
    keys = [rng.randbytes(rng.randrange(100)) for _ in range(3000)]
    assert murmur2_all(keys).tolist() == [murmur2(key) for key in keys]
    for partitioner in ("murmur2", "crc32", "consistent"):
        found = partitions_of(partitioner, keys, 7).tolist()
        assert found == [partition_of(partitioner, key, 7) for key in keys]


def test_runs_of_priorities():
    assert runs_of([0, 5, 5, 0, -3, 5]) == [(1, 3, 5), (4, 5, -3), (5, 6, 5)]
    assert runs_of([]) == []


# ---------------------------------------------------------------------- once, whatever fails


def write_direct(servers: str, table: dict[str, Any], topic: str = "", **options: object) -> None:
    """Make a batch write as Spark does, in one task."""
    given = {"servers": servers, **{name: str(value) for name, value in options.items()}}
    if topic:
        given["topic"] = topic
    made = writers.RaftlineWriter(option_table.parse(given, option_table.BATCH_WRITE))
    made.commit([made.write(iter([pa.RecordBatch.from_pydict(table)]))])


class Job:
    """The tasks and the driver of one stream write, step by step."""

    def __init__(self, servers: str, topic: str) -> None:
        given = {"servers": servers, "topic": topic, "query": f"{topic}-q", "chunkBytes": "2KiB"}
        self.options = option_table.parse(given, option_table.STREAM_WRITE)

    def stage(self, batch: int, values: list[bytes], task: int = 0) -> Any:
        """Run one task: the rows in any order."""
        mixed = random.Random(repr((batch, values[:1]))).sample(values, len(values))
        rows = pa.RecordBatch.from_pydict({"value": pa.array(mixed, pa.binary())})
        return writers.stage_rows(self.options, iter([rows]), self.options.query, batch, task)

    def publish(self, *told: Any) -> None:
        writers.publish(self.options, told)

    def publish_half(self, *told: Any) -> None:
        """Publish some of the partitions, as a driver that dies within commit."""
        for one in told:
            kept = sorted(one.chunks)[:1]
            one.chunks = {place: one.chunks[place] for place in kept}
        writers.publish(self.options, told)


@pytest.mark.parametrize("step", ["staged", "half", "published", "zombie", "aborted", "twice"])
def test_a_batch_that_comes_again_is_written_once(servers: str, line: Line, topic: str, step: str):
    line.topics.create(topic, partitions=3)
    job = Job(servers, topic)
    first = [b"%04d" % n for n in range(200)]
    second = [b"%04d" % n for n in range(200, 400)]
    job.publish(job.stage(0, first))
    told = [job.stage(1, second[:120], 0), job.stage(1, second[120:], 1)]
    match step:
        case "staged":  # the driver dies before it commits
            pass
        case "half":
            job.publish_half(*told)
        case "published":  # it dies before Spark notes the commit
            job.publish(*told)
        case "zombie":
            job.publish(*told)
            assert job.stage(1, second[:50])
        case "aborted":
            writers.abandon(job.options, told)
        case _:
            job.stage(1, second[:120])  # a task that runs twice; only one tells
    if step == "twice":
        job.publish(*told)
    # The restarted query cuts and orders its rows in another way.
    job.publish(job.stage(1, second[:70], 0), job.stage(1, second[70:], 1))
    third = [b"%04d" % n for n in range(400, 500)]
    job.publish(job.stage(2, third))
    assert values_of(servers, topic) == Counter([*first, *second, *third])


def test_leaders_die_while_rows_are_staged_and_published(make_rig: Callable[..., Rig]):
    rig = make_rig(nodes=3)
    servers = servers_of(rig)
    with raftline.connect(servers) as line:
        line.topics.create("orders", partitions=3)
    job = Job(servers, "orders")
    values = [b"%05d" % n for n in range(1500)]
    told = [job.stage(0, values[:500], 0)]
    dead = rig.leader_of("orders", 0)
    rig.kill(dead)
    told.append(job.stage(0, values[500:], 1))
    job.publish_half(*[job.stage(0, values[:500], 0), job.stage(0, values[500:], 1)])
    rig.restart(dead)
    rig.wait_whole()
    rig.kill(rig.leader_of("orders", 1))
    job.publish(*told)
    job.publish(*told)
    assert values_of(servers, "orders") == Counter(values)


def test_a_named_batch_write_is_written_once(servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=2)
    for _ in range(2):
        write_direct(servers, {"value": ["a", "b"]}, topic=topic, query="daily", batch=7)
    write_direct(servers, {"value": ["c"]}, topic=topic, query="daily", batch=8)
    write_direct(servers, {"value": ["d"]}, topic=topic)
    write_direct(servers, {"value": ["d"]}, topic=topic)
    assert values_of(servers, topic) == {b"a": 1, b"b": 1, b"c": 1, b"d": 2}


@pytest.mark.timeout(600)
def test_a_stream_that_crashes_at_every_step_writes_each_row_once(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
):
    line.topics.create(topic, partitions=3)
    line.topics.create(f"{topic}-out", partitions=3)
    values = [b"%05d" % n for n in range(2000)]
    publish(line, topic, values)
    faults = [
        "write-before", "write-after", "commit-before", "commit-half", "commit-after",
        "latest-before", "latest-after", "partitions-before", "read",
    ]  # fmt: skip

    def once() -> None:
        frame = spark.readStream.format("raftline_faulty").option("servers", servers)
        frame = frame.option("topic", topic).option("maxOffsetsPerTrigger", "700").load()
        chosen = frame.select("key", F.col("value"))
        writer = (
            chosen.writeStream.format("raftline_faulty")
            .option("servers", servers)
            .option("topic", f"{topic}-out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        run(writer.start)

    crashes = 0
    for fault in faults:
        faulty.arm(fault)
        crashes += faulty.crashed(once)
        if fault in faulty.armed():  # all was done before it came to that
            publish(line, topic, more := [b"%s %d" % (fault.encode(), n) for n in range(100)])
            values += more
            crashes += faulty.crashed(once)
    once()
    assert faulty.armed() == []
    assert crashes == 6  # Spark runs a failed task again itself
    assert values_of(servers, f"{topic}-out") == Counter(values)


def test_a_stream_needs_no_name_of_its_query(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
):
    publish(line, topic, [b"x"] * 10)
    writer = (
        stream(spark, servers, topic)
        .select("value")
        .writeStream.format("raftline")
        .option("servers", servers)
        .option("topic", f"{topic}-out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    run(writer.start)
    assert values_of(servers, f"{topic}-out") == {b"x": 10}
