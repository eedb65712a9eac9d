"""Receives over all partitions of a topic: the highest lane first, wherever it is led."""

import pytest

from raftline.machines.delivery.commands import START_NEXT
from raftline.machines.delivery.selection import Chooser
from raftline.machines.partition.side_car import SideCar
from raftline.model.batch import check_batch
from raftline.model.calls import Appended, Received
from raftline.model.errors import (
    Damaged,
    NoLeader,
    OverLimit,
    RaftlineError,
    Unavailable,
    UnknownTopic,
)
from raftline.node import desks
from raftline.node.desk_reading import Reading
from raftline.testing import SimCluster, cluster
from tests.unit.node.little_batches import batch
from tests.unit.node.whole import answer_of, node, shard_of
from tests.unit.node.work import (
    GROUP,
    TOPIC,
    Answer,
    ask,
    offsets,
    question,
    receive,
    set_topic,
    settle,
)

PARTITIONS = 6


@pytest.fixture
def sim():
    with cluster(nodes=3, seed=21) as made:
        made.create_topic(TOPIC, partitions=PARTITIONS)
        made.run_until(lambda: len(leaders(made)) == PARTITIONS)
        yield made


def leaders(sim: SimCluster) -> dict[int, str]:
    """Return who leads which partition."""
    found: dict[int, str] = {}
    for partition in range(PARTITIONS):
        shard = shard_of(sim, TOPIC, partition)
        for name in sim.running:
            own = node(sim, name).shards.get(shard)
            if own is not None and own.is_leader:
                found[partition] = name
    return found


def send(sim: SimCluster, partition: int, value: bytes, priority: int = 0) -> None:
    sealed = batch(value)
    side = SideCar(((0, 1, priority),)) if priority else None
    info = check_batch(sealed)
    answer = answer_of(
        sim,
        lambda done: node(sim, sim.running[0]).append(
            TOPIC, partition, sealed, info, 5_000, done, side
        ),
    )
    assert isinstance(answer, Appended), answer


def test_the_highest_lane_goes_first_over_partitions_and_nodes(sim: SimCluster) -> None:
    assert len(set(leaders(sim).values())) > 1, "the leaders are all on one node"
    lanes = {0: -10, 1: 20, 2: 0, 3: 10, 4: -20, 5: 5}
    for partition, priority in lanes.items():
        send(sim, partition, b"%d" % priority, priority)
    sim.advance("100ms")
    for name in sim.nodes:
        group = f"of-{name}"  # every group sees them all
        order = []
        for _ in range(PARTITIONS):
            got = receive(sim, via=name, group=group, partition=-1, count=10)
            assert offsets(got) == [0]
            order.append(lanes[got.partition])
        assert order == sorted(order, reverse=True)
        assert offsets(receive(sim, via=name, group=group, partition=-1)) == []


def test_a_high_message_that_comes_late_overtakes_what_waits_elsewhere(sim: SimCluster) -> None:
    receive(sim, partition=-1)  # nothing yet
    for partition in range(PARTITIONS):
        for _ in range(3):
            send(sim, partition, b"plain")
    got = receive(sim, partition=-1, count=1)
    settle(sim, got)
    send(sim, 4, b"urgent", 20)
    urgent = receive(sim, partition=-1, count=1, via=sim.nodes[1])
    assert (urgent.partition, offsets(urgent)) == (4, [3])


def test_partitions_of_the_same_lane_take_turns(sim: SimCluster) -> None:
    for partition in range(PARTITIONS):
        for _ in range(4):
            send(sim, partition, b"x")
    seen = [receive(sim, partition=-1, count=1).partition for _ in range(12)]
    assert sorted(set(seen)) == list(range(PARTITIONS))
    assert max(seen.count(partition) for partition in seen) <= 4


