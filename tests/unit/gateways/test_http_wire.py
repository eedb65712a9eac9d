"""HTTP/1.1 as bytes: order, pieces, bounds, and what is refused."""

import asyncio
import contextlib
import random
import socket

import pytest

from raftline.config.settings import LimitSettings, Settings
from raftline.gateways import stream_server
from raftline.gateways.http import server as server_module
from raftline.gateways.http.head import Fields, Refused, RequestLine, parse_query, unquote
from raftline.model.errors import NoLeader
from raftline.model.records import seal_batch
from tests.unit.gateways.web import BATCH, Web, request, serve

PATH = "/v1/topics/orders/partitions/0/messages"


def batch(value: bytes = b"v", count: int = 1) -> bytes:
    return seal_batch([(None, value, (), 1_000 + i) for i in range(count)])


def append(value: bytes = b"v") -> bytes:
    return request("POST", PATH, batch(value), {"Content-Type": BATCH})


@pytest.mark.parametrize("use_uvloop", [True, False])
def test_many_pipelined_requests_are_answered_in_order(use_uvloop: bool) -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        client.send(b"".join(append(b"x" * (i % 300)) for i in range(3_000)))
        for offset in range(3_000):
            reply = await client.reply()
            assert reply.status == 200
            assert reply.json["results"] == [
                {"base_offset": offset, "count": 1, "partition": 0, "duplicate": False}
            ]

    serve(scenario, use_uvloop=use_uvloop)


@pytest.mark.parametrize("seed", range(5))
def test_any_cut_of_the_bytes_gives_the_same_replies(seed: int) -> None:
    rng = random.Random(seed)

    async def scenario(web: Web) -> None:
        client = await web.client()
        pieces = (b'{"messa', b'ges":[', b'{"value"', b':"a"}]', b"}", b"")
        chunked = b"".join(b"%x;x=y\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        stream = b"".join(
            [
                append(rng.randbytes(rng.randrange(3000))),
                b"\r\n" + request("GET", "/v1/topics"),
                b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: x\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n" + chunked,
                append(bytes(400_000)),
                request("GET", PATH + "?offset=0&limit=1"),
            ]
            * 4
        )

        async def write() -> None:
            at = 0
            while at < len(stream):
                step = rng.choice([1, 7, 100, 5_000, 200_000])
                client.send(stream[at : at + step])
                await client.writer.drain()
                if rng.random() < 0.5:
                    await asyncio.sleep(0)
                at += step

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            statuses = [(await client.reply()).status for _ in range(20)]
        assert statuses == [200] * 20
        assert web.node.end_of("orders", 0) == 8
        assert sum(web.node.end_of("t", p) for p in range(3)) == 4

    serve(scenario)


def test_answers_in_another_order_leave_in_the_order_of_the_requests() -> None:
    async def scenario(web: Web) -> None:
        web.node.later = []
        client = await web.client()
        client.send(append() * 50 + request("GET", "/health"))
        await web.until(lambda: len(web.node.later or ()) == 50)
        shuffled = random.Random(1).sample(range(50), 50)
        web.node.release(lambda rows: [rows[i] for i in shuffled])
        offsets = [(await client.reply()).json["results"][0]["base_offset"] for _ in range(50)]
        assert offsets == list(range(50))
        assert (await client.reply()).json["status"] == "ready"

    serve(scenario)


def test_a_client_that_sends_too_much_at_once_is_not_read_until_it_is_answered() -> None:
    settings = Settings(limits=LimitSettings(connection_bytes_max=64 << 10))

    async def scenario(web: Web) -> None:
        web.node.later = []
        client = await web.client()
        total = 400
        client.send(append(bytes(1_000)) * total)
        await web.until(lambda: len(web.node.later or ()) > 30)
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert len(web.node.later) < 50  # 64 KiB of requests, not 400 of them
        answered = 0
        while answered < total:
            ready = len(web.node.later or ())
            web.node.release()
            web.node.later = []
            for _ in range(ready):
                assert (await client.reply()).json["results"][0]["base_offset"] == answered
                answered += 1
            if answered < total:
                await web.until(lambda: bool(web.node.later))

    serve(scenario, settings)


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        web.node.topic("orders")
        client.send(append(bytes(1_000_000)))
        await client.reply()
        get = request("GET", PATH + "?bytes_max=2000000", b"", {"Accept": BATCH})
        client.send(get * 60)
        await asyncio.sleep(0.1)
        for _ in range(60):
            reply = await client.reply()
            assert reply.status == 200
            assert len(reply.body) > 1_000_000

    serve(scenario)


