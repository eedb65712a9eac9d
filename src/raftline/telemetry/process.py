"""What the operating system knows of this process: CPU, memory, open files."""

import os
import time
from pathlib import Path

import msgspec

_SELF = Path("/proc/self")
_FIELDS_FROM = 2  # of /proc/self/stat after the name: the third field is the first here
_START_FIELD = 21 - _FIELDS_FROM


class ProcessSigns(msgspec.Struct, frozen=True):
    """The figures of one moment; -1 where this system does not tell."""

    cpu_seconds: float
    start_seconds: float
    resident_bytes: int = -1
    open_fds: int = -1


def read_process() -> ProcessSigns:
    """Look now."""
    cpu_seconds = time.process_time()
    try:
        resident = int((_SELF / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        fds = len(os.listdir(_SELF / "fd"))  # noqa: PTH208
    except OSError:
        return ProcessSigns(cpu_seconds, _START)
    return ProcessSigns(cpu_seconds, _START, resident, fds)


def _started() -> float:
    """Return when the process began, Unix time; when this was loaded, where nothing tells."""
    now = time.time_ns() / 1e9
    try:
        ticks = int((_SELF / "stat").read_text().rpartition(")")[2].split()[_START_FIELD])
        boot_age = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):
        return now
    return now - boot_age + ticks / os.sysconf("SC_CLK_TCK")


_START = _started()
