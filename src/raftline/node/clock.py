"""The real clock: a loop's timers and the machine's two clocks.

The one file that reads them. Everything else is given a ``Clock`` (node/ports.py), so that the
simulator can give another one.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.node.fine_timers import FineTimers
from raftline.node.ports import Timer

if TYPE_CHECKING:
    import asyncio

GRID_MS = 5  # instants at which long waits end
GRID_FROM_MS = 40  # shorter waits are exact
FINE_BELOW_MS = 1.0  # what a loop counts in
CLOCKS_APART_S_MAX = 1.0


class LoopClock:
    """Time as the loop of this process lives it."""

    __slots__ = ("_fine", "_is_shared", "_loop")

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = loop
        self._fine: FineTimers | None = None
        # Loops we know count as the machine's monotonic clock does; one that does not has no grid.
        self._is_shared = abs(loop.time() - time.monotonic()) < CLOCKS_APART_S_MAX

    def mono_ms(self) -> float:
        """Return monotonic milliseconds; never steps."""
        return time.monotonic() * 1000.0

    def wall_ms(self) -> int:
        """Return Unix milliseconds; may step."""
        return time.time_ns() // 1_000_000

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Timer:
        """Run ``call`` on the loop in ``delay_ms``; a long wait ends up to ``GRID_MS`` later.

        A wake-up costs an idle node more than what it does then, and a loop rounds every timer
        for itself: those meant for one instant fall apart by a millisecond. The grid joins them.
        One below a millisecond is exact too.
        """
        if 0.0 < delay_ms < FINE_BELOW_MS:
            if self._fine is None:
                self._fine = FineTimers(self._loop)
            return self._fine.call_later(delay_ms, call)
        if delay_ms < GRID_FROM_MS or not self._is_shared:
            return self._loop.call_later(delay_ms / 1000.0, call)
        due_ms = -(-(time.monotonic() * 1000.0 + delay_ms) // GRID_MS) * GRID_MS
        return self._loop.call_later(due_ms / 1000.0 - self._loop.time(), call)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run ``call`` on the loop after what is ready now (sockets read in this pass included)."""
        self._loop.call_soon(call)
