"""What servers of byte streams share: listeners, connections, one flush a pass, one look a second.

State
    The connections; those with replies to write in this pass; listeners; ``tick``, seconds since
    the start, which connections compare with when they were last heard from. The buffer that
    connections without bytes of their own read into, and the pool of those that they own.

Bounds
    Connections, bytes in work of each, idle time (``idle_ticks_max``), time for one request to
    arrive and for a client to read its replies (``request_ticks_max``).
"""

import asyncio
import socket
from typing import Generic, Protocol, TypeVar

from raftline.telemetry.counters import GatewayCounts
from raftline.transport.frames import BUFFER_BYTES, BufferPool

TICK_MS = 1_000
BACKLOG = 1024  # connections that wait to be taken


class Connection(Protocol):
    """One client, as its server sees it."""

    def flush(self) -> None:
        """Write the replies that are next in order."""
        ...

    def watch(self, tick: int) -> None:
        """Hang up on who is idle, too slow, or does not read."""
        ...

    def close(self) -> None:
        """Hang up after what is already on its way."""
        ...


C = TypeVar("C", bound=Connection)


class StreamServer(Generic[C]):
    """Listens on the node's loop and looks after its connections."""

    __slots__ = (
        "_connections",
        "_connections_max",
        "_dirty",
        "_listeners",
        "_loop",
        "_timer",
        "counts",
        "idle_ticks_max",
        "inflight_bytes_max",
        "pool",
        "request_ticks_max",
        "shared",
        "shared_view",
        "tick",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        counts: GatewayCounts,
        *,
        connections_max: int,
        inflight_bytes_max: int,
        buffer_bytes_min: int,
        idle_ticks_max: int,
        request_ticks_max: int,
    ) -> None:
        self._loop = loop
        self._connections_max = connections_max
        self._connections: dict[C, None] = {}
        self._dirty: list[C] = []
        self._listeners: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self.counts = counts
        counts.connections = 0
        self.tick = 0
        self.inflight_bytes_max = inflight_bytes_max
        self.idle_ticks_max = idle_ticks_max
        self.request_ticks_max = request_ticks_max
        self.pool = BufferPool(buffer_bytes_min)
        self.shared = bytearray(BUFFER_BYTES)
        self.shared_view = memoryview(self.shared)

    def connect(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        raise NotImplementedError

    async def start(self, listener: socket.socket) -> None:
        """Serve on a bound socket; it listens from now on. Raises OSError."""
        server = await self._loop.create_server(self.connect, sock=listener, backlog=BACKLOG)
        self._listeners.append(server)
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_MS / 1000, self._watch)

    def stop_listening(self) -> None:
        """Take no new connection; the ones that are here go on."""
        for listener in self._listeners:
            listener.close()

    def close(self) -> None:
        """Hang up on everybody."""
        self.stop_listening()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self._connections):
            connection.flush()
            connection.close()

    # -- what connections call

    def adopt(self, connection: C) -> bool:
        """Count a connection in; False if there are too many."""
        if len(self._connections) >= self._connections_max:
            return False
        self._connections[connection] = None
        self.counts.connections = len(self._connections)
        return True

    def forget(self, connection: C) -> None:
        """Count a connection out."""
        self._connections.pop(connection, None)
        self.counts.connections = len(self._connections)

    def flush_soon(self, connection: C) -> None:
        """Let a connection write its replies at the end of this pass."""
        self._dirty.append(connection)
        if len(self._dirty) == 1:
            self._loop.call_soon(self._flush)

    # -- inside

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()

    def _watch(self) -> None:
        self._timer = self._loop.call_later(TICK_MS / 1000, self._watch)
        self.tick += 1
        for connection in list(self._connections):
            connection.watch(self.tick)
