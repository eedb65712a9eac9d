"""Many calls at once: all are made, at most a window at a time, answers in order; or in a chain."""

import pytest

from raftline.gateways.fan import WINDOW, Chain, Fan


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


@pytest.mark.parametrize("is_late", [False, True])
def test_steps_of_a_chain_follow_each_other_without_an_end_of_the_stack(is_late: bool) -> None:
    steps = 5_000
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1
        if not is_late and taken < steps:
            chain.next()

    chain = Chain(step)
    chain.next()
    while taken < steps:
        chain.next()
    assert taken == steps


def test_a_chain_goes_on_after_a_step_that_failed() -> None:
    taken: list[int] = []

    def step() -> None:
        taken.append(1)
        if len(taken) == 1:
            raise KeyError

    chain = Chain(step)
    with pytest.raises(KeyError):
        chain.next()
    chain.next()
    assert len(taken) == 2
