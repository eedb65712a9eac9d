"""kcat, on an old librdkafka: list, produce, read, groups, queries by time."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from raftline.chaos.rig import Rig
from tests.conformance.kafka.conftest import MakeTopic, kafka_of
from tests.conformance.kafka.members import group_name

pytestmark = pytest.mark.full
ROOT = Path(__file__).parents[3]


@cache
def program() -> str:
    command = [sys.executable, str(ROOT / "scripts" / "install_kcat.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    if done.returncode != 0:
        pytest.skip("kcat is not here and cannot be unpacked")
    return done.stdout.strip()


def kcat(rig: Rig, *words: str, text: str = "") -> str:
    command = [program(), "-b", kafka_of(rig), *words]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_list_produce_and_read(three: Rig, make_topic: MakeTopic) -> None:
    topic = make_topic(three, 2)
    listed = json.loads(kcat(three, "-L", "-J", "-t", topic))
    assert len(listed["brokers"]) == 3
    assert [row["partition"] for row in listed["topics"][0]["partitions"]] == [0, 1]
    lines = "".join(f"k{i}:v{i}\n" for i in range(100))
    kcat(three, "-P", "-t", topic, "-K", ":", "-H", "colour=red", "-z", "lz4", text=lines)
    read = kcat(three, "-C", "-t", topic, "-e", "-q", "-f", "%k=%s %h\n").splitlines()
    assert sorted(read) == sorted(f"k{i}=v{i} colour=red" for i in range(100))
    assert "0" in kcat(three, "-Q", "-t", f"{topic}:0:0")


def test_a_group_reads_once_and_goes_on(three: Rig, make_topic: MakeTopic) -> None:
    topic, group = make_topic(three, 2), group_name()
    kcat(three, "-P", "-t", topic, text="".join(f"a{i}\n" for i in range(20)))
    words = ("-X", "auto.offset.reset=earliest", "-q", "-e", "-G", group, topic)
    assert sorted(kcat(three, *words).split()) == sorted(f"a{i}" for i in range(20))
    kcat(three, "-P", "-t", topic, text="".join(f"b{i}\n" for i in range(5)))
    assert sorted(kcat(three, *words).split()) == sorted(f"b{i}" for i in range(5))


def test_the_page_on_kafka_can_be_typed(three: Rig, make_topic: MakeTopic) -> None:
    page = (ROOT / "docs/protocols/kafka.md").read_text()
    told = [line[2:] for line in page.splitlines() if line.startswith("$ kcat ")]
    assert len(told) == 2
    topic = make_topic(three, 2)
    lines = [
        line.replace("127.0.0.1:9092", kafka_of(three)).replace("-t orders", f"-t {topic}")
        for line in told
    ]
    home = Path(program()).parent
    done = subprocess.run(
        ["/bin/bash", "-e", "-c", f"PATH={home}:$PATH\n" + "\n".join(lines)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout.splitlines()
