"""Idempotent producers while leaders are killed: nothing lost, nothing twice, order kept."""

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from raftline.chaos.rig import Rig, wait_for
from tests.conformance.kafka.conftest import kafka_of, wait_kafka
from tests.conformance.kafka.test_produce_clients import Row, librdkafka_read

PARTITIONS = 3
KEYS = 12


class Load(threading.Thread):
    """Numbers under keys, as fast as it is told, until it is told to stop."""

    def __init__(self, servers: str, topic: str, name: str, per_second: int) -> None:
        super().__init__()
        self._topic = topic
        self._name = name
        self._pause_s = 10 / per_second
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self.is_over = threading.Event()
        self.sent = 0
        self.acked: list[tuple[bytes, bytes]] = []
        self.refused: list[str] = []
        self.left = -1
        self.slowest_s = 0.0

    def run(self) -> None:
        while not self.is_over.is_set():
            for _ in range(10):
                key = b"%s-%d" % (self._name.encode(), self.sent % KEYS)
                value = b"%d" % self.sent
                began = time.monotonic()
                self._producer.produce(
                    self._topic, value, key=key, on_delivery=self._taker(key, value, began)
                )
                self.sent += 1
            self._producer.poll(self._pause_s)
        self.left = self._producer.flush(90)

    def _taker(self, key: bytes, value: bytes, began: float) -> Any:
        def done(error: Any, _: Any) -> None:
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            if error:
                self.refused.append(str(error))
            else:
                self.acked.append((key, value))

        return done


def leader_of(rig: Rig, topic: str, partition: int) -> str:
    with rig.client() as client:
        number = client.topic(topic)["partitions"][partition]["leader"]
    return rig.name_of(number) if number else ""


def kill_leaders(rig: Rig, topic: str, times: int, rng: random.Random) -> None:
    for turn in range(times):
        victim = ""

        def is_led(partition: int = turn % PARTITIONS) -> bool:
            nonlocal victim
            victim = leader_of(rig, topic, partition)
            return victim in rig.running()

        wait_for(is_led, 20, lambda: "nobody leads")
        rig.kill(victim)
        time.sleep(rng.uniform(0.5, 1.5))
        rig.restart(victim)
        time.sleep(rng.uniform(0.5, 1.5))


def check_all_once_in_order(rows: list[Row], loads: list[Load]) -> None:
    places = {(partition, offset) for partition, offset, _, _ in rows}
    assert len(places) == len(rows), "the consumer was given an offset twice"
    stored: dict[bytes, list[int]] = {}
    for _, _, key, value in sorted(rows):
        stored.setdefault(key or b"", []).append(int(value or b"-1"))
    for load in loads:
        assert not load.refused, load.refused[:3]
        assert load.left == 0
        acked: dict[bytes, list[int]] = {}
        for key, value in load.acked:
            acked.setdefault(key, []).append(int(value))
        assert sum(map(len, acked.values())) == load.sent
        for key, numbers in acked.items():
            assert stored[key] == sorted(numbers), f"{key!r} is not what was sent"
    assert len(rows) == sum(load.sent for load in loads), "something is there twice"


def run_kills(directory: Path, times: int, per_second: int) -> None:
    rig = Rig(directory / "kills")
    try:
        rig.start_all()
        wait_kafka(rig)
        with rig.client() as client:
            client.create_topic("t", partitions=PARTITIONS, replication_factor=3, settings={})
        loads = [Load(kafka_of(rig), "t", name, per_second) for name in ("a", "b")]
        for load in loads:
            load.start()
        try:
            kill_leaders(rig, "t", times, random.Random(3))
        finally:
            for load in loads:
                load.is_over.set()
            for load in loads:
                load.join(120)
        count = sum(load.sent for load in loads)
        rows = librdkafka_read(kafka_of(rig), "t", PARTITIONS, count)
        check_all_once_in_order(rows, loads)
        with rig.client() as client:
            assert client.verify()["identical"]
    finally:
        rig.close()


def test_three_leaders_die_and_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    run_kills(tmp_path, times=3, per_second=1_000)


@pytest.mark.full
def test_many_leaders_die_and_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    run_kills(tmp_path, times=15, per_second=4_000)
