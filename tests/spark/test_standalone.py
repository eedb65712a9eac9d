"""The same jobs on a real Spark standalone cluster whose machines do not have our code."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import raftline
from tests.spark.pipeline_traffic import assert_other_jobs, fill
from tests.spark.standalone import python_without_us, standalone

pytestmark = [pytest.mark.spark, pytest.mark.full]
TOPIC = "standalone-orders"
SCRIPT = Path(__file__).with_name("cluster_script.py")


@pytest.mark.timeout(1500)
def test_batch_stream_and_jobs_run_on_a_cluster(node: Any, tmp_path: Path) -> None:
    servers = node.node(node.names[0]).http
    with raftline.connect(servers) as line:
        line.topics.create(TOPIC, partitions=4)
        fill(line, servers, TOPIC, 60)
    python = python_without_us(tmp_path / "python")
    lost = subprocess.run(
        [str(python), "-c", "import msgspec, pyarrow; import raftline"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert "No module named 'raftline'" in lost.stderr, lost
    with standalone(tmp_path) as master:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), servers, TOPIC, "60", master],
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
            env={
                **os.environ,
                "PYSPARK_PYTHON": str(python),
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
            },
        )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["batch"], told["stream"], told["archived"]) == (60, 60, 60)
    assert told["splits"] >= 6
    assert told["executors"] == 2
    assert told["events"]["ACKNOWLEDGED"] == 54
    assert_other_jobs(told, 60)
