"""The Kafka gateway beside a node that serves already (late_start.py)."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.config.settings import Settings
from raftline.node.ports import Clock
from raftline.server.late_start import LateStart
from raftline.telemetry.log import LogEvent
from raftline.transport.addresses import listen

if TYPE_CHECKING:
    from raftline.gateways.kafka.gateway import KafkaGateway
    from raftline.gateways.kafka.ports import KafkaCalls

Load = Callable[[], "type[KafkaGateway]"]


def load_gateway() -> "type[KafkaGateway]":
    """Import everything Kafka."""
    from raftline.gateways.kafka.gateway import KafkaGateway

    return KafkaGateway


class KafkaStart(LateStart["KafkaGateway", "KafkaCalls"]):
    """Starts and ends the Kafka gateway."""

    name = "kafka"
    look_ms = 20
    quiet_ms = 100

    def __init__(
        self,
        clock: Clock,
        calls: "KafkaCalls",
        settings: Settings,
        held: socket.socket,
        log: LogEvent,
        load: Load = load_gateway,
    ) -> None:
        super().__init__(clock, calls, settings, held, log, load)

    @property
    def address(self) -> str:
        """Return where it listens."""
        return self._settings.listen.kafka

    def node_is_ready(self) -> None:
        """Let clients wait in the queue of the socket for the moment that the loading takes."""
        with contextlib.suppress(OSError):  # it is tried again, and told, when the gateway starts
            listen(self._held)

    async def serve(
        self, kind: "type[KafkaGateway]", loop: asyncio.AbstractEventLoop
    ) -> "KafkaGateway":
        """Make the gateway and let it listen."""
        gateway = kind(loop, self._clock, self._calls, self._settings, self._log)
        await gateway.start(self._held)
        return gateway

    async def hang_up(self, gateway: "KafkaGateway") -> None:
        """Hang up on everybody."""
        gateway.close()

    def stop_listening(self) -> None:
        """Take no new connection."""
        self._is_over = True
        if self._gateway is not None:
            self._gateway.stop_listening()
