"""A gateway on a little node, and a client that sees bytes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import uvloop

from raftline.config.settings import Settings
from raftline.gateways.http.gateway import HttpGateway
from raftline.node.clock import LoopClock
from tests.unit.gateways.little_node import LittleNode
from tests.unit.transport.free_port import bind_free

BATCH = "application/vnd.raftline.batch"


class Reply:
    def __init__(self, status: int, fields: dict[str, str], body: bytes) -> None:
        self.status = status
        self.fields = fields
        self.body = body

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, raw: bytes) -> None:
        self.writer.write(raw)

    async def reply(self, *, head_only: bool = False) -> Reply:
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n"))[:-4].decode()
            first, *lines = head.split("\r\n")
            fields = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
            length = 0 if head_only else int(fields.get("content-length", 0))
            return Reply(int(first.split(" ")[1]), fields, await self.reader.readexactly(length))

    async def ask(
        self, method: str, path: str, body: bytes | Any = b"", fields: dict[str, str] | None = None
    ) -> Reply:
        self.send(request(method, path, body, fields))
        return await self.reply(head_only=method == "HEAD")

    async def is_closed(self) -> bool:
        async with asyncio.timeout(10):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        self.writer.close()


def request(
    method: str, path: str, body: bytes | Any = b"", fields: dict[str, str] | None = None
) -> bytes:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = "".join(f"{k}: {v}\r\n" for k, v in (fields or {}).items())
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


class Web:
    """Everything a test needs."""

    def __init__(self, settings: Settings, node: LittleNode) -> None:
        loop = asyncio.get_running_loop()
        self.logged: list[tuple[str, str, dict[str, object]]] = []
        self.node = node
        self.gateway = HttpGateway(loop, LoopClock(loop), node, settings, self.log)
        self.listener = bind_free()
        self.port = self.listener.getsockname()[1]
        self.clients: list[Client] = []

    def log(self, level: str, event: str, **fields: object) -> None:
        self.logged.append((level, event, fields))

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(8):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.002)


def serve(
    scenario: Callable[[Web], Awaitable[None]],
    settings: Settings | None = None,
    *,
    use_uvloop: bool = True,
) -> None:
    async def main() -> None:
        web = Web(settings or Settings(), LittleNode())
        await web.gateway.start(web.listener)
        try:
            await scenario(web)
        finally:
            for client in web.clients:
                client.close()
            web.gateway.close()
            await web.until(lambda: not web.gateway.server.connection_count)

    factory = uvloop.new_event_loop if use_uvloop else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
