"""Waits of less than a millisecond, which the loop's own timers round to none or to one.

State
    The calls that wait, in no order (there are one or two), and one ``timerfd`` of the kernel that
    the loop's poller hears.

Where there is no timerfd (it is Linux's) a wait takes as long as the loop makes it.

Costs: one system call to wait, one to end it. ctypes is loaded with the first wait.
"""

import os
import struct
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raftline.node.ports import Timer

if TYPE_CHECKING:
    import asyncio

_CLOCK_MONOTONIC = 1
_SPEC = struct.Struct("qqqq")  # interval s, ns; value s, ns
_COUNT_BYTES = 8


class FineTimer:
    """One wait."""

    __slots__ = ("call", "due_ns")

    def __init__(self, due_ns: int, call: Callable[[], None]) -> None:
        self.due_ns = due_ns
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Make sure it does not happen. Harmless afterwards."""
        self.call = None


class FineTimers:
    """The short waits of one loop. Made on first use."""

    __slots__ = ("_fd", "_libc", "_loop", "_spec", "_waiting")

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = loop
        self._waiting: list[FineTimer] = []
        self._fd = -1
        self._libc: Any = None
        self._spec: Any = None
        if sys.platform == "linux":
            self._open()

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Timer:
        """Run ``call`` on the loop in ``delay_ms``."""
        if self._fd < 0:
            return self._loop.call_later(delay_ms / 1000.0, call)
        now_ns = time.monotonic_ns()
        timer = FineTimer(now_ns + int(delay_ms * 1e6), call)
        self._waiting = [other for other in self._waiting if other.call is not None]
        self._waiting.append(timer)
        self._arm(now_ns)
        return timer

    def _open(self) -> None:
        import ctypes  # noqa: PLC0415  (keeps it out of a lean start)

        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            flags = os.O_NONBLOCK | os.O_CLOEXEC
            self._fd = int(self._libc.timerfd_create(_CLOCK_MONOTONIC, flags))
        except (OSError, AttributeError):
            return
        if self._fd >= 0:
            self._spec = ctypes.create_string_buffer(_SPEC.size)
            self._loop.add_reader(self._fd, self._rang)

    def _arm(self, now_ns: int) -> None:
        """Let the kernel ring for the first of them."""
        wait_ns = max(1, min([timer.due_ns for timer in self._waiting]) - now_ns)
        _SPEC.pack_into(self._spec, 0, 0, 0, wait_ns // 1_000_000_000, wait_ns % 1_000_000_000)
        self._libc.timerfd_settime(self._fd, 0, self._spec, None)

    def _rang(self) -> None:
        try:
            os.read(self._fd, _COUNT_BYTES)
        except BlockingIOError:
            return  # it was set anew meanwhile
        now_ns = time.monotonic_ns()
        live = [timer for timer in self._waiting if timer.call is not None]
        self._waiting = [timer for timer in live if timer.due_ns > now_ns]
        if self._waiting:
            self._arm(now_ns)
        for timer in sorted(live, key=_due_of):
            if timer.due_ns <= now_ns:
                call, timer.call = timer.call, None
                if call is not None:
                    call()


def _due_of(timer: FineTimer) -> int:
    return timer.due_ns
