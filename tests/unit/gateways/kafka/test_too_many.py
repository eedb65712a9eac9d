"""Requests that name more than there can be: refused before their items cost memory and time."""

import asyncio
import struct
from typing import Any

import pytest
import uvloop

from raftline.gateways.kafka.codec import ITEMS_MAX, Malformed, decoder
from raftline.gateways.kafka.dispatch import Table
from raftline.gateways.kafka.fetch import PARTITIONS_MAX, FetchApi
from raftline.gateways.kafka.gaps import Gaps
from raftline.gateways.kafka.produce import ProduceApi
from raftline.gateways.kafka.schema import FETCH, LIST_OFFSETS, PRODUCE
from raftline.gateways.kafka.schema_groups import DESCRIBE_GROUPS
from raftline.gateways.kafka.server import KafkaServer, Raw
from raftline.model.errors import UnknownTopic
from raftline.model.limits import PARTITIONS_MAX as PARTITIONS_EVER
from raftline.node.clock import LoopClock
from raftline.telemetry.counters import GatewayCounts
from tests.unit.transport.free_port import bind_free


def test_a_message_has_no_more_items_than_all_that_can_be() -> None:
    read = decoder(DESCRIBE_GROUPS.request, 0, flexible=False)
    most = struct.pack(">i", ITEMS_MAX) + bytes(2 * ITEMS_MAX)
    assert len(read(most, 0)["groups"]) == ITEMS_MAX
    with pytest.raises(Malformed, match="items"):
        read(struct.pack(">i", ITEMS_MAX + 1) + bytes(2 * (ITEMS_MAX + 1)), 0)
    assert len(read(most, 0)["groups"]) == ITEMS_MAX, "each message has room of its own"


@pytest.mark.parametrize(("topics", "fits"), [(9, True), (10, False)])
def test_items_inside_of_items_count(topics: int, fits: bool) -> None:
    each = ITEMS_MAX // 10
    topic = struct.pack(">hi", 0, each) + bytes(12 * each)
    data = struct.pack(">ii", -1, topics) + topic * topics
    read = decoder(LIST_OFFSETS.request, 1, flexible=False)
    if fits:
        assert len(read(data, 0)["topics"]) == topics
        return
    with pytest.raises(Malformed, match="items"):
        read(data, 0)


class Nowhere:
    """A node without topics."""

    def led_partition(self, topic: str, _partition: int) -> UnknownTopic:
        return UnknownTopic(topic)

    def find_topic(self, _name: str) -> None:
        return None


def fetch(topics: int) -> bytes:
    """Return what comes behind the head of a Fetch of version 4: topics without partitions."""
    head = struct.pack(">iiiibi", -1, 0, 1, 1, 0, topics)
    return head + struct.pack(">hi", 0, 0) * topics


def produce(partitions: int) -> bytes:
    """Return what comes behind the head of a Produce of version 3: one topic, empty batches."""
    head = struct.pack(">hhiihi", -1, -1, 1000, 1, 0, partitions)
    return head + struct.pack(">ii", 0, 0) * partitions


@pytest.mark.parametrize(
    ("key", "version", "body", "fits"),
    [
        (FETCH.key, 4, fetch(PARTITIONS_MAX), True),
        (FETCH.key, 4, fetch(PARTITIONS_MAX + 2), False),
        (PRODUCE.key, 3, produce(1000), True),
        (PRODUCE.key, 3, produce(PARTITIONS_EVER + 1), False),
    ],
    ids=["fetch", "fetch too much", "produce", "produce too much"],
)
def test_produce_and_fetch_have_a_bound(key: int, version: int, body: bytes, fits: bool) -> None:
    frame = struct.pack(">hhih", key, version, 7, 0) + body

    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls: Any = Nowhere()
        wishes: Any = None
        table, raw, clock = Table(), dict[int, Raw](), LoopClock(loop)
        FetchApi(clock, calls, 1 << 20).add_to(table, raw)
        ProduceApi(calls, wishes, Gaps(clock), 1 << 20).add_to(table, raw)
        server = KafkaServer(
            loop, table, raw, lambda *_, **__: None, GatewayCounts(),
            connections_max=3, frame_bytes_max=1 << 20, inflight_bytes_max=1 << 20,
        )  # fmt: skip
        listener = bind_free()
        await server.start(listener)
        try:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(struct.pack(">i", len(frame)) + frame)
            assert len(await asyncio.wait_for(reader.read(4), 5)) == (4 if fits else 0)
            writer.close()
        finally:
            server.close()
            await asyncio.sleep(0.05)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
