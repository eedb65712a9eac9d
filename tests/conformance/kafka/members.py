"""Consumers of groups that remember what happened to them: librdkafka's, polled by hand."""

import time
from collections.abc import Callable, Iterable
from itertools import count

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

NUMBERS = count()
SESSION_MS = 6_000


def group_name() -> str:
    """Return a group nobody used."""
    return f"g{next(NUMBERS)}"


class Member:
    """One consumer."""

    def __init__(self, servers: str, group: str, topic: str, name: str, **config: object) -> None:
        self.name = name
        self.topic = topic
        self.given: list[tuple[float, list[int]]] = []
        self.taken: list[tuple[float, list[int]]] = []
        self.messages: list[tuple[float, int, int, bytes]] = []  # when, partition, offset, value
        self.errors: list[KafkaError] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 300,
                "topic.metadata.refresh.interval.ms": 1_000,
                "partition.assignment.strategy": "cooperative-sticky",
                **config,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._given, on_revoke=self._taken)

    def _given(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.given.append((time.monotonic(), [row.partition for row in partitions]))

    def _taken(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.taken.append((time.monotonic(), [row.partition for row in partitions]))

    @property
    def reads(self) -> set[int]:
        """Return the partitions it has."""
        return {row.partition for row in self.consumer.assignment()}

    def poll(self, seconds: float = 0.01) -> None:
        """Take what is there."""
        message: Message | None = self.consumer.poll(seconds)
        while message is not None:
            error = message.error()
            if error is not None:
                self.errors.append(error)
            else:
                row = (time.monotonic(), message.partition(), message.offset(), message.value())
                self.messages.append(row)
            message = self.consumer.poll(0)

    def close(self) -> None:
        """Leave."""
        self.consumer.close()


def turn(members: Iterable[Member], until: Callable[[], bool], seconds: float = 20.0) -> None:
    """Poll all of them until something holds."""
    rows = list(members)
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, [(m.name, m.reads, m.given, m.taken, m.errors) for m in rows]
        for member in rows:
            member.poll()


def is_shared(members: Iterable[Member], partitions: int) -> bool:
    """Say whether every partition has one reader, and no member has more than one too many."""
    reads = [member.reads for member in members]
    sizes = [len(read) for read in reads]
    whole = sorted(p for read in reads for p in read) == list(range(partitions))
    return whole and max(sizes) - min(sizes) <= 1


def fill(servers: str, topic: str, values: Iterable[str], partitions: int = 1) -> None:
    """Send values to the partitions in turn."""
    producer = Producer({"log_level": 2, "bootstrap.servers": servers, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % partitions)
    assert producer.flush(20) == 0
