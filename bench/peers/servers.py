"""The processes of one system: started in a directory, killed, started again, stopped.

An adapter says how its nodes are prepared and which command runs each; here is what all do alike.
Only processes that were started here are ever signalled.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.processes import cpu_ns, rss_mb

STOP_S_MAX = 20


class Servers:
    """So many nodes of one system."""

    def __init__(self, directory: Path, count: int, option: str = "") -> None:
        self.directory = directory
        self.count = count
        self.option = option
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    # ------------------------------------------------------------------ said by adapters

    def ports(self, number: int) -> list[int]:
        """Return all ports of a node; clients use the first."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Write what the nodes need before their first start. Not part of any measured time."""

    def command(self, number: int) -> list[str]:
        """Return the command that runs a node in the foreground."""
        raise NotImplementedError

    def environment(self, number: int) -> dict[str, str]:
        """Return what a node's environment has besides ours."""
        del number
        return {}

    @property
    def address(self) -> str:
        """Return what clients connect to."""
        return ",".join(f"127.0.0.1:{self.ports(n)[0]}" for n in range(self.count))

    # ------------------------------------------------------------------ the same for all

    def start(self) -> None:
        """Start every node that does not run; return at once."""
        for number in range(self.count):
            if not self._runs(number):
                self._check_ports(number)
                self._children[number] = self._spawn(number)

    def kill(self, number: int) -> None:
        """End a node without warning."""
        child = self._children[number]
        _signal(child, signal.SIGKILL)
        child.wait()

    def kill_all(self) -> None:
        """End all nodes without warning, at once."""
        for child in self._children.values():
            _signal(child, signal.SIGKILL)
        for child in self._children.values():
            child.wait()

    def stop(self) -> None:
        """Ask the nodes to end; insist after a while."""
        running = [child for child in self._children.values() if child.poll() is None]
        for child in running:
            child.terminate()
        until = time.perf_counter() + STOP_S_MAX
        for child in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.1, until - time.perf_counter()))
            _signal(child, signal.SIGKILL)  # and what it started
            child.wait()

    def pids(self) -> list[int]:
        """Return all processes of all nodes."""
        return descendants([c.pid for c in self._children.values() if c.poll() is None])

    def cpu_s(self) -> float:
        """Return the CPU time that the live processes have used."""
        return cpu_s(self.pids())

    def memory_mb(self) -> float:
        """Return the resident memory of all processes."""
        total = 0.0
        for pid in self.pids():
            with contextlib.suppress(FileNotFoundError, AssertionError):
                total += rss_mb(pid)
        return total

    def disk_mb(self) -> float:
        """Return what the data takes on disk."""
        files = (file for file in self.directory.rglob("*") if file.is_file())
        total = 0
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                total += file.stat().st_blocks * 512
        return total / 1e6

    def check_alive(self) -> None:
        """Raise where a node ended by itself."""
        for number, child in self._children.items():
            if child.poll() is not None:
                raise RuntimeError(
                    f"node {number} ended with {child.returncode}: {self._tail(number)}"
                )

    def _runs(self, number: int) -> bool:
        child = self._children.get(number)
        return child is not None and child.poll() is None

    def _spawn(self, number: int) -> "subprocess.Popen[bytes]":
        with (self.directory / f"{number}.out").open("ab") as out:
            return subprocess.Popen(
                self.command(number),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **self.environment(number)},
                start_new_session=True,
            )

    def _check_ports(self, number: int) -> None:
        """Refuse to measure somebody else's server."""
        for port in self.ports(number):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError as error:
                    raise RuntimeError(f"port {port} is taken by another process") from error

    def _tail(self, number: int) -> str:
        text = (self.directory / f"{number}.out").read_text(errors="replace")
        return " / ".join(text.strip().splitlines()[-5:])


@contextlib.contextmanager
def prepared(servers: Servers) -> Iterator[Servers]:
    """Prepare a system in an empty directory; stop it and remove its data afterwards."""
    shutil.rmtree(servers.directory, ignore_errors=True)
    servers.directory.mkdir(parents=True)
    try:
        servers.prepare()
        yield servers
    finally:
        servers.stop()
        shutil.rmtree(servers.directory, ignore_errors=True)


def descendants(pids: list[int]) -> list[int]:
    """Return processes and all they started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    todo = list(pids)
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def cpu_s(pids: list[int]) -> float:
    """Return the CPU time of processes."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += cpu_ns(pid)
    return total / 1e9


def _signal(child: "subprocess.Popen[bytes]", number: int) -> None:
    """Signal a node and what it started: all of one session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)
