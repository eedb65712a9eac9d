"""A TCP proxy that stands for distance: what goes in comes out later, in both directions.

    python -m bench.latency_proxy '{"port": 21000, "to": 8080, "delay_ms": 75}'

Bytes are read as soon as they come and written ``delay_ms`` after that, so a round trip takes
twice the delay and the amount on its way is not bounded by it: distance costs time, not rate. Only
a reader that does not keep up stops the other side. An end is passed on as late as the bytes.

Prints ``ready`` when it listens; ends with its parent's pipe, or by a signal.
"""

import asyncio
import os
import sys
from collections import deque
from typing import cast

import msgspec
import uvloop


class ProxySpec(msgspec.Struct, kw_only=True):
    """Where it listens, whom it stands before, and how far away that seems."""

    port: int
    to: int
    delay_ms: float = 75.0


class Side(asyncio.Protocol):
    """One end of a connection: what it reads is written to the other end, later."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self.late: deque[tuple[float, bytes]] = deque()  # when to write, what; b"" is the end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._pass_on(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pass_on(b"")

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def _pass_on(self, data: bytes) -> None:
        self.late.append((self.loop.time() + self.delay_s, data))
        if len(self.late) == 1:
            self.loop.call_later(self.delay_s, self.write_due)

    def write_due(self) -> None:
        """Write what is due; before the other end is there, look again."""
        if self.other is None or self.other.transport is None:
            self.loop.call_later(self.delay_s, self.write_due)
            return
        if self.other.transport.is_closing():
            return
        now = self.loop.time() + 0.0005  # timers come in steps of a millisecond
        ready: list[bytes] = []
        while self.late and self.late[0][0] <= now:
            _, data = self.late.popleft()
            if not data:
                self.other.transport.writelines(ready)
                self.other.transport.close()
                return
            ready.append(data)
        self.other.transport.writelines(ready)
        if self.late:
            self.loop.call_later(max(0.0, self.late[0][0] - self.loop.time()), self.write_due)


class Near(Side):
    """The side a client sees; it opens the way to the server."""

    def __init__(self, spec: ProxySpec) -> None:
        super().__init__(spec.delay_ms / 1000)
        self.spec = spec
        self.opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.opening = self.loop.create_task(self._open())

    async def _open(self) -> None:
        far = Side(self.delay_s)
        far.other = self
        try:
            await self.loop.create_connection(lambda: far, "127.0.0.1", self.spec.to)
        except OSError:
            assert self.transport is not None
            self.transport.close()
            return
        self.other = far


async def serve(spec: ProxySpec) -> None:
    """Serve until the parent is gone."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Near(spec), "127.0.0.1", spec.port)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), lambda: os.read(0, 1 << 10) or ended.set())
    print("ready", flush=True)
    await ended.wait()
    server.close()


def main() -> None:
    uvloop.run(serve(msgspec.json.decode(sys.argv[1].encode(), type=ProxySpec)))


if __name__ == "__main__":
    main()
