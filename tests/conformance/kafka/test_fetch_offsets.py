"""Where things are: offsets by time and by term, metadata, ids; also after leaders changed."""

import time
from collections.abc import Iterator

import pytest

from raftline.chaos.rig import Rig, wait_for
from raftline.gateways.kafka import schema
from raftline.model.records import open_batches, seal_batch
from tests.conformance.kafka.conftest import MakeTopic, kafka_of
from tests.conformance.kafka.test_produce_clients import librdkafka_produce, librdkafka_read, some
from tests.conformance.kafka.wire import Fields, Wire

LATEST, EARLIEST, NEWEST = -1, -2, -3
FIRST_MS = 1_700_000_000_000


@pytest.fixture
def wire(one: Rig) -> Iterator[Wire]:
    with Wire(one.node("node-1").kafka) as wire:
        yield wire


def list_offset(wire: Wire, topic: str, timestamp: int, version: int = 7, **more: int) -> Fields:
    row = {"partition": 0, "timestamp": timestamp, **more}
    asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": [row]}]}
    answer = wire.ask(schema.LIST_OFFSETS, version, asked)
    return answer["topics"][0]["partitions"][0]


def end_of_epoch(wire: Wire, topic: str, epoch: int, version: int = 4) -> tuple[int, int, int]:
    row = {"partition": 0, "leader_epoch": epoch}
    asked = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [row]}]}
    answer = wire.ask(schema.OFFSET_FOR_LEADER_EPOCH, version, asked)
    found = answer["topics"][0]["partitions"][0]
    return found["error_code"], found["leader_epoch"], found["end_offset"]