def test_head_and_close_and_1_0() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        got = await client.ask("GET", "/health")
        head = await client.ask("HEAD", "/health")
        assert head.fields["content-length"] == str(len(got.body))
        reply = await client.ask("GET", "/health", b"", {"Connection": "Close"})
        assert reply.fields["connection"] == "close"
        assert await client.is_closed()
        old = await web.client()
        old.send(b"GET /health HTTP/1.0\r\n\r\n")
        assert (await old.reply()).status == 200
        assert await old.is_closed()
        last = await web.client()
        last.send(request("GET", "/health", b"", {"Connection": "close"}) + append())
        assert (await last.reply()).status == 200
        assert await last.is_closed()
        assert "orders" not in web.node.logs  # what follows a close is not read

    serve(scenario)


def test_a_client_that_closes_its_half_is_still_answered() -> None:
    async def scenario(web: Web) -> None:
        web.node.later = []
        client = await web.client()
        client.send(append() * 3)
        client.writer.write_eof()
        await web.until(lambda: len(web.node.later or ()) == 3)
        await asyncio.sleep(0.02)
        web.node.release()
        for _ in range(3):
            assert (await client.reply()).status == 200
        assert await client.is_closed()

    serve(scenario)


def test_a_client_that_left_costs_nothing_when_its_answers_come() -> None:
    async def scenario(web: Web) -> None:
        web.node.later = []
        client = await web.client()
        client.send(append() * 3)
        await web.until(lambda: len(web.node.later or ()) == 3)
        client.writer.transport.abort()
        await asyncio.sleep(0.02)
        web.node.release()
        await web.until(lambda: not web.gateway.server.connection_count)
        assert web.logged == []

    serve(scenario)


def test_expect_continue() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        raw = append()
        at = raw.index(b"\r\n\r\n") + 4
        client.send(raw[: at - 4] + b"\r\nExpect: 100-continue\r\n\r\n")
        assert (await client.reply()).status == 100
        client.send(raw[at : at + 3])
        await asyncio.sleep(0.02)
        client.send(raw[at + 3 :])
        assert (await client.reply()).status == 200
        client.send(raw[: at - 4] + b"\r\nExpect: 100-continue\r\n\r\n" + raw[at:])
        assert (await client.reply()).status == 200  # the body was here: nothing to wait for

    serve(scenario)


def test_who_speaks_http_1_0_hears_no_100() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        raw = append().replace(b" HTTP/1.1", b" HTTP/1.0", 1)
        at = raw.index(b"\r\n\r\n") + 4
        client.send(raw[: at - 4] + b"\r\nExpect: 100-continue\r\n\r\n")
        await asyncio.sleep(0.02)
        client.send(raw[at:])
        assert (await client.reply()).status == 200

    serve(scenario)


