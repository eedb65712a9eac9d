"""What the tests of the archive share: jobs on the shared session, trims, what is archived."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from raftline.archive.reader import Archive
from raftline.client.caller import Caller
from raftline.pipeline import archive
from raftline.pipeline.job import Job

CONSUME_S_MAX = 900


def archive_topic(servers: str, topic: str, root: Path, **options: Any) -> dict[str, Any]:
    """Run the job on the session of the tests."""
    options = {"dead_letters": False, "traces": False, **options}
    with Job("archive", servers) as job:
        return archive.run(job, topics=[topic], directory=str(root), **options)


def trim(servers: str, topic: str, partition: int, offset: int) -> int:
    with Caller(servers) as caller:
        path = f"/v1/topics/{topic}/partitions/{partition}/trim"
        return caller.call("POST", path, {"offset": offset})["log_start"]


def bounds(servers: str, topic: str) -> list[dict[str, Any]]:
    with Caller(servers) as caller:
        return caller.call("GET", f"/v1/topics/{topic}/offsets")["partitions"]


def make_topic(servers: str, topic: str, partitions: int, **settings: Any) -> None:
    with Caller(servers) as caller:
        body = {"name": topic, "num_partitions": partitions, "settings": settings}
        caller.call("POST", "/v1/topics", body)


def archived_rows(root: Path, topic: str, **window: Any) -> list[dict[str, Any]]:
    found = Archive(root)
    return [
        row
        for partition in found.partitions(topic)
        for batch in found.batches(topic, partition, **window)
        for row in batch.to_pylist()
    ]


def archived_values(root: Path, topic: str) -> list[bytes]:
    return [row["value"] for row in archived_rows(root, topic)]


def consume(servers: str, *words: str) -> list[dict[str, Any]]:
    """Run ``raftline consume … --json`` in a process that could not find a JVM."""
    done = subprocess.run(
        [sys.executable, "-m", "raftline", "--server", servers, "consume", *words, "--json"],
        check=False,
        capture_output=True,
        text=True,
        timeout=CONSUME_S_MAX,
        env={**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere"},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def in_order(rows: list[dict[str, Any]]) -> dict[int, list[int]]:
    """Return the offsets of each partition as they came."""
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(row["partition"], []).append(row["offset"])
    return found
