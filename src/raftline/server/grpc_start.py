"""gRPC beside a node that serves already.

Loading gRPC takes a fifth of a second of a processor, so it waits until the node takes work and was
quiet for a moment, and is done in a thread of its own: a start is measured to the first ack. A node
whose gRPC cannot be loaded, or cannot listen, serves without it and says so.

The port is held from the first moment on (``hold``), so that one that is taken is refused like any
other, before anything was changed.
"""

import asyncio
import contextlib
import gc
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.config.addresses import parse_address
from raftline.config.settings import Settings
from raftline.gateways.ports import Calls
from raftline.node.ports import Clock
from raftline.telemetry.log import LogEvent

if TYPE_CHECKING:
    from raftline.gateways.grpc.gateway import GrpcGateway

LOOK_MS = 50  # for the node to be ready
QUIET_MS = 150  # from then on until the loading begins
GRACE_S = 1.0  # for calls in work when the process ends

Load = Callable[[], "type[GrpcGateway]"]


def hold(address: str) -> socket.socket:
    """Return a socket that keeps a port from others without listening. Raises OSError."""
    host, port = parse_address(address)
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = infos[0]
    holder = socket.socket(family, kind, protocol)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(where)
    except OSError:
        holder.close()
        raise
    return holder


def load_gateway() -> "type[GrpcGateway]":
    """Import everything gRPC."""
    from raftline.gateways.grpc.gateway import GrpcGateway

    return GrpcGateway


class GrpcStart:
    """Starts the gateway when the time has come; ends it."""

    __slots__ = (
        "_calls",
        "_clock",
        "_gateway",
        "_holder",
        "_is_over",
        "_load",
        "_log",
        "_settings",
        "_task",
    )

    def __init__(
        self,
        clock: Clock,
        calls: Calls,
        settings: Settings,
        holder: socket.socket,
        log: LogEvent,
        load: Load = load_gateway,
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._settings = settings
        self._holder = holder
        self._log = log
        self._load = load
        self._gateway: GrpcGateway | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def begin(self) -> None:
        """Begin to look whether the node is ready."""
        self._look()

    def _look(self) -> None:
        if self._is_over:
            return
        if self._calls.status().ready:
            self._clock.call_later(QUIET_MS, self._go)
        else:
            self._clock.call_later(LOOK_MS, self._look)

    def _go(self) -> None:
        if not self._is_over:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._start(loop))

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        address = self._settings.listen.grpc
        try:
            kind = await loop.run_in_executor(None, self._load)
            gateway = kind(self._clock, self._calls, self._settings, self._log)
            self._holder.close()
            port = await gateway.start(address)
        except Exception as error:  # noqa: BLE001 - whatever it is, the node serves without
            self._log("error", "grpc.unavailable", address=address, error=repr(error))
            return
        self._gateway = gateway
        gc.freeze()  # what was loaded stays
        self._log("info", "grpc.started", address=address, port=port)
        if self._is_over:
            await gateway.stop(GRACE_S)

    async def end(self) -> None:
        """Take no more calls; give those in work a moment."""
        self._is_over = True
        if self._gateway is not None:
            await self._gateway.stop(GRACE_S)
        elif self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._holder.close()