def test_offsets_by_time_in_every_version(one: Rig, wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(one)
    times = [0, 10, 10, 500, 30, 40, 20, 60]  # out of order, as clocks of producers are
    for start in range(0, len(times), 2):
        pair = times[start : start + 2]
        batch = seal_batch([(None, b"x", (), FIRST_MS + ms) for ms in pair])
        assert wire.produce(9, topic, batch)["error_code"] == 0
    for version in range(1, 11):
        for asked, offset, timestamp in (
            (LATEST, 8, -1),
            (EARLIEST, 0, -1),
            (FIRST_MS, 0, FIRST_MS),
            (FIRST_MS + 1, 1, FIRST_MS + 10),
            (FIRST_MS + 11, 3, FIRST_MS + 500),
            (FIRST_MS + 500, 3, FIRST_MS + 500),
            (FIRST_MS + 501, -1, -1),
            (NEWEST, 3, FIRST_MS + 500),
            (0, 0, FIRST_MS),
        ):
            row = list_offset(wire, topic, asked, version)
            found = (row["error_code"], row["offset"], row["timestamp"])
            assert found == (0, offset, timestamp), (version, asked)


@pytest.mark.parametrize("first", [FIRST_MS * 1_000_000, (1 << 63) - 3])
def test_the_newest_of_very_late_messages_is_found(
    one: Rig, wire: Wire, make_topic: MakeTopic, first: int
) -> None:
    topic = make_topic(one)
    for late in (0, 2, 1):
        wire.produce(9, topic, seal_batch([(None, b"x", (), first + late)]))
    row = list_offset(wire, topic, NEWEST)
    assert (row["error_code"], row["offset"], row["timestamp"]) == (0, 1, first + 2)


def test_an_empty_partition_has_ends_and_no_times(
    one: Rig, wire: Wire, make_topic: MakeTopic
) -> None:
    topic = make_topic(one)
    found = [list_offset(wire, topic, asked)["offset"] for asked in (LATEST, EARLIEST, NEWEST, 5)]
    assert found == [0, 0, -1, -1]


def test_what_cannot_be_listed(one: Rig, wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(one)
    assert list_offset(wire, "nothing-here", LATEST)["error_code"] == 3
    assert list_offset(wire, topic, LATEST, partition=4)["error_code"] == 3
    assert list_offset(wire, topic, LATEST, current_leader_epoch=10_000)["error_code"] == 75
    assert list_offset(wire, topic, LATEST, current_leader_epoch=0)["error_code"] == 74


def test_ends_of_a_log_by_numbers_that_kafka_gave_them(
    one: Rig, wire: Wire, make_topic: MakeTopic
) -> None:
    """Local and tiered parts of a log (-4, -5); what comes later is of versions not served."""
    topic = make_topic(one)
    wire.produce(9, topic, seal_batch([(None, b"x", (), FIRST_MS)]))
    found = [list_offset(wire, topic, asked, 9) for asked in (-4, -5, -6, -(1 << 63))]
    assert [(row["error_code"], row["offset"]) for row in found] == [
        (0, 0),
        (0, -1),
        (35, -1),
        (35, -1),
    ]


def test_trimmed_messages_are_out_of_range(one: Rig, wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(one)
    for n in range(6):
        wire.produce(9, topic, seal_batch([(None, b"%d" % n, (), FIRST_MS + n)]))
    with one.client() as client:
        client._caller.call("POST", f"/v1/topics/{topic}/partitions/0/trim", {"offset": 4})
    assert list_offset(wire, topic, EARLIEST)["offset"] == 4
    assert list_offset(wire, topic, FIRST_MS)["offset"] == 4
    assert wire.fetch(11, topic, 3)["error_code"] == 1
    row = wire.fetch(11, topic, 4)
    assert (row["log_start_offset"], len(open_batches(row["records"]))) == (4, 2)


def test_a_term_of_which_nothing_is_kept_ends_where_the_log_starts(
    one: Rig, wire: Wire, make_topic: MakeTopic
) -> None:
    topic = make_topic(one)
    old = 0  # before the first leader's
    assert end_of_epoch(wire, topic, old) == (0, old, 0)
    for n in range(6):
        wire.produce(9, topic, seal_batch([(None, b"%d" % n, (), FIRST_MS + n)]))
    for offset in (4, 6):
        with one.client() as client:
            client._caller.call("POST", f"/v1/topics/{topic}/partitions/0/trim", {"offset": offset})
        assert end_of_epoch(wire, topic, old) == (0, old, offset)
    for none in (-1, 10_000):
        assert end_of_epoch(wire, topic, none) == (0, -1, -1)


def test_metadata_in_every_version(three: Rig, make_topic: MakeTopic) -> None:
    topic = make_topic(three, partitions=3)
    numbers = {three.number(name): three.node(name).kafka for name in three.names}
    for name in three.names:
        with Wire(three.node(name).kafka) as wire:
            for version in range(14):
                asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
                answer = wire.ask(schema.METADATA, version, asked)
                found = {
                    row["node_id"]: f"{row['host']}:{row['port']}" for row in answer["brokers"]
                }
                assert found == numbers
                (row,) = answer["topics"]
                assert (row["error_code"], row["name"]) == (0, topic)
                assert [part["partition"] for part in row["partitions"]] == [0, 1, 2]
                for part in row["partitions"]:
                    assert part["leader_id"] in numbers
                    assert sorted(part["replicas"]) == sorted(part["isr"]) == sorted(numbers)
                    assert version < 7 or part["leader_epoch"] > 0
            by_id = {"topics": [{"topic_id": row["topic_id"], "name": None}]}
            assert wire.ask(schema.METADATA, 12, by_id)["topics"][0]["name"] == topic
            no_id = {"topics": [{"topic_id": bytes(15) + b"x", "name": None}]}
            for version, said in ((10, ""), (11, ""), (12, None), (13, None)):
                (row,) = wire.ask(schema.METADATA, version, no_id)["topics"]
                assert (row["error_code"], row["name"]) == (100, said)
            everything = wire.ask(schema.METADATA, 12, {"topics": None})["topics"]
            assert topic in [one["name"] for one in everything]
            none = {"topics": [{"name": "nobody"}], "allow_auto_topic_creation": False}
            assert wire.ask(schema.METADATA, 12, none)["topics"][0]["error_code"] == 3
            bad = {"topics": [{"name": "no such/name"}]}
            assert wire.ask(schema.METADATA, 12, bad)["topics"][0]["error_code"] == 17


def test_only_the_leader_serves_and_others_say_who_it_is(three: Rig, make_topic: MakeTopic) -> None:
    topic = make_topic(three)
    said: list[object] = []

    def is_told() -> bool:  # again if the leader changed meanwhile: machines are busy
        leader = _leader(three, topic)
        said[:] = [told(three, name, topic) for name in three.names]
        wanted = [
            [(0, -1)] * 6
            if three.number(name) == leader
            else [(6, -1), (6, -1), *[(6, leader)] * 4]
            for name in three.names
        ]
        return said == wanted

    wait_for(is_told, 20, lambda: str(said))


def told(rig: Rig, name: str, topic: str) -> list[tuple[int, int]]:
    """Return (code, leader that is named) of requests to a node."""
    batch = seal_batch([(None, b"x", (), FIRST_MS)])
    with Wire(rig.node(name).kafka) as wire:
        rows = [wire.produce(version, topic, batch) for version in (3, 9, 10, 12)]
        rows += [wire.fetch(12, topic, 0), wire.fetch(16, _id(rig, topic), 0)]
        code = list_offset(wire, topic, LATEST)["error_code"]
    found = [(row["error_code"], row["current_leader"]["leader_id"]) for row in rows]
    return found if code == found[0][0] else []


def _id(rig: Rig, topic: str) -> bytes:
    with rig.client() as client:
        return bytes.fromhex(client.topic(topic)["uuid"])


def test_terms_end_where_the_next_begin(three: Rig, make_topic: MakeTopic) -> None:
    topic = make_topic(three)
    ends: dict[int, int] = {}
    for turn in range(3):
        librdkafka_produce(kafka_of(three), topic, some(20))
        with three.client() as client:
            row = client.topic(topic)["partitions"][0]
        ends[row["term"]] = 20 * (turn + 1)
        others = [number for number in row["replicas"] if number != row["leader"]]
        with three.client() as client:
            client.administer("transfer", topic=topic, partition=0, to_node=str(others[0]))
        wait_for(lambda old=row["term"]: _term(three, topic) > old, 20, lambda: topic)
        time.sleep(0.2)
    leader = three.name_of(_leader(three, topic))
    with Wire(three.node(leader).kafka) as wire:
        for term, end in ends.items():
            for version in range(1, 5):
                assert end_of_epoch(wire, topic, term, version) == (0, term, end)
        newest = _term(three, topic)
        assert end_of_epoch(wire, topic, newest) == (0, newest, 60)
        assert end_of_epoch(wire, topic, newest + 1) == (0, -1, -1)
        assert end_of_epoch(wire, topic, min(ends) - 1) == (0, min(ends) - 1, 0)
    rows = librdkafka_read(kafka_of(three), topic, 1, 60)
    assert [offset for _, offset, _, _ in sorted(rows)] == list(range(60))


def _row(rig: Rig, topic: str) -> Fields:
    with rig.client() as client:
        return client.topic(topic)["partitions"][0]


def _term(rig: Rig, topic: str) -> int:
    return _row(rig, topic)["term"]


def _leader(rig: Rig, topic: str) -> int:
    return _row(rig, topic)["leader"]
