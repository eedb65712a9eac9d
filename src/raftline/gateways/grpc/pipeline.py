"""Streams of requests: worked on side by side, answered in order.

State
    At most ``WINDOW`` requests of a stream are in work; then it is not read from, which the
    transport's flow control passes on to the client.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from raftline.gateways.grpc.registry import Send

WINDOW = 64


async def run_in_order(
    requests: AsyncIterator[Any],
    start: Callable[[Any], "asyncio.Future[Any]"],
    reply_of: Callable[[Any], Any],
    send: Send,
) -> None:
    """Start every request as it comes; send the replies in the order of the requests."""
    waiting: asyncio.Queue[asyncio.Future[Any] | None] = asyncio.Queue(WINDOW)

    async def reply() -> None:
        while (answer := await waiting.get()) is not None:
            await send(reply_of(await answer))

    async def read() -> None:
        async for request in requests:
            await waiting.put(start(request))
        await waiting.put(None)

    await together(reply(), read())


async def together(*parts: Any) -> None:
    """Run coroutines until all are done; the first that fails ends the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(part)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
