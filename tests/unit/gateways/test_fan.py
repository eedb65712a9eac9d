"""Many calls at once: all are made, at most a window at a time, answers in order."""

from raftline.gateways.fan import WINDOW, Fan


def test_nothing_to_call() -> None:
    done: list[object] = []
    Fan([], done.append).start()
    assert done == [[]]


def test_answers_that_come_at_once_do_not_pile_up() -> None:
    done: list[object] = []
    calls = [lambda take, n=n: take(n) for n in range(5_000)]
    Fan(calls, done.append).start()
    assert done == [list(range(5_000))]


def test_no_more_than_a_window_at_a_time_and_in_order() -> None:
    waiting: dict[int, object] = {}
    done: list[object] = []
    count = 3 * WINDOW
    calls = [lambda take, n=n: waiting.__setitem__(n, take) for n in range(count)]
    Fan(calls, done.append).start()
    while waiting:
        assert len(waiting) <= WINDOW
        number = max(waiting)
        waiting.pop(number)(f"answer {number}")
    assert done == [[f"answer {n}" for n in range(count)]]
