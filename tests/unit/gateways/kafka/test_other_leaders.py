"""Replies about many partitions that are led elsewhere: a topic is looked up once."""

import asyncio
import struct
from typing import Any

import pytest
import uvloop

from raftline.gateways.kafka import schema
from raftline.gateways.kafka.codec import decoder, encoder
from raftline.gateways.kafka.dispatch import Table
from raftline.gateways.kafka.fetch import FetchApi
from raftline.gateways.kafka.gaps import Gaps
from raftline.gateways.kafka.produce import ProduceApi
from raftline.gateways.kafka.server import KafkaServer, Raw
from raftline.model.calls import NodesView, PartitionRow, TopicRow
from raftline.model.errors import NotLeader
from raftline.node.clock import LoopClock
from raftline.telemetry.counters import GatewayCounts
from tests.unit.transport.free_port import bind_free

COUNT, TERM, LEADER = 50, 9, 2
NOT_LEADER = 6


class Elsewhere:
    """A node that leads nothing."""

    looks = 0

    def led_partition(self, topic: str, partition: int) -> NotLeader:
        return NotLeader(f"{topic}/{partition}", LEADER)

    def nodes_view(self) -> NodesView:
        return NodesView("", 1, 0, ())

    def find_topic(self, name: str) -> TopicRow:
        self.looks += 1
        rows = [
            PartitionRow(partition=n, shard=n, leader=LEADER, term=TERM, replicas=(2,))
            for n in range(COUNT)
        ]
        return TopicRow(
            name=name, uuid="", replication_factor=1, created_ms=0, settings={},
            partitions=tuple(rows),
        )  # fmt: skip


def asked(api: schema.Api) -> dict[str, Any]:
    rows = [{"partition": n, "records": b"", "fetch_offset": 0} for n in range(COUNT)]
    return {"acks": -1, "timeout_ms": 1_000, "topics": [{"name": "orders", "partitions": rows}]}


@pytest.mark.parametrize(("api", "version"), [(schema.PRODUCE, 10), (schema.FETCH, 12)])
def test_a_topic_is_looked_up_once_a_reply(api: schema.Api, version: int) -> None:
    calls: Any = Elsewhere()

    async def main() -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        clock, table, raw = LoopClock(loop), Table(), dict[int, Raw]()
        nothing: Any = None
        ProduceApi(calls, nothing, Gaps(clock), 1 << 20).add_to(table, raw)
        FetchApi(clock, calls, 1 << 20).add_to(table, raw)
        server = KafkaServer(
            loop, table, raw, lambda *_, **__: None, GatewayCounts(),
            connections_max=3, frame_bytes_max=1 << 20, inflight_bytes_max=1 << 20,
        )  # fmt: skip
        listener = bind_free()
        await server.start(listener)
        try:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            out = bytearray(struct.pack(">hhih", api.key, version, 7, 0) + b"\0")
            encoder(api.request, version, flexible=True)(out, asked(api))
            writer.write(struct.pack(">i", len(out)) + out)
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            data = await reader.readexactly(length)
            writer.close()
            return decoder(api.response, version, flexible=True)(data, 5)
        finally:
            server.close()
            await asyncio.sleep(0.05)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answer = runner.run(asyncio.wait_for(main(), 30))
    rows = answer["topics"][0]["partitions"]
    assert [row["error_code"] for row in rows] == [NOT_LEADER] * COUNT
    assert {tuple(row["current_leader"].values()) for row in rows} == {(LEADER, TERM)}
    assert calls.looks == 1
