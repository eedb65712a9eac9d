"""Spark on a live node: rows read and written a second, and how long a micro-batch takes.

A batch read hands every column of every row to Spark's ``noop`` sink; beside it the same rows are
counted and the lengths of their values added up. Both have been run twice before (Java compiles
what is run often); the figure is the median of the next three runs, with planning and all.
"""

import http.client
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from bench.cluster import BenchCluster, http_port, running
from bench.figures import Figure, at_least
from bench.spark_load import SparkResult, SparkSpec
from raftline.model.records import seal_batch

PARTITIONS = 4
ROWS_PER_BATCH = 1_000
PROCESS_S_MAX = 900
READ_GOAL = 700_000


def spark(work: Path, *, quick: bool) -> list[Figure]:
    """Measure reads at 100 B and 1 KiB, writes, and micro-batches."""
    found: list[Figure] = []
    with running(work / "spark", 1) as cluster:
        for size, words, rows, goal in (
            (100, "100 B", 40_000 if quick else 4_000_000, READ_GOAL),
            (1024, "1 KiB", 8_000 if quick else 800_000, None),
        ):
            topic = f"rows-{size}"
            cluster.create(topic, PARTITIONS)
            fill(cluster, topic, rows, size)
            section = f"1 node, Spark, batch read of all columns, {words}"
            found += _rates(cluster, section, topic, "read", rows, size, goal)
            if goal is not None:
                section = f"1 node, Spark, count(*) and sum(length(value)), {words}"
                found += _rates(cluster, section, topic, "sum", rows, size, None)
        cluster.create("written", PARTITIONS)
        rows = 20_000 if quick else 1_000_000
        section = "1 node, Spark, exactly-once write, 100 B"
        found += _rates(cluster, section, "written", "write", rows, 100, None)
        cluster.create("followed", 1)
        result = _run(cluster, "followed", "follow", 3 if quick else 12, 100)
        times = sorted(result.times_ms)
        section = "1 node, Spark, micro-batch of one message"
        for name, value in (("p50", times[len(times) // 2]), ("max", times[-1])):
            found.append(Figure(section=section, name=name, value=value, unit="ms"))
    return found


def _rates(
    cluster: BenchCluster,
    section: str,
    topic: str,
    form: str,
    rows: int,
    value_bytes: int,
    goal: int | None,
) -> list[Figure]:
    result = _run(cluster, topic, form, rows, value_bytes)
    return [
        Figure(
            section=section,
            name="rate",
            value=rows / result.seconds,
            unit="rows/s",
            goal=at_least(goal) if goal else None,
        ),
        Figure(
            section=section, name="CPU node", value=result.nodes_cpu_s / rows * 1e6, unit="us/row"
        ),
        Figure(
            section=section, name="CPU Spark", value=result.spark_cpu_s / rows * 1e6, unit="us/row"
        ),
    ]


def _run(cluster: BenchCluster, topic: str, form: str, rows: int, value_bytes: int) -> SparkResult:
    spec = SparkSpec(
        servers=cluster.local.servers(),
        topic=topic,
        form=form,
        node_pids=[node.pid for node in cluster.nodes],
        rows=rows,
        value_bytes=value_bytes,
    )
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark_load", msgspec.json.encode(spec).decode()],
        capture_output=True,
        text=True,
        timeout=PROCESS_S_MAX,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    if done.returncode:
        raise SystemExit(f"Spark failed: {done.stderr.strip()[-3000:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1].encode(), type=SparkResult)


def fill(cluster: BenchCluster, topic: str, rows: int, value_bytes: int) -> None:
    """Put sealed batches of random values into all partitions, in turn."""
    leader = cluster.leader_of(topic)
    connection = http.client.HTTPConnection("127.0.0.1", http_port(leader), timeout=60)
    kind = {"Content-Type": "application/vnd.raftline.batch"}
    now_ms = int(time.time() * 1000)
    batches = [
        seal_batch(
            [
                (b"k%07d" % number, os.urandom(value_bytes), (), now_ms)
                for number in range(ROWS_PER_BATCH)
            ]
        )
        for _ in range(8)
    ]
    for number in range(rows // ROWS_PER_BATCH):
        path = f"/v1/topics/{topic}/partitions/{number % PARTITIONS}/messages"
        connection.request("POST", path, batches[number % len(batches)], kind)
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise SystemExit(f"the topic cannot be filled: {text[:300]!r}")
    connection.close()
