"""Clusters of real processes for one scenario: started on free ports, stopped at the end."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.load import LoadResult, LoadSpec
from raftline.client.client import Client
from raftline.model.errors import RaftlineError
from raftline.server.local_cluster import LocalCluster, LocalNode

PORT_FIRST = 20_000
PORT_LAST = 28_000
PORT_STEP = 16
LEADER_S_MAX = 90
GATEWAY_STEPS = (0, 1000, 2000, 3000)


class BenchCluster:
    """A local cluster with the questions a benchmark asks."""

    def __init__(self, directory: Path, count: int, settings: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.local = LocalCluster(directory)
        self.local.plan(count, free_port_base(count), settings)

    def start(self) -> None:
        """Start every node that does not run, and wait until it serves."""
        self.local.start()
        self.local.wait_ready()

    @property
    def nodes(self) -> list[LocalNode]:
        """Return the nodes as they are now."""
        return self.local.nodes

    def node(self, number: int) -> LocalNode:
        """Return a node by the number the catalog gave it."""
        return next(node for node in self.nodes if node.id == number)

    def client(self, timeout_ms: int = 20_000) -> Client:
        """Return a client of all nodes."""
        return Client(self.local.servers(), timeout_ms=timeout_ms)

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic with as many replicas as there are nodes, up to three."""
        with self.client(60_000) as client:
            client.create_topic(topic, partitions=partitions, replication_factor=0, settings={})

    def leader_of(self, topic: str, partition: int = 0) -> LocalNode:
        """Wait until all running nodes name the same leader, and return it."""
        until = time.perf_counter() + LEADER_S_MAX
        while time.perf_counter() < until:
            named = {self._leader_by(node, topic, partition) for node in self.running()}
            if len(named) == 1 and (leader := max(named)):
                return self.node(leader)
            time.sleep(0.02)
        raise SystemExit(f"nobody leads {topic}/{partition} after {LEADER_S_MAX} s")

    def _leader_by(self, node: LocalNode, topic: str, partition: int) -> int:
        """Return the leader as one node sees it; 0 if it sees none."""
        try:
            with Client(node.http, timeout_ms=2_000) as client:
                return int(client.topic(topic)["partitions"][partition]["leader"])
        except (RaftlineError, IndexError):
            return 0

    def running(self) -> list[LocalNode]:
        """Return the nodes whose process lives."""
        dead = self.local.dead()
        return [node for node in self.nodes if node not in dead]

    def end_of(self, topic: str, partition: int = 0) -> int:
        """Return the end of what is committed, by the leader's word."""
        with Client(self.leader_of(topic, partition).http) as client:
            return int(client.topic(topic)["partitions"][partition]["commit_end"])

    def followers_of(self, leader: LocalNode) -> list[LocalNode]:
        """Return the other nodes."""
        return [node for node in self.nodes if node.id != leader.id]

    def load(self, topic: str, **wanted: object) -> LoadResult:
        """Run the load process against the leader and return what it found."""
        leader = self.leader_of(topic)
        spec = LoadSpec(
            port=http_port(leader),
            topic=topic,
            pids=[leader.pid, *(node.pid for node in self.followers_of(leader))],
            **wanted,  # type: ignore[arg-type]
        )
        return run_load(spec)

    def verify(self) -> bool:
        """Say whether all replicas are identical."""
        with self.client(120_000) as client:
            return bool(client.verify()["identical"])

    def kill(self, node: LocalNode) -> None:
        """End a node's process without warning, and reap it."""
        os.kill(node.pid, signal.SIGKILL)
        while node in self.local.nodes and node not in self.local.dead():
            time.sleep(0.001)

    def stop(self) -> None:
        """Stop everything."""
        self.local.stop()


@contextlib.contextmanager
def running(directory: Path, count: int, settings: tuple[str, ...] = ()) -> Iterator[BenchCluster]:
    """Run a fresh cluster in ``directory`` and remove its data afterwards."""
    shutil.rmtree(directory, ignore_errors=True)
    cluster = BenchCluster(directory, count, settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def run_load(spec: LoadSpec, module: str = "bench.load") -> LoadResult:
    """Run one load process to its end."""
    limit_s = spec.warm_up_s + spec.seconds + 60
    done = subprocess.run(
        [sys.executable, "-m", module, msgspec.json.encode(spec).decode()],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    if done.returncode:
        raise SystemExit(f"the load process failed: {done.stderr.strip()[-2000:]}")
    return msgspec.json.decode(done.stdout.encode(), type=LoadResult)


def http_port(node: LocalNode) -> int:
    """Return the port of a node's HTTP gateway."""
    return int(node.http.rpartition(":")[2])


def free_port_base(count: int) -> int:
    """Return a base for ``raftline up`` whose ports, all below 32768, are free now."""
    first = PORT_FIRST + os.getpid() * PORT_STEP % (PORT_LAST - PORT_FIRST)
    for step in range(0, PORT_LAST - PORT_FIRST, PORT_STEP):
        base = PORT_FIRST + (first - PORT_FIRST + step) % (PORT_LAST - PORT_FIRST)
        ports = [base + gateway + n for gateway in GATEWAY_STEPS for n in range(count)]
        if all(_is_free(port) for port in ports):
            return base
    raise SystemExit("no free ports between 20000 and 31000")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
