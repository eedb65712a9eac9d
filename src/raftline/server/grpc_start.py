"""gRPC beside a node that serves already (late_start.py): loading it takes a fifth of a second."""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.config.settings import Settings
from raftline.gateways.ports import Calls
from raftline.node.ports import Clock
from raftline.server.late_start import LateStart
from raftline.telemetry.log import LogEvent

if TYPE_CHECKING:
    from raftline.gateways.grpc.gateway import GrpcGateway

GRACE_S = 1.0  # for calls in work when the process ends

Load = Callable[[], "type[GrpcGateway]"]


def load_gateway() -> "type[GrpcGateway]":
    """Import everything gRPC."""
    from raftline.gateways.grpc.gateway import GrpcGateway

    return GrpcGateway


class GrpcStart(LateStart["GrpcGateway", Calls]):
    """Starts and ends the gRPC gateway."""

    name = "grpc"

    def __init__(
        self,
        clock: Clock,
        calls: Calls,
        settings: Settings,
        held: socket.socket,
        log: LogEvent,
        load: Load = load_gateway,
    ) -> None:
        super().__init__(clock, calls, settings, held, log, load)

    @property
    def address(self) -> str:
        """Return where it listens."""
        return self._settings.listen.grpc

    async def serve(
        self, kind: "type[GrpcGateway]", loop: asyncio.AbstractEventLoop
    ) -> "GrpcGateway":
        """Make the gateway and let it listen: it binds the port itself."""
        gateway = kind(self._clock, self._calls, self._settings, self._log)
        self._held.close()
        await gateway.start(self.address)
        return gateway

    async def hang_up(self, gateway: "GrpcGateway") -> None:
        """Take no more calls; give those in work a moment."""
        await gateway.stop(GRACE_S)
