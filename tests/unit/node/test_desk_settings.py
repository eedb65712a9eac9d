"""Settings of a topic that its desk goes by: early or durable grants, jitter of the backoff."""

import pytest

from raftline.machines.delivery.commands import BACKOFF, NACK
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import host, lead
from tests.unit.node.work import GROUP, TOPIC, Answer, ask, offsets, receive, set_topic, settle


@pytest.fixture
def sim():
    with cluster(nodes=3, seed=12) as made:
        made.create_topic(TOPIC, partitions=1)
        yield made


def cut_off(sim: SimCluster, leader: str, followers: list[str]) -> list[Answer]:
    """Ask a leader that can commit nothing any more; return what is heard within 100 ms."""
    sim.append(TOPIC, [b"a", b"b", b"c"])
    receive(sim, via=leader, count=1)
    sim.advance("50ms")
    for name in followers:
        sim.cut(leader, name)
    heard: list[Answer] = []
    ask(sim, heard.append, via=leader, count=1)
    sim.advance("100ms")
    return heard


def test_an_early_grant_hands_out_before_its_lease_commits(sim: SimCluster) -> None:
    leader, followers = lead(sim, TOPIC)
    heard = cut_off(sim, leader, followers)
    assert [offsets(answer) for answer in heard] == [[1]]


def test_a_durable_grant_waits_for_its_lease(sim: SimCluster) -> None:
    set_topic(sim, grant="durable")
    leader, followers = lead(sim, TOPIC)
    assert cut_off(sim, leader, followers) == []


def test_jitter_spreads_the_delays_after_nacks(sim: SimCluster) -> None:
    set_topic(sim, backoff_jitter=50, backoff_ms=10_000)
    sim.append(TOPIC, [b"%d" % n for n in range(20)])
    leader, _ = lead(sim, TOPIC)
    for _ in range(20):
        got = receive(sim, via=leader, count=1)
        settle(sim, got, NACK, delay_ms=BACKOFF)
    group = host(sim, leader, TOPIC).machine.delivery.groups[GROUP]
    at_ms = host(sim, leader, TOPIC).machine.at_ms
    delays = [row[2] - at_ms for _, _, row in group.rows]
    assert len(delays) == 20
    assert all(4_000 < delay <= 15_000 for delay in delays), delays
    assert max(delays) - min(delays) > 2_000, delays
