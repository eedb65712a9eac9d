"""The real clock."""

import asyncio
import time

import uvloop

from raftline.node.clock import LoopClock


def test_order_and_delay() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop)
        order: list[str] = []
        begun_ms = clock.mono_ms()
        ended: asyncio.Future[float] = loop.create_future()
        clock.call_later(20, lambda: ended.set_result(clock.mono_ms()))
        clock.call_later(5, lambda: order.append("never")).cancel()
        clock.call_soon(lambda: order.append("soon"))
        order.append("now")
        took_ms = await ended - begun_ms
        assert order == ["now", "soon"]
        assert 18 <= took_ms < 2_000

    uvloop.run(main())


def test_wall_is_unix_milliseconds() -> None:
    clock = LoopClock(asyncio.SelectorEventLoop())
    assert abs(clock.wall_ms() - time.time() * 1000) < 1_000
    clock._loop.close()
