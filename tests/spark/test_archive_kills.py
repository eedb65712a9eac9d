"""The archive command under ``kill -9``: run again it goes on, nothing twice, nothing left out."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from raftline.archive.reader import Archive
from raftline.client import clock
from raftline.client.line import Line
from tests.spark.archives import archived_rows, bounds, in_order, make_topic
from tests.spark.conftest import publish

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1800)]

KILLS = 3
ROUND = 500  # messages sent at a time
PATIENCE_MS = 240_000


def start(servers: str, topic: str, root: Path) -> "subprocess.Popen[str]":
    words = ["pipeline", "archive", topic, "--dir", str(root), "--continuous", "200ms"]
    words += ["--no-traces", "--master", "local[2]", "--servers", servers, "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "raftline", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def archived(root: Path, topic: str) -> int:
    if not root.is_dir():
        return 0
    found = Archive(root)
    manifests = [found.manifest(topic, partition) for partition in found.partitions(topic)]
    return sum(one.count for one in manifests if one is not None)


def wait_for_more(root: Path, topic: str, count: int, child: "subprocess.Popen[str]") -> None:
    until_ms = clock.mono_ms() + PATIENCE_MS
    while archived(root, topic) <= count:
        assert child.poll() is None, child.communicate()
        assert clock.mono_ms() < until_ms, f"nothing is archived after {count}"
        clock.pause(20)


def test_it_is_killed_while_messages_come(
    servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    make_topic(servers, topic, 3)
    root, is_over, sent = tmp_path / "archive", threading.Event(), 0

    def send() -> None:
        nonlocal sent
        while not is_over.is_set():
            publish(line, topic, [b"%d" % at for at in range(sent, sent + ROUND)])
            sent += ROUND
            clock.pause(100)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for number in range(KILLS):
            child = start(servers, topic, root)
            wait_for_more(root, topic, archived(root, topic), child)
            clock.pause(137 * (number + 1))  # somewhere in a round
            os.kill(child.pid, signal.SIGKILL)
            child.communicate()
        child = start(servers, topic, root)
        wait_for_more(root, topic, archived(root, topic), child)
    finally:
        is_over.set()
        sender.join()
    wait_for_more(root, topic, sent - 1, child)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    told = json.loads(out.splitlines()[-1])
    assert told["stopped"]
    assert told["lost"] == 0

    rows = archived_rows(root, topic)
    assert sorted(int(row["value"]) for row in rows) == list(range(sent))
    ends = {row["partition"]: row["commit_end"] for row in bounds(servers, topic)}
    assert in_order(rows) == {partition: list(range(end)) for partition, end in ends.items()}
