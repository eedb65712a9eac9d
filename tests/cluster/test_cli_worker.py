"""Tasks and workers from the command line, on a real node: leases, failures, graceful ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raftline.chaos.rig import Rig, wait_for
from tests.cluster.shell import Shell


@pytest.fixture(scope="module")
def rig(module_path: Path) -> Iterator[Rig]:
    rig = Rig(module_path / "worker", nodes=1, settings=("delivery.backoff_ms=10",))
    try:
        rig.start_all()
        yield rig
    finally:
        rig.close()


@pytest.fixture
def shell(rig: Rig, capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(rig, capfd)


def enqueue(shell: Shell, *words: object) -> str:
    (name,) = shell.lines("task", "enqueue", *words)
    return name


def task(shell: Shell, name: str) -> dict[str, Any]:
    return shell.json("task", "get", name)


def start(shell: Shell, *words: object) -> subprocess.Popen[str]:
    server = shell.rig.node("node-1").http
    line = [sys.executable, "-m", "raftline", "worker", "--server", server, "--json"]
    return subprocess.Popen(
        [*line, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(child: "subprocess.Popen[str]", seconds: float = 20) -> list[dict[str, Any]]:
    out, err = child.communicate(timeout=seconds)
    assert child.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_without_a_command_tasks_are_logged_and_acked(shell: Shell) -> None:
    name = enqueue(shell, "-type", "email", "-payload", '{"to":"user@example.com"}')
    before = task(shell, name)
    assert (before["status"], before["type"], before["attempts"]) == ("pending", "email", 0)
    (done,) = shell.rows("worker", "--drain", "--worker-id", "w-1")
    assert (done["id"], done["outcome"]) == (name, "acked")
    assert json.loads(done["payload"]) == {"to": "user@example.com"}
    after = task(shell, name)
    assert (after["status"], after["worker_id"], after["attempts"]) == ("done", "w-1", 1)
    assert "status: done" in shell.run("task", "get", name).out
    assert shell.lines("worker", "--drain") == []


def test_the_same_idempotency_key_is_the_same_task(shell: Shell) -> None:
    words = ("--type", "once", "--idempotency-key", "abc", "--priority", "10")
    assert enqueue(shell, *words) == enqueue(shell, *words)
    shell.run("worker", "--drain")


def test_higher_priority_first_and_later_ones_later(shell: Shell) -> None:
    for kind, words in (("low", ("--priority", "low")), ("now", ()), ("top", ("--priority", 20))):
        enqueue(shell, "--type", kind, *words)
    later = enqueue(shell, "--type", "later", "--delay", "1h")
    assert [row["type"] for row in shell.rows("worker", "--drain")] == ["top", "now", "low"]
    assert task(shell, later)["status"] == "pending"


def test_a_command_gets_the_payload_and_its_exit_code_settles(shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / "out"
    good = enqueue(shell, "--type", "good", "--payload", '{"n": 1}')
    command = f'cat >> {out}; echo " $RAFTLINE_TYPE $RAFTLINE_ATTEMPT $RAFTLINE_ID" >> {out}'
    shell.run("worker", "--exec", command, "--drain")
    assert out.read_text() == f'{{"n": 1}} good 1 {good}\n'

    bad = enqueue(shell, "--type", "bad", "--max-retries", 2)
    worker = start(shell, "--exec", "echo no luck >&2; exit 3")
    wait_for(lambda: task(shell, bad)["status"] == "dead", 20)
    worker.send_signal(signal.SIGTERM)
    rows = finish(worker)
    assert [(row["attempt"], row["outcome"]) for row in rows] == [(n, "nacked") for n in (1, 2, 3)]
    dead = task(shell, bad)
    assert (dead["attempts"], dead["last_error"]) == (3, "exit code 3: no luck")
    listed = shell.json("task", "list", "--status", "dead")["tasks"]
    assert bad in [row["id"] for row in listed]
    assert "bad" in shell.run("task", "list").out
    assert shell.json("task", "stats")["dead"] >= 1


def test_several_at_a_time(shell: Shell) -> None:
    for _ in range(4):
        enqueue(shell, "--type", "slow")
    began = time.monotonic()
    rows = shell.rows("worker", "--exec", "sleep 1", "-c", 4, "--drain")
    assert [row["outcome"] for row in rows] == ["acked"] * 4
    assert time.monotonic() - began < 3.5 + 2  # one after the other would take 4 s and the waits


def test_the_lease_of_a_long_task_is_renewed(shell: Shell) -> None:
    name = enqueue(shell, "--type", "long")
    worker = start(shell, "--exec", "sleep 3.5", "--lease", "1s", "--drain")
    wait_for(lambda: task(shell, name)["status"] == "leased", 10)
    time.sleep(1.5)
    assert shell.lines("worker", "--drain") == [], "nobody else gets it"
    (row,) = finish(worker)
    assert (row["outcome"], row["attempt"]) == ("acked", 1)


def test_a_stopped_worker_finishes_what_it_began(shell: Shell) -> None:
    name = enqueue(shell, "--type", "began")
    worker = start(shell, "--exec", "sleep 2")
    wait_for(lambda: task(shell, name)["status"] == "leased", 10)
    worker.send_signal(signal.SIGTERM)
    second = enqueue(shell, "--type", "untouched")
    (row,) = finish(worker)
    assert (row["id"], row["outcome"]) == (name, "acked")
    assert task(shell, second)["status"] == "pending"
    shell.run("worker", "--drain")


def test_what_cannot_finish_in_time_is_released(shell: Shell, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    name = enqueue(shell, "--type", "endless")
    worker = start(shell, "--exec", f"echo $$ > {pid}; sleep 60", "--grace", "1s")
    wait_for(pid.exists, 10)
    worker.send_signal(signal.SIGINT)
    (row,) = finish(worker)
    assert row["outcome"] == "released"
    wait_for(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), 5)
    assert task(shell, name)["status"] == "pending"
    (again,) = shell.rows("worker", "--drain")
    assert (again["id"], again["attempt"]) == (name, 2)


def test_a_worker_of_any_topic(shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shell.run("produce", "orders", "-k", "k", "-m", "hello")
    shell.run("worker", "--topic", "orders", "--group", "g", "--exec", f"cat > {out}", "--drain")
    assert out.read_text() == "hello"
    assert shell.lines("consume", "orders", "--group", "g") == []


APP = """
import raftline

