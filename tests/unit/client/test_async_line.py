"""The async client where there is nobody to talk to."""

import asyncio

import pytest

import raftline
from raftline.client.async_line import AsyncLine
from raftline.model.errors import Unavailable

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


def test_a_client_that_was_closed_before_its_first_use_stays_closed() -> None:
    async def main() -> None:
        line = raftline.connect_async(NOBODY, timeout="60s")
        await line.close()
        await _hears_that_it_is_closed(line)

    asyncio.run(main())
