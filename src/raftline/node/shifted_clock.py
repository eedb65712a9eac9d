"""A clock whose time of day somebody else may shift while the node runs: for tests only.

``node.test_clock_file`` names a file of eight bytes: milliseconds to add, signed, little-endian.
The file is mapped, so a shift is seen at the next reading and costs no call. The monotonic clock
and timers stay as they are, as they do when somebody steps a machine's time of day.
"""

import mmap
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from raftline.node.clock import LoopClock

if TYPE_CHECKING:
    import asyncio

_AHEAD_MS = struct.Struct("<q")


class ShiftedClock(LoopClock):
    """A ``LoopClock`` whose time of day is off by what a file says. Raises OSError, ValueError."""

    __slots__ = ("_ahead",)

    def __init__(self, loop: "asyncio.AbstractEventLoop", file: Path) -> None:
        super().__init__(loop)
        with file.open("rb") as opened:
            self._ahead = mmap.mmap(opened.fileno(), _AHEAD_MS.size, access=mmap.ACCESS_READ)

    def wall_ms(self) -> int:
        """Return Unix milliseconds, shifted."""
        return super().wall_ms() + _AHEAD_MS.unpack_from(self._ahead)[0]


def shift(file: Path, ahead_ms: int) -> None:
    """Write how far ahead the clocks that look at this file are; in place, so that they see it."""
    with file.open("r+b" if file.exists() else "w+b") as opened:
        opened.write(_AHEAD_MS.pack(ahead_ms))