@pytest.mark.parametrize("wait_ms", [0, 2_000])
def test_a_partition_that_cannot_be_read_keeps_nobody_from_the_others(
    sim: SimCluster, wait_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the highest lane, so it is asked first, however often."""
    send(sim, 1, b"high", 20)
    send(sim, 2, b"normal")
    send(sim, 3, b"low", -10)
    real = Reading.next

    def fail(reading: Reading) -> None:
        if reading._desk.host.identity.partition == 1:
            reading._took(Damaged(f"{TOPIC}/1@0", "a test"))
        else:
            real(reading)

    monkeypatch.setattr(Reading, "next", fail)
    for name in sim.nodes:
        group = f"of-{name}"
        for partition in (2, 3):
            got = receive(sim, via=name, group=group, partition=-1, count=10, wait_ms=wait_ms)
            assert (got.partition, offsets(got)) == (partition, [0])
        began = sim.now_ms
        how = {"via": name, "group": group, "partition": -1, "wait_ms": wait_ms}
        answer = answer_of(sim, lambda done, how=how: ask(sim, done, **how))  # type: ignore[arg-type]
        assert isinstance(answer, Damaged), answer
        assert sim.now_ms - began < 1_000


def test_one_who_waits_hears_of_a_message_anywhere(sim: SimCluster) -> None:
    receive(sim, partition=-1)
    for partition in range(PARTITIONS):
        heard: list[Answer] = []
        began = sim.now_ms
        ask(sim, heard.append, partition=-1, wait_ms=9_000, via=sim.nodes[partition % 3])
        sim.advance("2500ms")  # past the time after which leaders are asked anew
        assert heard == []
        sim.append(TOPIC, [b"x"], partition)
        sim.run_until(lambda heard=heard: bool(heard), "1s")
        got = heard[0]
        assert isinstance(got, Received)
        assert (got.partition, len(offsets(got))) == (partition, 1)
        assert sim.now_ms - began < 3_500
        settle(sim, got)


def test_many_who_wait_get_one_message_each_and_the_rest_nothing(sim: SimCluster) -> None:
    receive(sim, partition=-1)
    heard: list[Answer] = []
    for at in range(9):
        ask(sim, heard.append, partition=-1, count=1, wait_ms=3_000, via=sim.nodes[at % 3])
    sim.advance("100ms")
    for partition in range(4):
        sim.append(TOPIC, [b"x"], partition)
    sim.run_until(lambda: len(heard) == 9, "5s")
    got = [(a.partition, o) for a in heard if isinstance(a, Received) for o in offsets(a)]
    assert sorted(got) == [(partition, 0) for partition in range(4)]
    assert not [answer for answer in heard if isinstance(answer, RaftlineError)]


def test_a_wait_over_partitions_ends_in_its_time(sim: SimCluster) -> None:
    for wait_ms in (0, 500, 3_000):
        began = sim.now_ms
        assert offsets(receive(sim, partition=-1, wait_ms=wait_ms)) == []
        assert wait_ms <= sim.now_ms - began < wait_ms + 300


def test_a_wait_goes_on_when_a_leader_dies(sim: SimCluster) -> None:
    receive(sim, partition=-1)
    sim.advance("500ms")
    via = sim.nodes[0]
    victim = next(name for name in leaders(sim).values() if name != via)
    lost = [partition for partition, name in leaders(sim).items() if name == victim]
    heard: list[Answer] = []
    ask(sim, heard.append, partition=-1, wait_ms=15_000, via=via)
    sim.advance("300ms")
    sim.kill(victim)
    sim.run_until(lambda: len(leaders(sim)) == PARTITIONS)
    sim.append(TOPIC, [b"x"], lost[0], via=via)
    sim.run_until(lambda: bool(heard), "5s")
    got = heard[0]
    assert isinstance(got, Received), got
    assert got.partition == lost[0]


def test_where_nobody_leads_the_answer_is_not_that_there_is_nothing(sim: SimCluster) -> None:
    receive(sim, partition=-1)
    for name in sim.nodes[1:]:
        sim.kill(name)
    sim.advance("5s")
    began = sim.now_ms
    answer = answer_of(
        sim, lambda done: ask(sim, done, partition=-1, via=sim.nodes[0], timeout_ms=2_000)
    )
    assert isinstance(answer, NoLeader), answer
    assert sim.now_ms - began < 2_500


@pytest.mark.parametrize("wait_ms", [0, 1_500, 3_000])
def test_a_silent_leader_keeps_nobody_longer_than_his_time(sim: SimCluster, wait_ms: int) -> None:
    receive(sim, partition=-1)
    via, timeout_ms = sim.nodes[0], max(wait_ms, 500)
    silent = next(name for name in leaders(sim).values() if name != via)
    sim.cut(silent, via, both_ways=False)  # it hears the question; its answers get lost
    began = sim.now_ms
    answer_of(
        sim,
        lambda done: ask(sim, done, partition=-1, wait_ms=wait_ms, via=via, timeout_ms=timeout_ms),
    )
    assert sim.now_ms - began < timeout_ms + 300


def test_a_new_group_begins_where_it_is_told_on_every_partition(sim: SimCluster) -> None:
    for partition in range(PARTITIONS):
        send(sim, partition, b"old")
    found: list[tuple[int, int]] = []
    for partition in range(PARTITIONS):
        assert offsets(receive(sim, partition=partition, start=START_NEXT)) == []
    for partition in range(PARTITIONS):
        send(sim, partition, b"new")
    for _ in range(PARTITIONS):
        got = receive(sim, partition=-1, start=START_NEXT)
        found += [(got.partition, offset) for offset in offsets(got)]
    assert sorted(found) == [(partition, 1) for partition in range(PARTITIONS)]


@pytest.mark.parametrize("wait_ms", [0, 1_000])
def test_what_comes_next_is_what_comes_after_the_first_receive_anywhere(
    sim: SimCluster, wait_ms: int
) -> None:
    """Partitions that have nothing, or do not serve this receive, begin with it all the same."""
    for partition in (1, 4):
        send(sim, partition, b"old")
    assert offsets(receive(sim, partition=-1, wait_ms=wait_ms, start=START_NEXT)) == []
    for partition in range(PARTITIONS):
        send(sim, partition, b"new")
    found: list[tuple[int, int]] = []
    for at in range(PARTITIONS):
        got = receive(sim, partition=-1, start=START_NEXT, via=sim.nodes[at % 3])
        found += [(got.partition, offset) for offset in offsets(got)]
    assert sorted(found) == [(partition, int(partition in (1, 4))) for partition in range(6)]


def test_one_who_waits_for_what_comes_next_gets_the_first_of_it(sim: SimCluster) -> None:
    heard: list[Answer] = []
    ask(sim, heard.append, partition=-1, wait_ms=9_000, start=START_NEXT)
    sim.advance("500ms")
    send(sim, 3, b"new")
    sim.run_until(lambda: bool(heard), "1s")
    got = heard[0]
    assert isinstance(got, Received)
    assert (got.partition, offsets(got)) == (3, [0])


def test_the_first_receive_makes_a_group_ordered_on_every_partition(sim: SimCluster) -> None:
    send(sim, 2, b"x")
    assert offsets(receive(sim, partition=-1, ordered=True)) == [0]
    sim.advance("100ms")
    assert receive(sim, partition=5).spans == []  # says nothing of order, and is not the first
    for partition in range(PARTITIONS):
        shown = question(sim, "group.show", partition, group=GROUP)
        assert shown["policy"]["ordered"], partition


def test_weighted_lanes_leave_none_out(sim: SimCluster) -> None:
    set_topic(sim, priorities="weighted")
    for partition in range(2):
        for priority in (10, 0, -10):
            for _ in range(4):
                send(sim, partition, b"x", priority)
    got = 0
    for _ in range(40):
        got += len(offsets(receive(sim, partition=-1, count=2)))
    assert got == 24


def test_no_such_topic(sim: SimCluster) -> None:
    answer = answer_of(sim, lambda done: ask(sim, done, partition=-1, topic="nope"))
    assert isinstance(answer, UnknownTopic)


@pytest.mark.parametrize("partition", [-1, 0])
def test_only_so_many_wait(
    sim: SimCluster, partition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desks, "RECEIVERS_PARKED_MAX", 3)
    receive(sim, partition=partition)
    via = leaders(sim)[0]
    heard: list[Answer] = []
    for _ in range(5):
        ask(sim, heard.append, partition=partition, wait_ms=2_000, via=via, count=1)
    sim.advance("100ms")
    assert [type(answer) for answer in heard] == [OverLimit, OverLimit]
    sim.run_until(lambda: len(heard) == 5, "3s")
    send(sim, 0, b"x")
    assert offsets(receive(sim, partition=partition, via=via)) == [0]


def test_a_message_wakes_one_of_those_who_wait_on_its_node(sim: SimCluster) -> None:
    via = leaders(sim)[2]
    receive(sim, partition=-1, via=via)
    heard: list[Answer] = []
    for _ in range(50):
        ask(sim, heard.append, partition=-1, count=1, wait_ms=9_000, via=via)
    sim.advance("100ms")
    for at in range(50):
        sim.append(TOPIC, [b"%d" % at], 2, via=via)
    sim.run_until(lambda: len(heard) == 50, "2s")
    assert sorted(o for answer in heard for o in offsets(answer)) == list(range(50))


def test_what_waits_is_looked_for_where_something_may_be_and_nowhere_else(monkeypatch) -> None:
    """A message costs its receiver a look or two, however many partitions there are."""
    looks = 0
    look = Chooser.waiting_lane

    def counted(*arguments):
        nonlocal looks
        looks += 1
        return look(*arguments)

    with cluster(nodes=1, seed=21) as sim:
        sim.create_topic(TOPIC, partitions=PARTITIONS)
        sim.run_until(lambda: len(leaders(sim)) == PARTITIONS)
        for number in range(4 * PARTITIONS):
            if number == PARTITIONS:  # every partition knows the group
                monkeypatch.setattr(Chooser, "waiting_lane", counted)
            got: list[Answer] = []
            ask(sim, got.append, partition=-1, wait_ms=1_000)
            send(sim, number % PARTITIONS, b"one")
            sim.run_until(lambda got=got: bool(got))
            assert isinstance(got[0], Received)
            settle(sim, got[0])
    assert 0 < looks <= 3 * 3 * PARTITIONS


@pytest.mark.parametrize("wait_ms", [0, 3_000])
def test_a_node_without_a_replica_finds_a_leader_that_is_not_the_first_host(wait_ms: int) -> None:
    """It asked the first host for ever, who leads nothing, and said that there is nothing."""
    with cluster(nodes=5, seed=21) as sim:
        sim.create_topic(TOPIC, partitions=1, replication_factor=3)
        sim.advance("2s")
        shard = shard_of(sim, TOPIC)
        hosts = node(sim, "node-1").hosts(shard)
        sim.command("cluster.transfer", topic=TOPIC, partition=0, to_node=hosts[1])
        sim.advance("1s")
        leader = node(sim, f"node-{hosts[1]}").shards.get(shard)
        assert leader is not None
        assert leader.is_leader
        others = [name for name in sim.running if node(sim, name).shards.get(shard) is None]
        assert len(others) == 2
        for offset, name in enumerate(others):
            sim.append(TOPIC, [b"one"], via=f"node-{hosts[1]}")
            got = receive(sim, via=name, partition=-1, wait_ms=wait_ms)
            assert offsets(got) == [offset]
            assert node(sim, name).router.leader_of(shard) == hosts[1]
            assert offsets(receive(sim, via=name, partition=-1)) == []


@pytest.mark.parametrize("is_spread", [False, True])
def test_who_waits_at_a_node_that_stops_is_told_so_at_once(
    sim: SimCluster, *, is_spread: bool
) -> None:
    """It was passed on to the next leader, who leased messages for a call that was cut off."""
    name = leaders(sim)[0]
    answers: list[Answer] = []
    wanted = -1 if is_spread else 0
    ask(sim, answers.append, via=name, partition=wanted, wait_ms=30_000, timeout_ms=35_000)
    sim.advance("500ms")
    assert answers == []
    stopped: list[bool] = []
    node(sim, name).stop(lambda: stopped.append(bool(answers)))
    sim.run_until(lambda: bool(stopped), "5s")
    assert stopped == [True]
    assert isinstance(answers[0], Unavailable)
