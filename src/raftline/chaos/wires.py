"""The wires between nodes: every peer connection runs through here and can be cut or slowed.

State
    One listening socket per node, at the address it tells its peers. A connection to it is passed
    on to the node's own peer port. Who dialled is found by the source port (``/proc/net/tcp``), so
    a fault holds for a pair of nodes and a direction.

A *cut* passes nothing on and closes nothing: like lost packets, it is silence. A *slow* wire
passes everything on, in order, later. All of it runs on one event loop in a thread of its own.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

PIECE_BYTES = 1 << 16
QUEUE_MAX = 256  # pieces on their way through one slow wire
LOOK_S = 0.02  # how often a cut wire looks whether it is whole again
DIAL_S_MAX = 3.0
STOP_S_MAX = 5.0

Pair = tuple[str, str]  # from, to


def why_not() -> str:
    """Say why wires cannot be had here; empty if they can."""
    return "" if Path("/proc/net/tcp").exists() else "who dials is read from /proc (Linux)"


class Wires:
    """All wires of a cluster. Faults may be set from any thread."""

    def __init__(self, pids: Callable[[], dict[int, str]]) -> None:
        """Take ``pids``: which node each running process is."""
        self._pids = pids
        self._cut: set[Pair] = set()
        self._delay_s: dict[Pair, float] = {}
        self._links: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers: list[asyncio.Server] = []

    # ------------------------------------------------------------------ faults

    def cut(self, source: str, target: str) -> None:
        """Pass nothing on from one node to another."""
        self._cut.add((source, target))

    def slow(self, source: str, target: str, delay_s: float) -> None:
        """Pass everything on later."""
        self._delay_s[source, target] = delay_s

    def heal(self) -> None:
        """Make all wires whole and quick."""
        self._cut.clear()
        self._delay_s.clear()

    # ------------------------------------------------------------------ life

    def open(self, name: str, port: int, own_port: int) -> None:
        """Listen for a node at ``port`` and pass on to its own port."""

        async def listen() -> asyncio.Server:
            return await asyncio.start_server(
                lambda reader, writer: self._accept(name, own_port, reader, writer),
                "127.0.0.1",
                port,
            )

        self._servers.append(self._call(listen()))

    def close(self) -> None:
        """Hang up everywhere and end the thread."""

        async def end() -> None:
            for server in self._servers:
                server.close()
            for link in self._links:
                link.cancel()
            await asyncio.wait(self._links, timeout=1) if self._links else None

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S_MAX)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(STOP_S_MAX)

    # ------------------------------------------------------------------ links

    async def _accept(
        self,
        name: str,
        own_port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        source = self._who(writer.get_extra_info("peername")[1])
        try:
            dialled = asyncio.open_connection("127.0.0.1", own_port)
            far_reader, far_writer = await asyncio.wait_for(dialled, DIAL_S_MAX)
        except (OSError, TimeoutError):
            writer.transport.abort()  # refused here as it was there
            return
        finally:
            self._links.discard(task)
        async with asyncio.TaskGroup() as group:
            for each in (
                self._pass(reader, far_writer, (source, name)),
                self._pass(far_reader, writer, (name, source)),
            ):
                passing = group.create_task(each)
                self._links.add(passing)
                passing.add_done_callback(self._links.discard)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: Pair
    ) -> None:
        """Pass bytes on, each piece after the delay that held when it came."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE_MAX)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._take(reader, pieces, pair))
                group.create_task(self._give(writer, pieces, pair))
        except* OSError:
            pass
        finally:
            writer.transport.abort()

    async def _take(
        self, reader: asyncio.StreamReader, pieces: asyncio.Queue[tuple[float, bytes]], pair: Pair
    ) -> None:
        while piece := await self._read(reader):
            await pieces.put((self._loop.time() + self._delay_s.get(pair, 0.0), piece))
        await pieces.put((self._loop.time(), b""))

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.read(PIECE_BYTES)
        except OSError:
            return b""

    async def _give(
        self, writer: asyncio.StreamWriter, pieces: asyncio.Queue[tuple[float, bytes]], pair: Pair
    ) -> None:
        while True:
            due, piece = await pieces.get()
            while pair in self._cut or self._loop.time() < due:
                wait_s = LOOK_S if pair in self._cut else due - self._loop.time()
                await _pause(max(0.0, min(wait_s, LOOK_S)))
            if not piece:
                return
            writer.write(piece)
            await writer.drain()

    def _who(self, port: int) -> str:
        """Return the node whose process has a socket bound to a port."""
        inode = _inode_of(port)
        for pid, name in self._pids().items():
            with contextlib.suppress(OSError):
                if any(_is_socket(file, inode) for file in Path(f"/proc/{pid}/fd").iterdir()):
                    return name
        return ""


async def _pause(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    woken = loop.create_future()
    handle = loop.call_later(seconds, woken.set_result, None)
    try:
        await woken
    finally:
        handle.cancel()


def _is_socket(file: Path, inode: str) -> bool:
    try:
        return str(file.readlink()) == f"socket:[{inode}]"
    except OSError:
        return False  # closed meanwhile


def _inode_of(port: int) -> str:
    wanted = f":{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(wanted):
            return fields[9]
    return ""
