"""Batches of producers that were taken apart, on whole nodes: in order, once, through failover."""

from collections.abc import Callable
from typing import Any

import pytest

from raftline.gateways.kafka.wishes import make_parcel
from raftline.gateways.wanted import NOTHING, Wanted
from raftline.machines.partition.side_car import hash_key
from raftline.model.batch import check_batch
from raftline.model.calls import Appended
from raftline.model.errors import InvalidArgument, NotLeader, OutOfOrder, RaftlineError
from raftline.model.limits import ENTRY_BATCHES_MAX
from raftline.model.records import open_batch, seal_batch
from raftline.node.led import LedPartition
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import host, lead, node, replica

TOPIC = "orders"
PRODUCER = 5
LATER = Wanted(due_ms=-2000)


def key(text: str) -> Wanted:
    return Wanted(dedup_key=text.encode(), key_hash=hash_key(text.encode()))


@pytest.fixture
def sim():
    with cluster(nodes=3, seed=11) as made:
        made.create_topic(TOPIC, partitions=1)
        lead(made, TOPIC)
        yield made


def led(sim: SimCluster) -> LedPartition:
    leader, _ = lead(sim, TOPIC)
    found = node(sim, leader).led_partition(TOPIC, 0)
    assert isinstance(found, LedPartition)
    return found


def batch(sequence: int, *values: bytes) -> bytes:
    messages = [(None, value, (), 1000) for value in values]
    return seal_batch(messages, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)


def plain(sequence: int, *values: bytes) -> Callable[[LedPartition, Any], None]:
    data = batch(sequence, *values)
    return lambda place, done: place.append(data, check_batch(data), 5000, done)


def parcel(sequence: int, *rows: tuple[bytes, Wanted]) -> Callable[[LedPartition, Any], None]:
    data = batch(sequence, *(value for value, _ in rows))
    made = make_parcel(check_batch(data), open_batch(data), [wanted for _, wanted in rows])
    return lambda place, done: place.send_parcel(made, 5000, done)


def run(sim: SimCluster, *calls: Callable[[LedPartition, Any], None]) -> list[Any]:
    """Make all calls in one go; return the answers in their order."""
    place, answers = led(sim), [None] * len(calls)

    def taker(at: int) -> Callable[[Any], None]:
        def done(answer: Any) -> None:
            assert answers[at] is None, "answered twice"
            answers[at] = answer

        return done

    for at, call in enumerate(calls):
        call(place, taker(at))
    sim.run_until(lambda: None not in answers, "10s")
    return answers


def offsets(answers: list[Any]) -> list[int]:
    assert all(isinstance(answer, Appended) for answer in answers), answers
    return [answer.base_offset for answer in answers]


def values(sim: SimCluster) -> list[bytes | None]:
    return [message.value for message in sim.read_all(TOPIC)]


def test_batches_and_parcels_keep_their_order_in_one_turn(sim: SimCluster):
    answers = run(
        sim,
        plain(0, b"a", b"b"),
        parcel(2, (b"c", key("c")), (b"later", LATER), (b"d", NOTHING)),
        plain(5, b"e"),
        parcel(6, (b"later", LATER)),
        plain(7, b"f"),
    )
    assert offsets(answers) == [0, 2, 4, -1, 5]
    assert values(sim) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    leader, _ = lead(sim, TOPIC)
    sim.run_until(lambda: host(sim, leader, TOPIC).log.log_end == 8, "10s")
    assert values(sim)[6:] == [b"later", b"later"]


def test_a_repeat_at_the_next_leader_is_known(sim: SimCluster):
    sent = parcel(0, (b"a", key("a")), (b"later", LATER), (b"b", NOTHING))
    assert offsets(run(sim, sent)) == [0]
    leader, _ = lead(sim, TOPIC)
    sim.kill(leader)
    again = run(sim, sent, plain(3, b"c"))
    assert offsets(again) == [0, 2]
    assert [answer.duplicate for answer in again] == [True, False]
    sim.start(leader)
    other, _ = lead(sim, TOPIC)
    sim.run_until(lambda: host(sim, other, TOPIC).log.log_end == 4, "20s")
    assert sorted(value or b"" for value in values(sim)) == [b"a", b"b", b"c", b"later"]


def test_a_gap_and_what_follows_are_refused(sim: SimCluster):
    first, gap, after = run(sim, plain(0, b"a"), parcel(5, (b"x", LATER)), plain(6, b"y"))
    assert isinstance(first, Appended)
    assert isinstance(gap, OutOfOrder)
    assert isinstance(after, OutOfOrder)
    assert values(sim) == [b"a"]


def test_too_many_messages_for_one_entry(sim: SimCluster):
    rows = [(b"x", LATER)] * (ENTRY_BATCHES_MAX + 1)
    (answer,) = run(sim, parcel(0, *rows))
    assert isinstance(answer, InvalidArgument)
    assert str(ENTRY_BATCHES_MAX) in answer.hint


def test_who_does_not_lead_refuses(sim: SimCluster):
    place = led(sim)
    leader, _ = lead(sim, TOPIC)
    sim.isolate(leader)
    sim.advance("5s")
    answers: list[Appended | RaftlineError] = []
    parcel(0, (b"x", LATER))(place, answers.append)
    sim.advance("6s")
    assert len(answers) == 1
    assert isinstance(answers[0], NotLeader)


def test_what_a_lost_leader_proposed_is_answered_when_the_next_one_is_heard(sim: SimCluster):
    place, answers = led(sim), list[Appended | RaftlineError]()
    leader, others = lead(sim, TOPIC)
    pressure = node(sim, leader).shards.pressure
    sim.isolate(leader)
    for at in range(4):  # an entry each
        parcel(at, (b"x", LATER))(place, answers.append)
    assert pressure.bytes > 0
    sim.run_until(lambda: any(replica(sim, name, TOPIC).is_leader for name in others), "20s")
    sim.heal()
    sim.run_until(lambda: len(answers) == 4, "3s")
    assert all(isinstance(answer, NotLeader) for answer in answers), answers
    assert pressure.bytes == 0
