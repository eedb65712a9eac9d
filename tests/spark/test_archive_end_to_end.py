"""The whole way: sent over HTTP and gRPC, archived meanwhile, trimmed, and all of it read back.

Read back by Spark (archive and log as one table) and by ``consume --include-deleted``: both are
equal to what was sent.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raftline
from raftline.chaos.rig import Rig
from raftline.client import clock
from raftline.model.errors import NotArchived, RaftlineError
from raftline.pipeline import archive, optimize
from raftline.pipeline.job import Job
from tests.spark.archives import bounds, consume, in_order, make_topic, trim
from tests.spark.conftest import servers_of

pytestmark = pytest.mark.spark

PARTITIONS = 3
EVERY_MS = 500
AT_A_TIME = 5_000


class Producers:
    """Two threads that send the same number of messages, one over HTTP and one over gRPC."""

    def __init__(self, rig: Rig, topic: str, count: int) -> None:
        grpc = ",".join(f"grpc://{rig.node(name).grpc}" for name in rig.names)
        ways = {"http": servers_of(rig), "grpc": grpc}
        self.sent: dict[str, set[str]] = {}
        self.problems: list[RaftlineError] = []
        self._threads = [
            threading.Thread(target=self._send, args=(way, servers, topic, count // 2))
            for way, servers in ways.items()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def wait(self) -> None:
        self.join()
        assert not self.problems, self.problems

    def _send(self, way: str, servers: str, topic: str, count: int) -> None:
        try:
            with raftline.connect(servers, timeout="60s") as line:
                for start in range(0, count, AT_A_TIME):  # so that none waits for long
                    numbers = range(start, min(start + AT_A_TIME, count))
                    handles = [
                        line.send(topic, f"{way} {at}", key=f"{way}-{at % 1009}") for at in numbers
                    ]
                    for handle in handles:
                        handle.result()
            self.sent[way] = {f"{way} {at}" for at in range(count)}
        except RaftlineError as error:  # the test tells it
            self.problems.append(error)


def trim_sometimes(servers: str, topic: str, is_over: Callable[[], bool]) -> None:
    """Try to trim everything, again and again: what is not archived must stay."""
    while not is_over():
        for row in bounds(servers, topic):
            try:
                trim(servers, topic, row["partition"], row["commit_end"])
            except NotArchived:
                trim(servers, topic, row["partition"], row["archived"])
        clock.pause(EVERY_MS)


@pytest.mark.timeout(900)
def test_50_000_messages_on_one_node(spark: Any, node: Rig, topic: str, tmp_path: Path) -> None:
    all_the_way(spark, node, topic, tmp_path, 50_000)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_2_000_000_messages_on_three_nodes(
    spark: Any, make_rig: Callable[..., Rig], topic: str, tmp_path: Path
) -> None:
    all_the_way(spark, make_rig(nodes=3), topic, tmp_path, 2_000_000)


def all_the_way(spark: Any, rig: Rig, topic: str, root: Path, count: int) -> None:
    servers = servers_of(rig)
    make_topic(servers, topic, PARTITIONS, archive="required", archive_dir=str(root))
    producers = Producers(rig, topic, count)
    with Job("archive", servers) as job:
        trimmer = threading.Thread(
            target=lambda: trim_sometimes(servers, topic, lambda: job.is_stopping)
        )

        def end_after_sending() -> None:
            try:
                producers.join()
            finally:
                job.is_stopping = True

        ender = threading.Thread(target=end_after_sending)
        producers.start()
        trimmer.start()
        ender.start()
        try:
            told = archive.run(job, topics=[topic], every_ms=EVERY_MS, traces=False)
        finally:
            job.is_stopping = True
            ender.join()
            trimmer.join()
    producers.wait()
    assert told["lost"] == 0
    sent = set().union(*producers.sent.values())
    assert len(sent) == count

    with Job("archive", servers) as job:  # partition 0 whole and gone, the others as they are
        archive.run(job, topics=[topic], traces=False)
        with Job("optimize", servers) as other:
            optimize.run(other, topics=[topic])
    archived_ends = {row["partition"]: row["commit_end"] for row in bounds(servers, topic)}
    trim(servers, topic, 0, archived_ends[0])
    with raftline.connect(servers) as line:  # the log has something that the archive has not
        for partition in range(PARTITIONS):
            line.send(topic, f"late {partition}", partition=partition, wait=True)
    sent |= {f"late {partition}" for partition in range(PARTITIONS)}
    ends = {partition: end + 1 for partition, end in archived_ends.items()}
    starts = {row["partition"]: row["log_start"] for row in bounds(servers, topic)}
    assert starts[0] == archived_ends[0]

    check_spark(spark, servers, topic, root, sent, ends)
    check_consume(servers, topic, sent, ends)


def check_spark(
    spark: Any, servers: str, topic: str, root: Path, sent: set[str], ends: dict[int, int]
) -> None:
    reader = spark.read.format("raftline").option("servers", servers).option("topic", topic)
    table = reader.option("archive", str(root)).load()
    rows = table.selectExpr("partition", "offset", "cast(value as string) value").toPandas()
    assert len(rows) == len(sent)
    assert set(rows["value"]) == sent
    for partition, end in ends.items():
        own = sorted(rows["offset"][rows["partition"] == partition])
        assert own == list(range(end)), partition


def check_consume(servers: str, topic: str, sent: set[str], ends: dict[int, int]) -> None:
    rows = consume(servers, topic, "--from-snapshot", "2020-01-01", "--include-deleted")
    assert in_order(rows) == {partition: list(range(end)) for partition, end in ends.items()}
    assert len(rows) == len(sent)
    assert {row["value"] for row in rows} == sent
