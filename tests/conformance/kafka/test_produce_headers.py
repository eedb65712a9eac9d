"""The same messages through Kafka and HTTP; wishes in the headers of Kafka's messages."""

import itertools
import struct
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from crc32c import crc32c

import raftline
from raftline.chaos.rig import Rig
from raftline.gateways.kafka import schema
from raftline.model.records import seal_batch
from tests.conformance.kafka import java
from tests.conformance.kafka.conftest import MakeTopic, kafka_of
from tests.conformance.kafka.test_produce_clients import (
    CODECS,
    WAIT_S,
    librdkafka_produce,
    librdkafka_read,
    some,
)
from tests.conformance.kafka.wire import Wire

Wish = dict[str, str]
REFUSED: tuple[Wish, ...] = (
    {"raftline-delay-ms": "soon"},
    {"raftline-delay-ms": "20000"},
    {"raftline-priority": "500"},
    {"raftline-dedup-key": ""},
    {"raftline-delay-ms": "5", "raftline-due-ms": "5"},
)


def send(rig: Rig, topic: str, rows: list[tuple[str, Wish]], **more: Any) -> list[str]:
    """Send values with headers in one batch, which a flush ends; return refusals."""
    refused: list[str] = []
    producer = Producer(
        {"log_level": 2, "bootstrap.servers": kafka_of(rig), "linger.ms": 2_000, **more}
    )
    for value, wish in rows:
        producer.produce(
            topic,
            value,
            partition=0,
            headers={name: text.encode() for name, text in wish.items()},
            on_delivery=lambda error, _: refused.append(str(error)) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    return refused


def lease(rig: Rig, topic: str, count: int, seconds: float = 10.0) -> list[tuple[str, float]]:
    """Lease and ack messages over HTTP; return them with the times at which they came."""
    got: list[tuple[str, float]] = []
    deadline = time.monotonic() + seconds
    with raftline.connect(rig.node(rig.names[0]).http) as line:
        while len(got) < count and time.monotonic() < deadline:
            for message in line.receive_many(topic, group="g", count=count, wait="300ms"):
                got.append(((message.value or b"").decode(), time.time()))
                message.ack()
    return got


def test_what_kafka_writes_is_leased_over_http(three: Rig, make_topic: MakeTopic) -> None:
    topic = make_topic(three, partitions=3)
    messages = some(100)
    librdkafka_produce(kafka_of(three), topic, messages)
    got = [value for value, _ in lease(three, topic, 100)]
    assert sorted(got) == sorted((value or b"").decode() for _, value, _ in messages)


def test_what_http_writes_is_read_by_kafka(three: Rig, make_topic: MakeTopic) -> None:
    topic = make_topic(three)
    with raftline.connect(three.node("node-1").http) as line:
        for n in range(50):
            line.send(topic, b"%d" % n, key="k", priority="high" if n % 2 else 0)
        line.flush()
    rows = librdkafka_read(kafka_of(three), topic, 1, 50)
    values = [int(value or b"") for *_, value in sorted(rows)]
    assert [n for n in values if n % 2] == list(range(1, 50, 2)), "in order, each priority"
    assert [n for n in values if n % 2 == 0] == list(range(0, 50, 2))
    assert {key for _, _, key, _ in rows} == {b"k"}


@pytest.mark.parametrize("codec", CODECS)
def test_priorities(one: Rig, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic(one, headers=True)
    rows: list[tuple[str, Wish]] = [
        ("low", {"raftline-priority": "low"}),
        ("plain", {}),
        ("other", {"other": "x"}),
        ("high", {"raftline-priority": "high"}),
        ("top", {"raftline-priority": "100"}),
    ]
    settings = {"compression.type": codec, "enable.idempotence": True}
    assert send(one, topic, rows, **settings) == []
    assert [value for value, _ in lease(one, topic, 5)] == ["top", "high", "plain", "other", "low"]
    kept = librdkafka_read(kafka_of(one), topic, 1, 5)
    assert [value for *_, value in sorted(kept)] == [value.encode() for value, _ in rows]


@pytest.mark.parametrize("idempotent", [False, True])
def test_delays_and_due_times(one: Rig, make_topic: MakeTopic, idempotent: bool) -> None:
    topic = make_topic(one, headers=True)
    now_ms = int(time.time() * 1000)
    rows: list[tuple[str, Wish]] = [
        ("delayed", {"raftline-delay-ms": "4500"}),
        ("now", {}),
        ("due", {"raftline-due-ms": str(now_ms + 3000)}),
    ]
    assert send(one, topic, rows, **{"enable.idempotence": idempotent}) == []
    assert len(librdkafka_read_now(one, topic)) == 1
    got = dict(lease(one, topic, 3))
    assert list(got) == ["now", "due", "delayed"]
    assert got["delayed"] * 1000 >= now_ms + 4500
    assert got["due"] * 1000 >= now_ms + 3000


def librdkafka_read_now(rig: Rig, topic: str) -> list[Any]:
    with rig.client() as client:
        return client.read(topic, 0, 0, limit=10).messages


@pytest.mark.parametrize("idempotent", [False, True])
def test_dedup_keys(one: Rig, make_topic: MakeTopic, idempotent: bool) -> None:
    topic = make_topic(one, headers=True)
    rows: list[tuple[str, Wish]] = [
        ("a", {"raftline-dedup-key": "1"}),
        ("b", {}),
        ("again", {"raftline-dedup-key": "1"}),
        ("c", {"raftline-dedup-key": "2"}),
    ]
    assert send(one, topic, rows, **{"enable.idempotence": idempotent}) == []
    assert send(one, topic, [*rows, ("d", {})], **{"enable.idempotence": idempotent}) == []
    kept = librdkafka_read(kafka_of(one), topic, 1, 5)
    assert [value for *_, value in sorted(kept)] == [b"a", b"b", b"c", b"b", b"d"]


def test_repeats_of_an_idempotent_producer_are_granted_once(
    one: Rig, make_topic: MakeTopic
) -> None:
    topic = make_topic(one, headers=True)
    with Wire(kafka_of(one)) as wire:
        answer = wire.ask(schema.INIT_PRODUCER_ID, 4, {"transactional_id": None})
        producer, epoch = answer["producer_id"], answer["producer_epoch"]

        def produce(sequence: int, *rows: tuple[bytes, Wish]) -> tuple[int, int]:
            messages = [
                (None, value, [(n, t.encode()) for n, t in wish.items()], 1_700_000_000_000)
                for value, wish in rows
            ]
            data = seal_batch(
                messages, producer_id=producer, producer_epoch=epoch, base_sequence=sequence
            )
            row = wire.produce(9, topic, data)
            return row["error_code"], row["base_offset"]

        later = (b"later", {"raftline-delay-ms": "300"})
        once = (b"once", {"raftline-dedup-key": "k"})
        assert produce(0, (b"a", {}), later, once) == (0, 0)
        assert produce(0, (b"a", {}), later, once) == (0, 0), "the first offset again"
        assert produce(3, later, later) == (0, -1), "all of it waits"
        assert produce(9, later)[0] == 19, "a gap: again"
        assert produce(5, once, (b"b", {})) == (0, 2)
        assert produce(7, (b"c", {})) == (0, 3)
        assert produce(5, once, (b"b", {})) == (0, 2)
    got = [value for value, _ in lease(one, topic, 7)]
    assert sorted(got) == ["a", "b", "c", "later", "later", "later", "once"]


@pytest.mark.full
@java.needs_java
def test_javas_producer_is_idempotent_and_may_ask_for_all_of_it(
    one: Rig, make_topic: MakeTopic
) -> None:
    topic = make_topic(one, headers=True)
    lines = (
        "raftline-delay-ms:300\tlater",
        "raftline-dedup-key:k\tonce",
        "raftline-dedup-key:k\tonce",
        "raftline-delay-ms:200,raftline-dedup-key:l\tlater once",
        "note:x\tplain",
    )
    said = java.run(
        "kafka-4",
        "ConsoleProducer",
        *("--bootstrap-server", kafka_of(one), "--topic", topic),
        *("--reader-property", "parse.headers=true"),
        text="\n".join([*lines, ""]),
    )
    assert "rror" not in said, said
    got = [value for value, _ in lease(one, topic, 4)]
    assert sorted(got) == ["later", "later once", "once", "plain"]


def test_wishes_that_cannot_be_granted_are_refused(one: Rig, make_topic: MakeTopic) -> None:
    topic = make_topic(one, headers=True, delay_ms_max=10_000)
    for wish, idempotent in itertools.product(REFUSED, (False, True)):
        more = {"enable.idempotence": idempotent}
        assert len(send(one, topic, [("x", wish), ("y", {})], **more)) == 2, wish
    assert not librdkafka_read_now(one, topic)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_cannot_be_read_is_refused_for_good(
    one: Rig, make_topic: MakeTopic, codec: str
) -> None:
    """Called corrupt, it would be sent again and again until its time for delivery is over."""
    topic = make_topic(one, headers=True)
    rows = [(None, b"raftline-", (), 1)] * 3
    forged = bytearray(seal_batch(rows, compression=codec))
    noise = bytes(reversed(forged[61:]))
    forged[61:] = b"\xffraftline-" + noise[10:] if codec == "none" else noise
    forged[17:21] = struct.pack(">I", crc32c(bytes(forged[21:])))
    with Wire(kafka_of(one)) as wire:
        row = wire.produce(9, topic, bytes(forged))
        assert (row["error_code"], row["base_offset"]) == (87, -1)
        forged[-1] ^= 1
        assert wire.produce(9, topic, bytes(forged))["error_code"] == 2
        assert wire.produce(9, topic, seal_batch(rows))["error_code"] == 0


def test_headers_mean_nothing_on_other_topics(one: Rig, make_topic: MakeTopic) -> None:
    topic = make_topic(one)
    assert send(one, topic, [("x", {"raftline-delay-ms": "60000"})]) == []
    assert [m.value for m in librdkafka_read_now(one, topic)] == [b"x"]


def test_a_topic_says_how_large_batches_may_be(one: Rig, make_topic: MakeTopic) -> None:
    topic = make_topic(one, batch_bytes_max=2_000)
    assert send(one, topic, [("x" * 1_000, {})]) == []
    assert "too large" in send(one, topic, [("x" * 3_000, {})])[0]
