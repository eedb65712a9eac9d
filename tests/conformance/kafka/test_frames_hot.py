"""Produce and Fetch over a socket: every version, every code, and in order."""

import struct
import threading
import time
from collections.abc import Iterator

import pytest
from crc32c import crc32c

from raftline.chaos.rig import Rig
from raftline.gateways.kafka import schema
from raftline.gateways.kafka.schema_admin import DELETE_RECORDS
from raftline.model.records import open_batches, seal_batch
from tests.conformance.kafka.conftest import MakeTopic
from tests.conformance.kafka.wire import Wire, fetch, produce

IDS_FROM = 13


@pytest.fixture
def wire(one: Rig) -> Iterator[Wire]:
    with Wire(one.node("node-1").kafka) as wire:
        yield wire


def batch(*values: str, producer: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
    messages = [(b"k", value.encode(), [("h", b"x")], 1_700_000_000_000) for value in values]
    return seal_batch(messages, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def values(records: bytes) -> list[str]:
    return [(m.value or b"").decode() for m in open_batches(records)]


def topic_id(one: Rig, topic: str) -> bytes:
    with one.client() as client:
        return bytes.fromhex(client.topic(topic)["uuid"])


def test_every_version_of_produce_and_fetch(one: Rig, wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(one)
    versions = range(3, 13)
    for offset, version in enumerate(versions):
        row = wire.produce(version, topic, batch(f"v{version}"), acks=(-1, 1)[version % 2])
        assert (row["error_code"], row["base_offset"]) == (0, offset), version
        assert row["log_start_offset"] == (0 if version >= 5 else -1)
    wanted = [f"v{version}" for version in versions]
    for version in range(4, 18):
        name = topic_id(one, topic) if version >= IDS_FROM else topic
        row = wire.fetch(version, name, 0)
        assert (row["error_code"], row["high_watermark"]) == (0, len(versions)), version
        assert row["last_stable_offset"] == len(versions)
        assert values(row["records"]) == wanted, version


def test_requests_like_the_one_before(one: Rig, wire: Wire, make_topic: MakeTopic) -> None:
    """The short way for repeats is the same as the long one, and leaves it where it must."""
    topics = [make_topic(one), make_topic(one, partitions=2, name="n" * 249)]
    ends = dict.fromkeys([(topics[0], 0), (topics[1], 0), (topics[1], 1)], 0)
    for version in (4, 5, 7, 8, 9, 12):
        for topic, partition in [*ends, *ends]:
            for text in ("a", "bb" * 3_000, "c" * 40_000, "d"):
                row = wire.produce(version, topic, batch(text), partition=partition)
                assert (row["error_code"], row["partition"]) == (0, partition)
                assert row["base_offset"] == ends[topic, partition]
                ends[topic, partition] += 1
            bad = batch("x")[:-1]
            assert wire.produce(version, topic, bad, partition=partition)["error_code"] == 2
    for (topic, partition), end in ends.items():
        sizes = {"max_bytes": 1 << 24, "partition_bytes": 1 << 24}
        answer = wire.ask(schema.FETCH, 11, fetch(topic, {partition: 0}, **sizes))
        found = values(answer["topics"][0]["partitions"][0]["records"])
        assert found == ["a", "bb" * 3_000, "c" * 40_000, "d"] * (end // 4)


def test_a_reply_holds_at_least_one_batch_and_no_more_than_asked(
    one: Rig, wire: Wire, make_topic: MakeTopic
) -> None:
    topic = make_topic(one)
    for value in ("a" * 5_000, "b" * 5_000, "c" * 5_000):
        assert wire.produce(9, topic, batch(value))["error_code"] == 0
    assert values(wire.fetch(12, topic, 0, max_bytes=1)["records"]) == ["a" * 5_000]
    assert values(wire.fetch(12, topic, 1, partition_bytes=100)["records"]) == ["b" * 5_000]
    assert values(wire.fetch(12, topic, 1, max_bytes=11_000)["records"]) == [
        "b" * 5_000,
        "c" * 5_000,
    ]


def test_large_batches_come_whole(one: Rig, wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(one, partitions=3)
    big = [chr(97 + n) * 3_000_000 for n in range(3)]
    sent = produce(topic, {n: batch(big[n]) for n in range(3)})
    answer = wire.ask(schema.PRODUCE, 10, sent)
    rows = answer["topics"][0]["partitions"]
    assert [(row["partition"], row["error_code"]) for row in rows] == [(0, 0), (1, 0), (2, 0)]
    sizes = {"max_bytes": 1 << 30, "partition_bytes": 1 << 30}
    answer = wire.ask(schema.FETCH, 12, fetch(topic, {0: 0, 1: 0, 2: 0}, **sizes))
    rows = answer["topics"][0]["partitions"]
    got = [values(row["records"]) for row in rows if row["records"]]
    assert got == [[value] for value in big[: len(got)]]
    assert len(got) >= 2


def test_requests_in_flight_are_answered_in_order(
    one: Rig, wire: Wire, make_topic: MakeTopic
) -> None:
    topic = make_topic(one)
    numbers = [
        (schema.PRODUCE, 9, wire.send(schema.PRODUCE, 9, produce(topic, {0: batch(str(n))})))
        if n % 3
        else (schema.METADATA, 12, wire.send(schema.METADATA, 12, {"topics": []}))
        for n in range(60)
    ]
    replies = [wire.reply(api, version, number) for api, version, number in numbers]
    rows = [r["topics"][0]["partitions"][0] for r in replies if "brokers" not in r]
    assert [row["base_offset"] for row in rows] == list(range(40))


def test_a_request_sees_what_those_before_it_changed(
    one: Rig, wire: Wire, make_topic: MakeTopic
) -> None:
    """As Kafka promises for one connection, also to clients that wait for nothing."""
    topic = make_topic(one)
    latest = {"name": topic, "partitions": [{"partition": 0, "timestamp": -1}]}
    earliest = {"name": topic, "partitions": [{"partition": 0, "timestamp": -2}]}
    for turn in range(1, 6):
        trim = {"name": topic, "partitions": [{"partition": 0, "offset": turn}]}
        asked = [
            (schema.PRODUCE, 9, produce(topic, {0: batch(str(turn))})),
            (schema.LIST_OFFSETS, 7, {"replica_id": -1, "topics": [latest]}),
            (DELETE_RECORDS, 2, {"topics": [trim], "timeout_ms": 10_000}),
            (schema.LIST_OFFSETS, 7, {"replica_id": -1, "topics": [earliest]}),
        ]
        sent = [(api, version, wire.send(api, version, body)) for api, version, body in asked]
        rows = [wire.reply(*one_sent)["topics"][0]["partitions"][0] for one_sent in sent]
        assert [row["error_code"] for row in rows] == [0, 0, 0, 0]
        assert rows[1]["offset"] == turn, "the end is behind what was stored"
        assert rows[3]["offset"] == rows[2]["low_watermark"] == turn


def test_bytes_in_flight_are_never_mixed_up(one: Rig, make_topic: MakeTopic) -> None:
    """Many connections, many requests of many sizes in flight: each is stored as it was sent."""
    topic = make_topic(one, partitions=4)
    sizes = [30, 5_000, 17_000, 40_000, 5_100, 100, 33_000, 70_000, 4_500, 300_000, 20]

    def send(partition: int) -> None:
        letter = chr(97 + partition)
        with Wire(one.node("node-1").kafka) as wire:
            for turn in range(6):
                data = [batch(f"{turn} {n} " + letter * size) for n, size in enumerate(sizes)]
                numbers = [
                    wire.send(schema.PRODUCE, 9, produce(topic, {partition: one_batch}))
                    for one_batch in data
                ]
                for number in numbers:
                    row = wire.reply(schema.PRODUCE, 9, number)["topics"][0]["partitions"][0]
                    assert row["error_code"] == 0

    threads = [threading.Thread(target=send, args=(partition,)) for partition in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bounds = {"max_bytes": 1 << 26, "partition_bytes": 1 << 26}
    with Wire(one.node("node-1").kafka) as wire:
        for partition in range(4):
            letter = chr(97 + partition)
            answer = wire.ask(schema.FETCH, 11, fetch(topic, {partition: 0}, **bounds))
            found = values(answer["topics"][0]["partitions"][0]["records"])
            assert found == [
                f"{turn} {n} " + letter * size for turn in range(6) for n, size in enumerate(sizes)
            ]


def test_a_fetch_waits_for_messages_and_no_longer(
    one: Rig, wire: Wire, make_topic: MakeTopic
) -> None:
    topic = make_topic(one, partitions=2)
    began = time.monotonic()
    row = wire.fetch(11, topic, 0, wait_ms=300)
    assert (row["error_code"], row["records"]) == (0, b"")
    assert 0.25 < time.monotonic() - began < 5

    def later() -> None:
        time.sleep(0.3)
        with Wire(one.node("node-1").kafka) as other:
            other.produce(9, topic, batch("late"), partition=1)

    thread = threading.Thread(target=later)
    thread.start()
    began = time.monotonic()
    answer = wire.ask(schema.FETCH, 11, fetch(topic, {0: 0, 1: 0}, wait_ms=10_000))
    took_s = time.monotonic() - began
    thread.join()
    rows = answer["topics"][0]["partitions"]
    assert (rows[0]["records"], values(rows[1]["records"])) == (b"", ["late"])
    assert 0.2 < took_s < 5


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(
    one: Rig, wire: Wire, make_topic: MakeTopic
) -> None:
    topic = make_topic(one)
    wire.produce(9, topic, batch("first"))
    number = wire.send(schema.FETCH, 11, fetch(topic, {0: 0}, wait_ms=10_000, min_bytes=2_000))
    with Wire(one.node("node-1").kafka) as other:
        for n in range(3):
            other.produce(9, topic, batch(str(n) * 1_000))
    row = wire.reply(schema.FETCH, 11, number)["topics"][0]["partitions"][0]
    assert len(row["records"]) >= 2_000
    assert values(row["records"])[:2] == ["first", "0" * 1_000]


@pytest.mark.parametrize("version", [7, 11, 12])
def test_a_fetch_of_a_session_hears_that_there_is_none(
    one: Rig, wire: Wire, make_topic: MakeTopic, version: int
) -> None:
    """It leaves out what did not change: taken for all there is, it would wait for nothing."""
    topic = make_topic(one)
    wire.produce(9, topic, batch("x"))
    whole = fetch(topic, {0: 0}, wait_ms=20_000)
    for session, epoch in ((0, 0), (0, -1), (7, -1)):  # begins one, wants none, ends one
        asked = {**whole, "session_id": session, "session_epoch": epoch}
        answer = wire.ask(schema.FETCH, version, asked)
        assert (answer["error_code"], answer["session_id"]) == (0, 0)
        assert values(answer["topics"][0]["partitions"][0]["records"]) == ["x"]
    for request in (whole, {**whole, "topics": []}):
        answer = wire.ask(schema.FETCH, version, {**request, "session_id": 7, "session_epoch": 1})
        assert (answer["error_code"], answer["session_id"], answer["topics"]) == (70, 0, [])


@pytest.mark.parametrize("partition_bytes", [1, 1 << 20])
def test_a_reply_is_as_long_as_its_client_can_take(
    one: Rig, wire: Wire, make_topic: MakeTopic, partition_bytes: int
) -> None:
    """Batches go out whole, the first in any case; librdkafka hangs up on longer replies."""
    topic = make_topic(one, 4)
    for partition, size in enumerate((300_000, 600_000, 300_000, 200_000)):
        wire.produce(9, topic, batch("x" * size), partition=partition)
    limits = {"partition_bytes": partition_bytes, "min_bytes": 1 << 20, "wait_ms": 20_000}

    def lengths(most: int, *partitions: int) -> list[int]:
        asked = fetch(topic, dict.fromkeys(partitions, 0), max_bytes=most, **limits)
        rows = wire.ask(schema.FETCH, 11, asked)["topics"][0]["partitions"]
        assert {row["error_code"] for row in rows} == {0}
        return [len(row["records"]) // 100_000 for row in rows]

    begun = time.monotonic()
    assert lengths(700_000, 0, 1, 2, 3) == [3, 0, 0, 0]
    assert lengths(700_000, 0, 2, 3, 1) == [3, 3, 0, 0]
    assert lengths(1_000_000, 1, 2, 3, 0) == [6, 3, 0, 0]
    assert lengths(100, 1, 0) == [6, 0]
    assert time.monotonic() - begun < 10, "what was left out is no reason to wait"


def test_a_fetch_of_nothing_waits_for_nothing(one: Rig, wire: Wire) -> None:
    asked = {**fetch("t", {}, wait_ms=19_000), "topics": []}
    begun = time.monotonic()
    assert wire.ask(schema.FETCH, 11, asked)["topics"] == []
    assert time.monotonic() - begun < 10


def test_nothing_is_answered_to_acks_0(one: Rig, wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(one)
    for n in range(3):
        wire.send(schema.PRODUCE, 9, produce(topic, {0: batch(str(n))}, acks=0))
    row = wire.produce(9, topic, batch("last"))
    assert row["base_offset"] == 3


def test_a_refusal_of_acks_0_closes_the_connection(one: Rig, wire: Wire) -> None:
    wire.send(schema.PRODUCE, 9, produce("nothing-here", {0: batch("x")}, acks=0))
    assert wire.is_closed()


def test_what_is_refused_says_so(one: Rig, wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(one)
    good = batch("x")
    bad_crc = bytearray(good)
    bad_crc[-1] ^= 1
    magic_1 = bytearray(good)
    magic_1[16] = 1
    wrong_count = bytearray(good)
    wrong_count[57:61] = struct.pack(">i", 5)
    wrong_count[17:21] = struct.pack(">I", crc32c(bytes(wrong_count[21:])))
    cases: list[tuple[bytes, int]] = [
        (bytes(bad_crc), 2),
        (bytes(magic_1), 87),
        (bytes(wrong_count), 2),
        (good + good, 87),
        (good[:50], 2),
        (b"", 2),
        (seal_batch([(None, b"x" * (13 << 20), [], 0)]), 10),
    ]
    for version in (3, 7, 8, 9, 12):
        for data, code in cases:
            row = wire.produce(version, topic, data)
            assert (row["error_code"], row["base_offset"]) == (code, -1), (version, code)
            if version >= 8:
                assert row["error_message"]
    assert wire.produce(9, "nothing-here", good)["error_code"] == 3
    assert wire.produce(9, topic, good, partition=7)["error_code"] == 3
    assert wire.produce(9, topic, good, acks=2)["error_code"] == 21
    sent = {**produce(topic, {0: good}), "transactional_id": "t"}
    row = wire.ask(schema.PRODUCE, 9, sent)["topics"][0]["partitions"][0]
    assert row["error_code"] == 42
    assert wire.produce(9, topic, good)["base_offset"] == 0, "nothing of it was stored"


def test_offsets_terms_and_ids_that_do_not_fit(one: Rig, wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(one)
    wire.produce(9, topic, batch("x"))
    with one.client() as client:
        term = client.topic(topic)["partitions"][0]["term"]
    assert wire.fetch(11, topic, 2)["error_code"] == 1
    assert wire.fetch(11, topic, -1)["error_code"] == 1
    assert wire.fetch(11, topic, 0, epoch=term - 1)["error_code"] == 74
    assert wire.fetch(11, topic, 0, epoch=term + 1)["error_code"] == 75
    assert wire.fetch(11, topic, 0, epoch=term)["error_code"] == 0
    assert wire.fetch(11, "nothing-here", 0)["error_code"] == 3
    assert wire.fetch(13, bytes(range(16)), 0)["error_code"] == 100


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param(0x08, id="log-append time"),
        pytest.param(0x10, id="a transaction"),
        pytest.param(0x20, id="a control batch"),
        pytest.param(-0x8000, id="a bit nobody knows"),
        pytest.param(5, id="a compression nobody knows"),
    ],
)
def test_batches_that_no_repeat_makes_better_are_not_called_corrupt(
    one: Rig, wire: Wire, make_topic: MakeTopic, attributes: int
) -> None:
    """Clients repeat what is called corrupt (2) until their time for delivery is over."""
    topic = make_topic(one)
    forged = bytearray(batch("x"))
    forged[21:23] = struct.pack(">h", attributes)
    forged[17:21] = struct.pack(">I", crc32c(bytes(forged[21:])))
    for _ in range(2):  # the second time by the short way
        row = wire.produce(9, topic, bytes(forged))
        assert (row["error_code"], row["base_offset"]) == (87, -1)
        assert row["error_message"]
    forged[22] ^= 1  # on the way: a repeat may arrive as it was sent
    assert wire.produce(9, topic, bytes(forged))["error_code"] == 2
    assert wire.produce(9, topic, batch("y"))["base_offset"] == 0


def test_repeats_of_a_producer_are_stored_once(one: Rig, wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(one)
    answer = wire.ask(schema.INIT_PRODUCER_ID, 4, {"transactional_id": None})
    producer, epoch = answer["producer_id"], answer["producer_epoch"]
    assert answer["error_code"] == 0
    assert producer >= 0

    def send(sequence: int, *texts: str, of: int = epoch) -> tuple[int, int]:
        data = batch(*texts, producer=producer, epoch=of, sequence=sequence)
        row = wire.produce(9, topic, data)
        return row["error_code"], row["base_offset"]

    assert send(0, "a", "b") == (0, 0)
    assert send(2, "c") == (0, 2)
    assert send(0, "a", "b") == (0, 0), "the first offset again"
    assert send(2, "c") == (0, 2)
    assert send(5, "gap") == (19, -1), "the missing one may be on its way: again"
    assert send(0, "d", of=epoch + 1) == (0, 3), "clients of Java raise their epoch themselves"
    assert send(3, "late") == (47, -1)
    assert values(wire.fetch(11, topic, 0)["records"]) == ["a", "b", "c", "d"]
    refused = wire.ask(schema.INIT_PRODUCER_ID, 4, {"transactional_id": "tx"})
    assert refused["error_code"] == 42


@pytest.mark.parametrize("named", [(-1, -1), (0, 0), (1, 5)])
def test_no_two_producers_get_the_same_id(
    one: Rig, wire: Wire, make_topic: MakeTopic, named: tuple[int, int]
) -> None:
    topic, asked = make_topic(one), {"transactional_id": None}
    asked |= {"producer_id": named[0], "producer_epoch": named[1]}
    ids: list[int] = []
    for text in ("first", "second"):
        answer = wire.ask(schema.INIT_PRODUCER_ID, 4, asked)
        assert (answer["error_code"], answer["producer_epoch"]) == (0, 0)
        ids.append(answer["producer_id"])
        row = wire.produce(9, topic, batch(text, producer=ids[-1], epoch=0, sequence=0))
        assert row["error_code"] == 0
    assert ids[0] != ids[1]
    assert values(wire.fetch(11, topic, 0)["records"]) == ["first", "second"]


def test_an_id_without_an_epoch_is_refused(wire: Wire) -> None:
    for named in ({"producer_id": 7}, {"producer_epoch": 7}):
        asked = {"transactional_id": None, **named}
        assert wire.ask(schema.INIT_PRODUCER_ID, 4, asked)["error_code"] == 42
