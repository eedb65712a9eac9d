"""The process: how it starts, refuses and ends."""

import http.client
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from raftline.config.settings import ListenSettings, NodeSettings, Settings
from raftline.server.memory import keep_big_blocks
from tests.unit.transport.free_port import bind_free

ROOT = Path(__file__).parents[3]


class Runs:
    """Starts processes and ends those that are left."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.children: list[subprocess.Popen[str]] = []
        self.ports = [self._port(), self._port()]

    def _port(self) -> int:
        listener = bind_free()
        port = listener.getsockname()[1]
        listener.close()
        return port

    def start(
        self,
        mode: str = "",
        *,
        flags: tuple[str, ...] = (),
        before: tuple[str, ...] = (),
        insecure: bool = False,
        **changes: str,
    ) -> "Child":
        http_port, peer_port = self.ports
        addresses = {"http": f"127.0.0.1:{http_port}", "peer": f"127.0.0.1:{peer_port}"}
        addresses["grpc"] = addresses["kafka"] = "127.0.0.1:0"
        data_dir = changes.pop("data_dir", str(self.data_dir))
        settings = Settings(
            node=NodeSettings(data_dir=data_dir, insecure=insecure),
            listen=ListenSettings(**(addresses | changes)),
        )
        child = subprocess.Popen(
            [*before, sys.executable, *flags, "-m", "tests.unit.server.little_program",
             msgspec.json.encode(settings).decode(), mode],
            stderr=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
        )  # fmt: skip
        self.children.append(child)
        return Child(child, http_port)


class Child:
    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def wait_serving(self) -> int:
        until = time.monotonic() + 20
        while True:
            client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            try:
                client.request("GET", "/health")
                with client.getresponse() as reply:
                    return reply.status
            except OSError:
                assert self.process.poll() is None, self.process.stderr.read()
                assert time.monotonic() < until
                time.sleep(0.02)
            finally:
                client.close()

    def end(self) -> tuple[int, str]:
        """Return exit code and what it said."""
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path / "data")
    yield made
    for child in made.children:
        if child.poll() is None:
            child.kill()
        child.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(runs: Runs, number: signal.Signals) -> None:
    child = runs.start()
    assert child.wait_serving() == 200
    child.process.send_signal(number)
    code, said = child.end()
    assert code == 0, said
    events = [msgspec.json.decode(line)["event"] for line in said.splitlines()]
    assert events == ["process.started", "process.stopping", "process.stopped"]
    again = runs.start()  # the directory and the ports are free again
    assert again.wait_serving() == 200


def test_nobody_waits_for_a_node_that_recovers(runs: Runs) -> None:
    """Its port refuses, so that clients go elsewhere, until a request is answered at once."""
    child = runs.start("slow")
    until, refused = time.monotonic() + 30, 0
    while True:
        assert time.monotonic() < until
        began = time.monotonic()
        client = http.client.HTTPConnection("127.0.0.1", child.port, timeout=5)
        try:
            client.connect()
        except ConnectionRefusedError:
            refused += 1
            time.sleep(0.02)
            continue
        client.request("GET", "/health")
        with client.getresponse() as reply:
            assert reply.status == 200
        client.close()
        assert time.monotonic() - began < 1.0
        assert refused > 20, "it took requests before it could answer them"
        break


def test_a_node_that_does_not_stop_is_ended(runs: Runs) -> None:
    child = runs.start("stuck")
    child.wait_serving()
    child.process.terminate()
    code, said = child.end()
    assert code == 0
    assert "process.stop_overdue" in said


def test_a_second_signal_ends_at_once(runs: Runs) -> None:
    child = runs.start("stuck")
    child.wait_serving()
    child.process.terminate()
    time.sleep(0.1)
    child.process.terminate()
    assert child.end()[0] == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("mode", "words"), [("fatal", "fdatasync failed"), ("bug", "ZeroDivision")]
)
def test_what_is_fatal_ends_with_70_and_a_line(runs: Runs, mode: str, words: str) -> None:
    code, said = runs.start(mode).end()
    assert code == 70
    assert words in said
    assert "error: node node-1 ends" in said


def one_line(said: str) -> str:
    """Return the complaint; it is one line, with a hint, and no stack trace."""
    lines = said.splitlines()
    assert len(lines) == 2, said
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("hint:  ")
    return said


def test_a_busy_port_is_named_with_its_flags(runs: Runs) -> None:
    taken = bind_free()
    address = f"127.0.0.1:{taken.getsockname()[1]}"
    for name in ("http", "peer"):
        code, said = runs.start(**{name: address}).end()
        assert code == 6
        assert address in one_line(said)
        assert f"--{name}-addr" in said
        assert "--port-base" in said
    taken.close()
    assert not runs.data_dir.exists()  # nothing was changed


def test_an_address_beyond_loopback_needs_insecure(runs: Runs) -> None:
    code, said = runs.start(http="0.0.0.0:8080").end()
    assert code == 2
    assert "--insecure" in one_line(said)


def test_an_address_of_another_machine(runs: Runs) -> None:
    code, said = runs.start(http="203.0.113.7:8080", insecure=True).end()
    assert code == 6
    assert "203.0.113.7:8080" in one_line(said)


def test_optimized_python_is_refused(runs: Runs) -> None:
    code, said = runs.start(flags=("-O",)).end()
    assert code == 6
    assert "-O" in one_line(said)


def test_a_directory_in_use(runs: Runs) -> None:
    first = runs.start()
    first.wait_serving()
    runs.ports = [runs._port(), runs._port()]
    code, said = runs.start().end()
    assert code == 6
    assert str(first.process.pid) in one_line(said)
    assert str(runs.data_dir) in said


def test_a_file_in_the_way(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    code, said = runs.start(data_dir=str(tmp_path / "file" / "data")).end()
    assert code == 6
    assert "--data-dir" in one_line(said)


@pytest.mark.parametrize(
    ("mode", "words"), [("refuse", "the directory is of cluster 42"), ("full", "disk is full")]
)
def test_a_node_that_cannot_start_says_why(runs: Runs, mode: str, words: str) -> None:
    code, said = runs.start(mode).end()
    assert code == 6
    complaint = "\n".join(line for line in said.splitlines() if not line.startswith("{"))
    assert words in one_line(complaint)


def test_lean_start() -> None:
    """What the first ack does not need is not loaded by the server's modules."""
    code = "import sys, raftline.server.process; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src"},
    ).stdout.split()  # fmt: skip
    heavy = {"typer", "rich", "aiokafka", "grpc", "uvicorn", "httptools", "prometheus_client"}
    assert not heavy & {name.partition(".")[0] for name in loaded}


@pytest.mark.skipif(
    "CS_GNU_LIBC_VERSION" not in os.confstr_names or not os.confstr("CS_GNU_LIBC_VERSION"),
    reason="no glibc",
)
def test_big_blocks_are_kept() -> None:
    assert keep_big_blocks()


def test_a_node_takes_as_many_open_files_as_it_may(runs: Runs) -> None:
    """1,000 partitions written in a minute found none left, and went out of service."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    child = runs.start(before=("sh", "-c", 'ulimit -S -n 256 && exec "$@"', "sh"))
    assert child.wait_serving() == 200
    assert resource.prlimit(child.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
