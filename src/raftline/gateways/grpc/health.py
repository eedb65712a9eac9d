"""The standard health service: a node serves while it is a member and knows a catalog leader."""

from collections.abc import Collection
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from raftline.gateways.grpc.calling import Call, new_answer, settle
from raftline.gateways.grpc.registry import Send
from raftline.gateways.ports import Calls
from raftline.node.ports import Clock

LOOK_MS = 500  # between two looks of a watch

pb: Any = health_pb2  # its types are older than it is


class HealthService:
    """grpc.health.v1.Health."""

    __slots__ = ("_calls", "_clock", "_names")

    def __init__(self, clock: Clock, calls: Calls, names: Collection[str]) -> None:
        self._clock = clock
        self._calls = calls
        self._names = names  # of the services

    async def check(self, request: Any, call: Call) -> Any:
        """Say whether a service, or the node (""), takes calls."""
        status = self._status(request.service)
        if status == pb.HealthCheckResponse.SERVICE_UNKNOWN:
            text = f"no service {request.service[:100]!r}; there are: {', '.join(self._names)}"
            await call.context.abort(grpc.StatusCode.NOT_FOUND, text)  # as its protocol says
        return pb.HealthCheckResponse(status=status)

    async def watch(self, request: Any, call: Call, send: Send) -> None:
        """Say it, and again whenever it changes."""
        told = None
        while True:
            status = self._status(request.service)
            if status != told:
                told = status
                await send(pb.HealthCheckResponse(status=status))
            pause = new_answer()
            self._clock.call_later(LOOK_MS, lambda pause=pause: settle(pause, None))
            await pause

    async def list(self, request: Any, call: Call) -> Any:
        """Say it of every service."""
        return pb.HealthListResponse(
            statuses={
                name: pb.HealthCheckResponse(status=self._status(name))
                for name in ("", *self._names)
            }
        )

    def _status(self, name: str) -> Any:
        if name and name not in self._names:
            return pb.HealthCheckResponse.SERVICE_UNKNOWN
        ready = self._calls.status().ready
        return pb.HealthCheckResponse.SERVING if ready else pb.HealthCheckResponse.NOT_SERVING
