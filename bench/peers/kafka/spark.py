"""Spark's batch read of one topic of ours: ``format("raftline")`` beside Spark's Kafka connector.

    python -m bench.peers.kafka.spark '{"servers": "…", "kafka": "…", …}'   (a process of its own)

Both read the whole topic in the same session, turn by turn, and throw the rows away. The jars of
the connector come by Maven (scripts/fetch_jars.py, set ``spark-kafka``).
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench.cluster import running
from bench.figures import Figure
from bench.processes import cpu_ns
from bench.spark_load import family_s, open_session
from bench.spark_rates import PARTITIONS, fill

ROOT = Path(__file__).parents[3]
PROCESS_S_MAX = 500
OURS, THEIRS = 'format("raftline")', "Spark's Kafka connector"
SIZES = ((100, "100 B"), (1024, "1 KiB"))


class ReadSpec(msgspec.Struct, kw_only=True):
    """What to read."""

    servers: str
    kafka: str
    pids: list[int]
    topics: dict[str, tuple[str, int]]  # by what they are called in a figure: name, rows
    rounds: int


class Read(msgspec.Struct, frozen=True):
    """One reading."""

    side: str
    size: str
    rows: int
    seconds: float
    nodes_cpu_s: float
    spark_cpu_s: float


def spark_rounds(work: Path, rounds: int, *, quick: bool) -> dict[str, list[Figure]]:
    """Fill topics of one node and let both read them."""
    with running(work / "spark", 1) as cluster:
        topics: dict[str, tuple[str, int]] = {}
        for size, words in SIZES:
            rows = (4_000_000 if size == 100 else 800_000) // (100 if quick else 1)
            topics[words] = (f"rows-{size}", rows)
            cluster.create(f"rows-{size}", PARTITIONS)
            fill(cluster, f"rows-{size}", rows, size)
        asked = ReadSpec(
            servers=cluster.local.servers(),
            kafka=",".join(node.kafka for node in cluster.nodes),
            pids=[node.pid for node in cluster.nodes],
            topics=topics,
            rounds=rounds,
        )
        done = subprocess.run(
            [sys.executable, "-m", "bench.peers.kafka.spark", msgspec.json.encode(asked).decode()],
            capture_output=True,
            text=True,
            timeout=PROCESS_S_MAX,
            check=False,
            cwd=ROOT,
        )
    if done.returncode:
        raise SystemExit(f"Spark failed: {done.stderr.strip()[-3000:]}")
    found: dict[str, list[Figure]] = {}
    for one in msgspec.json.decode(done.stdout.splitlines()[-1].encode(), type=list[Read]):
        found.setdefault(one.side, []).extend(_figures(one))
    return found


def _figures(one: Read) -> list[Figure]:
    return [
        Figure(section="", name=f"batch read, {one.size}: {name}", value=value, unit=unit)
        for name, value, unit in (
            ("rate", one.rows / one.seconds, "rows/s"),
            ("server CPU", one.nodes_cpu_s / one.rows * 1e6, "µs/row"),
            ("Spark's CPU", one.spark_cpu_s / one.rows * 1e6, "µs/row"),
        )
    ]


def main() -> None:
    """Read what the argument says; print all readings as JSON."""
    asked = msgspec.json.decode(sys.argv[1].encode(), type=ReadSpec)
    command = [sys.executable, str(ROOT / "scripts" / "fetch_jars.py"), "spark-kafka"]
    folder = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    jars = ",".join(str(jar) for jar in sorted(Path(folder).glob("*.jar")))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {jars} pyspark-shell"
    spark = open_session()
    found: list[Read] = []
    for words, (topic, rows) in asked.topics.items():
        frames = {OURS: _ours(spark, asked, topic), THEIRS: _theirs(spark, asked, topic)}
        for frame in frames.values():
            assert frame.count() == rows, "the topic does not hold what was sent"
            _use_up(frame)
        for turn in range(asked.rounds):
            sides = list(frames) if turn % 2 == 0 else list(reversed(frames))
            found += [
                _timed(asked, side, words, rows, lambda f=frames[side]: _use_up(f))
                for side in sides
            ]
    print(msgspec.json.encode(found).decode(), flush=True)
    spark.stop()


def _ours(spark: Any, asked: ReadSpec, topic: str) -> Any:
    return spark.read.format("raftline").options(servers=asked.servers, topic=topic).load()


def _theirs(spark: Any, asked: ReadSpec, topic: str) -> Any:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", asked.kafka)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def _use_up(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _timed(asked: ReadSpec, side: str, size: str, rows: int, once: Callable[[], None]) -> Read:
    nodes, ours = _nodes_s(asked), family_s()
    began = time.perf_counter()
    once()
    seconds = time.perf_counter() - began
    return Read(side, size, rows, seconds, _nodes_s(asked) - nodes, family_s() - ours)


def _nodes_s(asked: ReadSpec) -> float:
    return sum(cpu_ns(pid) for pid in asked.pids) / 1e9


if __name__ == "__main__":
    main()
