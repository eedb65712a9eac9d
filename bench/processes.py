"""What Linux says of a process: CPU time of all its threads, memory."""

from pathlib import Path


def cpu_ns(pid: int) -> int:
    """Return the CPU time of all live threads, in ns, from the scheduler's own account."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            continue  # a thread that just ended
    return total


def rss_mb(pid: int) -> float:
    """Return the resident memory in MB (10^6)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise AssertionError(f"process {pid} has no VmRSS")
