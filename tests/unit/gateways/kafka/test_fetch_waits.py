"""A Fetch that waits while its client goes: it ends, and so does the connection."""

import asyncio
import struct
from typing import Any

import pytest
import uvloop

from raftline.gateways.kafka.dispatch import Table
from raftline.gateways.kafka.fetch import FetchApi
from raftline.gateways.kafka.schema import FETCH
from raftline.gateways.kafka.server import KafkaServer, Raw
from raftline.node.clock import LoopClock
from raftline.telemetry.counters import GatewayCounts
from tests.unit.gateways.kafka.test_connection import until
from tests.unit.transport.free_port import bind_free


class Still:
    """A partition that has nothing to read."""

    term, log_start, commit_end = 1, 0, 0

    def __init__(self) -> None:
        self.watching: list[Any] = []

    def led_partition(self, _topic: str, _partition: int) -> "Still":
        return self

    def watch(self, growth: Any) -> bool:
        self.watching.append(growth)
        return True

    def unwatch(self, growth: Any) -> None:
        self.watching.remove(growth)


def fetch(wait_ms: int) -> bytes:
    """Return a request for the end of orders/0, in version 4."""
    body = struct.pack(">hhih", FETCH.key, 4, 7, 0) + struct.pack(">iiiib", -1, wait_ms, 1, 1, 0)
    body += struct.pack(">ih6si", 1, 6, b"orders", 1) + struct.pack(">iqi", 0, 0, 1 << 20)
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("how", ["time is up", "it grows"])
@pytest.mark.parametrize("half", [False, True])
def test_who_goes_while_a_fetch_waits_is_let_go(how: str, half: bool) -> None:
    still = Still()

    async def scenario(server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(fetch(100 if how == "time is up" else 60_000))
        await until(lambda: bool(still.watching))
        if half:
            writer.write_eof()
        else:
            writer.close()
        await asyncio.sleep(0.05)
        if how == "it grows":
            still.watching[0].grown()
        if half:
            assert await asyncio.wait_for(reader.read(), 2), "it may still read"
        await asyncio.wait_for(until(lambda: not server.counts.connections), 2)
        assert not still.watching
        writer.close()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        table, raw = Table(), dict[int, Raw]()
        FetchApi(LoopClock(loop), still, 1 << 20).add_to(table, raw)  # type: ignore[arg-type]
        server = KafkaServer(
            loop, table, raw, lambda *_, **__: None, GatewayCounts(),
            connections_max=3, frame_bytes_max=1 << 20, inflight_bytes_max=1 << 20,
        )  # fmt: skip
        listener = bind_free()
        await server.start(listener)
        try:
            await scenario(server, listener.getsockname())
        finally:
            server.close()
            await asyncio.sleep(0.05)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
