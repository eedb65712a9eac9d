"""A call that settles a lot: one piece after another, and the truth about every message."""

import gc
import time
from typing import Any

import msgspec
import pytest

from raftline.machines.delivery.commands import ACK, EXTEND, NACK, REJECT, VERBS, Settle
from raftline.machines.delivery.outcomes import Outcome, SettledRanges
from raftline.model.batch import check_batch
from raftline.model.calls import Received, Settled
from raftline.model.errors import NotLeader, OverLimit, RaftlineError, TimedOut
from raftline.model.records import seal_batch
from raftline.node.deliver_proposal import DeliverDone
from raftline.node.desk import TURN_ROWS
from raftline.node.settle_pieces import PIECE_ROWS, PiecewiseSettle
from raftline.node.settles import SettleAll
from raftline.testing import SimCluster, cluster
from raftline.testing.world import World
from tests.unit.node.little_ports import HandClock
from tests.unit.node.whole import answer_of, host, lead, node, replica
from tests.unit.node.work import GROUP, TOPIC, attempts, offsets, question, receive, settles

COUNT = 10 * PIECE_ROWS
TIMEOUT_MS = 5_000
TURN_MS_MAX = 50.0  # aimed at are 10; a busy machine takes its time

# ---------------------------------------------------------------------- without a node


def scattered(count: int, start: int = 0) -> list[int]:
    return [edge for at in range(count) for edge in (start + 2 * at, start + 2 * at + 1)]


class Leader:
    """Takes pieces and answers when the test says so."""

    def __init__(self, *settled: Settle) -> None:
        self.clock = HandClock()
        self.open: list[tuple[list[Settle], int, DeliverDone]] = []
        self.answers: list[Settled | RaftlineError] = []

        def send(piece: list[Settle], rows: int, done: DeliverDone) -> None:
            self.open.append((piece, rows, done))

        deadline = self.clock.mono_ms() + TIMEOUT_MS
        PiecewiseSettle(
            self.clock,
            "orders/0",
            settled,
            deadline,
            TIMEOUT_MS,
            lambda _: None,
            send,
            self.answers.append,
        ).next()

    def apply(self, *lost: list[int]) -> None:
        piece, _, done = self.open.pop(0)
        outcomes: list[Outcome] = [SettledRanges([]) for _ in piece]
        for at, ranges in enumerate(lost):
            outcomes[at] = SettledRanges(ranges)
        done(outcomes)

    def refuse(self, error: RaftlineError) -> None:
        self.open.pop(0)[2](error)


def one(count: int, verb: int = ACK, start: int = 0) -> Settle:
    return Settle(GROUP, verb, 1, 1, 1, 0, scattered(count, start))


def test_the_next_piece_waits_for_the_one_before() -> None:
    leader = Leader(one(3 * PIECE_ROWS))
    for _ in range(3):
        ((piece, rows, _),) = leader.open
        assert (rows, len(piece[0].ranges)) == (PIECE_ROWS, 2 * PIECE_ROWS)
        assert not leader.answers
        leader.apply()
    assert leader.answers == [Settled([[]])]


def test_what_was_lost_is_told_settle_by_settle() -> None:
    leader = Leader(one(PIECE_ROWS), one(10, start=10_000), one(PIECE_ROWS, start=20_000))
    leader.apply([4, 5])
    leader.apply([10_000, 10_001], [20_000, 20_001])
    leader.apply([20_000 + 4 * PIECE_ROWS - 2, 20_000 + 4 * PIECE_ROWS - 1])
    lost = [20_000, 20_001, 20_000 + 4 * PIECE_ROWS - 2, 20_000 + 4 * PIECE_ROWS - 1]
    assert leader.answers == [Settled([[4, 5], [10_000, 10_001], lost])]


def test_giving_up_is_dearer_than_an_ack() -> None:
    leader = Leader(one(PIECE_ROWS, REJECT))
    assert len(leader.open[0][0][0].ranges) // 2 == PIECE_ROWS // 4 + 1


def test_an_error_in_the_midst_names_what_is_settled_and_what_is_not() -> None:
    leader = Leader(one(2 * PIECE_ROWS), one(3, start=10_000))
    leader.apply([0, 1])
    error = NotLeader("orders/0", 2)
    leader.refuse(error)
    assert not leader.open
    left = scattered(PIECE_ROWS, 2 * PIECE_ROWS)
    assert leader.answers == [
        Settled([[0, 1], []], [left, scattered(3, 10_000)], error.to_wire()),
    ]


def test_time_that_is_up_ends_the_call_behind_what_was_settled() -> None:
    leader = Leader(one(2 * PIECE_ROWS))
    leader.clock.advance(TIMEOUT_MS)
    leader.apply()
    (answer,) = leader.answers
    assert isinstance(answer, Settled)
    assert answer.failed == [scattered(PIECE_ROWS, 2 * PIECE_ROWS)]
    assert answer.error is not None
    assert answer.error[0] == TimedOut.code


def test_a_call_of_which_nothing_was_settled_is_refused_whole() -> None:
    leader = Leader(one(2 * PIECE_ROWS))
    leader.refuse(OverLimit("bytes", 2, 1))
    assert isinstance(leader.answers[0], OverLimit)


