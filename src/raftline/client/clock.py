"""The clock of a process outside the cluster: patience and pauses, nothing that is stored."""

import time


def mono_ms() -> float:
    """Return milliseconds that never step."""
    return time.monotonic() * 1000


def wall_ms() -> int:
    """Return Unix milliseconds."""
    return time.time_ns() // 1_000_000


def pause(duration_ms: float) -> None:
    """Wait."""
    time.sleep(max(0.0, duration_ms) / 1000)
