"""Long work on the loop lets others have their turn."""

from collections.abc import Callable, Iterator

from raftline.node.pacing import STEP_MS, pace


class StepClock:
    """A clock that a test moves, and calls that wait for the loop."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.soon: list[Callable[[], None]] = []

    def mono_ms(self) -> float:
        return self.now_ms

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)


def steps(clock: StepClock, count: int, each_ms: float) -> Iterator[None]:
    for _ in range(count):
        clock.now_ms += each_ms
        yield


def test_short_work_is_done_at_once() -> None:
    clock, done = StepClock(), []
    pace(clock, steps(clock, 10, STEP_MS / 20), lambda: done.append(True))  # type: ignore[arg-type]
    assert (done, clock.soon) == ([True], [])


def test_long_work_is_done_a_little_at_a_time() -> None:
    clock, done, passes = StepClock(), [], 0
    pace(clock, steps(clock, 100, STEP_MS / 2), lambda: done.append(True))  # type: ignore[arg-type]
    while clock.soon:
        assert not done
        passes += 1
        clock.soon.pop()()
    assert done == [True]
    assert 30 <= passes <= 40
