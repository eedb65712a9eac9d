"""Stream reads: checkpoints, limits, starts, new partitions, retention, progress."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from raftline.chaos.rig import Rig
from raftline.client.caller import Caller
from raftline.client.line import Line
from raftline.model.records import seal_batch
from raftline.spark.stream_reader import share
from tests.spark import direct
from tests.spark.conftest import post_batch, publish, servers_of
from tests.spark.streams import drain, places, stream

pytestmark = pytest.mark.spark


def test_available_now_reads_all_in_limited_batches_and_a_restart_goes_on(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
):
    line.topics.create(topic, partitions=3)
    publish(line, topic, [b"%d" % n for n in range(300)])
    frame = stream(spark, servers, topic, maxOffsetsPerTrigger=120)
    query = drain(frame, tmp_path / "out")
    batches = [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]
    assert batches == [120, 120, 60]
    assert len(places(spark, tmp_path / "out")) == 300
    publish(line, topic, [b"%d" % n for n in range(50)])
    drain(frame, tmp_path / "out")
    found = places(spark, tmp_path / "out")
    assert len(found) == len(set(found)) == 350


def test_an_empty_topic_ends_and_later_messages_are_found(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
):
    line.topics.create(topic, partitions=2)
    for starting in ("earliest", "latest"):
        frame = stream(spark, servers, topic, startingOffsets=starting)
        drain(frame, tmp_path / starting)
    publish(line, topic, [b"late"] * 10)
    for starting in ("earliest", "latest"):
        frame = stream(spark, servers, topic, startingOffsets=starting)
        drain(frame, tmp_path / starting)
        assert len(places(spark, tmp_path / starting)) == 10


def test_starts_by_offset_and_by_time(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
):
    line.topics.create(topic, partitions=2)
    publish(line, topic, [b"old"] * 10, partition=0)
    publish(line, topic, [b"old"] * 10, partition=1)
    moment = line.offsets(topic, 0)
    assert moment["commit_end"] == 10
    drain(
        stream(spark, servers, topic, startingOffsets='{"0": 7, "1": "latest"}'),
        tmp_path / "offsets",
    )
    assert places(spark, tmp_path / "offsets") == [(0, 7), (0, 8), (0, 9)]
    page = line.read(topic, 1, 4)
    time_ms = page.messages[0].timestamp_ms
    drain(stream(spark, servers, topic, startingTimestamp=time_ms), tmp_path / "time")
    found = places(spark, tmp_path / "time")
    first = line.offsets(topic, 1, time_ms=time_ms)["offset"]
    assert [offset for partition, offset in found if partition == 1] == list(range(first, 10))


def test_retention_that_overtakes_is_an_error_unless_told_otherwise(
    spark: Any, servers: str, node: Rig, line: Line, topic: str, tmp_path: Path
):
    line.topics.create(topic, partitions=1)
    publish(line, topic, [b"%d" % n for n in range(10)])
    frame = stream(spark, servers, topic)
    drain(frame, tmp_path / "out")
    publish(line, topic, [b"%d" % n for n in range(10, 30)])
    trim(node, topic, 0, 20)
    with pytest.raises(Exception, match=rf"{topic}/0@10 is gone, the log begins at 20"):
        drain(frame, tmp_path / "out")
    drain(stream(spark, servers, topic, failOnDataLoss="false"), tmp_path / "out")
    assert places(spark, tmp_path / "out") == [(0, n) for n in (*range(10), *range(20, 30))]


def test_progress_is_the_lag_of_a_group(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
):
    line.topics.create(topic, partitions=2)
    publish(line, topic, [b"x"] * 40)
    frame = stream(spark, servers, topic, progressGroup=f"{topic}-etl")
    drain(frame, tmp_path / "out")
    assert line.groups.show(f"{topic}-etl")["stream"]["lag"] == 0
    publish(line, topic, [b"x"] * 5)
    shown = line.groups.show(f"{topic}-etl")["stream"]
    assert shown["lag"] == 5
    assert sum(row["offset"] for row in shown["partitions"]) == 40


def test_a_topic_that_began_anew_is_noticed(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
):
    line.topics.create(topic, partitions=1)
    publish(line, topic, [b"x"] * 40)
    frame = stream(spark, servers, topic, timeout="1s")
    drain(frame, tmp_path / "out")
    line.topics.delete(topic)
    line.topics.create(topic, partitions=1)
    publish(line, topic, [b"y"] * 3)
    with pytest.raises(Exception, match="deleted and created anew"):
        drain(frame, tmp_path / "out")


def test_new_partitions_are_read_from_their_beginning(
    servers: str, node: Rig, line: Line, topic: str
):
    from confluent_kafka.admin import AdminClient, NewPartitions

    line.topics.create(topic, partitions=2)
    publish(line, topic, [b"old"] * 10, partition=1)
    reader = direct.stream_reader(servers, topic, startingOffsets="latest")
    start = reader.initialOffset()
    assert start == {"0": 0, "1": 10}
    admin = AdminClient({"bootstrap.servers": node.node("node-1").kafka})
    for done in admin.create_partitions([NewPartitions(topic, 4)]).values():
        done.result(30)
    del admin
    for partition, count in ((3, 5), (0, 2)):
        post_batch(servers, topic, partition, seal_batch([(None, b"new", [], 0)] * count))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"0": 2, "1": 10, "2": 0, "3": 5}
    rows = direct.rows_of(reader, reader.partitions(start, end))
    assert [(row["partition"], row["offset"]) for row in rows] == [
        (0, 0), (0, 1), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4),
    ]  # fmt: skip
    again = direct.stream_reader(servers, topic)  # restarted: the batch is planned from the log
    assert len(direct.rows_of(again, again.partitions(start, end))) == 7
    reader.stop()
    again.stop()


def test_a_limit_is_shared_by_what_is_there():
    assert share({"0": 0, "1": 0}, {"0": 90, "1": 10}, 10) == {"0": 9, "1": 1}
    assert share({"0": 5}, {"0": 8, "1": 3}, 100) == {"0": 8, "1": 3}
    found = share({"0": 0, "1": 0, "2": 0}, {"0": 1, "1": 1, "2": 1}, 2)
    assert sum(found.values()) == 2


def trim(node: Rig, topic: str, partition: int, offset: int) -> None:
    """Remove the oldest messages."""
    with Caller(servers_of(node)) as caller:
        path = f"/v1/topics/{topic}/partitions/{partition}/trim"
        caller.call("POST", path, {"offset": offset})
