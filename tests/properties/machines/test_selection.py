"""The chooser against a naive one: nothing twice, nothing forgotten, in order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from raftline.machines.delivery import selection
from raftline.machines.delivery.ages import Ages
from raftline.machines.delivery.lanes import Lanes
from raftline.machines.delivery.rows import COLUMNS, LEASED, READY, mark_of
from raftline.machines.delivery.selection import AGED, OVERDUE, STRICT, WEIGHTED, Chooser
from raftline.model.intervals import IntervalSet
from raftline.model.range_table import RangeTable

LANES = [20, 10, 0, -10, -20]
BOUND_MS = 30_000


class Board:
    """A group's state as the chooser sees it, and the truth message by message."""

    def __init__(self, mode: str) -> None:
        self.floor = 0
        self.settled = IntervalSet()
        self.rows = RangeTable(COLUMNS)
        self.base_generation = 4
        self.lanes, self.ages, self.reserved = Lanes(), Ages(), IntervalSet()
        self.chooser = Chooser(mode, BOUND_MS)
        self.at_ms = 1_000_000
        self.lane: list[int] = []
        self.stored_ms: list[int] = []
        self.state: list[str] = []  # free, out, leased, done
        self.attempts: list[int] = []

    @property
    def end(self) -> int:
        return len(self.lane)

    def arrive(self, count: int, lane: int) -> None:
        self.lanes.add(self.end, self.end + count, lane)
        self.lane += [lane] * count
        self.stored_ms += [self.at_ms] * count
        self.state += ["free"] * count
        self.attempts += [0] * count
        self.ages.note(self.end, self.at_ms)

    def choose(self, count_max: int) -> list[int]:
        """Choose, check every rule that holds for any choice, and reserve."""
        choice = self.chooser.choose(
            self, self.lanes, self.ages, self.reserved, self.end, count_max, self.at_ms
        )
        offsets: list[int] = []
        for spans, again in ((choice.first, False), (choice.again, True)):
            for at in range(0, len(spans), 4):
                start, end, attempt, generation = spans[at : at + 4]
                for offset in range(start, end):
                    assert self.state[offset] == "free", offset  # C1, C2
                    assert attempt == self.attempts[offset] + 1
                    assert generation == 4
                    assert again == (offset in self.rows)
                    offsets.append(offset)
        assert len(offsets) == len(set(offsets)) == choice.count <= count_max
        assert choice.is_more or choice.count == min(count_max, self.state.count("free"))
        for offset in offsets:
            self.state[offset] = "out"
            self.reserved.add(offset, offset + 1)
        return offsets

    def free(self) -> list[int]:
        return [offset for offset in range(self.end) if self.state[offset] == "free"]

    def waiting(self) -> int | None:
        return self.chooser.waiting_lane(
            self, self.lanes, self.ages, self.reserved, self.end, self.at_ms
        )

    def grant(self, offset: int) -> None:
        self.reserved.remove(offset, offset + 1)
        self.attempts[offset] += 1
        self.rows.replace(offset, offset + 1, self._row(LEASED, offset))
        self.state[offset] = "leased"

    def lose(self, offset: int) -> None:
        """A Grant came to nothing, or its bytes were not read."""
        self.reserved.remove(offset, offset + 1)
        self.chooser.returned(offset, offset + 1)
        self.state[offset] = "free"

    def ack(self, offset: int) -> None:
        self.rows.remove(offset, offset + 1)
        self.settled.add(offset, offset + 1)
        self.state[offset] = "done"
        self.floor = self.settled.first_gap(self.floor)
        self.settled.remove(0, self.floor)

    def nack(self, offset: int) -> None:
        self.rows.replace(offset, offset + 1, self._row(READY, offset))
        self.chooser.returned(offset, offset + 1)
        self.state[offset] = "free"

    def lead(self, mode: str) -> None:
        """Another leader: nothing is reserved, the chooser is new."""
        self.chooser = Chooser(mode, BOUND_MS)
        for offset, state in enumerate(self.state):
            if state == "out":
                self.state[offset] = "free"
        self.reserved = IntervalSet()

    def _row(self, state: int, offset: int) -> tuple[int, ...]:
        return (mark_of(state, self.attempts[offset], 4), 0, 0, 0, 0, 0)


step = st.one_of(
    st.tuples(st.just("arrive"), st.integers(1, 6), st.sampled_from(LANES)),
    st.tuples(st.just("choose"), st.integers(1, 9), st.just(0)),
    st.tuples(st.just("grant"), st.integers(0, 99), st.integers(1, 9)),
    st.tuples(st.just("lose"), st.integers(0, 99), st.integers(1, 3)),
    st.tuples(st.just("ack"), st.integers(0, 99), st.integers(1, 9)),
    st.tuples(st.just("nack"), st.integers(0, 99), st.integers(1, 5)),
    st.tuples(st.just("pass"), st.integers(0, 20_000), st.just(0)),
    st.tuples(st.just("lead"), st.just(0), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0)),
)
history = st.lists(step, max_size=60)
mode = st.sampled_from([AGED, WEIGHTED, STRICT])


