"""Groups of kafka-python's and aiokafka's consumers: other clients, other versions of the APIs."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from raftline.chaos.rig import Rig
from tests.conformance.kafka.conftest import MakeTopic, kafka_of
from tests.conformance.kafka.members import fill, group_name

WAIT_S = 25.0


CHILD = """
import json, sys, threading
from kafka import KafkaConsumer
servers, group, topic, name = sys.argv[1:]
consumer = KafkaConsumer(
    bootstrap_servers=servers.split(","), group_id=group, client_id=name,
    auto_offset_reset="earliest", session_timeout_ms=6000, heartbeat_interval_ms=300,
    auto_commit_interval_ms=200)
consumer.subscribe([topic])
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
before = None
while not ended.is_set():
    values = [row.value.decode() for rows in consumer.poll(timeout_ms=100).values() for row in rows]
    reads = sorted(row.partition for row in consumer.assignment())
    if values or reads != before:
        print(json.dumps([reads, values]), flush=True)
    before = reads
consumer.close()
"""


class Reader:
    """One of kafka-python's consumers, in a process of its own: it does not close its sockets."""

    def __init__(self, servers: str, group: str, topic: str, name: str) -> None:
        self.reads: list[int] = []
        self.values: list[str] = []
        command = [sys.executable, "-W", "ignore", "-c", CHILD, servers, group, topic, name]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.reads, values = json.loads(line)
            self.values += values

    def close(self) -> str:
        """Leave; return what it complained of."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._child.stdin.close()
        said = self._child.stderr.read()
        self._child.wait(WAIT_S)
        self._thread.join(WAIT_S)
        self._child.stdout.close()
        self._child.stderr.close()
        return said


def until(holds: Callable[[], bool], seconds: float = WAIT_S) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_kafka_python_shares_and_goes_on_where_it_was(three: Rig, make_topic: MakeTopic) -> None:
    topic, group, servers = make_topic(three, 4), group_name(), kafka_of(three)
    fill(servers, topic, [f"m{i}" for i in range(40)], 4)
    first, second = (Reader(servers, group, topic, name) for name in ("first", "second"))
    try:
        until(lambda: sorted(first.reads + second.reads) == [0, 1, 2, 3])
        until(lambda: len({*first.values, *second.values}) == 40)
        until(lambda: bool(first.reads) and bool(second.reads))
    finally:
        said = first.close() + second.close()
    assert "Traceback" not in said
    fill(servers, topic, [f"n{i}" for i in range(8)], 4)
    third = Reader(servers, group, topic, "third")
    try:
        until(lambda: len(third.values) >= 8)
        assert sorted(third.values) == sorted(f"n{i}" for i in range(8))
    finally:
        third.close()


@pytest.mark.parametrize("assignor", [AioRoundRobin, StickyPartitionAssignor])
def test_aiokafka_shares(three: Rig, make_topic: MakeTopic, assignor: type) -> None:
    topic, group, servers = make_topic(three, 4), group_name(), kafka_of(three)

    async def story() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers)
        await producer.start()
        for i in range(40):
            await producer.send(topic, b"m%d" % i, partition=i % 4)
        await producer.stop()
        consumers = [
            AIOKafkaConsumer(
                topic,
                bootstrap_servers=servers,
                group_id=group,
                client_id=f"c{i}",
                auto_offset_reset="earliest",
                session_timeout_ms=6_000,
                heartbeat_interval_ms=300,
                enable_auto_commit=False,
                partition_assignment_strategy=(assignor,),
            )
            for i in range(2)
        ]
        seen: set[bytes] = set()
        try:
            await asyncio.gather(*(consumer.start() for consumer in consumers))
            end = time.monotonic() + WAIT_S
            while len(seen) < 40 or {len(c.assignment()) for c in consumers} != {2}:
                assert time.monotonic() < end, (len(seen), [c.assignment() for c in consumers])
                for consumer in consumers:
                    for rows in (await consumer.getmany(timeout_ms=50)).values():
                        seen |= {row.value for row in rows}
            await consumers[0].commit()
        finally:
            await asyncio.gather(*(consumer.stop() for consumer in consumers))

    asyncio.run(story())
