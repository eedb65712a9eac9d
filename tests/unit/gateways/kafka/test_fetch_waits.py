"""A Fetch that waits: for what there can be, and no longer than its client is there."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from raftline.gateways.kafka.dispatch import Table
from raftline.gateways.kafka.fetch import FetchApi
from raftline.gateways.kafka.schema import FETCH
from raftline.gateways.kafka.server import KafkaServer, Raw
from raftline.model.records import seal_batch
from raftline.node.clock import LoopClock
from raftline.storage.log_tail import LogTail
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


def fetch(wait_ms: int, least: int = 1, most: int = 1 << 20, offset: int = 0) -> bytes:
    """Return a request for orders/0 (the end of it), in version 4."""
    body = struct.pack(">hhih", FETCH.key, 4, 7, 0)
    body += struct.pack(">iiiib", -1, wait_ms, least, 1 << 20, 0)
    body += struct.pack(">ih6si", 1, 6, b"orders", 1) + struct.pack(">iqi", 0, offset, most)
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

    serve(still, scenario)


def serve(calls: Any, scenario: Callable[[KafkaServer, tuple[str, int]], Awaitable[None]]) -> None:
    """Run a scenario with a server that knows Fetch."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        table, raw = Table(), dict[int, Raw]()
        FetchApi(LoopClock(loop), calls, 1 << 20).add_to(table, raw)
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


class Filled(Still):
    """A partition with ten batches of about a hundred bytes, in memory or joined as from a file."""

    def __init__(self, *, is_cold: bool) -> None:
        super().__init__()
        self._is_cold = is_cold
        self._tail = LogTail(0)
        self.batch = seal_batch([(None, bytes(30), (), 1_700_000_000_000)])
        self.commit_end = self._tail.append(0, 1, 0, [(self.batch, 1, 0)] * 10)

    def read(self, offset: int, bytes_max: int, done: Callable[[list[Any]], None]) -> None:
        found = self._tail.read(offset, bytes_max, self.commit_end)
        assert found is not None
        done([b"".join(found)] if self._is_cold else found)


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize(("offset", "waits"), [(0, False), (7, False), (8, True)])
def test_a_reply_that_is_as_full_as_it_gets_is_not_waited_for(
    is_cold: bool, offset: int, waits: bool
) -> None:
    filled = Filled(is_cold=is_cold)
    size = len(filled.batch)
    most = 2 * size + 7  # no whole number of batches

    async def scenario(_server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(fetch(60_000, most, most, offset))
        if waits:
            await until(lambda: bool(filled.watching))
        else:
            (length,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 2))
            assert (await reader.readexactly(length)).endswith(filled.batch[16:])
        writer.close()

    serve(filled, scenario)


@pytest.mark.parametrize(("offset", "waits"), [(9, False), (10, True)])
def test_what_a_new_leader_learns_of_when_it_confirms_is_read_at_once(
    offset: int, waits: bool
) -> None:
    filled = Filled(is_cold=False)
    filled.commit_end = 8

    def confirm(done: Callable[[None], None]) -> None:
        filled.commit_end = 10
        done(None)

    filled.confirm = confirm  # type: ignore[attr-defined]

    async def scenario(_server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(fetch(60_000, offset=offset))
        if waits:
            await until(lambda: bool(filled.watching))
        else:
            (length,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 2))
            assert (await reader.readexactly(length)).endswith(filled.batch[16:])
        writer.close()

    serve(filled, scenario)


def test_what_comes_while_a_file_is_read_is_not_slept_through() -> None:
    filled = Filled(is_cold=True)
    filled.commit_end = 8
    read = filled.read

    def slow(offset: int, bytes_max: int, done: Callable[[list[Any]], None]) -> None:
        def found(batches: list[Any]) -> None:
            filled.commit_end = 10
            done(batches)

        read(offset, bytes_max, found)

    filled.read = slow  # type: ignore[method-assign]

    async def scenario(_server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(fetch(60_000, 4 * len(filled.batch), offset=6))
        (length,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 2))
        assert length > 4 * len(filled.batch)
        writer.close()

    serve(filled, scenario)
