"""A batch that comes before the one it follows: refused so that librdkafka repeats both in order.

librdkafka begins a new epoch for all its partitions when it is told of a gap (error 45) behind a
batch that was refused. Messages of other partitions that were stored, and whose acknowledgement
was lost, are then sent under new numbers, and stored once more.
"""

import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from raftline.chaos.rig import Rig, wait_for
from raftline.gateways.kafka.codec import decoder, encoder
from raftline.gateways.kafka.errors import NOT_LEADER_OR_FOLLOWER
from raftline.gateways.kafka.schema import PRODUCE
from tests.conformance.kafka.conftest import is_led, kafka_of, wait_kafka
from tests.conformance.kafka.door import Door, Frame, Passage
from tests.conformance.kafka.wire import Wire


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[tuple[Rig, dict[int, Door]]]:
    """Two nodes, each behind a door; partition n of topic "t" is behind door n."""
    rig = Rig(tmp_path / "doors", nodes=2)
    found: dict[str, Door] = {}
    try:
        for name in rig.names:
            found[name] = door = Door(rig.node(name).kafka)
            rig.spawn(name, "--set", f"listen.advertise_kafka={door.address}")
        rig.wait_ready(*rig.names)
        wait_kafka(rig)
        with rig.client() as client:
            client.create_topic("t", partitions=2, replication_factor=1, settings={})
            for name in rig.names:
                with Wire(rig.node(name).kafka) as wire:
                    wait_for(lambda wire=wire: is_led(wire, "t"), 20, lambda: "nobody leads")
            leaders = [row["leader"] for row in client.topic("t")["partitions"]]
        assert len(set(leaders)) == 2, "the partitions are led by different nodes"
        yield rig, {at: found[rig.name_of(leader)] for at, leader in enumerate(leaders)}
    finally:
        for door in found.values():
            door.close()
        rig.close()


def is_produce(body: Frame) -> bool:
    return struct.unpack_from(">h", body) == (PRODUCE.key,)


def not_leader(body: Frame) -> Frame:
    """Return what a node answers a Produce if it does not lead the partition."""
    _, version, number, size = struct.unpack_from(">hhih", body)
    flexible = version >= PRODUCE.flexible_from
    asked = decoder(PRODUCE.request, version, flexible=flexible)(body, 10 + size + flexible)
    out = bytearray(struct.pack(">i", number) + b"\0" * flexible)
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                {"partition": row["partition"], "error_code": NOT_LEADER_OR_FOLLOWER}
                for row in topic["partitions"]
            ],
        }
        for topic in asked["topics"]
    ]
    encoder(PRODUCE.response, version, flexible=flexible)(out, {"topics": topics})
    return bytes(out)


class Deaf:
    """Lets one Produce through, swallows the reply, and hangs up."""

    def __init__(self, door: Door) -> None:
        self.is_stored = threading.Event()
        self._door = door
        self._number = -1
        door.on_request, door.on_reply = self._request, self._reply

    def _request(self, _: Passage, body: Frame) -> bool:
        if is_produce(body):
            (self._number,) = struct.unpack_from(">i", body, 4)
        return False

    def _reply(self, _: Passage, body: Frame) -> bool:
        if struct.unpack_from(">i", body) != (self._number,):
            return False
        self._door.on_request = self._door.on_reply = None
        self._door.shut()
        self.is_stored.set()
        return True


class Refusing:
    """Holds the first Produce until the second is here; refuses it, and lets the second through."""

    def __init__(self, door: Door) -> None:
        self.has_first, self.has_both = threading.Event(), threading.Event()
        self._door = door
        self._first: Frame = b""
        door.on_request = self._request

    def _request(self, passage: Passage, body: Frame) -> bool:
        if not is_produce(body):
            return False
        if not self._first:
            self._first = body
            self.has_first.set()
            return True
        self._door.on_request = None
        passage.to_client(not_leader(self._first))
        self.has_both.set()
        return False


def test_what_was_stored_elsewhere_is_not_stored_again(
    doors: tuple[Rig, dict[int, Door]],
) -> None:
    rig, behind = doors
    refused: list[str] = []
    producer = Producer(
        {
            "log_level": 2,
            "bootstrap.servers": kafka_of(rig),
            "enable.idempotence": True,
            "linger.ms": 0,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 200,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
    )

    def send(partition: int, value: bytes) -> None:
        def told(error: object, _: object) -> None:
            if error:
                refused.append(str(error))

        producer.produce("t", value, partition=partition, on_delivery=told)
        producer.poll(0)

    send(0, b"first")
    send(1, b"first")
    assert producer.flush(20) == 0
    deaf = Deaf(behind[0])
    send(0, b"stored")
    assert deaf.is_stored.wait(10)
    refusing = Refusing(behind[1])
    send(1, b"refused")
    assert refusing.has_first.wait(10)
    send(1, b"ahead of it")
    assert refusing.has_both.wait(10)
    producer.poll(1)
    behind[0].is_shut = False
    send(0, b"last")
    assert producer.flush(30) == 0
    assert not refused
    with rig.client() as client:
        stored = [[m.value for m in client.read("t", at, 0, limit=10).messages] for at in (0, 1)]
    assert stored == [[b"first", b"stored", b"last"], [b"first", b"refused", b"ahead of it"]]
