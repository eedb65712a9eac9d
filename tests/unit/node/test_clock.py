"""The real clock: long waits that are meant for one instant end in one wake-up."""

import asyncio
import time

import pytest
import uvloop

from raftline.node.clock import GRID_MS, LoopClock


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_long_waits_for_one_instant_end_together_and_never_early(new_loop) -> None:
    loop = new_loop()
    clock = LoopClock(loop)
    begun = clock.mono_ms()
    ends: list[tuple[float, float]] = []
    passes: list[int] = []  # which pass of the loop each wait ended in
    count = 0

    def next_pass() -> None:
        nonlocal count
        count += 1

    def wait_until(due_ms: float) -> None:
        def ended() -> None:
            ends.append((loop.time(), due_ms))
            passes.append(count)
            loop.call_soon(next_pass)

        clock.call_later(due_ms - clock.mono_ms(), ended)

    for due in (60.0, 60.0, 60.0):
        wait_until(begun + due)
        until = time.perf_counter() + 0.0007  # what a callback takes; loops round each timer alone
        while time.perf_counter() < until:
            pass
    clock.call_later(10, lambda: ends.append((0.0, 0.0)))
    loop.call_later(0.2, loop.stop)
    loop.run_forever()
    loop.close()
    assert ends[0] == (0.0, 0.0)  # a short wait is not drawn out
    assert passes == [0, 0, 0]
    for end, due in ends[1:]:
        assert due - 1.5 <= end * 1000 <= due + GRID_MS + 100  # the machine may be slow


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_waits_below_a_millisecond_are_no_longer_than_that_and_never_early(new_loop) -> None:
    loop = new_loop()
    clock = LoopClock(loop)
    took_ms: list[float] = []
    order: list[str] = []
    rounds = 40

    def wait() -> None:
        begun = clock.mono_ms()

        def ended() -> None:
            took_ms.append(clock.mono_ms() - begun)
            if len(took_ms) < rounds:
                wait()
            else:
                clock.call_later(0.6, lambda: order.append("second"))
                clock.call_later(0.3, lambda: order.append("first"))
                clock.call_later(0.4, lambda: order.append("never")).cancel()
                clock.call_later(0.0, lambda: order.append("at once"))
                loop.call_later(0.05, loop.stop)

        clock.call_later(0.2, ended)

    wait()
    loop.call_later(20, loop.stop)  # the machine may be slow
    loop.run_forever()
    loop.close()
    assert 0.199 < min(took_ms) < 1.0  # a loop's own timer takes none, one or more
    assert sorted(order) == ["at once", "first", "second"]
    assert order.index("first") < order.index("second")
