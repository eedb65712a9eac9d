"""A Kafka connection: frames in pieces, order, and who is hung up on."""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import uvloop

from raftline.gateways.kafka.codec import decoder
from raftline.gateways.kafka.connection import Exchange, KafkaConnection
from raftline.gateways.kafka.dispatch import Call, Context, Handler, Reply, Table
from raftline.gateways.kafka.metadata import MetadataApi
from raftline.gateways.kafka.schema import API_VERSIONS, METADATA, Api
from raftline.gateways.kafka.schema_groups import DELETE_GROUPS, HEARTBEAT, LIST_GROUPS
from raftline.gateways.kafka.server import KafkaServer
from raftline.node.clock import LoopClock
from raftline.telemetry.counters import GatewayCounts
from tests.unit.transport.free_port import bind_free

Scenario = Callable[[KafkaServer, tuple[str, int]], Awaitable[None]]


def run(
    scenario: Scenario,
    raw: dict[int, Any] | None = None,
    calls: dict[Api, Call] | None = None,
    **bounds: int,
) -> list[tuple[str, dict[str, Any]]]:
    """Run a scenario with a server that knows ApiVersions; return what was logged."""
    logged: list[tuple[str, dict[str, Any]]] = []

    def log(level: str, event: str, **fields: Any) -> None:
        logged.append((event, fields))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        table = Table()
        api = MetadataApi(LoopClock(loop), None, auto_create=False)  # type: ignore[arg-type]
        api.add_to(table)
        for more, call in (calls or {}).items():
            table.add(more, 0, 9, call)
        limits = {"connections_max": 3, "frame_bytes_max": 1 << 20, "inflight_bytes_max": 1 << 16}
        server = KafkaServer(loop, table, raw or {}, log, GatewayCounts(), **{**limits, **bounds})
        listener = bind_free()
        await server.start(listener)
        try:
            async with asyncio.timeout(30):
                await scenario(server, listener.getsockname())
        finally:
            server.close()
            await asyncio.sleep(0.05)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return logged


def request(number: int, version: int = 0, padding: int = 0) -> bytes:
    body = struct.pack(">hhih", 18, version, number, padding) + b"p" * padding
    return struct.pack(">i", len(body)) + body


async def reply(reader: asyncio.StreamReader) -> int:
    """Read a reply; return its number."""
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    data = await reader.readexactly(length)
    answer = decoder(API_VERSIONS.response, 0, flexible=False)(data, 4)
    assert answer["error_code"] == 0
    return struct.unpack_from(">i", data)[0]


