"""Kafka clients on a cluster under faults: idempotent producers and a group of consumers.

They are librdkafka (the package confluent-kafka) where it is installed, which is what most
programs use; without it this load is left out, and the verdict says so. Producers send every value
once, many in flight, and note what the delivery report says. Consumers share the topic as one
group, note every message with its offset, and commit their cursors; now and then one leaves and
joins again. ``kafka_verdict`` judges.
"""

import contextlib
import functools
import importlib.util
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from raftline.chaos.crowd import Crowd
from raftline.chaos.rig import ChaosProblem, Rig, mono_ms
from raftline.client.line import Line
from raftline.model.errors import RaftlineError

TOPIC, GROUP = "chaos-kafka", "chaos-readers"
PARTITIONS = 2
WINDOW = 20  # messages in flight
SEND_S_MAX = 20.0
PAGE = 1_000

Role = Callable[[random.Random, str], None]


class Sent(msgspec.Struct):
    """One message, as its producer knows it."""

    value: str
    session: str  # one producer id: its messages of a partition keep their order
    number: int  # in the session, by order of sending
    invoked_ms: float
    ended_ms: float = 0.0
    outcome: str = "unknown"  # "ok", "unknown"
    partition: int = -1
    offset: int = -1
    error: str = ""


class Read(msgspec.Struct, frozen=True):
    """One message a consumer got."""

    member: str  # one membership: from joining to leaving
    partition: int
    offset: int
    value: str
    at_ms: float


class Turn(msgspec.Struct, frozen=True):
    """What a member was told about its partitions: ``assign`` or ``revoke``."""

    member: str
    what: str
    partitions: tuple[int, ...]
    at_ms: float


class Commit(msgspec.Struct, frozen=True):
    """A cursor whose commit was answered with success."""

    member: str
    partition: int
    offset: int
    at_ms: float


class KafkaRecord(msgspec.Struct):
    """Everything the clients saw, and the log in the end."""

    sent: list[Sent] = []
    reads: list[Read] = []
    turns: list[Turn] = []
    commits: list[Commit] = []
    log: dict[int, list[tuple[int, str]]] = {}  # partition: offset, value
    made_anew: list[str] = []  # why producers had to be made anew


def why_not() -> str:
    """Say why Kafka clients cannot be had here; empty if they can."""
    found = importlib.util.find_spec("confluent_kafka")
    return "" if found else "no Kafka client is installed (pip install confluent-kafka)"


