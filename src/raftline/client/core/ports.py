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


JSON = "application/json"
BATCH = "application/vnd.raftline.batch"

ALONE = ""  # a connection of its own while the request is under way


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as data: a route of the native API, whatever carries it."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    accept: str = ""
    priority: int = 0  # of every message in a batch that is sent
    topic: str = ""  # with ``partition``: whose leader is asked first
    partition: int = -1
    is_repeatable: bool = False
    wait_ms: int = 0  # how long the node may wait before it answers
    way: str = ALONE

    @property
    def is_batch(self) -> bool:
        """Say whether it sends a sealed batch: those of a partition keep their order."""
        return self.content_type == BATCH


class Lost(msgspec.Struct, frozen=True, gc=False):
    """No reply will come. What was not sent did not happen; what was sent may have."""

    reason: str
    is_sent: bool


Answer = Reply | Lost
Done = Callable[[Answer], None]


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

    def request(self, host: str, ask: Ask, timeout_ms: int, deadline_ms: float, done: Done) -> None:
        """Ask ``host`` and answer once, later; the node is to end it within ``timeout_ms``.

        What goes one way to one partition of a host arrives in its order, so that a wait there
        holds up nothing else; what goes the way ``ALONE`` waits for nobody. What is not answered
        by ``deadline_ms`` is lost, and with it perhaps the others of its way.
        """
        ...

    def hang_up(self, way: str) -> None:
        """Give a way up: end what is under way there, nobody waits for the answers any more."""
        ...
