"""The clock that tests may shift: seen at once, and only in the time of day."""

import asyncio
import time
from pathlib import Path

import pytest

from raftline.node.shifted_clock import ShiftedClock, shift


def test_the_time_of_day_jumps_and_the_monotonic_clock_does_not(tmp_path: Path):
    file = tmp_path / "clock"
    shift(file, 0)
    loop = asyncio.new_event_loop()
    try:
        clock = ShiftedClock(loop, file)
        for ahead_ms in (0, 120_000, -3_600_000, 1):
            shift(file, ahead_ms)
            assert abs(clock.wall_ms() - ahead_ms - time.time() * 1000) < 5_000
            assert abs(clock.mono_ms() - time.monotonic() * 1000) < 5_000
    finally:
        loop.close()


@pytest.mark.parametrize("content", [b"", b"short"])
def test_a_file_that_is_too_short_is_refused(tmp_path: Path, content: bytes):
    file = tmp_path / "clock"
    file.write_bytes(content)
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(ValueError, match=r"mmap|empty"):
            ShiftedClock(loop, file)
    finally:
        loop.close()