class KafkaTraffic(Crowd):
    """The load."""

    def __init__(
        self,
        rig: Rig,
        *,
        producers: int = 1,
        readers: int = 2,
        pause_s: float = 0.02,
        seed: int = 1,
    ) -> None:
        super().__init__(rig, "Kafka clients", TOPIC, PARTITIONS, {})
        self._pause_s = pause_s
        self._kafka: Any = importlib.import_module("confluent_kafka")
        self.record = KafkaRecord()
        self._next: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)  # first unread offset
        self._givers = [self._client(self._produce, seed, n) for n in range(producers)]
        self._takers = [self._client(self._consume, seed, producers + n) for n in range(readers)]

    def _client(self, role: Role, seed: int, number: int) -> threading.Thread:
        return self._thread(lambda: role(random.Random(seed * 70 + number), f"{seed}.{number}"))

    def drain(self) -> None:
        """Stop sending; return when the group has read everything. Raises ChaosProblem."""
        self._stop_giving()
        self.record.log = self._read_back()
        ends = {p: rows[-1][0] + 1 if rows else 0 for p, rows in self.record.log.items()}
        self._wait_taken(
            lambda: all(self._next[p] >= end for p, end in ends.items()),
            lambda: f"the Kafka group stands at {self._next} of {ends}",
            0.05,
        )

    def _settings(self, **more: Any) -> dict[str, Any]:
        servers = ",".join(self._rig.node(name).kafka for name in self._rig.founders)
        quick = {"reconnect.backoff.max.ms": 500, "socket.timeout.ms": 6_000, "log_level": 0}
        return {"bootstrap.servers": servers, **quick, **more}

    # ------------------------------------------------------------------ producers

    def _produce(self, rng: random.Random, who: str) -> None:
        session = 0
        while not self._all_sent.is_set():
            session += 1
            self._send_all(rng, f"{who}-{session}")

    def _send_all(self, rng: random.Random, session: str) -> None:
        """Send with one producer until the end, or until it is of no more use."""
        producer = self._kafka.Producer(
            self._settings(
                **{
                    "enable.idempotence": True,
                    "message.timeout.ms": round(SEND_S_MAX * 1000),
                    "linger.ms": 5,
                    "retry.backoff.max.ms": 300,
                }
            )
        )
        number, failed = 0, threading.Event()
        while not self._all_sent.is_set() and not failed.is_set():
            number += 1
            sent = Sent(f"{session}/{number}", session, number, mono_ms())
            with self._lock:
                self.record.sent.append(sent)
            try:
                producer.produce(
                    TOPIC,
                    sent.value,
                    partition=rng.randrange(PARTITIONS),
                    on_delivery=functools.partial(self._told, sent, failed),
                )
            except self._kafka.KafkaException as error:  # of no more use, and says why
                self.record.made_anew.append(str(error))
                break
            producer.poll(0)
            until = mono_ms() + SEND_S_MAX * 1000
            while len(producer) >= WINDOW and mono_ms() < until:
                producer.poll(0.05)
            time.sleep(self._pause_s * rng.random() * 2)
        producer.flush(SEND_S_MAX + 2)

    def _told(self, sent: Sent, failed: threading.Event, error: Any, message: Any) -> None:
        sent.ended_ms = mono_ms()
        if error is None:
            sent.partition, sent.offset = message.partition(), message.offset()
            sent.outcome = "ok"
            return
        sent.error = str(error)
        if not failed.is_set():  # what follows in this session fails for the same reason
            self.record.made_anew.append(str(error))
        failed.set()

    # ------------------------------------------------------------------ consumers

    def _consume(self, rng: random.Random, who: str) -> None:
        membership = 0
        while not self._over.is_set():
            membership += 1
            try:
                self._belong(f"{who}-{membership}", 10 + 50 * rng.random())
            except self._kafka.KafkaException:  # thrown out; it joins again
                time.sleep(0.5)

    def _belong(self, member: str, seconds: float) -> None:
        """Be a member for some time, or to the end once all was sent."""
        consumer = self._kafka.Consumer(
            self._settings(
                **{
                    "group.id": GROUP,
                    "client.id": member,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "session.timeout.ms": 6_000,
                    "heartbeat.interval.ms": 1_000,
                    "partition.assignment.strategy": "cooperative-sticky",
                }
            )
        )

        def turn(what: str) -> Any:
            def told(_: Any, places: Any) -> None:
                row = Turn(member, what, tuple(p.partition for p in places), mono_ms())
                with self._lock:
                    self.record.turns.append(row)

            return told

        consumer.subscribe(
            [TOPIC], on_assign=turn("assign"), on_revoke=turn("revoke"), on_lost=turn("revoke")
        )
        end_ms, committed_ms = mono_ms() + seconds * 1000, mono_ms()
        try:
            while not self._over.is_set() and (mono_ms() < end_ms or self._all_sent.is_set()):
                self._take(consumer, member)
                if mono_ms() - committed_ms > 500:
                    self._commit(consumer, member)
                    committed_ms = mono_ms()
            self._commit(consumer, member)
        finally:
            consumer.close()

    def _take(self, consumer: Any, member: str) -> None:
        for message in consumer.consume(100, 0.2):
            if message.error() is not None:
                continue
            value = (message.value() or b"").decode()
            row = Read(member, message.partition(), message.offset(), value, mono_ms())
            with self._lock:
                self.record.reads.append(row)
                self._next[row.partition] = max(self._next[row.partition], row.offset + 1)

    def _commit(self, consumer: Any, member: str) -> None:
        with contextlib.suppress(self._kafka.KafkaException):
            for place in consumer.commit(asynchronous=False) or ():
                if place.error is None and place.offset >= 0:
                    row = Commit(member, place.partition, place.offset, mono_ms())
                    with self._lock:
                        self.record.commits.append(row)

    # ------------------------------------------------------------------ the log

    def _read_back(self) -> dict[int, list[tuple[int, str]]]:
        line = Line([self._rig.node(name).http for name in self._rig.running()], timeout="20s")
        try:
            return {partition: _messages(line, partition) for partition in range(PARTITIONS)}
        except RaftlineError as error:
            raise ChaosProblem(f"{TOPIC} cannot be read back: {error.message}") from error
        finally:
            line.close()


def _messages(line: Line, partition: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    offset = int(line.offsets(TOPIC, partition)["log_start"])
    while True:
        page = line.read(TOPIC, partition=partition, offset=offset, count=PAGE)
        if not page.messages:
            return found
        found += [(message.offset, (message.value or b"").decode()) for message in page.messages]
        offset = page.next_offset
