"""The machine a figure was made on, and what its disk gives."""

import os
import platform
import time
from pathlib import Path

import msgspec

SYNC_BYTES = 512
FILE_BYTES = 1 << 20


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
