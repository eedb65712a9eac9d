"""kill -9 of drivers and executors in the middle of micro-batches: every message is there once."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raftline
from raftline.chaos.rig import Rig
from tests.spark import direct
from tests.spark.conftest import publish, servers_of
from tests.spark.streams import TOO_BUSY, TRIES

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
MESSAGES = 20_000
RUN_S_MAX = 600
EXECUTOR = b"CoarseGrainedExecutorBackend"


class Driver:
    """One driver, with everything that it starts in a session of its own."""

    def __init__(self, log: Path, asked: dict[str, Any]) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driver_process", json.dumps(asked)],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for_batches(self, count: int) -> None:
        until = time.monotonic() + RUN_S_MAX
        while self.said().count("batch ") < count and self.process.poll() is None:
            assert time.monotonic() < until, self.said()[-3000:]
            time.sleep(0.02)

    def family(self) -> list[int]:
        """Return the pids of all processes of its session."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    if int(fields[3]) == self.process.pid:
                        found.append(int(entry.name))
        return found

    def kill(self) -> None:
        """Kill all of it at once."""
        for pid in self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(30)

    def kill_executor(self, rng: random.Random) -> bool:
        """Kill one of the executors' JVMs."""
        found: list[int] = []
        for pid in self.family():
            with contextlib.suppress(OSError):
                if EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        if not found:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(found), signal.SIGKILL)
        return True


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    made: list[Driver] = []

    def start(asked: dict[str, Any]) -> Driver:
        made.append(Driver(tmp_path / f"driver-{len(made)}.log", asked))
        return made[-1]

    yield start
    for driver in made:
        driver.kill()


def run_to_the_end(drive: Callable[..., Driver], asked: dict[str, Any]) -> None:
    for _ in range(TRIES):
        driver = drive(asked)
        driver.process.wait(RUN_S_MAX)
        if driver.process.returncode == 0 or TOO_BUSY not in driver.said():
            break
    assert driver.process.returncode == 0, driver.said()[-3000:]


@pytest.mark.parametrize("group", ["", "etl"])
def test_drivers_are_killed(
    make_rig: Callable[..., Rig], drive: Callable[..., Driver], tmp_path: Path, group: str
):
    rng = random.Random(group)
    servers, sent, asked = prepare(make_rig, tmp_path, group, "local[2]")
    for number in range(4):
        driver = drive(asked)
        driver.wait_for_batches(1 + number % 2)
        time.sleep(rng.random())
        driver.kill()
    run_to_the_end(drive, asked)
    assert_all_there(servers, sent, group)


def test_executors_are_killed(
    make_rig: Callable[..., Rig], drive: Callable[..., Driver], tmp_path: Path
):
    rng = random.Random(3)
    servers, sent, asked = prepare(make_rig, tmp_path, "etl", "local-cluster[2,1,512]")
    kills = 0
    for number in range(2):
        driver = drive(asked)
        driver.wait_for_batches(1)
        kills += driver.kill_executor(rng)
        if number:
            time.sleep(rng.random())
            driver.kill()
        else:
            driver.process.wait(RUN_S_MAX)  # Spark runs its tasks elsewhere
    run_to_the_end(drive, asked)
    assert kills
    assert_all_there(servers, sent, "etl")


def prepare(
    make_rig: Callable[..., Rig], tmp_path: Path, group: str, master: str
) -> tuple[str, Counter[bytes], dict[str, Any]]:
    rig = make_rig(nodes=1)
    servers = servers_of(rig)
    sent = [b"%06d" % number for number in range(MESSAGES)]
    with raftline.connect(servers) as line:
        line.topics.create("source", partitions=3)
        line.topics.create("target", partitions=3)
        publish(line, "source", sent)
    asked = {
        "master": master,
        "servers": servers,
        "source": "source",
        "target": "target",
        "group": group,
        "limit": MESSAGES // 12,
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    return servers, Counter(sent), asked


def assert_all_there(servers: str, sent: Counter[bytes], group: str) -> None:
    assert Counter(row["value"] for row in direct.read(servers, "target")) == sent
    if group:
        with raftline.connect(servers) as line:
            rows = line.groups.show(group)["work"]["source"]
            assert sum(row["lag"] for row in rows) == 0
