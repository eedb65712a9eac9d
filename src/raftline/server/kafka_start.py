"""The Kafka gateway beside a node that serves already.

The port listens from the first moment on, so that one that is taken is refused like any other, and
clients that come early wait in the queue of the socket. The gateway itself is loaded when the node
takes work and was quiet for a moment, in a thread of its own: a start is measured to the first ack.
A node whose gateway cannot be loaded serves without it and says so.
"""

import asyncio
import contextlib
import gc
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.config.settings import Settings
from raftline.node.ports import Clock
from raftline.telemetry.log import LogEvent

if TYPE_CHECKING:
    from raftline.gateways.kafka.gateway import KafkaGateway
    from raftline.gateways.kafka.ports import KafkaCalls

LOOK_MS = 20  # for the node to be ready
QUIET_MS = 100  # from then on until the loading begins

Load = Callable[[], "type[KafkaGateway]"]


def load_gateway() -> "type[KafkaGateway]":
    """Import everything Kafka."""
    from raftline.gateways.kafka.gateway import KafkaGateway

    return KafkaGateway


class KafkaStart:
    """Starts the gateway when the time has come; ends it."""

    __slots__ = (
        "_calls",
        "_clock",
        "_gateway",
        "_is_over",
        "_listener",
        "_load",
        "_log",
        "_settings",
        "_task",
    )

    def __init__(
        self,
        clock: Clock,
        calls: "KafkaCalls",
        settings: Settings,
        listener: socket.socket,
        log: LogEvent,
        load: Load = load_gateway,
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._settings = settings
        self._listener = listener
        self._log = log
        self._load = load
        self._gateway: KafkaGateway | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def begin(self) -> None:
        """Begin to look whether the node is ready."""
        if self._is_over:
            return
        if self._calls.status().ready:
            self._clock.call_later(QUIET_MS, self._go)
        else:
            self._clock.call_later(LOOK_MS, self.begin)

    def _go(self) -> None:
        if not self._is_over:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._start(loop))

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        address = self._settings.listen.kafka
        try:
            kind = await loop.run_in_executor(None, self._load)
            gateway = kind(loop, self._clock, self._calls, self._settings, self._log)
            await gateway.start(self._listener)
        except Exception as error:  # noqa: BLE001 - whatever it is, the node serves without
            self._log("error", "kafka.unavailable", address=address, error=repr(error))
            return
        self._gateway = gateway
        gc.freeze()  # what was loaded stays
        self._log("info", "kafka.started", address=address)
        if self._is_over:
            gateway.close()

    def stop_listening(self) -> None:
        """Take no new connection."""
        self._is_over = True
        if self._gateway is not None:
            self._gateway.stop_listening()

    async def end(self) -> None:
        """Hang up on everybody."""
        self._is_over = True
        if self._gateway is not None:
            self._gateway.close()
        elif self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._listener.close()
