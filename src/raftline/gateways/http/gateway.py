"""The HTTP gateway: routes and server put together on a node."""

import asyncio
import socket

from raftline.config.settings import Settings
from raftline.gateways.http.cluster import ClusterRoutes
from raftline.gateways.http.dead_letters import DeadLetterRoutes
from raftline.gateways.http.deliveries import DeliveryRoutes
from raftline.gateways.http.dialects.dqueue import DqueueRoutes
from raftline.gateways.http.dialects.falconq import FalconqRoutes
from raftline.gateways.http.dialects.goqueue import GoqueueRoutes
from raftline.gateways.http.dialects.sreekar import SreekarRoutes
from raftline.gateways.http.groups import GroupRoutes
from raftline.gateways.http.messages import MessageRoutes
from raftline.gateways.http.metrics import MetricRoutes
from raftline.gateways.http.openapi import OpenApiRoutes
from raftline.gateways.http.pipeline import PipelineRoutes
from raftline.gateways.http.query_leases import QueryLeaseRoutes
from raftline.gateways.http.routes import Router
from raftline.gateways.http.scheduled import ScheduledRoutes
from raftline.gateways.http.server import HttpServer
from raftline.gateways.http.spans import open_spans
from raftline.gateways.http.status_page import StatusPageRoutes
from raftline.gateways.http.topics import TopicRoutes
from raftline.gateways.http.traces import TraceRoutes
from raftline.gateways.ports import Calls
from raftline.gateways.second_look import SecondLook
from raftline.gateways.topic_finder import TopicFinder
from raftline.model.limits import WAIT_MS_MAX
from raftline.node.ports import Clock
from raftline.telemetry.log import LogEvent


class HttpGateway:
    """Speaks HTTP for one node, on the node's loop."""

    __slots__ = ("server",)

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        calls: Calls,
        settings: Settings,
        log: LogEvent,
    ) -> None:
        limits = settings.limits
        finder = TopicFinder(clock, calls, auto_create=settings.topics.auto_create)
        router = Router(limits.timeout_ms, WAIT_MS_MAX)
        messages = MessageRoutes(
            clock,
            calls,
            finder,
            batch_bytes_max=limits.batch_bytes_max,
            reply_bytes_max=limits.reply_bytes_max,
        )
        messages.add_to(router)
        deliveries = DeliveryRoutes(calls, reply_bytes_max=limits.reply_bytes_max)
        deliveries.add_to(router)
        DeadLetterRoutes(calls).add_to(router)
        ScheduledRoutes(calls).add_to(router)
        PipelineRoutes(calls).add_to(router)
        QueryLeaseRoutes(calls).add_to(router)
        TraceRoutes(calls).add_to(router)
        GroupRoutes(clock, calls, reply_bytes_max=limits.reply_bytes_max).add_to(router)
        TopicRoutes(calls, finder).add_to(router)
        StatusPageRoutes(calls).add_to(router)
        ClusterRoutes(clock, calls).add_to(router)
        MetricRoutes(clock, calls).add_to(router)
        retries = settings.delivery.retries_max
        DqueueRoutes(clock, calls, messages, max_retries=retries).add_to(router)
        FalconqRoutes(calls, messages, deliveries).add_to(router)
        SreekarRoutes(clock, calls, messages).add_to(router)
        OpenApiRoutes(router).add_to(router)
        GoqueueRoutes(clock, calls, messages, deliveries, settings).add_to(router)
        self.server = HttpServer(
            loop,
            router.route,
            log,
            connections_max=limits.connections_max,
            request_bytes_max=limits.request_bytes_max,
            inflight_bytes_max=limits.connection_bytes_max,
            counts=calls.counters.gateway("http"),
            slow_request_ms=settings.log_output.slow_request_ms,
            says_requests=settings.log_output.requests,
        )
        self.server.second_look = SecondLook(clock, calls)
        if settings.telemetry.otlp_endpoint:
            self.server.spans = open_spans(settings, log)

    async def start(self, listener: socket.socket) -> None:
        """Serve on a listening socket (transport.addresses.bind)."""
        await self.server.start(listener)

    def stop_listening(self) -> None:
        """Take no new connection; requests that are here are answered."""
        self.server.stop_listening()

    def close(self) -> None:
        """Hang up on everybody."""
        self.server.close()
        if self.server.spans is not None:
            self.server.spans.close()