OK_HEAD = b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: x\r\n"
REFUSED = {
    "not http": (b"\x16\x03\x01\x02\x00 hello\r\n\r\n", 400),
    "no version": (b"GET /\r\n\r\n", 400),
    "two spaces": (b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "version 2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "lower case": (b"get / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "control in path": (b"GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    "folded": (b"GET /health HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400),
    "space before colon": (b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    "no colon": (b"GET /health HTTP/1.1\r\nHost\r\n\r\n", 400),
    "empty name": (b"GET /health HTTP/1.1\r\n: x\r\nHost: x\r\n\r\n", 400),
    "bare lf": (b"GET /health HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400),
    "bare cr": (b"GET /health HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", 400),
    "nul": (b"GET /health HTTP/1.1\r\nHost: x\x00\r\n\r\n", 400),
    "two lengths": (OK_HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
    "list of lengths": (OK_HEAD + b"Content-Length: 1, 1\r\n\r\nx", 400),
    "signed length": (OK_HEAD + b"Content-Length: +1\r\n\r\nx", 400),
    "no length": (OK_HEAD + b"Content-Length: \r\n\r\nx", 400),
    "length and chunks": (
        OK_HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "gzip coding": (OK_HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "two codings": (
        OK_HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        400,
    ),
    "chunks in 1.0": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "bad chunk size": (OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n", 400),
    "chunk too long": (OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n", 400),
    "huge chunk": (OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413),
    "long chunk line": (OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 2000, 400),
    "huge body": (OK_HEAD + b"Content-Length: 99999999999\r\n\r\n", 413),
    "absurd body": (OK_HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
    "endless head": (OK_HEAD + b"A: " + b"x" * 20_000, 431),
    "long head": (OK_HEAD + b"A: " + b"x" * 20_000 + b"\r\n\r\n", 431),
    "many fields": (OK_HEAD + b"A: b\r\n" * 200 + b"\r\n", 431),
    "odd expectation": (OK_HEAD + b"Expect: 200-maybe\r\n\r\n", 417),
    "another origin": (OK_HEAD + b"Origin: http://evil.example\r\nContent-Length: 0\r\n\r\n", 403),
    "bad percent": (b"GET /v1/topics/%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "bad utf-8": (b"GET /v1/topics/%ff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "parameter twice": (b"GET /v1/groups?topic=a&topic=b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_trusted_is_refused_and_ends_the_connection(kind: str) -> None:
    raw, status = REFUSED[kind]

    async def scenario(web: Web) -> None:
        client = await web.client()
        client.send(append() + raw + append())
        assert (await client.reply()).status == 200
        reply = await client.reply()
        assert reply.status == status, reply.body
        assert reply.json["error"]["message"]
        assert reply.fields["connection"] == "close"
        assert await client.is_closed()
        assert web.node.end_of("orders", 0) == 1  # what follows is not read
        assert [event for _, event, _ in web.logged] == []

    serve(scenario)


def test_a_known_head_with_another_length_is_checked_again() -> None:
    """The shortcut by the bytes before the digits must not skip the bounds."""

    async def scenario(web: Web) -> None:
        client = await web.client()
        raw = append()
        client.send(raw * 2)
        head = raw[: raw.index(b"Content-Length: ") + 16]
        for digits, status in ((b"9" * 40, 413), (b"", 400), (b"0", 400)):
            again = await web.client()
            again.send(raw + head + digits + b"\r\n\r\n")
            assert (await again.reply()).status == 200
            assert (await again.reply()).status == status

    serve(scenario)


def test_a_big_refused_body_does_not_cost_the_client_its_reply() -> None:
    async def scenario(web: Web) -> None:
        client = await web.client()
        client.send(OK_HEAD + b"Content-Length: 40000000\r\n\r\n" + bytes(4_000_000))
        reply = await client.reply()
        assert (reply.status, reply.code) == (413, "too_large")
        assert "request_bytes_max" in reply.json["error"]["hint"]

    serve(scenario)


def test_who_goes_on_sending_after_a_refusal_has_the_whole_time_to_hear_of_it() -> None:
    """What came meanwhile put its time back, so that it was cut off at the next look."""

    async def scenario(web: Web) -> None:
        server = web.gateway.server
        server.tick = 100
        client = await web.client()
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert (await client.reply()).status == 413
        (connection,) = server._connections
        for tick in range(101, 101 + server.linger_ticks_max):
            client.send(b"x" * 1000)
            await asyncio.sleep(0.02)
            connection.watch(tick)
        await asyncio.sleep(0.02)
        assert server.connection_count == 1
        connection.watch(101 + server.linger_ticks_max)
        await web.until(lambda: not server.connection_count)

    serve(scenario)


def test_random_bytes_never_break_the_server() -> None:
    rng = random.Random(7)
    whole = append() + request("GET", "/health")

    async def scenario(web: Web) -> None:
        for _ in range(150):
            client = await web.client()
            raw = bytearray(whole * 2)
            for _ in range(rng.randrange(1, 6)):
                at = rng.randrange(len(raw))
                raw[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
            client.send(bytes(raw))
            client.writer.write_eof()
            assert await client.is_closed() in {True, False}
            client.close()
        good = await web.client()
        assert (await good.ask("GET", "/health")).status == 200
        assert [e for level, e, _ in web.logged if level == "error"] == []

    serve(scenario)


def test_a_request_that_does_not_arrive_in_time_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_server, "TICK_MS", 10)

    async def scenario(web: Web) -> None:
        web.gateway.server.request_ticks_max = 10
        for part in (
            append()[:40],
            append()[:-3],
            OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        ):
            client = await web.client()
            client.send(part)
            assert (await client.reply()).status == 408
            assert await client.is_closed()

    serve(scenario)


def test_an_idle_client_is_hung_up_on_and_a_waiting_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_server, "TICK_MS", 10)

    async def scenario(web: Web) -> None:
        web.gateway.server.idle_ticks_max = 10
        web.node.later = []
        waiting, idle = await web.client(), await web.client()
        waiting.send(append())
        assert await idle.is_closed()
        web.node.release()
        assert (await waiting.reply()).status == 200

    serve(scenario)


def test_an_idle_client_that_reads_nothing_is_let_go_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was closed after what it had not read: that is never, and it counted for as long."""
    monkeypatch.setattr(stream_server, "TICK_MS", 10)

    async def scenario(web: Web) -> None:
        server = web.gateway.server
        server.idle_ticks_max, server.request_ticks_max = 10, 5
        web.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        with socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.connect(web.listener.getsockname())
            silent.sendall(request("GET", "/openapi.json") * 2)
            await web.until(lambda: server.connection_count == 1)
            (connection,) = server._connections
            await web.until(lambda: connection._transport.get_write_buffer_size() > 0)
            assert not connection._stuck, "that is looked after anyway"
            await web.until(lambda: server.connection_count == 0)

    serve(scenario)


def test_who_reads_slowly_what_ends_a_connection_is_waited_for() -> None:
    """The close was begun with the reply: its reader had two minutes for it, reading or not."""

    async def scenario(web: Web) -> None:
        server = web.gateway.server
        web.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(web.listener.getsockname())
            slow.sendall(request("GET", "/openapi.json", fields={"Connection": "close"}))
            await web.until(lambda: server.connection_count == 1)
            (connection,) = server._connections
            transport = connection._transport
            await web.until(transport.is_closing)
            left = transport.get_write_buffer_size()
            assert left > 0
            assert not connection._stuck, "that is looked after anyway"
            tick = connection.active_tick
            for _ in range(2):
                tick += server.idle_ticks_max + 1
                connection.watch(tick)
                await asyncio.sleep(0.01)
                assert server.connection_count == 1
                while transport.get_write_buffer_size() >= left:
                    with contextlib.suppress(BlockingIOError):
                        slow.recv(1024, socket.MSG_DONTWAIT)
                    await asyncio.sleep(0)
                left = transport.get_write_buffer_size()
            for _ in range(2):  # and no longer than that
                tick += server.idle_ticks_max + 1
                connection.watch(tick)
            await web.until(lambda: server.connection_count == 0)

    serve(scenario)


def test_one_connection_too_many_is_told_so() -> None:
    async def scenario(web: Web) -> None:
        first = await web.client()
        assert (await first.ask("GET", "/health")).status == 200
        second = await web.client()
        reply = await second.reply()
        assert (reply.status, reply.code) == (503, "over_limit")
        assert await second.is_closed()

    serve(scenario, Settings(limits=LimitSettings(connections_max=1)))


def test_heads_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "KNOWN_MAX", 16)

    async def scenario(web: Web) -> None:
        client = await web.client()
        for i in range(100):
            client.send(request("GET", f"/v1/topics/t{i}", b"", {"X": "y" * i}))
        for i in range(100):
            client.send(request("POST", f"/v1/topics/t{i}/messages", b"[]"))
        for _ in range(200):
            assert (await client.reply()).status in {404, 400}
        server = web.gateway.server
        assert 0 < len(server.prefixes) <= 16
        assert len(server.wholes) <= 16

    serve(scenario)


def test_a_bug_is_a_500_with_a_number_and_no_stack_trace() -> None:
    async def scenario(web: Web) -> None:
        def broken(*_: object) -> None:
            raise ZeroDivisionError("secret detail")

        web.node.append = broken  # type: ignore[method-assign]
        web.node.catalog = broken  # type: ignore[method-assign,assignment]
        client = await web.client()
        for raw in (append(), request("GET", "/v1/topics")):
            client.send(raw)
            reply = await client.reply()
            assert (reply.status, reply.code) == (500, "internal")
            assert b"secret" not in reply.body
            assert b"Traceback" not in reply.body
        numbers = [fields["report"] for _, event, fields in web.logged if event == "request.failed"]
        assert numbers == ["h1", "h2"]
        assert "secret" in str(web.logged[0][2])

    serve(scenario)


def test_refusals_have_their_status() -> None:
    async def scenario(web: Web) -> None:
        web.node.refuse = NoLeader("orders/0")
        client = await web.client()
        client.send(append())
        reply = await client.reply()
        assert (reply.status, reply.code) == (503, "no_leader")
        assert reply.fields["retry-after"] == "1"
        assert reply.json["error"]["hint"]

    serve(scenario)


# -- the parser alone


@pytest.mark.parametrize(
    ("raw", "path", "query"),
    [
        (b"GET /a?b=c HTTP/1.1", "/a", "b=c"),
        (b"GET http://h:1/a/b?c HTTP/1.1", "/a/b", "c"),
        (b"GET http://h HTTP/1.1", "/", ""),
        (b"OPTIONS * HTTP/1.1", "*", ""),
    ],
)
def test_request_line(raw: bytes, path: str, query: str) -> None:
    line = RequestLine(raw)
    assert (line.path, line.query) == (path, query)


def test_fields() -> None:
    fields = Fields(b"A: 1\r\na:\t 2 \r\nEmpty:\r\nConnection: x, CLOSE")
    assert fields.values[b"a"] == b"1, 2"
    assert fields.values[b"empty"] == b""
    assert fields.close
    assert Fields(b"").values == {}


def test_unquote_and_query() -> None:
    assert unquote("a%20b%C3%A9+") == "a b\u00e9+"
    assert parse_query("a=1&b=x+y&c=&d") == {"a": "1", "b": "x y"}
    for bad in ("%", "%1", "%+1", "% 1", "%g0", "%ff"):
        with pytest.raises(Refused):
            unquote(bad)
