"""Queue reads: leases of a work group as micro-batches, each message done once."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import raftline
import raftline.spark
from raftline.chaos.rig import Rig, wait_for
from raftline.client.caller import Caller
from raftline.client.fenced import Fenced
from raftline.client.line import Line
from raftline.model.errors import FencedQuery
from raftline.spark.leased import spans
from raftline.spark.ranges import LogRange
from raftline.spark.rejects import runs
from tests.spark import direct, faulty
from tests.spark.conftest import publish, servers_of
from tests.spark.streams import run

pytestmark = pytest.mark.spark
ALL = ReadAllAvailable()


def values(rows: list[dict[str, Any]]) -> list[bytes]:
    return sorted(row["value"] for row in rows)


def counts(line: Line, group: str, topic: str) -> Counter[str]:
    """Return how many messages of each state a group has."""
    found: Counter[str] = Counter()
    for row in line.groups.show(group, topic)["work"][topic]:
        found.update({name: row[name] for name in ("fresh", "leased", "ready", "dead", "lag")})
    return found


OPEN: list["Query"] = []


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().reader.stop()


class Query:
    """A query as Spark runs it, step by step; the checkpoint is what Spark has on disk."""

    def __init__(self, servers: str, topic: str, **options: object) -> None:
        self.make = lambda: direct.stream_reader(servers, topic, group="etl", **options)
        self.reader = self.make()
        OPEN.append(self)
        self.planned: list[dict[str, Any]] = []  # the offset log
        self.committed = 0  # batches in the commit log

    def restart(self) -> None:
        """Lose everything that is not in the checkpoint."""
        self.reader.stop()
        self.reader = self.make()

    def start(self) -> dict[str, Any]:
        if not self.planned:
            return self.reader.initialOffset()
        return self.planned[self.committed - 1] if self.committed else self.reader.initialOffset()

    def lease(self, limit: Any = ALL) -> dict[str, Any]:
        return self.reader.latestOffset(self.start(), limit)

    def read(self, end: dict[str, Any]) -> list[dict[str, Any]]:
        return direct.rows_of(self.reader, self.reader.partitions(self.start(), end))

    def batch(self, limit: Any = ALL) -> list[dict[str, Any]]:
        """Run one whole micro-batch; an unfinished one of the log comes first."""
        if len(self.planned) == self.committed:
            end = self.lease(limit)
            if end == self.start():
                return []
            self.planned.append(end)
        rows = self.read(self.planned[self.committed])
        self.committed += 1
        return rows


def test_messages_are_leased_acked_and_done_once(servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=3)
    sent = [b"%04d" % n for n in range(500)]
    publish(line, topic, sent)
    query = Query(servers, topic)
    first = query.batch(ReadMaxRows(200))
    assert len(first) == 200
    assert counts(line, "etl", topic)["leased"] == 200  # Spark may still crash
    second = query.batch()
    assert counts(line, "etl", topic)["leased"] == 300 == len(second)
    assert query.batch() == []
    assert counts(line, "etl", topic)["lag"] == 0
    assert values(first + second) == sent
    publish(line, topic, [b"more"])
    assert values(query.batch()) == [b"more"]


@pytest.mark.parametrize("step", ["leased", "planned", "read", "committed"])
def test_a_crash_at_every_step_serves_the_same_messages(
    servers: str, line: Line, topic: str, step: str
):
    line.topics.create(topic, partitions=2)
    publish(line, topic, [b"%04d" % n for n in range(100)])
    query = Query(servers, topic)
    done = query.batch(ReadMaxRows(30))
    end = query.lease(ReadMaxRows(40))
    before = query.read(end)
    if step != "leased":
        query.planned.append(end)
    if step == "committed":
        query.committed += 1
    publish(line, topic, [b"%04d" % n for n in range(100, 120)])  # must not get into that batch
    query.restart()
    again = query.batch(ReadMaxRows(40))
    if step == "committed":
        done += before
    elif step == "leased":  # Spark knows nothing of it yet: more may come along
        assert set(values(before)) <= set(values(again))
    else:
        assert values(again) == values(before)
    done += again
    while rows := query.batch():
        done += rows
    assert values(done) == [b"%04d" % n for n in range(120)]
    assert counts(line, "etl", topic)["lag"] == 0


def test_a_lost_checkpoint_leaves_nothing_behind(servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=2)
    publish(line, topic, [b"%04d" % n for n in range(100)])
    first = Query(servers, topic)
    first.batch(ReadMaxRows(30))
    held = first.batch(ReadMaxRows(30))
    second = Query(servers, topic)  # a new checkpoint, the same group
    assert values(second.batch()) == values(held)
    assert len(second.batch()) == 40
    assert second.batch() == []
    with pytest.raises(FencedQuery, match="it stands at 4"):
        first.batch()


def test_a_lost_checkpoint_in_the_middle_of_a_lease_ends_no_query(
    servers: str, line: Line, topic: str
):
    """The next lease was taken on a partition that had nothing, and not on the other."""
    line.topics.create(topic, partitions=2)
    for partition in range(2):
        line.send(topic, b"%d" % partition, partition=partition, wait=True)
    with Fenced(servers) as fenced:
        for partition in range(2):
            assert fenced.lease(topic, partition, "etl", "spark", 1, 10) == [(0, 1)]
        assert fenced.lease(topic, 0, "etl", "spark", 2, 10) == []  # so 1 is committed
    line.send(topic, b"2", partition=0, wait=True)
    query = Query(servers, topic)
    assert values(query.read(query.lease())) == [b"2"]


def test_a_lost_checkpoint_in_the_middle_of_an_ack_ends_no_query(
    servers: str, line: Line, topic: str
):
    """The last batch was acked on a partition, and not on the other: it is committed."""
    line.topics.create(topic, partitions=2)
    for partition in range(2):
        line.send(topic, b"%d" % partition, partition=partition, wait=True)
    with Fenced(servers) as fenced:
        for partition in range(2):
            assert fenced.lease(topic, partition, "etl", "spark", 1, 10) == [(0, 1)]
        assert fenced.ack(topic, 0, "etl", "spark", 1) == 1
    line.send(topic, b"2", partition=0, wait=True)
    query = Query(servers, topic)
    assert values(query.batch()) == [b"2"]
    assert query.batch() == []
    assert counts(line, "etl", topic)["lag"] == 0


def test_a_query_that_ends_finishes_what_it_leased_before_a_crash(
    servers: str, line: Line, topic: str
):
    line.topics.create(topic, partitions=2)
    sent = [b"%04d" % n for n in range(20)]
    publish(line, topic, sent)
    query = Query(servers, topic)
    query.lease()  # Spark crashes before it has this in its checkpoint
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert values(query.batch()) == sent
    assert query.batch() == []
    assert counts(line, "etl", topic)["lag"] == 0


def test_workers_and_spark_share_a_group(servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=1)
    publish(line, topic, [b"%04d" % n for n in range(100)])
    with line.receive(topic, group="etl") as receiving:
        taken = [next(receiving) for _ in range(10)]
        query = Query(servers, topic)
        rows = query.batch()
        for message in taken:
            message.ack(wait=True)
        done = values(rows) + [message.value for message in taken]

    def is_done() -> bool:
        done.extend(values(query.batch()))
        return len(done) >= 100

    wait_for(is_done, 30)  # what the receiver had fetched ahead comes back
    assert sorted(done) == [b"%04d" % n for n in range(100)]


def test_only_new_messages_are_wanted(servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=1)
    publish(line, topic, [b"old"] * 5)
    query = Query(servers, topic, startingOffsets="latest")
    assert query.batch() == []
    publish(line, topic, [b"new"] * 3)
    assert values(query.batch()) == [b"new"] * 3


@pytest.mark.parametrize("so_far", ["nothing came", "some came", "some came, restarted"])
def test_a_new_partition_is_read_from_its_beginning(
    servers: str, line: Line, topic: str, so_far: str
):
    line.topics.create(topic, partitions=1)
    publish(line, topic, [b"old"] * 5)
    query = Query(servers, topic, startingOffsets="latest")
    assert query.batch() == []
    if "some" in so_far:
        publish(line, topic, [b"new"] * 3)
        assert values(query.batch()) == [b"new"] * 3
    with Caller(servers) as caller:
        caller.call("PATCH", f"/v1/topics/{topic}", {"num_partitions": 2})
    publish(line, topic, [b"early"] * 4, partition=1)
    if "restarted" in so_far:
        query.restart()
        query.reader.prepareForTriggerAvailableNow()
    assert values(query.batch()) == [b"early"] * 4


def test_a_group_that_was_deleted_begins_at_the_end_again(servers: str, line: Line, topic: str):
    line.topics.create(topic, partitions=2)
    query = Query(servers, topic, startingOffsets="latest")
    assert query.batch() == []
    publish(line, topic, [b"new"] * 6)
    assert values(query.batch()) == [b"new"] * 6
    assert query.batch() == []
    line.groups.delete("etl", topic)
    assert query.batch() == []
    publish(line, topic, [b"later"] * 2)
    assert values(query.batch()) == [b"later"] * 2


def test_small_ranges_are_read_together():
    ranges = [LogRange(0, 0, 1), LogRange(0, 5, 6), LogRange(0, 9000, 9001), LogRange(1, 3, 4)]
    assert spans(ranges) == [LogRange(0, 0, 6), LogRange(0, 9000, 9001), LogRange(1, 3, 4)]
    assert runs([1, 2, 3, 7, 9, 10]) == [(1, 4), (7, 8), (9, 11)]


# ---------------------------------------------------------------------- through Spark


def queue(spark: Any, servers: str, topic: str, form: str = "raftline", **options: object) -> Any:
    reader = spark.readStream.format(form).option("servers", servers).option("topic", topic)
    for name, value in {"group": "etl", **options}.items():
        reader = reader.option(name, str(value))
    return reader.load()


def test_bad_rows_become_dead_letters(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
):
    line.topics.create(topic, partitions=2)
    publish(line, topic, [b"good %d" % n for n in range(40)] + [b"bad %d" % n for n in range(10)])
    good: list[str] = []

    def each(frame: Any, _: int) -> None:
        text = frame.withColumn("text", F.col("value").cast("string"))
        bad = text.where("text like 'bad%'").select("topic", "partition", "offset")
        assert raftline.spark.reject(bad, "it is bad") == 10
        assert raftline.spark.reject(bad, F.lit("again")) == 10
        good.extend(row.text for row in text.where("text like 'good%'").collect())

    writer = (
        queue(spark, servers, topic)
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    run(writer.start)
    assert sorted(good) == sorted(f"good {n}" for n in range(40))
    assert counts(line, "etl", topic)["lag"] == 0
    letters = line.dlq.list(topic, limit=100)["letters"]
    assert sorted(row["value"] for row in letters) == sorted(f"bad {n}" for n in range(10))
    assert {row["error"] for row in letters} == {"it is bad"}
    plain = spark.createDataFrame([("t", 0, 1)], "topic string, partition int, offset bigint")
    with pytest.raises(raftline.RaftlineError, match="these rows are not of a queue read"):
        raftline.spark.reject(plain, "x")
    with pytest.raises(raftline.RaftlineError, match="reject rows within foreachBatch"):
        raftline.spark.reject(queue(spark, servers, topic), "x")


@pytest.mark.timeout(900)
def test_a_queue_that_crashes_at_every_step_does_each_message_once(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
):
    line.topics.create(topic, partitions=2)
    line.topics.create(f"{topic}-out", partitions=2)
    sent = [b"%05d" % n for n in range(1000)]
    publish(line, topic, sent)

    def once() -> None:
        writer = (
            queue(spark, servers, topic, "raftline_faulty", maxOffsetsPerTrigger=300)
            .select("value")
            .writeStream.format("raftline_faulty")
            .option("servers", servers)
            .option("topic", f"{topic}-out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        run(writer.start)

    crashes = 0
    for fault in ("latest-after", "partitions-after", "read", "commit-half", "commit-after"):
        faulty.arm(fault)
        crashes += faulty.crashed(once)
        if fault in faulty.armed():
            publish(line, topic, more := [b"%s %d" % (fault.encode(), n) for n in range(100)])
            sent += more
            crashes += faulty.crashed(once)
    once()
    assert faulty.armed() == []
    assert crashes >= 4
    found = Counter(row["value"] for row in direct.read(servers, f"{topic}-out"))
    assert found == Counter(sent)
    assert counts(line, "etl", topic)["lag"] == 0


def test_leaders_die_and_messages_are_done_once(make_rig: Callable[..., Rig]):
    rig = make_rig(nodes=3)
    servers = servers_of(rig)
    with raftline.connect(servers) as line:
        line.topics.create("orders", partitions=2)
        publish(line, "orders", [b"%05d" % n for n in range(1000)])
        query = Query(servers, "orders")
        done = query.batch(ReadMaxRows(300))
        end = query.lease(ReadMaxRows(300))
        query.planned.append(end)
        before = query.read(end)
        rig.kill(rig.leader_of("orders", 0))
        query.restart()
        again = query.batch()
        assert values(again) == values(before)
        done += again
        while rows := query.batch():
            done += rows
        assert values(done) == [b"%05d" % n for n in range(1000)]
