"""Unmodified clients produce and read by assign: librdkafka, kafka-python, aiokafka."""

import asyncio
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from raftline.chaos.rig import Rig
from tests.conformance.kafka.conftest import MakeTopic, kafka_of

with warnings.catch_warnings():  # kafka-python reads its tables in a way that is on its way out
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PyPartition

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

WAIT_S = 30.0
Row = tuple[int, int, bytes | None, bytes | None]  # partition, offset, key, value
Message = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def librdkafka_produce(servers: str, topic: str, messages: list[Message], **more: Any) -> None:
    refused: list[str] = []
    producer = Producer(
        {"log_level": 2, "bootstrap.servers": servers, "linger.ms": 5, "acks": "all", **more}
    )
    for key, value, headers in messages:
        producer.produce(
            topic,
            value,
            key=key,
            headers=headers,
            on_delivery=lambda error, _: refused.append(str(error)) if error else None,
        )
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    assert not refused


def librdkafka_read(servers: str, topic: str, partitions: int, count: int) -> list[Row]:
    settings = {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        rows: list[Row] = []
        deadline = time.monotonic() + WAIT_S
        while len(rows) < count and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 0.2):
                assert message.error() is None, message.error()
                rows.append((message.partition(), message.offset(), message.key(), message.value()))  # type: ignore[arg-type]
        return rows
    finally:
        consumer.close()


def kafka_python_produce(servers: str, topic: str, messages: list[Message], **more: Any) -> None:
    codec = more.pop("compression.type", "none")
    codec = None if codec == "none" else codec
    producer = KafkaProducer(
        bootstrap_servers=servers.split(","), compression_type=codec, linger_ms=5, acks="all"
    )
    try:
        sent = [
            producer.send(topic, value, key=key, headers=headers)
            for key, value, headers in messages
        ]
        for future in sent:
            future.get(timeout=WAIT_S)
    finally:
        producer.close(timeout=5)


def kafka_python_read(servers: str, topic: str, partitions: int, count: int) -> list[Row]:
    consumer = KafkaConsumer(
        bootstrap_servers=servers.split(","), enable_auto_commit=False, group_id=None
    )
    try:
        places = [PyPartition(topic, number) for number in range(partitions)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        rows: list[Row] = []
        deadline = time.monotonic() + WAIT_S
        while len(rows) < count and time.monotonic() < deadline:
            for found in consumer.poll(200).values():
                rows += [(m.partition, m.offset, m.key, m.value) for m in found]
        return rows
    finally:
        consumer.close(autocommit=False)


def aiokafka_produce(servers: str, topic: str, messages: list[Message], **more: Any) -> None:
    codec = more.pop("compression.type", "none")

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            acks="all",
            enable_idempotence=True,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(topic, value, key=key, headers=headers)
                for key, value, headers in messages
            ]
            await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)
        finally:
            await producer.stop()

    asyncio.run(run())


def aiokafka_read(servers: str, topic: str, partitions: int, count: int) -> list[Row]:
    async def run() -> list[Row]:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
        await consumer.start()
        try:
            places = [AioPartition(topic, number) for number in range(partitions)]
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            rows: list[Row] = []
            deadline = time.monotonic() + WAIT_S
            while len(rows) < count and time.monotonic() < deadline:
                for found in (await consumer.getmany(timeout_ms=200)).values():
                    rows += [(m.partition, m.offset, m.key, m.value) for m in found]
            return rows
        finally:
            await consumer.stop()

    return asyncio.run(run())


Produce = Callable[..., None]
Read = Callable[[str, str, int, int], list[Row]]
CLIENTS: dict[str, tuple[Produce, Read]] = {
    "librdkafka": (librdkafka_produce, librdkafka_read),
    "kafka-python": (kafka_python_produce, kafka_python_read),
    "aiokafka": (aiokafka_produce, aiokafka_read),
}


def some(count: int, size: int = 20) -> list[Message]:
    return [
        (b"k%d" % (n % 17), b"%d " % n + b"x" * size, [("h", b"%d" % n), ("e", b"")])
        for n in range(count)
    ]


