"""The two that are compared, behind one face: a cluster of ours, and Kafka's.

``unsynced`` runs our nodes with a library in front of the C library whose fsync and fdatasync do
nothing: what the same code does where syncing costs nothing. It is for measuring only.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from bench.cluster import BenchCluster, running
from bench.kafka_load import KafkaSpec
from bench.peers.kafka.brokers import Brokers, brokers
from raftline.server.local_cluster import LocalNode

NO_SYNC = "int fsync(int fd) { return 0; }\nint fdatasync(int fd) { return 0; }\n"
PRELOAD = "LD_PRELOAD"


class Target(Protocol):
    """What takes messages."""

    @property
    def servers(self) -> str: ...

    @property
    def pids(self) -> list[int]: ...

    def create(self, topic: str) -> str:
        """Create a topic of one partition; return the address of its leader."""
        ...

    def delete(self, topic: str) -> None:
        """Delete it with its data."""
        ...


class Side(Target, Protocol):
    """A cluster under load."""

    def leader(self, topic: str) -> str:
        """Return the address of the leader once all replicas are there."""
        ...

    def kill(self, server: str) -> None:
        """End a server without warning."""
        ...

    def revive(self) -> None:
        """Start the killed one again."""
        ...


class Ours:
    """Raftline."""

    def __init__(self, cluster: BenchCluster) -> None:
        self._cluster = cluster

    @property
    def servers(self) -> str:
        return ",".join(node.kafka for node in self._cluster.nodes)

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self._cluster.nodes]

    def create(self, topic: str) -> str:
        self._cluster.create(topic, 1)
        return self.leader(topic)

    def delete(self, topic: str) -> None:
        with self._cluster.client() as client:
            client.delete_topic(topic)

    def leader(self, topic: str) -> str:
        return self._cluster.leader_of(topic).kafka

    def kill(self, server: str) -> None:
        self._cluster.kill(self._node(server))

    def revive(self) -> None:
        self._cluster.start()

    def _node(self, server: str) -> LocalNode:
        return next(node for node in self._cluster.nodes if node.kafka == server)


class Theirs:
    """Apache Kafka."""

    def __init__(self, cluster: Brokers, *, synced: bool = False) -> None:
        self._cluster = cluster
        self._synced = synced
        self._killed = 0

    @property
    def servers(self) -> str:
        return self._cluster.servers

    @property
    def pids(self) -> list[int]:
        return self._cluster.pids

    def create(self, topic: str) -> str:
        return self._cluster.create(topic, 1, synced=self._synced)

    def delete(self, topic: str) -> None:
        self._cluster.delete(topic)

    def leader(self, topic: str) -> str:
        return self._cluster.leader(topic)

    def kill(self, server: str) -> None:
        self._killed = self._cluster.kill(server)

    def revive(self) -> None:
        self._cluster.revive(self._killed)


def spec(side: Target, topic: str, leader: str) -> KafkaSpec:
    """Return what every task on a side's topic begins with."""
    return KafkaSpec(task="", servers=side.servers, topic=topic, pids=side.pids, leader=leader)


@contextlib.contextmanager
def both(work: Path, nodes: int) -> Iterator[dict[str, Side]]:
    """Run one cluster of each."""
    with (
        running(work / f"raftline-{nodes}", nodes) as ours,
        brokers(work / f"kafka-{nodes}", nodes) as theirs,
    ):
        yield {"Raftline": Ours(ours), "Kafka": Theirs(theirs)}


@contextlib.contextmanager
def by_syncing(work: Path, nodes: int) -> Iterator[dict[str, Side]]:
    """Run both with and without syncing what is acknowledged."""
    with contextlib.ExitStack() as stack:
        synced = stack.enter_context(running(work / f"raftline-{nodes}", nodes))
        with _preloaded(work):
            free = stack.enter_context(running(work / f"unsynced-{nodes}", nodes))
        theirs = stack.enter_context(brokers(work / f"kafka-{nodes}", nodes))
        yield {
            "Raftline": Ours(synced),
            "Raftline, fsync does nothing": Ours(free),
            "Kafka": Theirs(theirs),
            "Kafka, flush.messages=1": Theirs(theirs, synced=True),
        }


@contextlib.contextmanager
def _preloaded(work: Path) -> Iterator[None]:
    work.mkdir(parents=True, exist_ok=True)
    source, library = work / "no_sync.c", work / "no_sync.so"
    source.write_text(NO_SYNC)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    os.environ[PRELOAD] = str(library)
    try:
        yield
    finally:
        del os.environ[PRELOAD]
