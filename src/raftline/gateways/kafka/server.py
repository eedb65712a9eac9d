"""The Kafka server: connections, what they share, and the bounds on them.

Bounds
    Connections, bytes of a frame, idle time, time for one frame to arrive, time for a client to
    read its replies. One timer a second watches all of them.
"""

import asyncio
import socket
import traceback
from collections.abc import Callable

from raftline.gateways.kafka.connection import KafkaConnection
from raftline.gateways.kafka.dispatch import Call, Handler, Table
from raftline.gateways.kafka.schema import API_VERSIONS
from raftline.telemetry.counters import GatewayCounts
from raftline.telemetry.log import LogEvent
from raftline.transport.frames import BUFFER_BYTES, BufferPool

TICK_MS = 1_000
IDLE_TICKS_MAX = 600  # as Kafka: clients keep connections open and say nothing
REQUEST_TICKS_MAX = 60
BUFFER_BYTES_MIN = 16 << 10
REASON_CHARS_MAX = 300

Raw = Callable[
    [KafkaConnection, Handler, int, int, bytearray, memoryview, int, int], None
]  # connection, handler, version, correlation id, buffer, its view, start of the body, end


class KafkaServer:
    """Serves Kafka's protocol on the node's loop."""

    __slots__ = (
        "_connections",
        "_connections_max",
        "_dirty",
        "_listeners",
        "_log",
        "_loop",
        "_reports",
        "_timer",
        "counts",
        "frame_bytes_max",
        "handlers",
        "idle_ticks_max",
        "inflight_bytes_max",
        "pool",
        "raw",
        "request_ticks_max",
        "shared",
        "shared_view",
        "tick",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        table: Table,
        raw: dict[int, Raw],
        log: LogEvent,
        counts: GatewayCounts,
        *,
        connections_max: int,
        frame_bytes_max: int,
        inflight_bytes_max: int,
    ) -> None:
        self._loop = loop
        self._log = log
        self._connections: dict[KafkaConnection, None] = {}
        self._connections_max = connections_max
        self._dirty: list[KafkaConnection] = []
        self._listeners: list[asyncio.Server] = []
        self._reports = 0
        self._timer: asyncio.TimerHandle | None = None
        self.counts = counts
        self.handlers = table.handlers
        self.raw = raw
        self.frame_bytes_max = frame_bytes_max
        self.inflight_bytes_max = inflight_bytes_max
        self.idle_ticks_max = IDLE_TICKS_MAX
        self.request_ticks_max = REQUEST_TICKS_MAX
        self.pool = BufferPool(BUFFER_BYTES_MIN)
        self.shared = bytearray(BUFFER_BYTES)
        self.shared_view = memoryview(self.shared)
        self.tick = 0

    async def start(self, listener: socket.socket) -> None:
        """Serve on a listening socket."""
        server = await self._loop.create_server(lambda: KafkaConnection(self), sock=listener)
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

    # -- for connections

    def adopt(self, connection: KafkaConnection) -> bool:
        """Count a connection in; False if there are too many."""
        if len(self._connections) >= self._connections_max:
            self.counts.refuse("over_limit")
            return False
        self._connections[connection] = None
        self.counts.connections = len(self._connections)
        return True

    def forget(self, connection: KafkaConnection) -> None:
        """Count a connection out."""
        self._connections.pop(connection, None)
        self.counts.connections = len(self._connections)

    def flush_soon(self, connection: KafkaConnection) -> None:
        """Write a connection's replies at the end of this pass."""
        self._dirty.append(connection)
        if len(self._dirty) == 1:
            self._loop.call_soon(self._flush)

    def unknown(self, key: int) -> tuple[Handler, Call] | None:
        """Return what answers an unknown version: only ApiVersions is answered."""
        handler = self.handlers.get(API_VERSIONS.key)
        if key != API_VERSIONS.key or handler is None or handler.call is None:
            return None
        return handler, handler.call

    def say_refused(self, client: str, reason: str) -> None:
        """Note that a client was hung up on."""
        self.counts.refuse("invalid_argument")
        self._log("info", "kafka.refused", client=client, reason=reason[:REASON_CHARS_MAX])

    def report(self, error: Exception) -> None:
        """Log a bug."""
        self._reports += 1
        where = "".join(traceback.format_exception(error)[-3:])
        self._log(
            "error", "kafka.failed", report=f"k{self._reports}", error=repr(error), where=where
        )

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
