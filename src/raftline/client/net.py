"""Connections to nodes on an event loop: the network and the clock of the client's core."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from raftline.client import clock
from raftline.client.core.ports import ALONE, Ask, Done, Lost, Timer
from raftline.client.core.wire import BadReply, ReplyReader, request_of
from raftline.model.errors import Unavailable

CONNECT_MS = 2_000
IDLE_MS = 60_000  # an older connection may be hung up on any moment: nodes do after 120 s
IDLE_MAX = 16  # spare connections to one node

_Sent = tuple[Done, float]  # who hears of it, deadline


class LoopClock:
    """The time of an event loop."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def mono_ms(self) -> float:
        """Return milliseconds that never step."""
        return clock.mono_ms()

    def wall_ms(self) -> int:
        """Return Unix milliseconds."""
        return clock.wall_ms()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call back once, after so long."""
        return self._loop.call_later(delay_ms / 1000, callback)


class Wire(asyncio.Protocol):
    """One connection. Requests that come before it is open wait for it."""

    __slots__ = (
        "_due_ms",
        "_gone",
        "_host",
        "_is_gone",
        "_reader",
        "_sent",
        "_task",
        "_timer",
        "_transport",
        "_unsent",
        "_wires",
        "idle_since_ms",
        "is_alone",
    )

    def __init__(self, wires: "Wires", host: str) -> None:
        self._wires = wires
        self._host = host
        self.is_alone = True  # serves one request at a time, of anybody
        self._reader = ReplyReader()
        self._transport: asyncio.Transport | None = None
        self._sent: deque[_Sent] = deque()
        self._unsent: deque[tuple[bytes, _Sent]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0.0  # when it wakes us
        self._is_gone = False
        self.idle_since_ms = clock.mono_ms()
        self._task = wires.loop.create_task(self._connect())

    async def _connect(self) -> None:
        host, _, port = self._host.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_MS / 1000):
                await self._wires.loop.create_connection(lambda: self, host.strip("[]"), int(port))
        except TimeoutError:
            self.lose("it took too long to connect")
        except OSError as error:
            self.lose(error.strerror or str(error) or type(error).__name__)
        except (ValueError, RuntimeError) as error:  # no name; or looked up as the process ends
            self.lose(str(error))

    # ------------------------------------------------------------------ asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open: send what waited."""
        self._transport = cast("asyncio.Transport", transport)
        if self._is_gone:
            self._transport.abort()
            return
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while self._unsent:
            data, sent = self._unsent.popleft()
            self._write(data, sent)

    def data_received(self, data: bytes) -> None:
        """Hand out the replies that are whole."""
        try:
            replies = self._reader.feed(data)
        except BadReply as error:
            self.lose(str(error))
            return
        for reply in replies:
            if not self._sent:
                self.lose("a reply that nobody asked for")
                return
            done, _ = self._sent.popleft()
            done(reply)
        if self._reader.is_last and not self._sent:
            self.lose("the node hung up")
        elif replies and not self._sent and not self._unsent:
            self.idle_since_ms = clock.mono_ms()
            self._wires.idle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits."""
        self.lose(f"the connection broke: {exc}" if exc else "the node hung up")

    # ------------------------------------------------------------------ our side

    @property
    def is_gone(self) -> bool:
        """Say whether nothing more goes this way."""
        return self._is_gone

    @property
    def is_busy(self) -> bool:
        """Say whether an answer is awaited."""
        return bool(self._sent or self._unsent)

    @property
    def host(self) -> str:
        """Return the node's address."""
        return self._host

    def send(self, data: bytes, done: Done, deadline_ms: float) -> None:
        """Send a request; ``done`` hears of it by the deadline."""
        sent = (done, deadline_ms)
        if self._transport is None:
            self._unsent.append((data, sent))
        else:
            self._write(data, sent)
        if self._timer is not None and deadline_ms < self._due_ms:
            self._timer.cancel()  # it was set for one that had more time
            self._timer = None
        self._watch()

    def _write(self, data: bytes, sent: _Sent) -> None:
        assert self._transport is not None
        self._sent.append(sent)
        self._transport.write(data)

    def _watch(self) -> None:
        """Be woken at the first deadline."""
        if self._timer is not None or not self.is_busy:
            return
        self._due_ms = min(self._deadlines())
        delay = max(0.0, self._due_ms - clock.mono_ms()) / 1000
        self._timer = self._wires.loop.call_later(delay, self._check)

    def _deadlines(self) -> list[float]:
        waiting = [*self._sent, *(sent for _, sent in self._unsent)]
        return [deadline for _, deadline in waiting]

    def _check(self) -> None:
        self._timer = None
        now = clock.mono_ms()
        if any(deadline <= now for deadline in self._deadlines()):
            self.lose("it did not answer in time")
        else:
            self._watch()

    def lose(self, reason: str) -> None:
        """Hang up; what was sent may have happened, the rest did not."""
        if self._is_gone:
            return
        self._is_gone = True
        self._wires.gone(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        elif not self._task.done():
            self._task.cancel()
        sent, self._sent = self._sent, deque()
        unsent, self._unsent = self._unsent, deque()
        for done, _ in sent:
            done(Lost(reason, is_sent=True))
        for _, (done, _) in unsent:
            done(Lost(reason, is_sent=False))


class Wires:
    """All connections of a client."""

    __slots__ = ("_idle", "_is_closed", "_shared", "_wires", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._shared: dict[tuple[str, str], Wire] = {}
        self._idle: dict[str, list[Wire]] = {}
        self._wires: dict[int, Wire] = {}
        self._is_closed = False

    def request(self, host: str, ask: Ask, timeout_ms: int, deadline_ms: float, done: Done) -> None:
        """Send a request over the right connection (ports.Network)."""
        if self._is_closed:
            self.loop.call_soon(done, Lost("the client is closed", is_sent=False))
            return
        way = ask.way
        wire = None if way == ALONE else self._shared.get((host, way))
        if wire is None:
            wire = self._take_idle(host) or Wire(self, host)
            wire.is_alone = way == ALONE
            self._wires[id(wire)] = wire
            if way != ALONE:
                self._shared[host, way] = wire
        wire.send(request_of(host, ask, timeout_ms), done, deadline_ms)

    def hang_up(self, way: str) -> None:
        """Break the connections of a way; those with nothing under way serve others."""
        for (host, name), wire in list(self._shared.items()):
            if name != way:
                continue
            if wire.is_busy:
                wire.lose("nobody waits for it")
            else:
                del self._shared[host, name]
                wire.is_alone = True
                self.idle(wire)

    def close(self) -> None:
        """Hang up on everybody."""
        self._is_closed = True
        for wire in list(self._wires.values()):
            wire.lose("the client is closed")

    def idle(self, wire: Wire) -> None:
        """A connection has nothing to do: keep it for the next request."""
        if not wire.is_alone:
            return
        spare = self._idle.setdefault(wire.host, [])
        if len(spare) < IDLE_MAX:
            spare.append(wire)
        else:
            wire.lose("not needed")

    def gone(self, wire: Wire) -> None:
        """Forget a connection."""
        self._wires.pop(id(wire), None)
        for key, other in list(self._shared.items()):
            if other is wire:
                del self._shared[key]
        spare = self._idle.get(wire.host)
        if spare and wire in spare:
            spare.remove(wire)

    def _take_idle(self, host: str) -> Wire | None:
        spare = self._idle.get(host)
        while spare:
            wire = spare.pop()
            if clock.mono_ms() - wire.idle_since_ms < IDLE_MS:
                return wire
            wire.lose("it was idle for long")
        return None


class Way(Protocol):
    """A network of the core that can be closed."""

    def request(self, host: str, ask: Ask, timeout_ms: int, deadline_ms: float, done: Done) -> None:
        """Make a call (ports.Network)."""
        ...

    def hang_up(self, way: str) -> None:
        """End what is under way there (ports.Network)."""
        ...

    def close(self) -> None:
        """Hang up on everybody."""
        ...


def new_network(loop: asyncio.AbstractEventLoop, *, is_grpc: bool) -> Way:
    """Return what carries calls; gRPC is loaded where it is asked for. Raises Unavailable."""
    if not is_grpc:
        return Wires(loop)
    try:
        from raftline.client.grpc.channels import Channels  # noqa: PLC0415
    except ImportError as error:
        raise Unavailable(f"gRPC cannot be loaded: {error}", "connect with http://") from error
    return Channels(loop)