# ---------------------------------------------------------------------- with nodes


@pytest.fixture
def sim():
    with cluster(nodes=3, seed=11) as made:
        made.create_topic(TOPIC, partitions=1)
        made.world.events_max = 1 << 60
        yield made


def fill(sim: SimCluster, count: int) -> None:
    for at in range(0, count, 500):
        sim.append(TOPIC, [b"%d" % n for n in range(at, min(count, at + 500))])


def spread(got: Received, verb: int = ACK, delay_ms: int = 0) -> list[Settle]:
    """Every second message of a lease, as one settle."""
    (row,) = settles(got, verb, delay_ms)
    found = offsets(got)[::2]
    return [msgspec.structs.replace(row, ranges=[e for o in found for e in (o, o + 1)])]


def worked(sim: SimCluster, via: str, rows: list[Settle], timeout_ms: int = TIMEOUT_MS) -> object:
    asked = node(sim, via)
    return answer_of(sim, lambda done: asked.settle(TOPIC, 0, rows, timeout_ms, done))


@pytest.fixture
def turns_ms(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long everything took that ran on a loop; helper threads do not count."""
    at, took_ms = World.at, [0.0]

    def timed(world: World, due_ms: float, call: Any, *rest: Any) -> Any:
        if getattr(call, "__name__", "") == "_run_next":
            return at(world, due_ms, call, *rest)

        def run() -> None:
            began = time.thread_time()
            call()
            took_ms.append((time.thread_time() - began) * 1e3)

        return at(world, due_ms, run, *rest)

    monkeypatch.setattr(World, "at", timed)
    return took_ms


@pytest.mark.parametrize("verb", [ACK, NACK, REJECT, EXTEND])
def test_no_turn_is_long(sim: SimCluster, verb: int, turns_ms: list[float]) -> None:
    fill(sim, 2 * COUNT)
    leader, followers = lead(sim, TOPIC)
    rows = spread(receive(sim, via=leader, count=2 * COUNT, lease_ms=60_000), verb, 30_000)
    turns_ms.clear()
    gc.collect()
    assert worked(sim, followers[0], rows) == Settled([[]])
    longest = sorted(turns_ms)[-3:]
    print(f"\n{VERBS[verb]} of {COUNT}: longest turns {', '.join(f'{t:.1f}' for t in longest)} ms")
    assert longest[0] < TURN_MS_MAX  # the garbage of this whole process may make two of them longer
    shown = question(sim, "group.show", group=GROUP)
    assert shown["leased"] == (2 * COUNT if verb == EXTEND else COUNT)


def test_a_range_of_an_ordered_group_is_a_row_a_message(sim: SimCluster) -> None:
    leader, _ = lead(sim, TOPIC)
    for at in range(0, 400, 200):
        keyed = seal_batch([(b"k%d" % n, b"v", (), 1) for n in range(at, at + 200)])
        answer_of(
            sim,
            lambda done, b=keyed: node(sim, leader).append(
                TOPIC, 0, b, check_batch(b), TIMEOUT_MS, done
            ),
        )
    got = receive(sim, via=leader, count=400, ordered=True)
    assert len(offsets(got)) == 400
    sizes: list[int] = []
    found = host(sim, leader, TOPIC)
    assert found.desk is not None
    take = found.desk.take
    found.desk.take = lambda call: (sizes.append(call.rows), take(call))  # type: ignore[method-assign,assignment,return-value,func-returns-value]
    assert worked(sim, leader, settles(got)) == Settled([[]])
    assert max(sizes) <= PIECE_ROWS < sum(sizes)
    assert question(sim, "group.show", group=GROUP)["floor"] == 400


def test_others_come_in_between(sim: SimCluster) -> None:
    fill(sim, 2 * COUNT)
    leader, _ = lead(sim, TOPIC)
    rows = spread(receive(sim, via=leader, count=2 * COUNT, lease_ms=60_000))
    (single,) = [msgspec.structs.replace(rows[0], ranges=[1, 2])]
    heard: list[str] = []
    node(sim, leader).settle(TOPIC, 0, rows, TIMEOUT_MS, lambda _: heard.append("many"))
    sim.advance("1ms")
    node(sim, leader).settle(TOPIC, 0, [single], TIMEOUT_MS, lambda _: heard.append("one"))
    sim.run_until(lambda: len(heard) == 2)
    assert heard == ["one", "many"]


def test_many_calls_at_once_share_turns_of_bounded_size(sim: SimCluster) -> None:
    fill(sim, 4_000)
    leader, _ = lead(sim, TOPIC)
    (row,) = spread(receive(sim, via=leader, count=4_000, lease_ms=60_000))
    found, sizes = host(sim, leader, TOPIC), list[int]()
    assert found.desk is not None
    proposals = found.desk.proposals

    def noted(at_ms):
        made = proposals(at_ms)
        sizes.append(sum(call.rows for _, proposal in made for call in proposal._calls))
        return made

    found.desk.proposals = noted  # type: ignore[method-assign]
    heard: list[object] = []
    for at in range(20):
        some = msgspec.structs.replace(row, ranges=row.ranges[200 * at : 200 * at + 200])
        node(sim, leader).settle(TOPIC, 0, [some], TIMEOUT_MS, heard.append)
    sim.run_until(lambda: len(heard) == 20)
    assert heard == [Settled([[]])] * 20
    assert PIECE_ROWS < max(sizes) <= TURN_ROWS


@pytest.mark.parametrize("how", ["kill", "transfer", "cut"])
@pytest.mark.parametrize("via_leader", [True, False])
def test_every_message_has_its_truth_when_the_leader_changes(
    sim: SimCluster, how: str, via_leader: bool
) -> None:
    """Whatever is said to be settled is, whatever is said to be left may be tried again."""
    fill(sim, 2 * COUNT)
    leader, followers = lead(sim, TOPIC)
    rows = spread(receive(sim, via=leader, count=2 * COUNT, lease_ms=60_000))
    sim.advance("100ms")
    via = leader if via_leader and how != "kill" else followers[0]
    heard: list[Settled | RaftlineError] = []
    node(sim, via).settle(TOPIC, 0, rows, TIMEOUT_MS, heard.append)
    before = _settled_at(sim, leader)
    sim.run_until(lambda: _settled_at(sim, leader) >= before + 2 * PIECE_ROWS)
    if how == "kill":
        sim.host(leader).kill()
    elif how == "transfer":
        own = replica(sim, leader, TOPIC)
        own.transfer(replica(sim, followers[1], TOPIC).id)
    else:
        for name in followers:
            sim.cut(leader, name)
    sim.run_until(lambda: bool(heard), "20s")
    for name in followers:
        sim.uncut(leader, name)
    (answer,) = heard
    sim.advance("2s")
    now, _ = lead(sim, TOPIC)
    group = host(sim, now, TOPIC).machine.delivery.groups[GROUP]
    asked = set(rows[0].ranges[::2])
    done = {offset for offset in asked if group.is_settled(offset)}
    if isinstance(answer, Settled):
        lost, left = set(answer.lost[0][::2]), set((answer.failed or [[]])[0][::2])
        assert asked - lost - left <= done
        assert not lost
        if not left:
            assert done == asked
    else:
        assert answer.unknown  # and never that nothing was done
    again = worked(sim, now, rows)  # harmless: what was done is lost to it, the rest is done now
    assert isinstance(again, Settled)
    assert not again.failed
    told = again.lost[0]
    assert {o for at in range(0, len(told), 2) for o in range(*told[at : at + 2])} == done
    assert all(group.is_settled(offset) for offset in asked)
    if how == "transfer":
        assert answer == Settled([[]])  # the next leader did the rest


def test_an_older_node_is_not_told_half_of_the_truth(sim: SimCluster) -> None:
    fill(sim, 2 * COUNT)
    leader, followers = lead(sim, TOPIC)
    rows = spread(receive(sim, via=leader, count=2 * COUNT, lease_ms=60_000))
    old = msgspec.msgpack.encode([replica(sim, leader, TOPIC).shard, rows])
    assert msgspec.msgpack.decode(old, type=SettleAll).in_part is False
    heard: list[object] = []
    settles_here = node(sim, leader).settles
    before = _settled_at(sim, leader)
    settles_here._on_settle(memoryview(old), TIMEOUT_MS, heard.append)
    sim.run_until(lambda: _settled_at(sim, leader) >= before + 2 * PIECE_ROWS)
    own = replica(sim, leader, TOPIC)
    own.transfer(replica(sim, followers[1], TOPIC).id)
    sim.run_until(lambda: bool(heard), "20s")
    assert isinstance(heard[0], TimedOut)


def test_dead_letters_are_revived_piece_by_piece(sim: SimCluster) -> None:
    fill(sim, 800)
    leader, _ = lead(sim, TOPIC)
    got = receive(sim, via=leader, count=800, lease_ms=60_000)
    assert worked(sim, leader, settles(got, REJECT)) == Settled([[]])
    sim.run_until(lambda: question(sim, "group.show", group=GROUP)["dead"] == 800, "20s")
    found = host(sim, leader, TOPIC)
    sizes: list[int] = []
    assert found.desk is not None
    take = found.desk.take
    found.desk.take = lambda call: (sizes.append(call.rows), take(call))  # type: ignore[method-assign,assignment,return-value,func-returns-value]
    rows = [[offset, 0] for offset in range(0, 800, 2)]
    uuid = found.identity.topic_uuid
    answer = question(sim, "dead.revive", uuid=uuid, group=GROUP, rows=rows)
    assert answer == {"words": ["dead"] * 400}
    assert [size for size in sizes if size > 1] == [PIECE_ROWS, 400 - PIECE_ROWS]
    again = question(sim, "dead.revive", uuid=uuid, group=GROUP, rows=rows)
    assert again == {"words": ["redriven"] * 400}
    assert set(attempts(receive(sim, via=leader, count=800)).values()) == {1}


def _settled_at(sim: SimCluster, name: str) -> int:
    group = host(sim, name, TOPIC).machine.delivery.groups[GROUP]
    return group.settled_count + group.floor