def check_rows(rows: list[Row], messages: list[Message]) -> None:
    """All are there once, in order of their keys, without a gap in the offsets."""
    assert len(rows) == len(messages)
    places = sorted((partition, offset) for partition, offset, _, _ in rows)
    for partition in {partition for partition, _ in places}:
        offsets = [offset for found, offset in places if found == partition]
        assert offsets == list(range(len(offsets)))
    for key in {key for key, _, _ in messages}:
        sent = [value for found, value, _ in messages if found == key]
        assert [value for _, _, found, value in sorted(rows) if found == key] == sent


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_what_one_writes_all_read(
    three: Rig, make_topic: MakeTopic, writer: str, reader: str
) -> None:
    topic = make_topic(three, partitions=3)
    messages = some(300)
    CLIENTS[writer][0](kafka_of(three), topic, messages)
    check_rows(CLIENTS[reader][1](kafka_of(three), topic, 3, len(messages)), messages)


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches_pass_untouched(one: Rig, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic(one)
    messages = some(200, size=100)
    clients = dict(CLIENTS)
    if codec not in ("none", "gzip"):  # kafka-python has the others with packages of their own
        del clients["kafka-python"]
    for produce, _ in clients.values():
        produce(kafka_of(one), topic, messages, **{"compression.type": codec})
    rows: list[Row] = []
    for _, read in clients.values():
        rows = read(kafka_of(one), topic, 1, len(messages) * len(clients))
        assert sorted(value or b"" for *_, value in rows) == sorted(
            [value or b"" for _, value, _ in messages] * len(clients)
        )
    with one.client() as client:  # and people without Kafka read the same
        page = client.read(topic, 0, 0, limit=1_000)
    assert [message.value for message in page.messages] == [row[3] for row in rows]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_topic_begins_with_its_first_message(three: Rig, name: str) -> None:
    topic = f"first-{name}"
    CLIENTS[name][0](kafka_of(three), topic, some(10))
    check_rows(CLIENTS[name][1](kafka_of(three), topic, 6, 10), some(10))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(one: Rig, make_topic: MakeTopic, acks: str) -> None:
    topic = make_topic(one)
    librdkafka_produce(kafka_of(one), topic, some(500), acks=acks)
    check_rows(librdkafka_read(kafka_of(one), topic, 1, 500), some(500))


def test_large_and_empty_messages(three: Rig, make_topic: MakeTopic) -> None:
    topic = make_topic(three)
    messages: list[Message] = [
        (b"k", b"", []),
        (b"k", None, []),
        (b"k", b"y" * 3_000_000, [("h", b"z" * 1000)]),
        (b"k", b"end", []),
    ]
    librdkafka_produce(kafka_of(three), topic, messages, **{"message.max.bytes": 8_000_000})
    for _, read in CLIENTS.values():
        rows = read(kafka_of(three), topic, 1, 4)
        assert [value for *_, value in sorted(rows)] == [value for _, value, _ in messages]


def test_a_message_that_is_too_large_is_refused(one: Rig, make_topic: MakeTopic) -> None:
    topic = make_topic(one)
    settings = {"message.max.bytes": 20_000_000}
    with pytest.raises(AssertionError, match="too large"):
        librdkafka_produce(kafka_of(one), topic, [(None, b"x" * 13_000_000, [])], **settings)


def test_seek_by_time_is_exact(one: Rig, make_topic: MakeTopic) -> None:
    topic = make_topic(one)
    start_ms = 1_700_000_000_000
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": kafka_of(one), "linger.ms": 20, "compression.type": codec}
        )
        for n in range(100):
            producer.produce(topic, b"x" * 50, timestamp=start_ms + n * 10)
        assert producer.flush(WAIT_S) == 0
        start_ms += 1_000
    consumer = Consumer({"bootstrap.servers": kafka_of(one), "group.id": "none"})
    try:
        for wanted, offset in ((0, 0), (5, 1), (1_234, 124), (4_989, 499), (4_990, 499)):
            asked = [TopicPartition(topic, 0, 1_700_000_000_000 + wanted)]
            assert consumer.offsets_for_times(asked, timeout=WAIT_S)[0].offset == offset
        late = [TopicPartition(topic, 0, 1_700_000_004_991)]
        assert consumer.offsets_for_times(late, timeout=WAIT_S)[0].offset == -1
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S) == (0, 500)
    finally:
        consumer.close()
    reader = KafkaConsumer(bootstrap_servers=kafka_of(one))
    try:
        place = PyPartition(topic, 0)
        found = reader.offsets_for_times({place: 1_700_000_001_234})[place]
        assert (found.offset, found.timestamp) == (124, 1_700_000_001_240)
    finally:
        reader.close(autocommit=False)


def test_unknown_topics_stay_unknown_to_readers(one: Rig) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka_of(one),
            "group.id": "none",
            "allow.auto.create.topics": False,
        }
    )
    try:
        with pytest.raises(KafkaException):
            consumer.get_watermark_offsets(TopicPartition("never-made", 0), timeout=5)
    finally:
        consumer.close()


def test_a_transactional_producer_is_told_at_once_that_there_are_none(one: Rig) -> None:
    """librdkafka asked for a coordinator again and again, untold, till its time was over."""
    settings = {"log_level": 2, "bootstrap.servers": kafka_of(one), "transactional.id": "t"}
    with pytest.raises(KafkaException) as caught:
        Producer(settings).init_transactions(WAIT_S)
    error = caught.value.args[0]
    assert error.fatal(), error
    assert "transactions have none" in error.str()