def tick(server: KafkaServer, count: int) -> None:
    """Let so many seconds pass for the server's watch."""
    for _ in range(count):
        server.tick += 1
        for connection in list(server._connections):
            connection.watch(server.tick)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_frames_come_in_any_pieces() -> None:
    async def scenario(_server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        data = b"".join(request(n, padding=n * 400) for n in range(40))
        for size in (1, 3, 7, 1_000, 20_000, len(data)):
            for at in range(0, len(data), size) if size > 3 else range(0, 900, size):
                writer.write(data[at : at + size])
                await writer.drain()
                await asyncio.sleep(0)
            if size <= 3:
                writer.write(data[(899 // size + 1) * size :])
            assert [await reply(reader) for _ in range(40)] == list(range(40))
        writer.close()

    assert run(scenario) == []


def test_many_frames_at_once_are_answered_in_order_within_the_bound() -> None:
    async def scenario(_server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"".join(request(n, padding=1_000) for n in range(2_000)))
        assert [await reply(reader) for _ in range(2_000)] == list(range(2_000))
        writer.close()

    assert run(scenario) == []


def test_a_request_begins_once_the_changes_before_it_are_answered() -> None:
    """N6: those of one API begin together, and what only waits holds nobody up."""
    begun: list[str] = []
    waiting: dict[str, list[Reply]] = {}

    def call_of(name: str) -> Call:
        def call(_request: dict[str, Any], _version: int, _context: Context, reply: Reply) -> None:
            begun.append(name)
            waiting.setdefault(name, []).append(reply)

        return call

    def bare(api: Api, number: int, body: bytes) -> bytes:
        head = struct.pack(">hhih", api.key, 0, number, 0)
        return struct.pack(">i", len(head + body)) + head + body

    async def scenario(_server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        beat, delete, ask = bytes(8), bytes(4), b""
        writer.write(bare(HEARTBEAT, 1, beat) + bare(DELETE_GROUPS, 2, delete))
        writer.write(bare(DELETE_GROUPS, 3, delete) + bare(LIST_GROUPS, 4, ask) + request(5))
        await until(lambda: len(begun) >= 3)
        waiting["delete"][1]({})
        await asyncio.sleep(0.02)
        assert begun == ["beat", "delete", "delete"], "one change is not answered"
        waiting["delete"][0]({})
        await until(lambda: len(begun) == 4)
        waiting["list"][0]({})
        waiting["beat"][0]({})
        for number in range(1, 6):
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            assert struct.unpack_from(">i", await reader.readexactly(length)) == (number,)
        writer.close()

    calls = {
        HEARTBEAT: call_of("beat"),
        DELETE_GROUPS: call_of("delete"),
        LIST_GROUPS: call_of("list"),
    }
    assert run(scenario, calls=calls) == []
    assert begun == ["beat", "delete", "delete", "list"]


@pytest.mark.parametrize("later", [False, True])
def test_who_meets_a_bug_is_hung_up_on_and_others_go_on(later: bool) -> None:
    def fail() -> None:
        raise ValueError("a bug")

    def serve(connection: KafkaConnection, handler: Handler, *rest: Any) -> None:
        exchange = Exchange(connection, handler, 0, rest[1], 100)
        if not later:
            fail()
        asyncio.get_running_loop().call_later(0.05, exchange.guarded(fail))

    async def scenario(_server: KafkaServer, address: tuple[str, int]) -> None:
        other, others = await asyncio.open_connection(*address)
        reader, writer = await asyncio.open_connection(*address)
        body = struct.pack(">hhih", METADATA.key, 1, 7, 0) + b"\xff" * 4
        writer.write(struct.pack(">i", len(body)) + body)
        assert await reader.read() == b""
        others.write(request(8))
        assert await reply(other) == 8
        for one in (writer, others):
            one.close()

    ((event, fields),) = run(scenario, {METADATA.key: serve})
    assert event == "kafka.failed"
    assert "a bug" in fields["error"]


def test_one_connection_too_many_is_closed() -> None:
    async def scenario(server: KafkaServer, address: tuple[str, int]) -> None:
        taken = [await asyncio.open_connection(*address) for _ in range(3)]
        for reader, writer in taken:
            writer.write(request(1))
            assert await reply(reader) == 1
        reader, writer = await asyncio.open_connection(*address)
        assert await reader.read() == b""
        taken[0][1].close()
        await until(lambda: server.counts.connections == 2)
        again, last = await asyncio.open_connection(*address)
        last.write(request(2))
        assert await reply(again) == 2
        for one in (writer, last, *(writer for _, writer in taken)):
            one.close()

    run(scenario)


def test_a_frame_that_does_not_end_is_given_up() -> None:
    async def scenario(server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request(1) + request(2)[:-1])
        assert await reply(reader) == 1
        tick(server, server.request_ticks_max + 2)
        assert await reader.read() == b""
        writer.close()

    logged = run(scenario)
    assert [event for event, _ in logged] == ["kafka.refused"]
    assert "in time" in logged[0][1]["reason"]


def test_a_frame_above_the_bound_is_refused_before_it_comes() -> None:
    async def scenario(_server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(struct.pack(">i", (1 << 20) + 1))
        assert await reader.read() == b""
        writer.close()

    assert [event for event, _ in run(scenario)] == ["kafka.refused"]


def test_who_is_idle_for_long_is_hung_up_on() -> None:
    async def scenario(server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request(1))
        assert await reply(reader) == 1
        tick(server, server.idle_ticks_max - 1)
        writer.write(request(2))
        assert await reply(reader) == 2
        tick(server, server.idle_ticks_max + 2)
        assert await reader.read() == b""
        writer.close()

    run(scenario)


def test_replies_that_wait_for_their_turn_are_bounded() -> None:
    held: list[Reply] = []
    served: list[int] = []

    def hold(_request: Any, _version: int, _context: Context, reply: Reply) -> None:
        held.append(reply)

    def tell(_request: Any, version: int, _context: Context, reply: Reply) -> None:
        served.append(version)
        reply({"groups": [{"group": "g" * 10_000, "protocol_type": ""}]})

    async def scenario(server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        beat = struct.pack(">hhihhih", HEARTBEAT.key, 0, 0, 0, 0, 0, 0)
        asked = [struct.pack(">hhih", LIST_GROUPS.key, 0, n, 0) for n in range(1, 101)]
        for body in (beat, *asked):
            writer.write(struct.pack(">i", len(body)) + body)
        await until(lambda: bool(served))
        await asyncio.sleep(0.1)
        assert 10_000 * len(served) <= 2 * server.inflight_bytes_max
        held[0]({})
        for number in range(101):
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            assert struct.unpack_from(">i", await reader.readexactly(length)) == (number,)
        assert len(served) == 100
        (connection,) = server._connections
        assert connection.inflight_bytes == 0
        writer.close()

    assert not run(scenario, calls={HEARTBEAT: hold, LIST_GROUPS: tell})


def test_who_does_not_read_is_not_read_and_then_dropped() -> None:
    async def scenario(server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address, limit=1)
        one = b"".join(request(n) for n in range(5_000))
        stuck = None
        for _ in range(400):
            writer.write(one)
            for _ in range(5):
                await asyncio.sleep(0)
            stuck = next(iter(server._connections))
            if stuck._stuck:
                break
        assert stuck is not None
        assert stuck._stuck
        assert stuck.inflight_bytes <= 2 * server.inflight_bytes_max
        tick(server, server.request_ticks_max + 2)
        await until(lambda: server.counts.connections == 0)
        writer.transport.abort()
        assert reader is not None

    run(scenario)


@pytest.mark.parametrize("is_half", [True, False], ids=["half a request", "nonsense"])
def test_who_is_hung_up_on_and_reads_nothing_is_let_go_of(is_half: bool) -> None:
    """The rest of the replies goes out first: that is never, and it counted for as long."""

    def tell(_request: Any, _version: int, _context: Context, reply: Reply) -> None:
        reply({"groups": [{"group": "g" * 30_000, "protocol_type": ""}] * 20})

    async def scenario(server: KafkaServer, address: tuple[str, int]) -> None:
        with socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.connect(address)
            await until(lambda: bool(server._connections))
            (connection,) = server._connections
            transport = connection._transport
            assert transport is not None
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            silent.sendall(struct.pack(">ihhih", 10, LIST_GROUPS.key, 0, 1, 0))
            await until(lambda: transport.get_write_buffer_size() > 0)
            assert not connection._stuck, "that is looked after anyway"
            if is_half:
                silent.sendall(struct.pack(">i", 100) + b"half")
                silent.shutdown(socket.SHUT_WR)
            else:  # the name of its group is longer than all of it
                silent.sendall(struct.pack(">ihhihh", 12, HEARTBEAT.key, 0, 2, 0, 9))
            await until(lambda: connection._ended)
            tick(server, 2)
            assert server.counts.connections == 1
            tick(server, server.request_ticks_max + server.idle_ticks_max + 2)
            await until(lambda: server.counts.connections == 0)

    run(scenario, calls={LIST_GROUPS: tell, HEARTBEAT: tell})


def test_who_reads_slowly_is_not_dropped() -> None:
    size = 12 << 20

    def tell(_request: Any, _version: int, _context: Context, reply: Reply) -> None:
        names = [{"group": "g" * 30_000, "protocol_type": ""}] * (size // 30_000)
        reply({"groups": names})

    async def scenario(server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address, limit=1 << 16)
        writer.write(struct.pack(">ihhih", 10, LIST_GROUPS.key, 0, 1, 0))
        await until(lambda: any(one._stuck for one in server._connections))
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        left = length
        while left:  # half of the time that one has who reads nothing
            left -= len(await reader.readexactly(min(left, 2 << 20)))
            await asyncio.sleep(0.02)
            tick(server, server.request_ticks_max // 2)
        assert server.counts.connections == 1
        writer.close()

    assert not run(scenario, calls={LIST_GROUPS: tell})


def test_a_request_does_not_look_at_all_before_it() -> None:
    """Behind one that waits there may be as many as there is room for: 30,000 of them."""
    count = 2_000
    parked: list[Reply] = []

    class Looked(deque[Exchange]):
        looks = 0

        def __iter__(self) -> Iterator[Exchange]:
            for exchange in super().__iter__():
                Looked.looks += 1
                yield exchange

    def park(_request: Any, _version: int, _context: Context, reply: Reply) -> None:
        parked.append(reply)

    def beat(_request: Any, _version: int, _context: Context, reply: Reply) -> None:
        reply({})

    async def scenario(server: KafkaServer, address: tuple[str, int]) -> None:
        _reader, writer = await asyncio.open_connection(*address)
        await until(lambda: bool(server._connections))
        (connection,) = server._connections
        connection.exchanges = Looked()
        writer.write(struct.pack(">ihhih", 10, LIST_GROUPS.key, 0, 1, 0))
        body = struct.pack(">hhih", HEARTBEAT.key, 0, 2, 0) + b"\0\1g" + bytes(4) + b"\0\0"
        one = struct.pack(">i", len(body)) + body
        writer.write((request(3) + one) * (count // 2))
        await until(lambda: len(connection.exchanges) == count + 1)
        assert parked
        writer.close()

    calls: dict[Api, Call] = {LIST_GROUPS: park, HEARTBEAT: beat}
    run(scenario, calls=calls, inflight_bytes_max=16 << 20)
    assert Looked.looks < 4 * count


def test_a_lent_buffer_has_one_borrower_and_is_left_alone() -> None:
    lent: list[tuple[bytearray, bytes]] = []
    served: list[int] = []

    def borrow(
        connection: KafkaConnection, handler: Handler, version: int, correlation: int,
        buffer: bytearray, view: memoryview, at: int, stop: int,
    ) -> None:  # fmt: skip
        served.append(correlation)
        if connection.lend(buffer, stop):
            lent.append((buffer, bytes(buffer)))
        Exchange(connection, handler, version, correlation, 0).send({})

    async def scenario(_server: KafkaServer, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        sizes = [6_000, 7_000, 30_000, 5_000, 5_000, 20_000, 300] * 6
        data = b"".join(request(n, padding=size) for n, size in enumerate(sizes))
        for step in (5_500, 9_000, 21_000, 64_000):
            for at in range(0, len(data), step):
                writer.write(data[at : at + step])
                await writer.drain()
                await asyncio.sleep(0.001)
            assert [await reply(reader) for _ in sizes] == list(range(len(sizes)))
        writer.close()

    assert run(scenario, {API_VERSIONS.key: borrow}) == []
    assert lent, "some frames came in pieces"
    assert len({id(buffer) for buffer, _ in lent}) == len(lent)
    assert all(bytes(buffer) == before for buffer, before in lent)
