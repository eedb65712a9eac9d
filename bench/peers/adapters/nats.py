"""NATS JetStream: file storage, synced before every answer (``sync_interval: always``); nats-py.

The best batch is an atomic one of 1000 messages: all but the last are sent without an answer.
Reading is an ordered push consumer, workers share a durable pull consumer.
"""

import asyncio
import contextlib
import time
from typing import Any

from bench.peers.clients import ATTEMPT_S, AsyncClient, Take
from bench.peers.install import program
from bench.peers.servers import Servers

PORTS = {1: 28_500, 3: 28_600}
BATCH = 1000
LEASED = 100
DURABLE = "workers"


class NatsServers(Servers):
    def ports(self, number: int) -> list[int]:
        first = PORTS[self.count] + 10 * number
        return [first, first + 1]

    def prepare(self) -> None:
        routes = ", ".join(f'"nats://127.0.0.1:{self.ports(n)[1]}"' for n in range(self.count))
        for number in range(self.count):
            client, peer = self.ports(number)
            text = (
                f'server_name: "n{number}"\nlisten: "127.0.0.1:{client}"\n'
                f'jetstream {{ store_dir: "{self.directory}/js-{number}", max_mem: 256MB, '
                "max_file: 20GB, sync_interval: always }\n"
            )
            if self.count > 1:
                text += (
                    f'cluster {{ name: "bench", listen: "127.0.0.1:{peer}", routes: [{routes}] }}\n'
                )
            (self.directory / f"{number}.conf").write_text(text)

    def command(self, number: int) -> list[str]:
        return [program("nats-server"), "-c", str(self.directory / f"{number}.conf")]


class NatsClient(AsyncClient):
    def __init__(self, address: str, option: str = "") -> None:
        super().__init__()
        del option
        self._servers = [f"nats://{one}" for one in address.split(",")]
        self._link: Any = None
        self._stream: Any = None
        self._pull: Any = None
        self._batches = 0

    @property
    def stream(self) -> Any:
        """Return JetStream, connected."""
        if self._stream is None:
            self.run(self._connect())
        return self._stream

    async def _connect(self) -> None:
        import nats

        async def silent(_: Exception) -> None:
            pass

        # a refused first connection would cost two seconds in the client: look first
        for server in self._servers:
            host, _, port = server.removeprefix("nats://").partition(":")
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
                break
        else:
            raise ConnectionError("no server listens")
        self._link = await nats.connect(
            self._servers,
            error_cb=silent,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.02,
            connect_timeout=2,
            pending_size=64 << 20,
        )
        self._stream = self._link.jetstream(timeout=10)

    def create(self, topic: str, *, work: bool) -> None:
        from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig
        from nats.js.errors import BadRequestError

        config = StreamConfig(
            name=topic,
            subjects=[topic],
            storage=StorageType.FILE,
            num_replicas=len(self._servers),
            retention=RetentionPolicy.WORK_QUEUE if work else RetentionPolicy.LIMITS,
            allow_atomic=True,
        )

        async def make() -> None:
            stream = self._link.jetstream(timeout=2)
            try:
                await stream.add_stream(config)
            except BadRequestError as error:
                if error.err_code != 10058:  # it is there
                    raise
            if work:
                await stream.add_consumer(
                    topic,
                    ConsumerConfig(
                        durable_name=DURABLE, ack_policy="explicit", ack_wait=60,
                        max_ack_pending=100_000,
                    ),
                )  # fmt: skip

        assert self.stream
        self.run(make())

    async def publish_async(self, topic: str, value: bytes) -> None:
        await self._stream.publish(topic, value)

    def publish_one(self, topic: str, value: bytes) -> None:
        self.run(self.stream.publish(topic, value, timeout=ATTEMPT_S))

    def bulk(self, topic: str, value: bytes, until: float, count_max: int) -> int:
        assert self.stream

        async def run() -> int:
            done = 0
            while time.perf_counter() < until and done < count_max:
                await self._batch(topic, value)
                done += BATCH
            return done

        return self.run(run())

    async def _batch(self, topic: str, value: bytes) -> None:
        import json

        self._batches += 1
        name = f"{id(self):x}-{time.perf_counter_ns():x}-{self._batches}"
        link = self._link
        first = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": "1"}
        await link.request(topic, value, timeout=10, headers=first)
        for number in range(2, BATCH):
            headers = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)}
            await link.publish(topic, value, headers=headers)
        last = {
            "Nats-Batch-Id": name, "Nats-Batch-Sequence": str(BATCH), "Nats-Batch-Commit": "1"
        }  # fmt: skip
        reply = json.loads((await link.request(topic, value, timeout=20, headers=last)).data)
        if reply.get("count") != BATCH:
            raise RuntimeError(f"a batch was refused: {reply}")

    def consume(self, topic: str, count: int, until: float) -> int:
        got = 0

        async def run() -> None:
            done = asyncio.Event()

            async def take(_: Any) -> None:
                nonlocal got
                got += 1
                if got >= count:
                    done.set()

            reading = await self._stream.subscribe(
                topic,
                ordered_consumer=True,
                cb=take,
                pending_msgs_limit=-1,
                pending_bytes_limit=-1,
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), until - time.perf_counter())
            counted = got
            await reading.unsubscribe()
            return counted

        assert self.stream
        return self.run(run())

    def join(self, topic: str, member: str) -> None:
        del member
        self._pull = self.run(self.stream.pull_subscribe_bind(DURABLE, topic))

    def work(self, topic: str, member: str, take: Take) -> None:
        del topic, member

        async def run() -> None:
            go_on = True
            while go_on:
                try:
                    messages = await self._pull.fetch(LEASED, timeout=1)
                except TimeoutError:
                    go_on = take(None)
                    continue
                for message in messages:
                    go_on = take(message.data)
                    await message.ack()
            await self._link.flush()

        self.run(run())

    def leader(self, topic: str) -> int:
        found = self.run(self.stream.stream_info(topic))
        return int(found.cluster.leader.removeprefix("n"))

    def close(self) -> None:
        if self._link is not None:
            with contextlib.suppress(Exception):
                self.run(asyncio.wait_for(self._link.close(), 1))
        self._link = self._stream = None
