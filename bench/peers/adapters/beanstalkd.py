"""beanstalkd: one node, its binlog synced at every write (``-f0``); client greenstalk.

The protocol has no batches and no log to read again: bulk is one put after the other on several
connections, consuming is reserve and delete.
"""

import time
from typing import Any

from bench.peers.clients import Take, ThreadClient, in_threads
from bench.peers.install import program
from bench.peers.servers import Servers

PORT = 28_710
BULK_THREADS = 8


class BeanstalkdServers(Servers):
    def ports(self, number: int) -> list[int]:
        return [PORT + number]

    def prepare(self) -> None:
        (self.directory / "binlog").mkdir()

    def command(self, number: int) -> list[str]:
        folder = str(self.directory / "binlog")
        return [
            program("beanstalkd"), "-l", "127.0.0.1", "-p", str(self.ports(number)[0]),
            "-b", folder, "-f0",
        ]  # fmt: skip


class BeanstalkdClient(ThreadClient):
    def __init__(self, address: str, option: str = "") -> None:
        super().__init__()
        del option
        host, _, port = address.partition(":")
        self._address = (host, int(port))
        self._tube = "default"

    def connect(self) -> Any:
        import greenstalk

        return greenstalk.Client(self._address, use=self._tube, watch=self._tube, encoding=None)

    def create(self, topic: str, *, work: bool) -> None:
        """A tube is there when it is used."""
        del work
        self._use(topic)

    def publish_by(self, connection: Any, topic: str, value: bytes) -> None:
        connection.put(value)

    def publish_one(self, topic: str, value: bytes) -> None:
        self._use(topic)
        super().publish_one(topic, value)

    def bulk(self, topic: str, value: bytes, until: float, count_max: int) -> int:
        del count_max
        return len(self.publish(topic, value, BULK_THREADS, until))

    def consume(self, topic: str, count: int, until: float) -> int:
        import greenstalk

        self._use(topic)
        got: list[int] = []

        def one() -> None:
            connection = self.connection
            while time.perf_counter() < until and len(got) < count:
                try:
                    connection.delete(connection.reserve(timeout=0))
                except greenstalk.TimedOutError:
                    return
                got.append(1)

        in_threads(one, BULK_THREADS)
        return len(got)

    def join(self, topic: str, member: str) -> None:
        del member
        self._use(topic)
        assert self.connection

    def work(self, topic: str, member: str, take: Take) -> None:
        import greenstalk

        del topic, member
        connection = self.connection
        while True:
            try:
                job = connection.reserve(timeout=1)
            except greenstalk.TimedOutError:
                if not take(None):
                    return
                continue
            go_on = take(job.body)
            connection.delete(job)
            if not go_on:
                return

    def leader(self, topic: str) -> int:
        del topic
        return 0

    def _use(self, topic: str) -> None:
        if topic != self._tube:
            self._tube = topic
            self.forget()
