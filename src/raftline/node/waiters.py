"""Callers who wait for one answer, each no longer than it may take."""

from collections.abc import Callable

from raftline.model.errors import NotReady, RaftlineError
from raftline.node.ports import Clock

Told = Callable[[RaftlineError | None], None]


class Waiters:
    """Who waits; told once, with a refusal or without."""

    __slots__ = ("_clock", "_count", "_late_text", "_waiting")

    def __init__(self, clock: Clock, late_text: str) -> None:
        self._clock = clock
        self._late_text = late_text  # what a caller hears whose time is up
        self._waiting: dict[int, Told] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def add(self, timeout_ms: int, done: Told) -> None:
        """Let one more wait."""
        self._count += 1
        number = self._count

        def late() -> None:
            if self._waiting.pop(number, None) is not None:
                done(NotReady(self._late_text))

        timer = self._clock.call_later(timeout_ms, late)

        def answered(error: RaftlineError | None) -> None:
            timer.cancel()
            done(error)

        self._waiting[number] = answered

    def tell(self, error: RaftlineError | None) -> None:
        """Tell all who still wait."""
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            answered(error)
