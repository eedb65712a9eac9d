"""The thread lane on a real loop: order, errors, batches, close."""

import asyncio
import threading

import pytest

from raftline.node import lanes
from raftline.node.lanes import ThreadLane


@pytest.fixture(params=["event", "socket"], autouse=True)
def bell(request, monkeypatch):
    if request.param == "socket":
        monkeypatch.setattr(lanes, "_EventBell", lanes._SocketBell)


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def run_until(loop: asyncio.AbstractEventLoop, count: int, seen: list) -> None:
    def watch() -> None:
        if len(seen) >= count:
            loop.stop()
        else:
            loop.call_later(0.001, watch)

    loop.call_soon(watch)
    loop.run_forever()


def test_jobs_run_in_order_off_the_loop_and_complete_on_it(loop):
    lane = ThreadLane(loop, "wal")
    seen: list[tuple] = []
    here = threading.get_ident()
    for i in range(1000):
        lane.submit(
            lambda i=i: (i, threading.get_ident()),
            lambda result, error: seen.append((result, error, threading.get_ident())),
        )
    run_until(loop, 1000, seen)
    assert [result[0] for result, _, _ in seen] == list(range(1000))
    assert all(error is None for _, error, _ in seen)
    assert {at for _, _, at in seen} == {here}
    assert here not in {result[1] for result, _, _ in seen}
    lane.close()


def test_an_error_goes_to_its_completion_and_the_lane_lives_on(loop):
    lane = ThreadLane(loop, "wal")
    seen: list[tuple] = []
    lane.submit(lambda: 1 // 0, lambda *got: seen.append(got))
    lane.submit(lambda: "fine", lambda *got: seen.append(got))
    run_until(loop, 2, seen)
    assert seen[0][0] is None
    assert isinstance(seen[0][1], ZeroDivisionError)
    assert seen[1] == ("fine", None)
    lane.close()


def test_a_completion_that_raises_does_not_take_the_others_with_it(loop):
    lane = ThreadLane(loop, "wal")
    raised: list[dict] = []
    loop.set_exception_handler(lambda _, context: raised.append(context))
    seen: list[int] = []

    def bad(result: object, error: object) -> None:
        seen.append(-1)
        raise ValueError

    ready = threading.Event()
    lane.submit(ready.wait, lambda *_: seen.append(0))
    lane.submit(lambda: None, bad)
    for i in range(3):
        lane.submit(lambda i=i: i, lambda result, _: seen.append(result))
    ready.set()
    run_until(loop, 5, seen)
    assert seen == [0, -1, 0, 1, 2]
    assert len(raised) == 1
    lane.close()


def test_a_completion_may_submit(loop):
    lane = ThreadLane(loop, "wal")
    seen: list[int] = []

    def again(result: int | None, _: object) -> None:
        assert result is not None
        seen.append(result)
        if result < 50:
            lane.submit(lambda: result + 1, again)

    lane.submit(lambda: 0, again)
    run_until(loop, 51, seen)
    assert seen == list(range(51))
    lane.close()


def test_close_finishes_what_was_submitted(loop):
    lane = ThreadLane(loop, "wal")
    seen: list[int] = []
    for i in range(20):
        lane.submit(lambda i=i: i, lambda result, _: seen.append(result))
    lane.close()
    lane.close()
    assert seen == list(range(20))


def test_what_a_completion_asks_for_while_the_lane_closes_is_dropped(loop):
    """A node that was told to stop while it deleted a topic ended with an error. N4."""
    lane = ThreadLane(loop, "segment")
    seen: list[str] = []

    def set_aside(*_: object) -> None:
        seen.append("set aside")
        lane.submit(lambda: seen.append("removed"), lambda *_: seen.append("told"))

    lane.submit(lambda: None, set_aside)
    lane.close()
    lane.submit(lambda: seen.append("later"), lambda *_: None)
    assert seen == ["set aside"]
