"""The trace of a topic, read as the topic ``<topic>.trace``."""

import pytest

from raftline.machines.delivery.commands import ACK
from raftline.model.calls import Looked, ReadReply
from raftline.model.errors import OffsetOutOfRange, UnknownTopic
from raftline.model.records import open_batches
from raftline.model.trace import Ended, Given, decode_record
from raftline.testing import SimCluster, cluster
from tests.unit.node.whole import answer_of, lead, node
from tests.unit.node.work import GROUP, TOPIC, receive, settle

TRACE = f"{TOPIC}.trace"


@pytest.fixture
def sim():
    with cluster(nodes=3, seed=31) as made:
        made.create_topic(TOPIC, partitions=1)
        made.append(TOPIC, [b"%d" % number for number in range(4)])
        yield made


def read(sim: SimCluster, topic: str, offset: int, *, via: str = "", wait_ms: int = 0) -> object:
    name = via or sim.running[0]
    return answer_of(
        sim,
        lambda done: node(sim, name).read(topic, 0, offset, 1 << 20, wait_ms, 10_000, done),
    )


def records(reply: object) -> list:
    assert isinstance(reply, ReadReply), reply
    return [decode_record(message.value or b"") for message in open_batches(reply.batches)]


def test_every_node_reads_what_happened_to_messages(sim: SimCluster) -> None:
    settle(sim, receive(sim, count=3), ACK)
    for name in sim.running:
        events = [event for row in records(read(sim, TRACE, 0, via=name)) for event in row.events]
        assert [type(event) for event in events] == [Given, Ended]
        assert (events[0].group, events[0].spans[:2], events[1].ranges) == (GROUP, [0, 3], [0, 3])


def test_its_bounds_and_times_are_those_of_records(sim: SimCluster) -> None:
    def look(time_ms: int) -> object:
        name = lead(sim, TOPIC)[1][0]
        return answer_of(
            sim, lambda done: node(sim, name).look_up_time(TRACE, 0, time_ms, 10_000, done)
        )

    assert look(0) == Looked(-1, -1, 1)
    settle(sim, receive(sim, count=1), ACK)
    sim.advance("10s")
    settle(sim, receive(sim, count=1), ACK)
    rows = records(read(sim, TRACE, 0))
    half, end = len(rows) // 2, len(rows) + 1
    assert half in (1, 2)  # a lease and its end went into one entry, or into two
    assert rows[half].at_ms >= rows[half - 1].at_ms + 10_000
    assert look(0) == Looked(1, 0, end)
    later = look(rows[half].at_ms)
    assert isinstance(later, Looked)
    assert (later.offset, later.commit_end) == (half + 1, end)
    assert isinstance(read(sim, TRACE, end + 1), OffsetOutOfRange)


def test_a_reader_at_the_end_waits_for_more(sim: SimCluster) -> None:
    heard: list = []
    node(sim, sim.running[0]).read(TRACE, 0, 1, 1 << 20, 5_000, 15_000, heard.append)
    sim.advance("1s")
    assert heard == []
    receive(sim, count=1)
    sim.run_until(lambda: bool(heard))
    assert len(records(heard[0])) == 1


def test_a_reader_at_the_end_hears_within_its_time_though_the_leader_is_gone(
    sim: SimCluster,
) -> None:
    heard: list = []
    leader, others = lead(sim, TOPIC)
    began_ms = sim.now_ms
    node(sim, others[0]).read(TRACE, 0, 1, 1 << 20, 3_000, 3_000, heard.append)
    sim.advance("1s")
    assert heard == []
    for name in (leader, others[1]):
        sim.kill(name)
    sim.run_until(lambda: bool(heard))
    assert sim.now_ms - began_ms < 3_200


def test_a_trace_of_nothing_is_no_topic_and_a_real_topic_comes_first(sim: SimCluster) -> None:
    assert read(sim, "nothing.trace", 0) == UnknownTopic("nothing")
    sim.create_topic("later.trace", partitions=1)  # while there is nothing that it would hide
    sim.append("later.trace", [b"mine"])
    sim.create_topic("later", partitions=1)
    reply = read(sim, "later.trace", 0)
    assert isinstance(reply, ReadReply)
    assert [message.value for message in open_batches(reply.batches)] == [b"mine"]
