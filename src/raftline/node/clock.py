"""The real clock: a loop's timers and the machine's two clocks.

The one file that reads them. Everything else is given a ``Clock`` (node/ports.py), so that the
simulator can give another one.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.node.ports import Timer

if TYPE_CHECKING:
    import asyncio


class LoopClock:
    """Time as the loop of this process lives it."""

    __slots__ = ("_loop",)

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = loop

    def mono_ms(self) -> float:
        """Return monotonic milliseconds; never steps."""
        return time.monotonic() * 1000.0

    def wall_ms(self) -> int:
        """Return Unix milliseconds; may step."""
        return time.time_ns() // 1_000_000

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Timer:
        """Run ``call`` on the loop in ``delay_ms``."""
        return self._loop.call_later(delay_ms / 1000.0, call)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run ``call`` on the loop after what is ready now (sockets read in this pass included)."""
        self._loop.call_soon(call)
