"""The Kafka gateway: its APIs and its server put together on a node.

A module of APIs is added in one line of ``_apis``: it has ``add_to(table)`` (dispatch.py).
"""

import asyncio
import socket

from raftline.config.settings import Settings
from raftline.gateways.kafka.admin import AdminApi
from raftline.gateways.kafka.admin_cluster import ClusterApi
from raftline.gateways.kafka.catalog_first import CatalogFirst
from raftline.gateways.kafka.configs import ConfigsApi
from raftline.gateways.kafka.dispatch import Table
from raftline.gateways.kafka.elections import ElectionsApi
from raftline.gateways.kafka.fetch import FetchApi
from raftline.gateways.kafka.gaps import Gaps
from raftline.gateways.kafka.groups import GroupsApi
from raftline.gateways.kafka.groups_admin import GroupsAdminApi
from raftline.gateways.kafka.groups_cursors import CursorsApi
from raftline.gateways.kafka.metadata import MetadataApi
from raftline.gateways.kafka.offsets import OffsetApi
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.gateways.kafka.produce import ProduceApi
from raftline.gateways.kafka.producers import ProducerApi
from raftline.gateways.kafka.server import KafkaServer, Raw
from raftline.gateways.kafka.wishes import Wishes
from raftline.gateways.publisher import NodePublisher
from raftline.gateways.topic_finder import TopicFinder
from raftline.node.ports import Clock
from raftline.telemetry.log import LogEvent


class KafkaGateway:
    """Speaks Kafka's protocol for one node, on the node's loop."""

    __slots__ = ("server",)

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        calls: KafkaCalls,
        settings: Settings,
        log: LogEvent,
    ) -> None:
        limits = settings.limits
        table = Table()
        raw: dict[int, Raw] = {}
        finder = TopicFinder(clock, calls, auto_create=settings.topics.auto_create)
        publisher = NodePublisher(clock, calls, finder, batch_bytes_max=limits.batch_bytes_max)
        ProduceApi(calls, Wishes(publisher), Gaps(clock), limits.batch_bytes_max).add_to(table, raw)
        FetchApi(clock, calls, limits.reply_bytes_max).add_to(table, raw)
        ProducerApi(calls).add_to(table)
        OffsetApi(clock, calls).add_to(table)
        MetadataApi(clock, calls, auto_create=settings.topics.auto_create).add_to(table)
        GroupsApi(calls).add_to(table)
        AdminApi(clock, calls, settings).add_to(table)
        ClusterApi(calls).add_to(table)
        ElectionsApi(clock, calls).add_to(table)
        ConfigsApi(calls, settings).add_to(table)
        CursorsApi(calls).add_to(table)
        GroupsAdminApi(calls).add_to(table)
        CatalogFirst(calls).guard(table)
        self.server = KafkaServer(
            loop,
            table,
            raw,
            log,
            calls.counters.gateway("kafka"),
            connections_max=limits.connections_max,
            frame_bytes_max=limits.request_bytes_max,
            inflight_bytes_max=limits.connection_bytes_max,
        )

    async def start(self, listener: socket.socket) -> None:
        """Serve on a listening socket (transport.addresses.bind)."""
        await self.server.start(listener)

    def stop_listening(self) -> None:
        """Take no new connection; requests that are here are answered."""
        self.server.stop_listening()

    def close(self) -> None:
        """Hang up on everybody."""
        self.server.close()
