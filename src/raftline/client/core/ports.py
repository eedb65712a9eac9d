"""What the client's core needs of the world: a clock, and a network that carries requests."""

from collections.abc import Callable
from typing import Protocol

import msgspec


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A whole reply."""

    status: int
    head: bytes
    body: bytes

    def field(self, name: bytes) -> str:
        """Return a field of the head, or an empty text. ``name`` as nodes write it."""
        at = self.head.find(b"\r\n" + name + b":")
        if at < 0:
            return ""
        at += len(name) + 3
        end = self.head.find(b"\r\n", at)
        return self.head[at : end if end >= 0 else len(self.head)].strip().decode("latin-1")


class Lost(msgspec.Struct, frozen=True, gc=False):
    """No reply will come. What was not sent did not happen; what was sent may have."""

    reason: str
    is_sent: bool


Answer = Reply | Lost
Done = Callable[[Answer], None]

ALONE = ""  # a connection of its own while the request is under way


class Timer(Protocol):
    """A callback that may still be called off."""

    def cancel(self) -> None:
        """Call it off."""
        ...


class Clock(Protocol):
    """Time, and being woken."""

    def mono_ms(self) -> float:
        """Return milliseconds that never step."""
        ...

    def wall_ms(self) -> int:
        """Return Unix milliseconds."""
        ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call back once, after so long."""
        ...


class Network(Protocol):
    """Carries requests to nodes."""

    def request(self, host: str, way: str, data: bytes, deadline_ms: float, done: Done) -> None:
        """Send ``data``, one whole request, to ``host`` and answer once, later.

        Requests of one host and way share a connection and are answered in their order; those of
        the way ``ALONE`` have one each. What is not answered by ``deadline_ms`` is lost, and with
        it the connection.
        """
        ...

    def hang_up(self, way: str) -> None:
        """Break the connections of a way: nobody waits for their answers any more."""
        ...
