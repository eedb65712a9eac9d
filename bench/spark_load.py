"""One Spark process of a benchmark: reads, writes or follows a topic, and says how fast.

    python -m bench.spark_load '{"servers": …, "form": "read", …}'

It is a process of its own because a JVM stays until its process ends. The first run of a query
loads and compiles half of Spark; it is thrown away.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from bench.processes import cpu_ns

MASTER = "local[2]"
WARM_UPS = 2
QUERY_S_MAX = 300
FIRST_S = 5  # for a message at the query's start


class SparkSpec(msgspec.Struct):
    """What to run."""

    servers: str
    topic: str
    form: str  # read, sum, write, follow
    node_pids: list[int]
    rows: int
    value_bytes: int = 100
    runs: int = 3
    include_value: bool = True


class SparkResult(msgspec.Struct):
    """What it took: the median of the runs."""

    rows: int
    seconds: float
    nodes_cpu_s: float = 0.0
    spark_cpu_s: float = 0.0
    times_ms: list[float] = []


def main() -> None:
    """Run what the argument says; print the result as JSON."""
    spec = msgspec.json.decode(sys.argv[1].encode(), type=SparkSpec)
    spark = open_session()
    run = {"read": read, "sum": add_up, "write": write, "follow": follow}[spec.form]
    result = run(spark, spec)
    print(msgspec.json.encode(result).decode(), flush=True)
    spark.stop()


def open_session() -> Any:
    """Start Spark on two cores of this machine."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import raftline.spark

    builder = SparkSession.builder.master(MASTER).appName("raftline bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    raftline.spark.register(session)
    return session


def read(spark: Any, spec: SparkSpec) -> SparkResult:
    """Read the whole topic, all columns of all rows, into Spark's sink that throws rows away."""
    frame = _frame(spark, spec)

    def once() -> None:
        frame.write.format("noop").mode("overwrite").save()

    assert frame.count() == spec.rows, "the topic does not hold what was sent"
    return _timed(spec, once)


def add_up(spark: Any, spec: SparkSpec) -> SparkResult:
    """Count the rows and add up the lengths of their values.

    With a new frame each time: one that is collected again gives what its last shuffle kept.
    """
    sums = ("count(*) as rows", "sum(length(value)) as size")

    def once() -> None:
        (found,) = _frame(spark, spec).selectExpr(*sums).collect()
        assert (found.rows, found.size) == (spec.rows, spec.rows * spec.value_bytes), found

    once()
    return _timed(spec, once)


def _frame(spark: Any, spec: SparkSpec) -> Any:
    reader = spark.read.format("raftline").option("servers", spec.servers)
    reader = reader.option("topic", spec.topic).option("includeValue", str(spec.include_value))
    return reader.load()


def write(spark: Any, spec: SparkSpec) -> SparkResult:
    """Write rows that Spark has in memory already."""
    frame = spark.range(spec.rows).selectExpr(
        "cast(id as string) as key", f"repeat('x', {spec.value_bytes}) as value"
    )
    frame = frame.repartition(2).cache()
    assert frame.count() == spec.rows
    writer = frame.write.format("raftline").mode("append").option("servers", spec.servers)
    return _timed(spec, writer.option("topic", spec.topic).save)


def follow(spark: Any, spec: SparkSpec) -> SparkResult:
    """Follow a topic that gets a message at a time; how long each micro-batch takes."""
    import raftline

    frame = spark.readStream.format("raftline").option("servers", spec.servers)
    frame = frame.option("topic", spec.topic).option("startingOffsets", "latest").load()
    seen: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(Path(folder) / "checkpoint"))
            .start()
        )
        with raftline.connect(spec.servers) as line:
            # What comes before the query knows where it begins is not for it.
            while not _is_followed(query, line, spec, FIRST_S) and query.isActive:
                pass
            for number in range(spec.rows + WARM_UPS):
                _is_followed(query, line, spec, QUERY_S_MAX)
                if number >= WARM_UPS:
                    seen.append(query.lastProgress["durationMs"]["triggerExecution"])
        query.stop()
    return SparkResult(rows=spec.rows, seconds=statistics.median(seen) / 1000, times_ms=seen)


def _is_followed(query: Any, line: Any, spec: SparkSpec, seconds: float) -> bool:
    """Send one message; say whether the query took some within so many seconds."""
    before, until = _batches(query), time.perf_counter() + seconds
    line.send_now(spec.topic, b"x" * spec.value_bytes)
    while _batches(query) == before and time.perf_counter() < until:
        time.sleep(0.02)
    return _batches(query) > before


def _batches(query: Any) -> int:
    return sum(1 for one in query.recentProgress if one["numInputRows"])


def _timed(spec: SparkSpec, once: Any) -> SparkResult:
    once()
    found: list[SparkResult] = []
    for _ in range(spec.runs):
        nodes, ours = _nodes_s(spec), family_s()
        began = time.perf_counter()
        once()
        seconds = time.perf_counter() - began
        found.append(SparkResult(spec.rows, seconds, _nodes_s(spec) - nodes, family_s() - ours))
    return sorted(found, key=lambda one: one.seconds)[len(found) // 2]


def _nodes_s(spec: SparkSpec) -> float:
    return sum(cpu_ns(pid) for pid in spec.node_pids) / 1e9


def family_s() -> float:
    """Return the CPU time of this process and all below it: the JVM and Python's workers."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(fields[1])
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    total = 0
    for pid in family:
        try:
            total += cpu_ns(pid)
        except FileNotFoundError:
            continue
    return total / 1e9


if __name__ == "__main__":
    main()