def play(board: Board, mode: str, steps) -> None:
    for verb, number, count in steps:
        if verb == "arrive":
            board.arrive(number, count)
        elif verb == "choose":
            free = board.free()
            expect_next(board, mode, free, board.waiting())
            expect_choice(board, mode, free, board.choose(number))
        elif verb == "pass":
            board.at_ms += number
        elif verb == "lead":
            board.lead(mode)
        elif verb == "restart":
            board.chooser.restart()
        else:
            wanted = "out" if verb in ("grant", "lose") else "leased"
            chosen = [o for o in range(board.end) if board.state[o] == wanted]
            at = number % len(chosen) if chosen else 0
            for offset in chosen[at : at + count]:
                getattr(board, verb)(offset)


def is_overdue(board: Board, offset: int) -> bool:
    return board.ages.at(offset) <= board.at_ms - BOUND_MS


def expect_choice(board: Board, mode: str, free: list[int], chosen: list[int]) -> None:
    by_lane = {lane: [o for o in free if board.lane[o] == lane] for lane in LANES}
    for lane in LANES:  # inside a lane the lowest first
        took = sorted(o for o in chosen if board.lane[o] == lane)
        assert took == by_lane[lane][: len(took)]
    if mode == WEIGHTED:
        return
    overdue = [o for o in free if mode == AGED and is_overdue(board, o)]
    rest = sorted(set(free) - set(overdue), key=lambda o: (-board.lane[o], o))
    assert sorted(chosen) == sorted((overdue + rest)[: len(chosen)])


def expect_next(board: Board, mode: str, free: list[int], lane: int | None) -> None:
    if not free:
        assert lane is None
    elif mode == WEIGHTED:
        assert lane == 0
    elif mode == AGED and is_overdue(board, free[0]):
        assert lane == OVERDUE + board.at_ms - BOUND_MS - board.ages.at(free[0])
    else:
        assert lane == max(board.lane[o] for o in free)


@settings(max_examples=200)
@given(mode, history)
def test_what_is_chosen_is_what_a_naive_chooser_would_choose(mode, steps):
    play(Board(mode), mode, steps)


@settings(max_examples=60)
@given(mode, history, st.integers(1, 3))
def test_every_message_is_delivered_in_the_end(mode, steps, steps_max):
    kept, selection.STEPS_MAX = selection.STEPS_MAX, steps_max
    try:
        board = Board(mode)
        cautious = [step for step in steps if step[0] != "choose"]
        for at, step in enumerate(cautious):
            play(board, mode, [step])
            if at % 3 == 0:
                board.choose(4)
        deliver_everything(board)
    finally:
        selection.STEPS_MAX = kept


def deliver_everything(board: Board) -> None:
    for offset in range(board.end):
        if board.state[offset] == "out":
            board.grant(offset)
        if board.state[offset] == "leased":
            board.ack(offset)
    for _ in range(10 * board.end + 10):
        waiting = board.waiting()
        chosen = board.choose(3)
        assert waiting is not None or not chosen
        for offset in chosen:
            board.grant(offset)
            board.ack(offset)
    assert board.state == ["done"] * board.end
    assert board.waiting() is None
    assert board.floor == board.end


arrivals = st.lists(st.tuples(st.integers(1, 8), st.sampled_from(LANES)), max_size=3)


@settings(max_examples=100)
@given(st.lists(arrivals, max_size=80), st.integers(1, 12))
def test_nothing_waits_longer_than_the_bound_and_its_wait_in_plain_order(seconds, per_second):
    """C4, with a server that takes ``per_second`` messages each second."""
    board, bound_ms = Board(AGED), 5_000
    board.chooser.adopt(AGED, bound_ms)
    plain: list[int] = []  # when each offset is served in the order of the log
    served_ms: dict[int, int] = {}
    while len(served_ms) < board.end or seconds:
        for count, lane in seconds[0] if seconds else ():
            board.arrive(count, lane)
        seconds = seconds[1:]
        plain += [board.at_ms] * min(per_second, board.end - len(plain))
        for offset in board.choose(per_second):
            served_ms[offset] = board.at_ms
            board.grant(offset)
            board.ack(offset)
        board.at_ms += 1_000
    for offset, at_ms in served_ms.items():
        wait_ms = at_ms - board.stored_ms[offset]
        plain_ms = plain[offset] - board.stored_ms[offset]
        assert wait_ms <= bound_ms + plain_ms, (offset, wait_ms, plain_ms)
