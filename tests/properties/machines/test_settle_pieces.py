"""A settle cut into pieces against the same settle as one: equal state, equal answer."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from raftline.machines.delivery.commands import (
    ACK,
    EXTEND,
    NACK,
    REJECT,
    RELEASE,
    START_FIRST,
    Command,
    Deliver,
    Grant,
    OpenGroup,
    Policy,
    Settle,
)
from raftline.machines.delivery.machine import DeliveryMachine
from raftline.machines.delivery.outcomes import Outcome, SettledRanges
from raftline.model.calls import Settled
from raftline.node import settle_pieces
from raftline.node.deliver_proposal import DeliverDone
from raftline.node.settle_pieces import Cutter, PiecewiseSettle, rows_of_all
from tests.unit.node.little_ports import HandClock

MESSAGES = 40
GROUP = "workers"
AT_MS = 1_000

edge = st.integers(0, MESSAGES + 2)
some_range = st.tuples(edge, edge).map(lambda pair: [min(pair), max(pair) + 1])
verbs = st.sampled_from([ACK, NACK, REJECT, EXTEND, RELEASE])
asked = st.tuples(verbs, st.integers(1, 3), st.integers(1, 2), st.lists(some_range, max_size=6))
grants = st.lists(st.tuples(st.integers(1, 3), some_range), max_size=8)


class Board:
    """A machine, and a leader that applies each piece as an entry of its own."""

    def __init__(self, *, ordered: bool, retries: int, taken: list[tuple[int, list[int]]]) -> None:
        self.machine = DeliveryMachine()
        self.index = 0
        self.pieces: list[int] = []
        self.do([OpenGroup(GROUP, Policy(retries, 0, 0, ordered=ordered), START_FIRST)])
        for sequence, (start, wide_end) in taken:
            span = [start, min(wide_end, MESSAGES), 1, 0]
            keys = [offset + 1 for offset in range(*span[:2])] if ordered else None
            if start < MESSAGES:
                self.do([Grant(GROUP, sequence, "w", 9_000, span, keys)])

    def do(self, commands: Sequence[Command]) -> list[Outcome]:
        self.index += 1
        entry = Deliver(AT_MS, list(commands))
        outcomes = self.machine.apply(1, self.index, entry, 0, MESSAGES)
        self.machine.check(0, MESSAGES)
        return outcomes

    def send(self, settles: list[Settle], rows: int, done: DeliverDone) -> None:
        self.pieces.append(rows)
        done(self.do(settles))


def settles_of(rows: list[tuple[int, int, int, list[list[int]]]]) -> list[Settle]:
    return [
        Settle(GROUP, verb, 1, sequence, attempt, 0, _once(ranges), 500, "bad")
        for verb, sequence, attempt, ranges in rows
    ]


def _once(ranges: list[list[int]]) -> list[int]:
    """Flat ranges in order that do not overlap, as gateways send them."""
    flat: list[int] = []
    for first, end in sorted(ranges):
        start = max(first, flat[-1] + 1 if flat else 0)
        if start < end:
            flat += (start, end)
    return flat


@given(st.booleans(), st.integers(0, 1), grants, st.lists(asked, min_size=1, max_size=4))
def test_pieces_do_what_one_entry_does(ordered, retries, taken, rows):
    settles = settles_of(rows)
    whole, cut = (Board(ordered=ordered, retries=retries, taken=taken) for _ in range(2))
    outcomes = whole.do(settles)
    answers: list[object] = []
    before, settle_pieces.PIECE_ROWS = settle_pieces.PIECE_ROWS, 3
    try:
        find = cut.machine.groups.get
        PiecewiseSettle(
            HandClock(), "orders/0", settles, 1e9, 1_000, find, cut.send, answers.append
        ).next()
    finally:
        settle_pieces.PIECE_ROWS = before
    assert answers == [Settled([o.lost for o in outcomes if isinstance(o, SettledRanges)])]
    assert cut.machine.snapshot() == whole.machine.snapshot()


@given(st.booleans(), grants, st.lists(asked, min_size=1, max_size=4), st.integers(1, 9))
def test_pieces_are_bounded_and_hold_everything_once_in_order(ordered, taken, rows, rows_max):
    board = Board(ordered=ordered, retries=1, taken=taken)
    settles, find = settles_of(rows), board.machine.groups.get
    cutter = Cutter(settles, find)
    found: list[list[int]] = [[] for _ in settles]
    while True:
        parts, rows_told = cutter.next(rows_max)
        if not parts:
            break
        dearest = max(1 if part.verb in (ACK, EXTEND, RELEASE) else 4 for _, part in parts)
        assert rows_told <= rows_max - 1 + dearest
        named = [part for _, part in parts if part.ranges]
        assert rows_of_all(named, find) <= rows_told
        for index, part in parts:
            found[index] += [
                o for at in range(0, len(part.ranges), 2) for o in range(*part.ranges[at : at + 2])
            ]
    for settle, offsets in zip(settles, found, strict=True):
        ranges = settle.ranges
        assert offsets == [
            o for at in range(0, len(ranges), 2) for o in range(*ranges[at : at + 2])
        ]
