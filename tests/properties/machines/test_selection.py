"""The chooser against a naive one: nothing twice, nothing forgotten, in order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from raftline.machines.delivery import selection
from raftline.machines.delivery.commands import Policy
from raftline.machines.delivery.selection import AGED, OVERDUE, STRICT, WEIGHTED, Chooser
from raftline.model.intervals import IntervalSet
from tests.properties.machines.queue_board import Board

LANES = [20, 10, 0, -10, -20]
BOUND_MS = 30_000
ROUNDS_MAX = 500


class LaneBoard(Board):
    """A board whose leader uses a chooser."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.bound_ms = BOUND_MS
        self.chooser = Chooser(mode, BOUND_MS)
        super().__init__(Policy(max_retries=50, backoff_ms=100, backoff_ms_max=400))

    def after_apply(self) -> None:
        for _, start, end in self.machine.take_returned():
            self.chooser.returned(start, end)

    def give_back(self, start: int, end: int) -> None:
        self.chooser.returned(start, end)

    def choose(self, count_max: int) -> list[int]:
        """Choose and reserve, after a look at what is next."""
        free = list(self.free())
        view = (self.group, self.lanes, self.ages, self.reserved, self.end)
        lane = self.chooser.waiting_lane(*view, self.at_ms)
        choice = self.chooser.choose(*view, count_max, self.at_ms)
        offsets = self.reserve(choice.first, choice.again, None)
        assert len(offsets) == choice.count
        assert choice.is_more or choice.count == min(count_max, len(free))
        if selection.STEPS_MAX > 100:
            self.expect_lane(free, lane)
            self.expect_choice(free, offsets)
        return offsets

    def lead(self) -> None:
        """Another leader: nothing is on its way, the chooser is new."""
        self.chooser = Chooser(self.mode, self.bound_ms)
        self.out.clear()
        self.reserved = IntervalSet()

    def is_overdue(self, offset: int) -> bool:
        return self.mode == AGED and self.ages.at(offset) <= self.at_ms - self.bound_ms

    def expect_lane(self, free: list[int], lane: int | None) -> None:
        if not free:
            assert lane is None
        elif self.mode == WEIGHTED:
            assert lane == 0
        elif self.is_overdue(free[0]):
            assert lane == OVERDUE + self.at_ms - self.bound_ms - self.ages.at(free[0])
        else:
            assert lane == max(self.lane[offset] for offset in free)

    def expect_choice(self, free: list[int], chosen: list[int]) -> None:
        for lane in LANES:  # inside a lane the lowest first
            took = sorted(o for o in chosen if self.lane[o] == lane)
            assert took == [o for o in free if self.lane[o] == lane][: len(took)]
        if self.mode != WEIGHTED:
            order = sorted(free, key=self._rank)
            assert sorted(chosen) == sorted(order[: len(chosen)])

    def _rank(self, offset: int) -> tuple[int, int]:
        return (-OVERDUE if self.is_overdue(offset) else -self.lane[offset]), offset


number = st.integers(0, 99)
step = st.one_of(
    st.tuples(st.just("arrive"), st.integers(1, 6), st.sampled_from(LANES)),
    st.tuples(st.just("arrive"), st.integers(1, 6), st.sampled_from(LANES)),
    st.tuples(st.just("choose"), st.integers(1, 9), st.just(0)),
    st.tuples(st.just("choose"), st.integers(1, 9), st.just(0)),
    st.tuples(st.just("grant"), number, st.sampled_from([50, 1000, 100_000])),
    st.tuples(st.just("grant"), number, st.sampled_from([50, 1000, 100_000])),
    st.tuples(st.just("lose"), number, st.just(0)),
    st.tuples(st.just("ack"), number, st.just(0)),
    st.tuples(st.just("nack"), number, st.sampled_from([0, 100, -1])),
    st.tuples(st.just("wait"), st.sampled_from([10, 300, 5000, 31_000]), st.just(0)),
    st.tuples(st.sampled_from(["lead", "restart"]), st.just(0), st.just(0)),
    st.tuples(st.just("reset"), number, st.just(0)),
)
history = st.lists(step, max_size=50)
mode = st.sampled_from([AGED, WEIGHTED, STRICT])


def play(board: LaneBoard, steps) -> None:
    for verb, number, more in steps:
        if verb == "arrive":
            board.arrive(number, more)
        elif verb == "choose":
            board.choose(number)
        elif verb == "wait":
            board.wait(number)
        elif verb == "lead":
            board.lead()
        elif verb == "restart":
            board.chooser.restart()
        elif verb == "reset":
            board.reset(number * board.end // 100)
            board.chooser.restart()
        elif verb == "grant" and board.out:
            board.grant(number % len(board.out), lease_ms=more)
        elif verb == "lose" and board.out:
            board.lose(number % len(board.out))
        elif verb in ("ack", "nack") and board.leases:
            board.settle(verb, number % len(board.leases), more)


@settings(max_examples=200, deadline=None)
@given(mode, history)
def test_what_is_chosen_is_what_a_naive_chooser_would_choose(mode, steps):
    play(LaneBoard(mode), steps)


@settings(max_examples=60, deadline=None)
@given(mode, history, st.sampled_from([1, 2, 3, 10_000]))
def test_every_message_is_delivered_in_the_end(mode, steps, steps_max):
    kept, selection.STEPS_MAX = selection.STEPS_MAX, steps_max
    try:
        board = LaneBoard(mode)
        play(board, steps)
        deliver_everything(board)
    finally:
        selection.STEPS_MAX = kept


def deliver_everything(board: LaneBoard) -> None:
    """Workers ack what they get until nothing is left: no later than the last lease ends."""
    for _ in range(ROUNDS_MAX):
        if board.group.floor == board.end and not board.out:
            break
        board.choose(5)
        while board.out:
            board.grant(0)
        while board.leases:
            board.settle("ack", 0)
        board.wait(1_000)
    assert board.group.lag(board.end) == 0
    view = (board.group, board.lanes, board.ages, board.reserved, board.end)
    assert board.chooser.waiting_lane(*view, board.at_ms) is None


arrivals = st.lists(st.tuples(st.integers(1, 8), st.sampled_from(LANES)), max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(arrivals, max_size=40), st.integers(3, 12))
def test_nothing_waits_longer_than_the_bound_and_its_wait_in_plain_order(seconds, per_second):
    """C4 and P7, with a server that takes ``per_second`` messages each second."""
    board = LaneBoard(AGED)
    board.bound_ms = 5_000
    board.chooser.adopt(AGED, 5_000)
    plain_ms: list[int] = []  # when each message would be served in the order of the log
    served_ms: dict[int, int] = {}
    for _ in range(ROUNDS_MAX):
        for count, lane in seconds[0] if seconds else ():
            board.arrive(count, lane)
        seconds = seconds[1:]
        if len(served_ms) == board.end and not seconds:
            break
        plain_ms += [board.at_ms] * min(per_second, board.end - len(plain_ms))
        served_ms.update(dict.fromkeys(board.choose(per_second), board.at_ms))
        while board.out:
            board.grant(0)
        while board.leases:
            board.settle("ack", 0)
        board.at_ms += 1_000
    assert len(served_ms) == board.end
    for offset, at_ms in served_ms.items():
        stored_ms = board.stored_ms[offset]
        assert at_ms - stored_ms <= board.bound_ms + plain_ms[offset] - stored_ms
