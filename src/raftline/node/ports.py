"""What a node asks of the world: time, chance and lanes (links: transport/ports.py).

Two sets of implementations: the real ones (node/clock.py, node/lanes.py) and the simulated ones of
``raftline.testing``. A node given the same answers does the same things.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Timer(Protocol):
    """A call that was asked for later."""

    def cancel(self) -> None:
        """Make sure it does not happen. Harmless afterwards."""
        ...


class Clock(Protocol):
    """Time, and the only way to do something later."""

    def mono_ms(self) -> float:
        """Return monotonic milliseconds; never steps."""
        ...

    def wall_ms(self) -> int:
        """Return Unix milliseconds; may step."""
        ...

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Timer:
        """Run ``call`` on the loop in ``delay_ms``."""
        ...

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run ``call`` on the loop after what is ready now (sockets read in this pass included)."""
        ...


class Rng(Protocol):
    """Seeded chance (``random.Random`` fits)."""

    def randrange(self, start: int, stop: int) -> int:
        """Return a number in ``[start, stop)``."""
        ...

    def randbytes(self, n: int) -> bytes:
        """Return ``n`` random bytes."""
        ...


class Lane(Protocol):
    """One helper thread that does blocking jobs strictly in order."""

    def submit(
        self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run ``job`` off the loop, then ``done(result, error)`` on the loop."""
        ...
