"""Ordered choices against a naive rule: all before it of its key are settled."""

from hypothesis import given, settings
from hypothesis import strategies as st

from raftline.machines.delivery import ordered as ordered_module
from raftline.machines.delivery.commands import Policy
from raftline.machines.delivery.ordered import Ordered
from raftline.model.intervals import IntervalSet
from tests.properties.machines.queue_board import Board

ALL = 1 << 30
ROUNDS_MAX = 500


class KeyBoard(Board):
    """A board whose leader knows keys."""

    def __init__(self, window_max: int, parked_max: int, *, tells: bool = True) -> None:
        self.limits = window_max, parked_max
        self.is_exact = window_max == parked_max == ALL and tells
        self.tells = tells  # whether the leader hears of keys that were let go
        self.ordered = Ordered(*self.limits)
        self.keys: list[int] = []
        super().__init__(Policy(max_retries=2, backoff_ms=100, backoff_ms_max=400, ordered=True))

    def after_apply(self) -> None:
        for _, key in self.machine.take_freed() if self.tells else ():
            self.ordered.freed(self.group, key)

    def give_back(self, start: int, end: int) -> None:
        self.ordered.returned(start, end)

    def arrive_with(self, keys: list[int]) -> None:
        self.keys += keys
        self.arrive(len(keys), 0)

    def feed(self, before: int, count: int) -> bool:
        """Feed a batch that begins a little before what is wanted."""
        wanted = self.ordered.wants(self.group, self.end, ALL)
        if wanted is None:
            return False
        assert wanted[1] == self.end
        start = max(0, wanted[0] - before)
        self.ordered.feed(self.group, start, self.keys[start : wanted[0] + count])
        return True

    def choose(self, count_max: int) -> list[int]:
        if self.is_exact:
            while self.feed(0, 3):
                pass
        free, lane = self.free(), self.waiting()
        choice, keys = self.ordered.choose(self.group, self.reserved, self.end, count_max)
        may_go = self.may_go(free)
        offsets = self.reserve(choice.first, choice.again, keys)
        assert len(offsets) == len(keys) == choice.count <= count_max
        assert keys == [self.keys[offset] for offset in offsets]
        assert set(offsets) <= set(may_go)
        assert lane == 0 or not offsets
        if self.is_exact:
            again = [offset for offset in may_go if free[offset][2]]
            first = [offset for offset in may_go if not free[offset][2]]
            assert sorted(offsets) == sorted((again + first)[:count_max])
            assert (lane is None) == (not may_go)
        return offsets

    def waiting(self) -> int | None:
        return self.ordered.waiting_lane(self.group, self.reserved, self.end)

    def may_go(self, free: dict[int, tuple[int, int, bool]]) -> list[int]:
        """Return what is free and has no earlier message of its key that is not settled."""
        first: dict[int, int] = {}
        for offset in range(self.end):
            if self.keys[offset] and not self.group.is_settled(offset):
                first.setdefault(self.keys[offset], offset)
        return [o for o in free if not self.keys[o] or first[self.keys[o]] == o]

    def lead(self) -> None:
        self.ordered = Ordered(*self.limits)
        self.out.clear()
        self.reserved = IntervalSet()


number = st.integers(0, 99)
keys = st.lists(st.sampled_from([0, 1, 1, 1, 2, 2, 3, 4]), min_size=1, max_size=6)
step = st.one_of(
    st.tuples(st.just("arrive"), keys, st.just(0)),
    st.tuples(st.just("arrive"), keys, st.just(0)),
    st.tuples(st.just("feed"), st.integers(0, 3), st.integers(1, 9)),
    st.tuples(st.just("choose"), st.integers(1, 9), st.just(0)),
    st.tuples(st.just("choose"), st.integers(1, 9), st.just(0)),
    st.tuples(st.just("grant"), number, st.sampled_from([50, 1000, 100_000])),
    st.tuples(st.just("grant"), number, st.sampled_from([50, 1000, 100_000])),
    st.tuples(st.just("lose"), number, st.just(0)),
    st.tuples(st.just("ack"), number, st.just(0)),
    st.tuples(st.just("ack"), number, st.just(0)),
    st.tuples(st.just("nack"), number, st.sampled_from([0, 100, -1])),
    st.tuples(st.just("reject"), number, st.just(0)),
    st.tuples(st.sampled_from(["bury", "lead", "restart"]), st.just(0), st.just(0)),
    st.tuples(st.sampled_from(["revive", "forget"]), number, st.integers(1, 3)),
    st.tuples(st.just("wait"), st.sampled_from([10, 300, 5000]), st.just(0)),
    st.tuples(st.just("reset"), number, st.just(0)),
    st.tuples(st.just("old"), number, st.integers(1, 5)),
)
history = st.lists(step, max_size=50)


