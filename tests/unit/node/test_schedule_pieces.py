"""A call to let many messages wait: one piece after another, answered once."""

import pytest

from raftline.model.calls import NewWaiting, Scheduled
from raftline.model.errors import InvalidArgument, NoLeader, OverLimit, RaftlineError
from raftline.model.records import seal_batch
from raftline.node.schedule_pieces import PIECE_BYTES, PIECE_ITEMS, PiecewiseSchedule, cut
from raftline.node.schedules import TURN_ITEMS, ScheduleDone
from raftline.testing import cluster
from tests.unit.node.little_ports import HandClock
from tests.unit.node.whole import host, lead, node

TOPIC = "orders"
TIMEOUT_MS = 5_000
COUNT = 3 * PIECE_ITEMS


def items(count: int, size: int = 1) -> list[NewWaiting]:
    return [NewWaiting(bytes(size), -1000, 0)] * count


class Leader:
    """Takes pieces and answers when the test says so."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.open: list[tuple[int, int, ScheduleDone]] = []
        self.answers: list[Scheduled | RaftlineError] = []
        self.stored = 0

    def call(self, count: int) -> None:
        def send(piece: list[NewWaiting], timeout_ms: int, done: ScheduleDone) -> None:
            self.open.append((len(piece), timeout_ms, done))

        PiecewiseSchedule(
            self.clock, "orders/0", 0, items(count), TIMEOUT_MS, send, self.answers.append
        ).start()

    def store(self) -> None:
        count, _, done = self.open.pop(0)
        first = self.stored + 1
        self.stored += count
        done(Scheduled(list(range(first, first + count)), 0, 7, {}))

    def refuse(self, error: RaftlineError) -> None:
        self.open.pop(0)[2](error)


def test_pieces_are_bounded_and_hold_everything_in_order() -> None:
    assert [len(piece) for piece in cut(items(2 * PIECE_ITEMS + 1))] == [250, 250, 1]
    assert [len(piece) for piece in cut(items(3, PIECE_BYTES))] == [1, 1, 1]
    named = [NewWaiting(b"%d" % at, -1, 0) for at in range(COUNT)]
    assert [item for piece in cut(named) for item in piece] == named


def test_the_next_piece_waits_for_the_one_before() -> None:
    leader = Leader()
    leader.call(COUNT)
    for _ in range(3):
        assert len(leader.open) == 1
        assert not leader.answers
        leader.clock.advance(10)
        leader.store()
    (answer,) = leader.answers
    assert isinstance(answer, Scheduled)
    assert answer.numbers == list(range(1, COUNT + 1))
    assert (answer.at_ms, answer.refusals) == (7, {})


def test_what_is_left_of_the_time_goes_with_each_piece() -> None:
    leader = Leader()
    leader.call(COUNT)
    leader.clock.advance(4_000)
    leader.store()
    assert leader.open[0][1] == 1_000
    leader.clock.advance(1_000)
    leader.store()
    assert not leader.open
    (answer,) = leader.answers
    assert isinstance(answer, Scheduled)
    assert answer.numbers == [*range(1, 501), *[0] * 250]
    assert {wire[0] for wire in answer.refusals.values()} == {"timed_out"}
    assert sorted(answer.refusals) == list(range(500, 750))


def test_a_refusal_for_now_ends_the_call_behind_what_was_stored() -> None:
    leader = Leader()
    leader.call(COUNT)
    leader.store()
    leader.refuse(NoLeader("orders/0"))
    assert not leader.open
    (answer,) = leader.answers
    assert isinstance(answer, Scheduled)
    assert answer.numbers == [*range(1, 251), *[0] * 500]
    assert sorted(answer.refusals) == list(range(250, 750))


def test_a_piece_that_can_never_wait_is_left_out() -> None:
    leader = Leader()
    leader.call(COUNT)
    leader.refuse(InvalidArgument("no such priority"))
    leader.store()
    leader.store()
    (answer,) = leader.answers
    assert isinstance(answer, Scheduled)
    assert answer.numbers == [*[0] * 250, *range(1, 501)]
    assert sorted(answer.refusals) == list(range(250))


def test_a_call_of_which_nothing_is_stored_is_refused_whole() -> None:
    leader = Leader()
    leader.call(COUNT)
    leader.refuse(OverLimit("bytes", 2, 1))
    (answer,) = leader.answers
    assert isinstance(answer, OverLimit)


@pytest.mark.parametrize(("seed", "after_ms"), [(0, 6), (1, 3), (4, 6), (7, 1)])
def test_the_order_of_a_call_survives_a_change_of_leaders(seed: int, after_ms: int) -> None:
    """Without P1 pieces that look for the new leader overtake each other in each of these."""
    with cluster(nodes=3, seed=seed) as sim:
        sim.create_topic(TOPIC, partitions=1)
        leader, others = lead(sim, TOPIC)
        want = [b"%05d" % at for at in range(4 * PIECE_ITEMS)]
        new = [NewWaiting(seal_batch([(None, value, [], 1)]), -3000, 0) for value in want]
        answers: list[object] = []
        sim.host(leader).kill()
        sim.advance(f"{after_ms}ms")
        node(sim, others[0]).schedule(TOPIC, 0, new, 8_000, answers.append)
        sim.run_until(lambda: bool(answers), "20s")
        assert isinstance(answers[0], Scheduled)
        assert answers[0].numbers == sorted(answers[0].numbers)
        sim.advance("5s")
        assert [message.value for message in sim.read_all(TOPIC)] == want


def test_many_calls_at_once_share_turns_of_bounded_size() -> None:
    with cluster(nodes=3, seed=7) as sim:
        sim.create_topic(TOPIC, partitions=1)
        leader, _ = lead(sim, TOPIC)
        proposed: list[int] = []
        waiting = host(sim, leader, TOPIC).machine.waiting
        one = NewWaiting(seal_batch([(None, b"v", [], 1)]), -60_000, 0)
        answers: list[object] = []
        for _ in range(6):
            node(sim, leader).schedule(TOPIC, 0, [one] * PIECE_ITEMS, 5_000, answers.append)
        schedules = host(sim, leader, TOPIC).schedules
        assert schedules is not None
        entry = schedules._entry

        def counted(at_ms: int, calls: list) -> object:
            proposed.append(sum(len(call.items) for call in calls))
            return entry(at_ms, calls)

        type(schedules)._entry, kept = (lambda _, *given: counted(*given)), type(schedules)._entry
        try:
            sim.run_until(lambda: len(answers) == 6)
        finally:
            type(schedules)._entry = kept
        assert all(isinstance(answer, Scheduled) for answer in answers)
        assert proposed == [TURN_ITEMS] * 3
        assert waiting.count == 6 * PIECE_ITEMS
