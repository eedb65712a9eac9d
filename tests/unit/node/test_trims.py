"""Turns that stay short: far trims go in pieces, a receive of scattered messages has an end."""

import pytest

from raftline.machines.delivery.commands import ACK, Settle
from raftline.machines.delivery.machine import DeliveryMachine
from raftline.machines.delivery.selection import RANGES_MAX
from raftline.model.calls import Received, Settled
from raftline.model.errors import TimedOut
from raftline.node.command_proposal import CommandProposal
from raftline.node.query_leases import LEASE_RANGES
from raftline.node.trims import PIECE_ROWS, piece_end, trim
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, host, lead, node
from tests.unit.node.work import GROUP, TOPIC, offsets, question, receive

COUNT = 2_600


@pytest.fixture
def sim():
    with cluster(nodes=3, seed=11) as made:
        made.create_topic(TOPIC, partitions=1)
        for at in range(0, COUNT, 100):
            made.append(TOPIC, [b"%d" % number for number in range(at, at + 100)])
        yield made


def ack_every_second(sim: SimCluster, received: Received) -> None:
    """Leave a lease of its own for each message that stays."""
    first, last, attempt, generation = received.spans
    ranges = [edge for at in range(first, last, 2) for edge in (at, at + 1)]
    how = Settle(GROUP, ACK, received.term, received.sequence, attempt, generation, ranges, 0)
    asked = node(sim, sim.running[0])
    answer = answer_of(sim, lambda done: asked.settle(TOPIC, 0, [how], 5_000, done))
    assert isinstance(answer, Settled), answer


def scatter(sim: SimCluster, *, ordered: bool) -> None:
    """Let what is to be received lie in ranges of one; in an ordered group each is one anyway."""
    if not ordered:
        ack_every_second(sim, receive(sim, count=COUNT, lease_ms=1_000))
        sim.advance("2s")


def rows_of(delivery: DeliveryMachine) -> int:
    """Count the rows of the group."""
    return sum(1 for _ in delivery.groups[GROUP].rows.overlapping(0, COUNT))


def test_a_far_trim_goes_in_pieces_and_all_of_it_goes(
    sim: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, _ = lead(sim, TOPIC)
    ack_every_second(sim, receive(sim, count=COUNT, lease_ms=60_000))
    ours = host(sim, leader, TOPIC).machine.delivery
    steps: list[int] = []
    trim_groups = DeliveryMachine.trim

    def spy(delivery: DeliveryMachine, log_start: int) -> None:
        before = rows_of(delivery)
        trim_groups(delivery, log_start)
        if delivery is ours:
            steps.append(before - rows_of(delivery))

    monkeypatch.setattr(DeliveryMachine, "trim", spy)
    assert question(sim, "log.trim", offset=COUNT) == {"log_start": COUNT}
    assert sum(steps) == COUNT // 2
    assert len(steps) == COUNT // 2 // PIECE_ROWS + 1
    assert max(steps) == PIECE_ROWS
    sim.advance("1s")
    for name in sim.nodes:
        there = host(sim, name, TOPIC).machine
        assert there.log_start == COUNT
        assert there.delivery.groups[GROUP].counts == [0, 0, 0, 0, 0, 0]


def test_a_near_trim_is_one_piece(sim: SimCluster) -> None:
    leader, _ = lead(sim, TOPIC)
    receive(sim, count=COUNT)
    sim.advance("100ms")
    assert piece_end(host(sim, leader, TOPIC).machine.delivery, 700) == 700


def test_a_trim_that_ends_half_way_says_so_and_can_be_asked_for_again(sim: SimCluster) -> None:
    leader, followers = lead(sim, TOPIC)
    ack_every_second(sim, receive(sim, count=COUNT, lease_ms=60_000))
    there = host(sim, leader, TOPIC)
    for name in followers:
        sim.cut(leader, name)
    heard: list[object] = []
    deadline = node(sim, leader).clock.mono_ms() + 500
    trim(there, COUNT, CommandProposal(there.name, deadline, 500, heard.append))
    sim.run_until(lambda: bool(heard))
    assert isinstance(heard[0], TimedOut)
    sim.heal()
    sim.advance("3s")
    assert question(sim, "log.trim", offset=COUNT) == {"log_start": COUNT}


@pytest.mark.parametrize("ordered", [False, True])
def test_a_receive_of_scattered_messages_has_an_end_and_the_next_goes_on(
    sim: SimCluster, *, ordered: bool
) -> None:
    """Each is a row on every replica, so many of them in one turn would make others wait."""
    scatter(sim, ordered=ordered)
    seen: list[int] = []
    while found := offsets(receive(sim, count=COUNT, lease_ms=60_000, ordered=ordered)):
        assert len(found) <= RANGES_MAX
        seen += found
    assert seen == list(range(COUNT) if ordered else range(1, COUNT, 2))


@pytest.mark.parametrize("ordered", [False, True])
def test_a_query_lease_of_scattered_messages_has_an_end_too(
    sim: SimCluster, *, ordered: bool
) -> None:
    scatter(sim, ordered=ordered)
    leased: list[int] = []
    for n in range(4):
        told = question(
            sim, "query.lease", group=GROUP, query="q", n=n, count=COUNT, ordered=ordered
        )
        leased.append(told["count"])
    assert sum(leased) == (COUNT if ordered else COUNT // 2)
    assert leased[0] == max(leased) == LEASE_RANGES
