"""The archive job on a live node: rows a second to Parquet, and back without a JVM.

python -m bench.archive '{"servers": …}' is the Spark process of it: a JVM stays until its process
ends. The first run loads and compiles half of Spark; it is thrown away.
"""

import http.client
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from bench.cluster import BenchCluster, http_port, running
from bench.figures import Figure, at_least
from bench.processes import cpu_ns
from bench.spark_load import family_s, open_session
from raftline.archive.reader import Archive
from raftline.model.records import seal_batch
from raftline.pipeline import archive as job_module
from raftline.pipeline.job import Job

PARTITIONS = 4
ROWS_PER_BATCH = 1_000
VALUE_BYTES = 100
GOAL = 300_000
RUNS = 3
TOPIC = "rows"
PROCESS_S_MAX = 900


class Spec(msgspec.Struct):
    """What to archive, and where to."""

    servers: str
    folder: str
    node_pids: list[int]
    rows: int


class Result(msgspec.Struct):
    """What one pass took."""

    seconds: float
    nodes_cpu_s: float
    spark_cpu_s: float
    file_bytes: int
    read_s: float  # CPU time of reading everything back with pyarrow


def archive(work: Path, *, quick: bool) -> list[Figure]:
    """Measure one pass over a topic that lies there, and reading it back."""
    rows = 40_000 if quick else 4_000_000
    with running(work / "archive", 1) as cluster:
        cluster.create(TOPIC, PARTITIONS)
        fill(cluster, rows)
        pids = [node.pid for node in cluster.nodes]
        spec = Spec(cluster.local.servers(), str(work / "archived"), pids, rows)
        result = _run(spec)
    section = "1 node, Spark, archive, 100 B"
    us = 1e6 / rows
    figures = (
        ("rate", rows / result.seconds, "rows/s", at_least(GOAL)),
        ("CPU node", result.nodes_cpu_s * us, "us/row", None),
        ("CPU Spark", result.spark_cpu_s * us, "us/row", None),
        ("size", result.file_bytes / rows, "B/row", None),
        ("CPU of reading back without a JVM", result.read_s * us, "us/row", None),
    )
    return [
        Figure(section=section, name=name, value=value, unit=unit, goal=goal)
        for name, value, unit, goal in figures
    ]


def fill(cluster: BenchCluster, rows: int) -> None:
    """Put values into all partitions that no two are alike, as files are compressed."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", http_port(cluster.leader_of(TOPIC)), timeout=60
    )
    kind = {"Content-Type": "application/vnd.raftline.batch"}
    for number in range(rows // ROWS_PER_BATCH):
        now_ms, first = int(time.time() * 1000), number * ROWS_PER_BATCH
        batch = seal_batch(
            [
                (b"k%07d" % (first + at), os.urandom(VALUE_BYTES), (), now_ms)
                for at in range(ROWS_PER_BATCH)
            ]
        )
        path = f"/v1/topics/{TOPIC}/partitions/{number % PARTITIONS}/messages"
        connection.request("POST", path, batch, kind)
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise SystemExit(f"the topic cannot be filled: {text[:300]!r}")
    connection.close()


def main() -> None:
    """Archive what the argument says; print the result as JSON."""
    spec = msgspec.json.decode(sys.argv[1].encode(), type=Spec)
    session = open_session()
    _once(spec, 0)
    found = sorted((_once(spec, at) for at in range(1, RUNS + 1)), key=lambda one: one.seconds)
    print(msgspec.json.encode(found[RUNS // 2]).decode(), flush=True)
    session.stop()


def _once(spec: Spec, number: int) -> Result:
    folder = Path(spec.folder) / str(number)
    nodes_s, ours_s = _nodes_s(spec), family_s()
    began = time.perf_counter()
    with Job("archive", spec.servers) as job:
        told = job_module.run(
            job, topics=[TOPIC], directory=str(folder), dead_letters=False, traces=False
        )
    seconds = time.perf_counter() - began
    nodes_s, ours_s = _nodes_s(spec) - nodes_s, family_s() - ours_s
    assert told["messages"] == spec.rows, "the archive does not hold what was sent"
    began = time.process_time()
    found = Archive(folder)
    read = sum(b.num_rows for p in found.partitions(TOPIC) for b in found.batches(TOPIC, p))
    read_s = time.process_time() - began
    assert read == spec.rows, "the archive does not give back what it holds"
    shutil.rmtree(folder)
    return Result(seconds, nodes_s, ours_s, told["bytes"], read_s)


def _nodes_s(spec: Spec) -> float:
    return sum(cpu_ns(pid) for pid in spec.node_pids) / 1e9


def _run(spec: Spec) -> Result:
    done = subprocess.run(
        [sys.executable, "-m", "bench.archive", msgspec.json.encode(spec).decode()],
        capture_output=True,
        text=True,
        timeout=PROCESS_S_MAX,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    if done.returncode:
        raise SystemExit(f"Spark failed: {done.stderr.strip()[-3000:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1].encode(), type=Result)


if __name__ == "__main__":
    main()
