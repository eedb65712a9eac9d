"""A reader who had enough (``raftline … | head``) is neither an error nor a stack trace."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.node_double import Answer, ScriptedServer


def run_unread(*words: str, **environment: str) -> tuple[int, str]:
    """Run ``python -m WORDS…`` with an output that nobody reads; return exit code and errors."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            env={**inherited, **environment},
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "at once"])
@pytest.mark.parametrize(
    "line",
    ["--version", "--help", "topic settings", "topic settings --json", "serve --help",
     "serve --print-config"],
)  # fmt: skip
def test_nobody_reads_an_answer(line: str, unbuffered: str) -> None:
    assert run_unread("raftline", *line.split(), PYTHONUNBUFFERED=unbuffered) == (0, "")


def test_a_check_that_failed_stays_failed_unread() -> None:
    verified = {"identical": False, "shards": []}
    with ScriptedServer(lambda *_: (200, verified)) as server:
        code, told = run_unread("raftline", "cluster", "verify", "--json", "--server", server.url)
    assert (code, told) == (9, "")


def test_a_worker_stops_when_nobody_reads_what_it_tells() -> None:
    leased = 0

    def script(method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        nonlocal leased
        if path != "/tasks/lease":
            return 200, {}
        leased += 1
        name = f"tasks.0.{leased}"
        return 200, {"id": name, "type": "email", "attempts": 1, "payload": None}

    with ScriptedServer(script) as server:
        code, told = run_unread("raftline", "worker", "--worker-id", "w", "--server", server.url)
    assert (code, told) == (
        0,
        "w: tasks, 1 at a time, printed and acked (no MODULE:APP, no --exec)\n",
    )
    assert leased == 1  # and that one was acked
    assert ("POST", "/tasks/tasks.0.1/ack") in [asked[:2] for asked in server.asked]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is not here (Linux)")
def test_a_worker_stops_when_there_is_no_room_for_what_it_tells() -> None:
    def script(method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        if path != "/tasks/lease":
            return 200, {}
        return 200, {"id": "tasks.0.1", "type": "email", "attempts": 1, "payload": None}

    words = [sys.executable, "-m", "raftline", "worker", "--worker-id", "w", "--server"]
    with ScriptedServer(script) as server, Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*words, server.url], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert "Traceback" not in done.stderr
    assert "error: the output: No space left on device" in done.stderr
    assert done.returncode == 6


def test_what_was_leased_and_not_printed_is_released() -> None:
    """The message whose printing failed was nobody's until its lease ran out."""
    rows = [
        {"id": f"orders.0.{n}", "partition": 0, "offset": n, "timestamp": 5, "value": "v",
         "attempt": 1, "lease_token": f"token-{n}"}
        for n in range(3)
    ]  # fmt: skip

    def script(method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        if path.endswith("/receive"):
            return 200, {"messages": rows}
        if path == "/v1/topics/orders":
            return 200, {"partitions": [{"partition": 0}]}
        return 200, {"results": []}

    with ScriptedServer(script) as server:
        code, told = run_unread(
            "raftline", "consume", "orders", "--group", "g", "--server", server.url
        )
    assert (code, told) == (0, "")
    (released,) = [body for _, path, body in server.asked if path == "/v1/messages/release"]
    assert sorted(released["lease_tokens"]) == ["token-0", "token-1", "token-2"]


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "at once"])
def test_all_is_sent_though_nobody_reads_the_ids(tmp_path: Path, unbuffered: str) -> None:
    """What came after the first lines of ``produce … | head`` was not sent, with exit code 0."""
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(2000)))
    sent: list[str] = []

    def script(method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        rows = [row["value"] for row in body["messages"]]
        sent.extend(rows)
        refused = {"error": {"code": "too_large", "message": "it is", "hint": ""}}
        return 200, {"results": [{"id": f"orders.0.{row}"} for row in rows[:-1]] + [refused]}

    with ScriptedServer(script) as server:
        words = ("produce", "orders", "--file", str(lines), "--json", "--server", server.url)
        code, told = run_unread("raftline", *words, PYTHONUNBUFFERED=unbuffered)
    assert (code, told) == (8, "")
    assert len(sent) == 2000


def test_what_is_leased_is_released_when_it_is_told_to_end() -> None:
    """By SIGTERM, as supervisors do: it ended at once, and all of it stayed leased."""
    rows = [
        {"id": f"orders.0.{n}", "partition": 0, "offset": n, "timestamp": 5, "value": "v",
         "attempt": 1, "lease_token": f"token-{n}"}
        for n in range(3)
    ]  # fmt: skip
    polls: list[str] = []

    def script(method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        if path == "/v1/topics/orders":
            return 200, {"partitions": [{"partition": 0}]}
        if path.endswith("/receive"):
            polls.append(path)
            return 200, {"messages": rows if len(polls) == 1 else []}
        return 200, {"results": []}

    line = "consume orders --group g --follow --from-time 2026-01-01 --server"
    with ScriptedServer(script) as server:
        command = [sys.executable, "-m", "raftline", *line.split(), server.url]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
            while len(polls) < 2:
                time.sleep(0.01)
            running.terminate()
            assert running.wait(10) == 130
    (released,) = [body for _, path, body in server.asked if path == "/v1/messages/release"]
    assert sorted(released["lease_tokens"]) == ["token-0", "token-1", "token-2"]


def test_seeds_end_when_nobody_reads_of_them() -> None:
    code, told = run_unread(
        "raftline.testing.sim", "--seeds", "2", "--seconds", "16", "--operations", "5",
        "--queue", "0", "--jobs", "1",
    )  # fmt: skip
    assert (code, told) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is not here (Linux)")
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "at once"])
@pytest.mark.parametrize("line", ["--version", "--help", "topic settings", "serve --help"])
def test_an_output_without_room_is_a_refusal(line: str, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "raftline", *line.split()],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 6, done.stderr
    assert done.stderr.startswith("error: the output: No space left on device")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_bug(closed: str) -> None:
    program = f"{shlex.quote(sys.executable)} -m raftline"
    for line in ("topic settings", "serve --help"):
        done = subprocess.run(["bash", "-c", f"{program} {line} {closed}"], check=False)
        assert done.returncode == 0, line
    for line in ("topic", "serve --nonsense"):
        done = subprocess.run(["bash", "-c", f"{program} {line} {closed}"], check=False)
        assert done.returncode == 2, line
