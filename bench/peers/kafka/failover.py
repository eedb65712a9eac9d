"""How long librdkafka hears nothing when the leader's process is killed, and what is lost.

Sixteen messages are in flight all the time. The figure is the longest time between two
acknowledgements around the kill; afterwards all that was acknowledged is read back.
"""

import itertools
import time
from collections.abc import Callable
from typing import Any

import msgspec

from bench.kafka_load import CONSUMER
from bench.peers.kafka.sides import Side

IN_FLIGHT = 16
BEFORE_S = 1.0
AFTER_S = 3.0  # and longer, until acknowledgements come again
LIMIT_S = 60.0


class Outage(msgspec.Struct, frozen=True):
    """One kill."""

    seconds: float
    acked: int
    lost: int
    twice: int


class Writer:
    """Numbers, one a message, so many in flight."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._waiting = 0
        self._next = 0
        self.times: list[float] = []
        self.acked: list[int] = []

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Keep sending."""
        while not is_over():
            while self._waiting < IN_FLIGHT:
                self._send(self._next)
                self._next += 1
            self._producer.poll(0.002)

    def finish(self) -> None:
        """Wait for what is in flight."""
        if self._producer.flush(LIMIT_S):
            raise SystemExit("messages were not taken after the failover")

    def _send(self, number: int) -> None:
        def told(error: Any, _: Any) -> None:
            self._waiting -= 1
            if error is None:
                self.times.append(time.perf_counter())
                self.acked.append(number)

        self._waiting += 1
        self._producer.produce(self._topic, b"%d" % number, on_delivery=told)


def outage(side: Side, topic: str) -> Outage:
    """Kill the leader under load, start it again, return what the client saw."""
    leader = side.create(topic)
    writer = Writer(side.servers, topic)
    writer.run_until(lambda: bool(writer.times))
    began = time.perf_counter()
    writer.run_until(lambda: time.perf_counter() > began + BEFORE_S)
    killed = time.perf_counter()
    side.kill(leader)

    def is_over() -> bool:
        now = time.perf_counter()
        if now > killed + LIMIT_S:
            raise SystemExit(f"nothing was taken within {LIMIT_S:.0f} s of a kill")
        return writer.times[-1] > killed + AFTER_S

    writer.run_until(is_over)
    writer.finish()
    side.revive()
    side.leader(topic)
    around = [at for at in writer.times if at > killed - BEFORE_S]
    longest = max(b - a for a, b in itertools.pairwise(around))
    seen = _read(side.servers, topic, len(writer.acked))
    lost = sum(1 for number in writer.acked if number not in seen)
    twice = sum(many - 1 for many in seen.values())
    return Outage(longest, len(writer.acked), lost, twice)


def _read(servers: str, topic: str, at_least: int) -> dict[int, int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "log_level": 0, **CONSUMER})
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
    seen: dict[int, int] = {}
    got, until = 0, time.perf_counter() + LIMIT_S
    while got < max(end, at_least) and time.perf_counter() < until:
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None:
                got += 1
                number = int(message.value())
                seen[number] = seen.get(number, 0) + 1
    consumer.close()
    return seen
