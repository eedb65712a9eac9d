"""Connections of a client to a real server: how many there are, and who may use them."""

import asyncio

from raftline.client import clock
from raftline.client.core.ports import ALONE, Ask, Lost, Reply
from raftline.client.net import IDLE_MAX, Wires


class Server:
    """Answers every request, unless it is told to wait; counts connections."""

    def __init__(self) -> None:
        self.made = 0
        self.open: set[asyncio.StreamWriter] = set()
        self.silent = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        self.open.add(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                if not self.silent:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()


async def ask(wires: Wires, host: str, way: str, limit_ms: int = 5_000) -> Reply | Lost:
    told: asyncio.Future[Reply | Lost] = asyncio.get_running_loop().create_future()
    wires.request(
        host,
        Ask(method="GET", path="/", way=way),
        limit_ms,
        clock.mono_ms() + limit_ms,
        told.set_result,
    )
    return await told


def run(story) -> None:
    async def all_of_it() -> None:
        server = Server()
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        host = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        wires = Wires(asyncio.get_running_loop())
        try:
            await story(server, wires, host)
        finally:
            wires.close()
            listening.close()

    asyncio.run(all_of_it())


def test_a_way_that_is_given_up_leaves_its_connection_to_the_next():
    """Every receive_many had a connection of its own, and left it behind: a chaos run found it."""

    async def story(server: Server, wires: Wires, host: str) -> None:
        for number in range(50):
            assert isinstance(await ask(wires, host, f"receive-{number}"), Reply)
            wires.hang_up(f"receive-{number}")
            assert isinstance(await ask(wires, host, ALONE), Reply)
        assert server.made == 1

    run(story)


def test_a_call_with_little_time_does_not_wait_for_the_time_of_another():
    """The one before had a minute and was answered: the next one waited for that minute."""

    async def story(server: Server, wires: Wires, host: str) -> None:
        await ask(wires, host, ALONE, 60_000)
        server.silent = True
        async with asyncio.timeout(3):
            assert isinstance(await ask(wires, host, ALONE, 50), Lost)
        assert server.made == 1

    run(story)


def test_a_way_that_is_in_use_shares_its_connection_with_nobody():
    async def story(server: Server, wires: Wires, host: str) -> None:
        for way in ("receive-1", "receive-2", ALONE, "receive-1", "receive-2"):
            await ask(wires, host, way)
        assert server.made == 3

    run(story)


def test_what_is_under_way_is_broken_off():
    async def story(server: Server, wires: Wires, host: str) -> None:
        await ask(wires, host, "receive-1")
        server.silent = True
        waiting = asyncio.get_running_loop().create_task(ask(wires, host, "receive-1"))
        await asyncio.sleep(0.05)
        wires.hang_up("receive-1")
        assert isinstance(await waiting, Lost)
        server.silent = False
        assert isinstance(await ask(wires, host, ALONE), Reply)
        assert server.made == 2

    run(story)


def test_spare_connections_are_few():
    async def story(server: Server, wires: Wires, host: str) -> None:
        ways = [f"receive-{number}" for number in range(IDLE_MAX * 2)]
        for way in ways:
            await ask(wires, host, way)
        for way in ways:
            wires.hang_up(way)
        await asyncio.sleep(0.1)
        assert len(server.open) == IDLE_MAX

    run(story)


def test_an_address_that_cannot_be_looked_up_is_lost_at_once():
    """A node had told one: its calls waited for their deadline, and a stack trace was printed."""

    async def story(server: Server, wires: Wires, host: str) -> None:
        del server, host
        answer = await asyncio.wait_for(ask(wires, "my..host:1", ALONE), 2)
        assert isinstance(answer, Lost)
        assert not answer.is_sent

    run(story)
