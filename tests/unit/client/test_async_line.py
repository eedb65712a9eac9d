"""The async client where there is nobody to talk to."""

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import raftline
from raftline.client.async_line import AsyncLine
from raftline.client.async_received import AsyncMessage
from raftline.client.core.settles import Lease
from raftline.client.wishes import wish_of
from raftline.model.errors import Unavailable
from raftline.model.message import Message

NOBODY = "http://127.0.0.1:1"


async def _hears_that_it_is_closed(line: AsyncLine) -> None:
    async with asyncio.timeout(10):  # far below the time of a call
        with pytest.raises(Unavailable, match="the client is closed"):
            await line.send("orders", b"late")
        with pytest.raises(Unavailable, match="the client is closed"):
            await line.topics.list()
        with pytest.raises(Unavailable, match="the client is closed"):
            await line.receive_many("orders", group="billing")
        with pytest.raises(Unavailable, match="the client is closed"):
            await line.settle(("orders", 0, "ack", (), 0, None), wait=False)  # pyright: ignore[reportArgumentType]
        await line.close()


def test_after_the_close_everything_hears_of_it_at_once() -> None:
    """Sends and calls tried again until their time was over."""

    async def main() -> None:
        async with raftline.connect_async(NOBODY, timeout="60s") as line:
            pass
        await _hears_that_it_is_closed(line)

    asyncio.run(main())


async def _reads_as_it_is_closed(url: str) -> None:
    async with raftline.connect_async(url, timeout="60s") as line:
        reading = asyncio.create_task(line.read("orders", wait="60s"))
        await asyncio.sleep(0.2)
    async with asyncio.timeout(2):
        with pytest.raises(Unavailable, match="the client is closed"):
            await reading


@pytest.mark.parametrize("listens", [True, False], ids=["under way", "between two attempts"])
def test_who_waits_for_an_answer_hears_of_the_close_at_once(listens: bool) -> None:
    """It was asked again until the time was up, of a client that asks nobody any more."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}" if listens else NOBODY
        asyncio.run(_reads_as_it_is_closed(url))
        with raftline.connect(url, timeout="60s") as line, ThreadPoolExecutor() as threads:
            reading = threads.submit(line.read, "orders", wait="60s")
            time.sleep(0.2)
            line.close()
            with pytest.raises(Unavailable, match="the client is closed"):
                reading.result(2)


def test_a_client_that_was_closed_before_its_first_use_stays_closed() -> None:
    async def main() -> None:
        line = raftline.connect_async(NOBODY, timeout="60s")
        await line.close()
        await _hears_that_it_is_closed(line)

    asyncio.run(main())


def test_who_is_cancelled_with_a_message_stays_cancelled_when_the_client_is_closed() -> None:
    """It ended with Unavailable: the message could not be given back any more."""

    async def main() -> None:
        begun = asyncio.Event()

        async def work(message: AsyncMessage) -> None:
            async with message:
                begun.set()
                await asyncio.sleep(60)

        async with raftline.connect_async(NOBODY, timeout="60s") as line:
            worker = asyncio.create_task(work(_leased(line)))
            await begun.wait()
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker

    asyncio.run(main())


def test_a_second_close_takes_no_time_from_the_first() -> None:
    """Workers could not say any more what became of their messages."""

    async def main() -> None:
        line = await raftline.connect_async(NOBODY, timeout="60s")
        await line.send("orders", b"on its way")  # the close waits for it
        first = asyncio.create_task(line.close(timeout="100ms"))
        await asyncio.sleep(0)
        await line.close()
        assert not first.done()
        await _leased(line).ack()
        await first
        with pytest.raises(Unavailable, match="the client is closed"):
            await _leased(line).ack()

    asyncio.run(main())


def _leased(line: AsyncLine) -> AsyncMessage:
    wish = wish_of("orders", "billing", None, 1, 0, 0, None, 60_000, {})
    lease = Lease("orders", 0, "billing", 1, 1, 1, 0, 30_000, 1e12)
    return AsyncMessage(line, line.engine.receiver(wish), (lease, Message(0, 0, None, b"")))
