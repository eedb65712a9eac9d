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
DELAYED = 5  # of so many messages one waits a moment, if wishes are made at all


class Load(threading.Thread):
    """Numbers under keys, as fast as it is told, until it is told to stop."""

    def __init__(
        self, servers: str, topic: str, name: str, per_second: int, *, wishes: bool = False
    ) -> None:
        super().__init__()
        self._wishes = wishes
        self._topic = topic
        self._name = name
        self._pause_s = 10 / per_second
        self._producer = Producer(
            {
                "log_level": 2,
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
                more = {"headers": wish(self._name, self.sent)} if self._wishes else {}
                self._producer.produce(
                    self._topic, value, key=key, on_delivery=self._taker(key, value, began), **more
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


def wish(name: str, number: int) -> dict[str, bytes]:
    """Let some messages wait, give some a dedup key, some both, many nothing."""
    headers = {"raftline-delay-ms": b"50"} if number % DELAYED == 0 else {}
    if number % 3 == 0:
        headers["raftline-dedup-key"] = f"{name}-{number}".encode()
    return headers


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


def check_all_once_in_order(rows: list[Row], loads: list[Load], *, wishes: bool) -> None:
    places = {(partition, offset) for partition, offset, _, _ in rows}
    assert len(places) == len(rows), "the consumer was given an offset twice"
    stored: dict[bytes, list[int]] = {}
    waited: dict[bytes, list[int]] = {}
    for _, _, key, value in sorted(rows):
        number = int(value or b"-1")
        place = waited if wishes and number % DELAYED == 0 else stored
        place.setdefault(key or b"", []).append(number)
    for load in loads:
        assert not load.refused, load.refused[:3]
        assert load.left == 0
        acked: dict[bytes, list[int]] = {}
        for key, value in load.acked:
            acked.setdefault(key, []).append(int(value))
        assert sum(map(len, acked.values())) == load.sent
        for key, numbers in acked.items():
            at_once = [n for n in sorted(numbers) if not wishes or n % DELAYED]
            assert stored.get(key, []) == at_once, f"{key!r} is not what was sent"
            late = sorted(set(numbers) - set(at_once))
            assert sorted(waited.get(key, [])) == late, f"{key!r} waited and is not there once"
    assert len(rows) == sum(load.sent for load in loads), "something is there twice"


def run_kills(directory: Path, times: int, per_second: int, *, wishes: bool = False) -> None:
    rig = Rig(directory / "kills")
    try:
        rig.start_all()
        wait_kafka(rig)
        with rig.client() as client:
            settings = {"headers": wishes}
            client.create_topic("t", partitions=PARTITIONS, replication_factor=3, settings=settings)
        servers = kafka_of(rig)
        loads = [Load(servers, "t", name, per_second, wishes=wishes) for name in ("a", "b")]
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
        check_all_once_in_order(rows, loads, wishes=wishes)
        with rig.client() as client:
            assert client.verify()["identical"]
    finally:
        rig.close()


def test_three_leaders_die_and_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    run_kills(tmp_path, times=3, per_second=1_000)


def test_wishes_of_idempotent_producers_are_granted_once(tmp_path: Path) -> None:
    run_kills(tmp_path, times=3, per_second=600, wishes=True)


@pytest.mark.full
def test_many_leaders_die_and_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    run_kills(tmp_path, times=15, per_second=4_000)
