"""Streams of requests: worked on side by side, answered in order.

State
    At most ``WINDOW`` requests of a stream are in work, and at most ``WINDOW_BYTES`` of them, or
    one; then it is not read from, which the transport's flow control passes on to the client.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from raftline.gateways.grpc.registry import Requests, Send

WINDOW = 64
WINDOW_BYTES = 64 << 20


async def run_in_order(
    requests: Requests,
    start: Callable[[Any], "asyncio.Future[Any]"],
    reply_of: Callable[[Any], Any],
    send: Send,
) -> None:
    """Start every request as it comes; send the replies in the order of the requests."""
    waiting: asyncio.Queue[tuple[asyncio.Future[Any], int] | None] = asyncio.Queue(WINDOW)
    in_work = 0  # bytes
    answered = asyncio.Event()

    async def reply() -> None:
        nonlocal in_work
        while (started := await waiting.get()) is not None:
            answer = await started[0]
            in_work -= started[1]
            answered.set()
            await send(reply_of(answer))

    async def read() -> None:
        nonlocal in_work
        async for request in requests:
            size = requests.size
            while in_work and in_work + size > WINDOW_BYTES:
                answered.clear()
                await answered.wait()
            in_work += size
            await waiting.put((start(request), size))
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
