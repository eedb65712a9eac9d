"""The gRPC gateway: services and server put together on a node, on the node's loop.

It is loaded after the node serves (server/grpc_start.py): importing gRPC takes longer than a start
may.
"""

import logging
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from raftline.config.settings import Settings
from raftline.gateways.grpc.admin import AdminService
from raftline.gateways.grpc.dead_letters import DeadLetterService
from raftline.gateways.grpc.deliveries import DeliveryService
from raftline.gateways.grpc.groups import GroupService
from raftline.gateways.grpc.health import HealthService
from raftline.gateways.grpc.messages import MessageService
from raftline.gateways.grpc.queue_service import QueueService
from raftline.gateways.grpc.registry import Registry
from raftline.gateways.grpc.scheduled import ScheduledService
from raftline.gateways.grpc.traces import TraceService
from raftline.gateways.ports import Calls
from raftline.gateways.second_look import SecondLook
from raftline.gateways.topic_finder import TopicFinder
from raftline.node.ports import Clock
from raftline.telemetry.log import LogEvent
from raftline.wire.proto.queue.v1 import queue_pb2
from raftline.wire.proto.raftline.v1 import (
    admin_pb2,
    dead_letters_pb2,
    deliveries_pb2,
    groups_pb2,
    messages_pb2,
    scheduled_pb2,
    traces_pb2,
)

MESSAGE_SLACK_BYTES = 1 << 20  # what a request or a reply weighs besides its batches
METADATA_BYTES_MAX = 16 << 10
STREAMS_MAX = 1_000  # of one connection
INFLIGHT_BYTES_MAX = 256 << 20  # requests in work, all connections
KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS = 30_000, 10_000
PING_MS_MIN = 5_000  # a client that pings more often is hung up on


class GrpcGateway:
    """Speaks gRPC for one node."""

    __slots__ = ("_log", "_registry", "_server", "_settings")

    def __init__(self, clock: Clock, calls: Calls, settings: Settings, log: LogEvent) -> None:
        limits = settings.limits
        self._settings = settings
        self._log = log
        self._server: Any = None
        registry = self._registry = Registry(
            log,
            calls.counters.gateway("grpc"),
            SecondLook(clock, calls),
            timeout_ms=limits.timeout_ms,
            inflight_bytes_max=INFLIGHT_BYTES_MAX,
        )
        finder = TopicFinder(clock, calls, auto_create=settings.topics.auto_create)
        messages = MessageService(
            clock,
            calls,
            finder,
            batch_bytes_max=limits.batch_bytes_max,
            reply_bytes_max=limits.reply_bytes_max,
        )
        self._add(messages_pb2.DESCRIPTOR, messages)
        deliveries = DeliveryService(clock, calls, reply_bytes_max=limits.reply_bytes_max)
        self._add(deliveries_pb2.DESCRIPTOR, deliveries)
        groups = GroupService(clock, calls, reply_bytes_max=limits.reply_bytes_max)
        self._add(groups_pb2.DESCRIPTOR, groups)
        self._add(scheduled_pb2.DESCRIPTOR, ScheduledService(calls))
        self._add(dead_letters_pb2.DESCRIPTOR, DeadLetterService(calls))
        self._add(admin_pb2.DESCRIPTOR, AdminService(calls, finder))
        self._add(traces_pb2.DESCRIPTOR, TraceService(calls))
        queue = QueueService(clock, calls, finder, batch_bytes_max=limits.batch_bytes_max)
        self._add(queue_pb2.DESCRIPTOR, queue)
        health = HealthService(clock, calls, tuple(registry.handlers))
        self._add(health_pb2.DESCRIPTOR, health)

    @property
    def services(self) -> tuple[str, ...]:
        """Return the full names of what is served."""
        return tuple(self._registry.handlers)

    async def start(self, address: str) -> int:
        """Serve at ``host:port``; return the port. Raises OSError."""
        quiet_library()
        limits = self._settings.limits
        server = grpc.aio.server(
            maximum_concurrent_rpcs=limits.connections_max,
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", limits.request_bytes_max + MESSAGE_SLACK_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", METADATA_BYTES_MAX),
                ("grpc.max_concurrent_streams", STREAMS_MAX),
                ("grpc.max_allowed_incoming_connections", limits.connections_max),
                ("grpc.keepalive_time_ms", KEEPALIVE_MS),
                ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
                ("grpc.http2.min_ping_interval_without_data_ms", PING_MS_MIN),
            ],
        )
        server.add_generic_rpc_handlers(tuple(self._registry.handlers.values()))
        reflection.enable_server_reflection((*self.services, reflection.SERVICE_NAME), server)
        try:
            port: int = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"{address} cannot be listened at") from error
        await server.start()
        self._server = server
        return port

    async def stop(self, grace_s: float) -> None:
        """Take no new call; let those in work end within ``grace_s``, then hang up."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace_s)

    def _add(self, file: Any, implementation: object) -> None:
        """Let ``implementation`` serve the service of a file of the contract."""
        (service,) = file.services_by_name.values()
        self._registry.add(service, implementation)


def quiet_library() -> None:
    """Keep the library's own log lines off standard error: refusals are no news."""
    logger = logging.getLogger("grpc")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
