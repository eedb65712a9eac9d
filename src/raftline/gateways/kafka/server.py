"""The Kafka server: connections, what they share, and the bounds on them.

Bounds
    Connections, bytes of a frame, idle time, time for one frame to arrive, time for a client to
    read its replies. One timer a second watches all of them.
"""

import asyncio
import traceback
from collections.abc import Callable

from raftline.gateways.kafka.connection import KafkaConnection
from raftline.gateways.kafka.dispatch import Call, Handler, Table
from raftline.gateways.kafka.schema import API_VERSIONS
from raftline.gateways.stream_server import StreamServer
from raftline.telemetry.counters import GatewayCounts
from raftline.telemetry.log import LogEvent

IDLE_TICKS_MAX = 600  # as Kafka: clients keep connections open and say nothing
REQUEST_TICKS_MAX = 60
BUFFER_BYTES_MIN = 16 << 10
REASON_CHARS_MAX = 300

Raw = Callable[
    [KafkaConnection, Handler, int, int, bytearray, memoryview, int, int], None
]  # connection, handler, version, correlation id, buffer, its view, start of the body, end


class KafkaServer(StreamServer[KafkaConnection]):
    """Serves Kafka's protocol on the node's loop."""

    __slots__ = (
        "_log",
        "_reports",
        "frame_bytes_max",
        "handlers",
        "raw",
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
        super().__init__(
            loop,
            counts,
            connections_max=connections_max,
            inflight_bytes_max=inflight_bytes_max,
            buffer_bytes_min=BUFFER_BYTES_MIN,
            idle_ticks_max=IDLE_TICKS_MAX,
            request_ticks_max=REQUEST_TICKS_MAX,
        )
        self._log = log
        self._reports = 0
        self.handlers = table.handlers
        self.raw = raw
        self.frame_bytes_max = frame_bytes_max

    def connect(self) -> KafkaConnection:
        """Return the protocol of a new connection."""
        return KafkaConnection(self)

    # -- for connections

    def adopt(self, connection: KafkaConnection) -> bool:
        """Count a connection in; False, and a refusal, if there are too many."""
        if super().adopt(connection):
            return True
        self.counts.refuse("over_limit")
        return False

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