def play(board: KeyBoard, steps) -> None:
    for verb, number, more in steps:
        if verb == "arrive":
            board.arrive_with(number)
        elif verb in ("feed", "revive", "forget"):
            getattr(board, verb)(number, number + more)
        elif verb in ("choose", "wait"):
            getattr(board, verb)(number)
        elif verb in ("bury", "lead"):
            getattr(board, verb)()
        elif verb == "restart":
            board.ordered.restart()
        elif verb == "reset":
            board.reset(number * board.end // 100)
            board.ordered.restart()
        elif verb == "old":  # a read that nobody wants any more
            board.ordered.feed(board.group, number, board.keys[number : number + more])
        elif verb == "grant" and board.out:
            board.grant(number % len(board.out), lease_ms=more)
        elif verb == "lose" and board.out:
            board.lose(number % len(board.out))
        elif verb in ("ack", "nack", "reject") and board.leases:
            board.settle(verb, number % len(board.leases), more)


@settings(max_examples=200, deadline=None)
@given(history)
def test_a_message_goes_when_all_before_it_of_its_key_are_settled(steps):
    play(KeyBoard(ALL, ALL), steps)


@settings(max_examples=100, deadline=None)
@given(history, st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_every_message_is_delivered_in_the_end(steps, window_max, parked_max, tells):
    board = KeyBoard(window_max, parked_max, tells=tells)
    play(board, steps)
    for _ in range(ROUNDS_MAX):
        if board.group.floor == board.end and not board.out:
            break
        board.bury()
        board.forget(0, board.end)
        board.feed(1, 4)
        board.choose(5)
        while board.out:
            board.grant(0)
        while board.leases:
            board.settle("ack", 0)
        board.wait(1_000)
    assert board.group.floor == board.end
    assert board.waiting() is None
    assert board.ordered.parked == 0


def test_a_dead_key_stops_nobody_else():
    board = KeyBoard(ALL, ALL)
    board.arrive_with([7] + [7] * 5000 + [8, 9, 0, 8])
    assert board.choose(10) == [0, 5001, 5002, 5003]
    board.grant(0)
    board.settle("reject", 0)
    board.settle("ack", 0)
    board.bury()
    assert board.choose(10) == [5004]
    assert board.ordered.parked == 5000
    board.forget(0, 1)
    assert board.choose(10) == [1]


def test_what_is_trimmed_behind_a_dead_key_goes_at_once(monkeypatch):
    board = KeyBoard(ALL, ALL)
    board.arrive_with([7] * 5000)
    assert board.choose(10) == [0]
    board.grant(0)
    board.settle("reject", 0)
    board.bury()
    taken, pop = [], ordered_module.Chain.pop
    monkeypatch.setattr(ordered_module.Chain, "pop", lambda chain: taken.append(1) or pop(chain))
    board.machine.trim(4998)
    board.after_apply()
    choice, keys = board.ordered.choose(board.group, board.reserved, board.end, 10)
    assert (choice.first, keys) == ([4998, 4999, 1, 0], [7])
    assert board.ordered.parked == 1
    assert len(taken) == 1


def test_redrive_restores_the_order():
    board = KeyBoard(ALL, ALL)
    board.arrive_with([7, 7])
    assert board.choose(10) == [0]
    board.grant(0)
    board.settle("reject", 0)
    board.bury()
    assert board.choose(10) == []
    board.revive(0, 1)
    assert board.choose(10) == [0]
    board.grant(0)
    assert board.choose(10) == []
    board.settle("ack", 0)
    assert board.choose(10) == [1]


def test_the_sweep_looks_at_every_chain():
    board = KeyBoard(ALL, ALL, tells=False)
    count = 5 * ordered_module.SWEEP
    board.arrive_with([*range(1, count + 1), *range(1, count + 1)])
    while board.feed(0, 50):
        pass
    assert board.choose(count) == list(range(count))
    board.grant(0)
    while board.leases:
        board.settle("ack", 0)
    found: list[int] = []
    for _ in range(2 * count // ordered_module.SWEEP):
        found += board.choose(count)
    assert sorted(found) == list(range(count, 2 * count))


def test_what_is_on_its_way_over_a_restart_holds_its_key():
    board = KeyBoard(ALL, ALL)
    board.arrive_with([7, 7, 8])
    assert board.choose(1) == [0]
    board.ordered.restart()
    assert board.choose(9) == [2]
    board.lose(0)  # it came to nothing: it goes first again
    assert board.choose(9) == [0]
    while board.out:
        board.grant(0)
    while board.leases:
        board.settle("ack", 0)
    assert board.choose(9) == [1]


def test_a_later_message_of_a_key_does_not_pass_a_chain_nobody_told_of():
    board = KeyBoard(ALL, ALL, tells=False)
    board.arrive_with([7, 7])
    board.feed(0, 2)
    assert board.choose(1) == [0]
    board.grant(0)
    board.settle("ack", 0)
    board.arrive_with([7])
    board.feed(0, 1)
    assert board.choose(9) == [1]


def test_an_earlier_message_that_comes_back_goes_before_a_later_one():
    board = KeyBoard(ALL, ALL)
    board.arrive_with([7, 7, 7])
    assert board.choose(1) == [0]
    board.ordered.freed(board.group, 7)  # told too much: the second may go now
    board.ordered._out[0] = 7
    board.give_back(0, 1)
    board.out.clear()
    board.reserved = IntervalSet()
    for offset in range(3):
        assert board.choose(9) == [offset]
        board.grant(0)
        board.settle("ack", 0)


def test_a_key_that_is_held_by_surprise_parks_its_message_in_front():
    board = KeyBoard(ALL, ALL)
    board.arrive_with([7, 7, 7])
    board.feed(0, 3)
    board.reserve([0, 1, 1, 0], [], [7])  # a Grant that the leader's memory does not know of
    board.grant(0)
    assert board.choose(9) == []
    board.settle("ack", 0)
    for offset in (1, 2):
        assert board.choose(9) == [offset]
        board.grant(0)
        board.settle("ack", 0)
