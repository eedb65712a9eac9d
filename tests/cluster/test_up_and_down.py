"""``raftline up``, ``produce``, ``consume``, ``down`` with a real node, as a shell runs them."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

STEPS = (0, 1000, 2000, 3000)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.fixture
def port_base() -> int:
    """A base whose four ports are free, below the range the system hands out."""
    start = 11_000 + os.getpid() % 900
    return next(
        base for base in range(start, start + 900) if all(is_free(base + step) for step in STEPS)
    )


def raftline(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "raftline", *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def book(directory: Path) -> list[dict[str, object]]:
    return json.loads((directory / "nodes.json").read_text())


def test_a_node_is_started_killed_started_again_and_stopped(tmp_path: Path, port_base: int) -> None:
    up = ("up", "--nodes", 1, "--data-dir", tmp_path, "--port-base", port_base, "--detach")
    server = ("--server", f"http://127.0.0.1:{port_base}")
    try:
        started = raftline(*up)
        assert started.returncode == 0, started.stderr
        (node,) = book(tmp_path)
        assert node["http"] == f"http://127.0.0.1:{port_base}"
        assert (node["id"], node["name"]) == (1, "node-1")

        sent = raftline("produce", "orders", "--key", "k", *server, stdin="one\ntwo\n")
        assert (sent.returncode, len(sent.stdout.split())) == (0, 2), sent.stderr

        os.kill(int(str(node["pid"])), signal.SIGKILL)
        again = raftline("up", "--data-dir", tmp_path, "--detach")
        assert again.returncode == 0, again.stderr
        assert book(tmp_path)[0]["pid"] != node["pid"]
        assert raftline("consume", "orders", *server).stdout == "one\ntwo\n"
        assert raftline("cluster", "verify", *server).returncode == 0

        taken = raftline(*up[:3], "--data-dir", tmp_path / "b", *up[5:])
        assert taken.returncode == 6
        assert "--port-base" in taken.stderr
    finally:
        stopped = raftline("down", "--data-dir", tmp_path)
    assert stopped.stdout == "stopped node-1\n"
    assert book(tmp_path)[0]["pid"] == 0
    assert raftline("topic", "list", *server).returncode == 7


def test_who_watches_sees_what_others_start_and_stop(tmp_path: Path, port_base: int) -> None:
    words = ["up", "--nodes", "1", "--data-dir", str(tmp_path), "--port-base", str(port_base)]
    command = [sys.executable, "-m", "raftline", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            lines = iter(watching.stdout.readline, "")
            next(line for line in lines if line.startswith("1/1 nodes"))
            os.kill(int(str(book(tmp_path)[0]["pid"])), signal.SIGKILL)
            next(line for line in lines if "DIED: node-1" in line)
            assert raftline("up", "--data-dir", tmp_path, "--detach").returncode == 0
            assert "DIED" not in next(line for line in lines if line.startswith("1/1 nodes"))
            assert raftline("down", "--data-dir", tmp_path).returncode == 0
            assert list(lines)[-1] == "stopped by raftline down\n"
            assert watching.wait(10) == 0
        finally:
            watching.kill()
            raftline("down", "--data-dir", tmp_path)
