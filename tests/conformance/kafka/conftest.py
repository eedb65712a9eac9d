"""Clusters that Kafka clients talk to; they live as long as the tests of this folder."""

import socket
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from raftline.chaos.rig import Rig, wait_for
from raftline.gateways.kafka import schema
from tests.conformance.kafka.wire import Wire

NUMBERS = count()
MakeTopic = Callable[..., str]


def kafka_of(rig: Rig, *names: str) -> str:
    """Return the bootstrap servers of a cluster."""
    return ",".join(rig.node(name).kafka for name in names or rig.names)


def wait_kafka(rig: Rig, *names: str) -> None:
    """Return once the nodes answer on their Kafka ports."""
    for name in names or rig.names:
        host, port = rig.node(name).kafka.split(":")

        def answers(address: tuple[str, int] = (host, int(port))) -> bool:
            with socket.socket() as probe:
                probe.settimeout(1.0)
                try:
                    probe.connect(address)
                    probe.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
                    return len(probe.recv(8)) == 8
                except OSError:
                    return False

        wait_for(answers, 20, lambda name=name: rig.log_text(name)[-2000:])


def _cluster(directory: pytest.TempPathFactory, nodes: int) -> Iterator[Rig]:
    rig = Rig(directory.mktemp(f"kafka-{nodes}"), nodes=nodes)
    try:
        rig.start_all()
        wait_kafka(rig)
        yield rig
    finally:
        rig.close()


@pytest.fixture(scope="session")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One node."""
    yield from _cluster(tmp_path_factory, 1)


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Three nodes, every partition on all of them."""
    yield from _cluster(tmp_path_factory, 3)


@pytest.fixture
def make_topic() -> MakeTopic:
    """Return a maker of topics with names of their own."""

    def make(rig: Rig, partitions: int = 1, name: str = "", **settings: str | int | bool) -> str:
        name = name or f"t{next(NUMBERS)}"
        with rig.client() as client:
            client.create_topic(
                name, partitions=partitions, replication_factor=0, settings=settings
            )
        for node in rig.running():
            with Wire(rig.node(node).kafka) as wire:
                wait_for(lambda wire=wire: is_led(wire, name), 20, lambda: name)
        return name

    return make


def is_led(wire: Wire, topic: str) -> bool:
    """Say whether a node knows the leader of every partition of a topic."""
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    (row,) = wire.ask(schema.METADATA, 12, asked)["topics"]
    return bool(row["partitions"]) and all(part["leader_id"] > 0 for part in row["partitions"])
