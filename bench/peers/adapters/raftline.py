"""Raftline: synced by a majority before every answer; its own Python client over HTTP.

Coroutines of ``connect_async`` publish with so many on their way, a plain loop of ``send`` is the
bulk form, ``read`` reads the log, and workers are ``for message in line.receive(…)`` with an ack
each.
"""

import contextlib
import time
from typing import Any

from bench.cluster import BenchCluster
from bench.peers.clients import AsyncClient, Take
from bench.peers.servers import Servers, descendants

WORK_PARTITIONS = 6
READ_BYTES = 1 << 20
READ_COUNT = 100_000
SENT_AT_ONCE = 1000


class RaftlineServers(Servers):
    """The nodes of a local cluster, as ``raftline up`` runs them."""

    _cluster: BenchCluster

    def prepare(self) -> None:
        self._cluster = BenchCluster(self.directory / "cluster", self.count)

    @property
    def address(self) -> str:
        if self.option == "kafka":
            return ",".join(node.kafka for node in self._cluster.nodes)
        return self._cluster.local.servers()

    def start(self) -> None:
        self._cluster.local.start()

    def kill(self, number: int) -> None:
        self._cluster.kill(self._cluster.nodes[number])

    def kill_all(self) -> None:
        for node in self._cluster.nodes:
            self._cluster.kill(node)

    def stop(self) -> None:
        with contextlib.suppress(AttributeError):  # not even prepared
            self._cluster.stop()

    def pids(self) -> list[int]:
        return descendants([node.pid for node in self._cluster.running()])

    def check_alive(self) -> None:
        dead = self._cluster.local.dead()
        if dead:
            raise RuntimeError(f"{dead[0].name} ended by itself: see {dead[0].log}")


class RaftlineClient(AsyncClient):
    def __init__(self, address: str, option: str = "") -> None:
        super().__init__()
        del option
        self._servers = address
        self._async_line: Any = None
        self._sync_line: Any = None

    @property
    def line(self) -> Any:
        """Return the sync client."""
        import raftline

        if self._sync_line is None:
            self._sync_line = raftline.connect(self._servers, timeout="30s")
        return self._sync_line

    def create(self, topic: str, *, work: bool) -> None:
        from raftline.model.errors import TopicExists

        with contextlib.suppress(TopicExists):
            self.line.topics.create(topic, partitions=WORK_PARTITIONS if work else 1)
        if self._async_line is None:
            self.run(self._connect())

    async def _connect(self) -> None:
        import raftline

        self._async_line = await raftline.connect_async(self._servers, timeout="30s")

    async def publish_async(self, topic: str, value: bytes) -> None:
        await self._async_line.send_now(topic, value)

    def publish_one(self, topic: str, value: bytes) -> None:
        self.run(self.publish_async(topic, value))

    def bulk(self, topic: str, value: bytes, until: float, count_max: int) -> int:
        line, done = self.line, 0
        last: list[Any] = []
        while time.perf_counter() < until and done < count_max:
            last = [line.send(topic, value) for _ in range(SENT_AT_ONCE)]
            done += SENT_AT_ONCE
        line.flush("60s")
        for sending in last:
            sending.result()  # raises where it was not stored
        return done

    def consume(self, topic: str, count: int, until: float) -> int:
        line, offset = self.line, 0
        while offset < count and time.perf_counter() < until:
            page = line.read(topic, 0, offset, count=READ_COUNT, bytes_max=READ_BYTES)
            if not page.messages:
                break
            offset = page.next_offset
        return offset

    def join(self, topic: str, member: str) -> None:
        del member
        self.line.topics.show(topic)

    def work(self, topic: str, member: str, take: Take) -> None:
        go_on = True
        while go_on:
            for message in self.line.receive(topic, group="workers", member=member, wait="1s"):
                go_on = take(message.value)
                message.ack()
                if not go_on:
                    break
            else:
                go_on = take(None)
        self.line.flush("30s")
        if self.line.settles_lost:
            raise SystemExit(f"{self.line.settles_lost} acks were refused without a fault")

    def leader(self, topic: str) -> int:
        found = self.line.topics.show(topic)["partitions"][0]["leader"]
        nodes = {node["id"]: node["http"] for node in self.line.cluster()["nodes"]}
        ports = [server.rpartition(":")[2] for server in self._servers.split(",")]
        return ports.index(nodes[found].rpartition(":")[2])

    def close(self) -> None:
        if self._async_line is not None:
            self.run(self._async_line.close())
        if self._sync_line is not None:
            self._sync_line.close()
