"""Redis Streams: one node, append-only file synced before every answer; client redis-py (hiredis).

With ``appendfsync always`` the writes of one pass of Redis' loop share one fsync. A pipeline of
XADD is its best batch; XRANGE reads the stream; workers use XREADGROUP, and one XACK names all
messages of a read.
"""

import time
from typing import Any

from bench.peers.clients import Take, ThreadClient
from bench.peers.install import program
from bench.peers.servers import Servers

PORT = 28_700
PIPELINE = 1000
READ = 5000
LEASED = 100
GROUP = "workers"
FIELD = b"v"


class RedisServers(Servers):
    def ports(self, number: int) -> list[int]:
        return [PORT + number]

    def command(self, number: int) -> list[str]:
        return [
            program("redis-server"), "--port", str(self.ports(number)[0]), "--bind", "127.0.0.1",
            "--dir", str(self.directory), "--appendonly", "yes", "--appendfsync", "always",
            "--save", "", "--daemonize", "no",
        ]  # fmt: skip


class RedisClient(ThreadClient):
    def __init__(self, address: str, option: str = "") -> None:
        super().__init__()
        del option
        self._host, _, port = address.partition(":")
        self._port = int(port)

    def connect(self) -> Any:
        import redis

        return redis.Redis(self._host, self._port, single_connection_client=True)

    def create(self, topic: str, *, work: bool) -> None:
        import redis

        if not work:
            return
        try:
            self.connection.xgroup_create(topic, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def publish_by(self, connection: Any, topic: str, value: bytes) -> None:
        connection.xadd(topic, {FIELD: value})

    def bulk(self, topic: str, value: bytes, until: float, count_max: int) -> int:
        row, done = {FIELD: value}, 0
        while time.perf_counter() < until and done < count_max:
            pipeline = self.connection.pipeline(transaction=False)
            for _ in range(PIPELINE):
                pipeline.xadd(topic, row)
            done += len(pipeline.execute())
        return done

    def consume(self, topic: str, count: int, until: float) -> int:
        got, start = 0, b"-"
        while got < count and time.perf_counter() < until:
            rows = self.connection.xrange(topic, min=start, count=READ)
            if not rows:
                break
            got += len(rows)
            start = b"(" + rows[-1][0]
        return got

    def join(self, topic: str, member: str) -> None:
        del topic, member
        self.connection.ping()

    def work(self, topic: str, member: str, take: Take) -> None:
        connection = self.connection
        go_on = True
        while go_on:
            found = connection.xreadgroup(GROUP, member, {topic: ">"}, count=LEASED, block=1000)
            if not found:
                go_on = take(None)
                continue
            rows = found[0][1] if isinstance(found, list) else found[topic.encode()][0]
            for _, fields in rows:
                go_on = take(fields[FIELD])
            connection.xack(topic, GROUP, *(number for number, _ in rows))

    def leader(self, topic: str) -> int:
        del topic
        return 0
