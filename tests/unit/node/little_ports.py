"""The ports of a node, moved by hand: a clock, a lane, links and a network."""

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Any

from raftline.transport.ports import Buffer
from raftline.wire.peer.hello import WIRE_FORMAT, Hello

WALL_MS = 1_790_000_000_000


class HandTimer:
    """A call that waits for its time."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class HandClock:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.wall_ahead_ms = 0.0
        self._timers: list[tuple[float, int, HandTimer]] = []
        self._number = 0

    def mono_ms(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(WALL_MS + self.now + self.wall_ahead_ms)

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> HandTimer:
        self._number += 1
        timer = HandTimer(call)
        heapq.heappush(self._timers, (self.now + delay_ms, self._number, timer))
        return timer

    def call_soon(self, call: Callable[[], None]) -> None:
        self.call_later(0, call)

    def advance(self, ms: float = 0.0) -> None:
        """Let time pass and run what is due, in order."""
        end = self.now + ms
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, due)
            call, timer.call = timer.call, None
            if call is not None:
                call()
        self.now = end


class HandLane:
    """Jobs wait until the test runs them."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []

    def submit(
        self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]
    ) -> None:
        self.jobs.append((job, done))

    def run(self, error: Exception | None = None) -> None:
        """Do the oldest job, or let it fail."""
        job, done = self.jobs.pop(0)
        if error is not None:
            done(None, error)
            return
        done(job(), None)


class HandLink:
    """What was sent by it stays here."""

    def __init__(self, node: int, address: str, lane: str = "control", process: str = "p") -> None:
        name = f"node-{node}"
        self.peer = Hello(WIRE_FORMAT, "c", node, name, f"d{node}", process, address, lane)
        self.dialed = True
        self.address = address
        self.lane = lane
        self.is_closed = False
        self.is_full = False
        self.sent: list[bytes] = []

    def send(self, buffers: Sequence[Buffer]) -> bool:
        if self.is_closed or self.is_full:
            return False
        self.sent.append(b"".join(buffers))
        return True

    def close(self) -> None:
        self.is_closed = True


class HandNetwork:
    """Dials are written down."""

    def __init__(self) -> None:
        self.dials: list[tuple[str, str]] = []

    def dial(self, address: str, lane: str = "control") -> None:
        self.dials.append((address, lane))


def rng(seed: int = 1) -> random.Random:
    return random.Random(seed)
