"""The machine a figure was made on: what its disk, its processor and its loopback give.

A virtual machine changes its speed: the same loop took 77 ns a step in one minute and 190 in the
next where these benchmarks were made. So the loop is measured beside every scenario, and the way
there and back between two processes that do nothing else beside every run.
"""

import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import msgspec

SYNC_BYTES = 512
FILE_BYTES = 1 << 20
LOOP_STEPS = 500_000
LOOP_ROUNDS = 7
ECHO_BYTES = 100
_ECHO = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    end, _ = server.accept()
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := end.recv(4096):
        end.sendall(data)
"""


class DiskFigures(msgspec.Struct, kw_only=True):
    """One write and fdatasync, over and over."""

    p50_ms: float
    p99_ms: float
    count: int


def measure_sync(directory: Path, seconds: float) -> DiskFigures:
    """Write and sync 512 bytes into a preallocated file until time is over."""
    file = directory / "sync-probe"
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    took: list[int] = []
    block = b"s" * SYNC_BYTES
    try:
        os.pwrite(fd, bytes(FILE_BYTES), 0)
        os.fsync(fd)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(took) < 20:
            begun = time.perf_counter_ns()
            os.pwrite(fd, block, len(took) * SYNC_BYTES % FILE_BYTES)
            os.fdatasync(fd)
            took.append(time.perf_counter_ns() - begun)
    finally:
        os.close(fd)
        file.unlink()
    took.sort()
    return DiskFigures(
        p50_ms=took[len(took) // 2] / 1e6,
        p99_ms=took[len(took) * 99 // 100] / 1e6,
        count=len(took),
    )


def measure_loop() -> float:
    """Return the nanoseconds of one step of a plain loop, the median of a few rounds."""
    took: list[float] = []
    for _ in range(LOOP_ROUNDS):
        total = 0
        begun = time.perf_counter_ns()
        for number in range(LOOP_STEPS):
            total += number
        took.append((time.perf_counter_ns() - begun) / LOOP_STEPS)
    return statistics.median(took)


def measure_echo(seconds: float) -> float:
    """Return the median in ms of 100 bytes to another process and back, over loopback."""
    child = subprocess.Popen([sys.executable, "-c", _ECHO], stdout=subprocess.PIPE, text=True)
    took: list[int] = []
    block = b"e" * ECHO_BYTES
    with child, socket.socket() as end:
        assert child.stdout is not None
        end.connect(("127.0.0.1", int(child.stdout.readline())))
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(took) < 20:
            begun = time.perf_counter_ns()
            end.sendall(block)
            assert len(end.recv(4096)) == ECHO_BYTES
            took.append(time.perf_counter_ns() - begun)
        end.shutdown(socket.SHUT_RDWR)
    took.sort()
    return took[len(took) // 2] / 1e6


def describe(directory: Path) -> dict[str, str]:
    """Return what matters of the machine, as rows of a table."""
    import crc32c
    import uvloop

    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GB",
        "file system": _file_system(directory),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "uvloop, msgspec, crc32c": f"{uvloop.__version__}, {msgspec.__version__}, "
        f"{getattr(crc32c, '__version__', '?')}",
        "load before": load,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """Return the type of the file system that holds ``directory``."""
    best = ("", "?")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if directory.resolve().is_relative_to(place) and len(place) >= len(best[0]):
            best = (place, kind)
    return best[1]


def start_compiled() -> None:
    """Let the nodes of a run start as they do where Raftline is installed: from compiled files."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