app = raftline.App("http://127.0.0.1:9")  # --server names another

@app.task(max_retries=0)
def email(to: str) -> None:
    if to == "nobody":
        raise ValueError("no such address")
    print("sent to", to, flush=True)
"""


def test_a_worker_runs_the_functions_of_an_app(shell: Shell, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "shop_tasks.py").write_text(APP)
    (tmp_path / "broken_tasks.py").write_text("import raftline\napp = raftline.App(\n")
    monkeypatch.chdir(tmp_path)
    good = enqueue(shell, "--type", "email", "--payload", '{"to": "user@example.com"}')
    bad = enqueue(shell, "--type", "email", "--payload", '{"to": "nobody"}', "--max-retries", 0)
    out = shell.run("worker", "shop_tasks:app", "--drain", "-c", 2, "--worker-id", "w-7").out
    assert "sent to user@example.com" in out
    assert "1 done, 1 failed" in out
    done, dead = task(shell, good), task(shell, bad)
    assert (done["status"], done["worker_id"]) == ("done", "w-7")
    assert (dead["status"], dead["last_error"]) == ("dead", "ValueError: no such address")
    broken = shell.command("worker", "broken_tasks:app")
    assert broken.exit == 2
    assert "broken_tasks:app cannot be loaded: SyntaxError" in broken.err
    assert shell.command("worker", "no_such_module:app").exit == 2
    assert shell.command("worker", "shop_tasks:app", "--exec", "true").exit == 2


def test_a_worker_waits_for_a_node_that_is_away(shell: Shell) -> None:
    name = enqueue(shell, "--type", "patience")
    rig = shell.rig
    rig.stop("node-1")
    worker = start(shell)
    time.sleep(1.5)
    assert worker.poll() is None
    rig.restart("node-1")
    try:
        wait_for(lambda: task(shell, name)["status"] == "done", 20)
    finally:
        os.kill(worker.pid, signal.SIGTERM)
    assert [row["id"] for row in finish(worker)] == [name]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("task", "get", "tasks.0.999999"), 4),
        (("task", "enqueue"), 2),
        (("task", "enqueue", "--type", "x", "--payload", "{"), 2),
        (("task", "enqueue", "--type", "x", "--priority", "500"), 2),
        (("task", "list", "--status", "odd"), 2),
        (("worker", "--lease", "1ms", "--drain"), 2),
    ],
)
def test_mistakes_are_told(shell: Shell, words: tuple[str, ...], code: int) -> None:
    assert shell.command(*words).exit == code
