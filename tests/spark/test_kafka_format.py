"""Spark's own ``kafka`` format, unmodified: batch, by offset and time, streams."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftline.chaos.rig import Rig
from tests.conformance.kafka.conftest import kafka_of, wait_kafka
from tests.conformance.kafka.java import jars, needs_java

pytestmark = [pytest.mark.spark, pytest.mark.full, needs_java]
STORY = Path(__file__).with_name("kafka_story.py")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "cluster", nodes=3)
    rig.directory.mkdir()
    try:
        rig.start_all()
        wait_kafka(rig)
        yield rig
    finally:
        rig.close()


@pytest.mark.timeout(600)
def test_sparks_own_connector(cluster: Rig, tmp_path: Path) -> None:
    for name in ("source", "copy"):
        assert cluster.command("topic", "create", name, "--partitions", "3").exit == 0
    command = [sys.executable, str(STORY), jars("spark-kafka"), kafka_of(cluster), str(tmp_path)]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=550, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["read"], told["values"]) == (5000, 5000)
    assert told["partitions"] == [0, 1, 2]
    assert told["header"] == "colour"
    assert told["ranged"] == 35
    assert told["by_time"] == told["by_time_wanted"]
    assert 0 < told["by_time"] <= 5000
    assert told["streamed"] == [5000, 1000, 0]
    assert told["copied"] == [6000, 6000]
    assert cluster.verify().exit == 0
