"""Apache Kafka in KRaft mode, acks=all; client confluent-kafka.

Without an option acknowledged means in the page cache of all in-sync replicas, Kafka's default;
with the option ``fsync`` topics have ``flush.messages=1``. Workers are a share group (4.x).
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

from bench.peers.clients import Take
from bench.peers.install import CannotInstall, jars
from bench.peers.servers import Servers

PORTS = {1: 28_092, 3: 28_192}
PORT_STEP = 10
CLUSTER_ID = "besideRaftlineBenchAAA"
HEAPS = {1: "1g", 3: "512m"}
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
WORK_PARTITIONS = 6
GROUP = "workers"
BATCH = 1000
READ = 10_000


class KafkaServers(Servers):
    def ports(self, number: int) -> list[int]:
        first = PORTS[self.count] + PORT_STEP * number
        return [first, first + 1]

    def prepare(self) -> None:
        for number in range(self.count):
            file = self.directory / f"{number}.properties"
            rows = self._properties(number)
            file.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
            words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)]
            done = subprocess.run(
                ["java", "-Xmx256m", QUIET, "-cp", _classes(), *words],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise CannotInstall(f"Kafka's storage could not be made: {done.stderr[-500:]}")

    def command(self, number: int) -> list[str]:
        heap = HEAPS[self.count]
        return [
            "java", f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", QUIET,
            "-cp", _classes(), "kafka.Kafka", str(self.directory / f"{number}.properties"),
        ]  # fmt: skip

    def _properties(self, number: int) -> dict[str, object]:
        count, (port, control) = self.count, self.ports(number)
        voters = ",".join(f"{n + 1}@127.0.0.1:{self.ports(n)[1]}" for n in range(count))
        rows: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": number + 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": voters,
            "log.dirs": self.directory / f"log-{number}",
            "default.replication.factor": count,
            "min.insync.replicas": min(count, 2),
            "group.initial.rebalance.delay.ms": 0,
        }
        for inner in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            rows[f"{inner}.replication.factor"] = count
            rows[f"{inner}.num.partitions"] = 3
            if inner != "offsets.topic":
                rows[f"{inner}.min.isr"] = min(count, 2)
        return rows


class KafkaClient:
    def __init__(self, address: str, option: str = "") -> None:
        self._servers = address
        self._fsync = option == "fsync"
        self._found: dict[str, Any] = {}
        self._share: Any = None

    # ------------------------------------------------------------------ topics

    def create(self, topic: str, *, work: bool) -> None:
        from confluent_kafka.admin import NewTopic

        parts = WORK_PARTITIONS if work else 1
        replicas = len(self._servers.split(","))
        settings = {"flush.messages": "1"} if self._fsync else {}
        admin = self._admin
        asked = admin.create_topics(
            [NewTopic(topic, parts, replicas, config=settings)], operation_timeout=5
        )
        try:
            asked[topic].result(5)
        except Exception as error:
            if "TOPIC_ALREADY_EXISTS" not in str(error):
                raise
        until = time.perf_counter() + 10
        while time.perf_counter() < until:
            rows = admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
            if len(rows) == parts and all(r.leader >= 0 and len(r.isrs) == replicas for r in rows):
                break
            time.sleep(0.02)
        if work:
            self._set_group()

    def _set_group(self) -> None:
        """Let the share group begin with the first message."""
        from confluent_kafka.admin import (
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        entry = ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[entry])
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(10)

    def leader(self, topic: str) -> int:
        return self._admin.list_topics(topic, timeout=5).topics[topic].partitions[0].leader - 1

    # ------------------------------------------------------------------ publish

    def publish(self, topic: str, value: bytes, window: int, until: float) -> list[float]:
        producer, clock = self._producer(0), time.perf_counter
        took: list[float] = []
        open_count = 0

        def send() -> None:
            nonlocal open_count
            begun = clock()

            def done(error: Any, _: Any) -> None:
                nonlocal open_count
                open_count -= 1
                if error is not None:
                    raise RuntimeError(str(error))
                took.append(clock() - begun)

            open_count += 1
            producer.produce(topic, value, on_delivery=done)

        while clock() < until:
            while open_count < window:
                send()
            producer.poll(1.0)
        while open_count:
            producer.poll(1.0)
        return took

    def pace(self, topic: str, make: Callable[[], bytes], rate: float, until: float) -> int:
        producer, begun, sent = self._producer(0), time.perf_counter(), 0
        while (now := time.perf_counter()) < until:
            while sent < (now - begun) * rate:
                producer.produce(topic, make())
                sent += 1
            producer.poll(max(0.0, begun + (sent + 1) / rate - time.perf_counter()))
        return sent - producer.flush(10)

    def bulk(self, topic: str, value: bytes, until: float, count_max: int) -> int:
        producer, done = self._producer(5), 0
        rows = [{"value": value} for _ in range(BATCH)]
        while time.perf_counter() < until and done < count_max:
            left = rows
            while left:
                try:
                    taken = producer.produce_batch(topic, left)
                except BufferError:
                    taken = 0
                done += taken
                left = left[taken:]
                producer.poll(0.01 if left else 0)
        return done - producer.flush(60)

    def publish_one(self, topic: str, value: bytes) -> None:
        """Publish and wait; librdkafka itself goes on to the next leader."""
        producer = self._producer(0)
        outcome: list[Any] = []
        producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
        until = time.perf_counter() + 60
        while not outcome and time.perf_counter() < until:
            producer.poll(0.1)
        if not outcome or outcome[0] is not None:
            raise RuntimeError(str(outcome))

    # ------------------------------------------------------------------ read and work

    def consume(self, topic: str, count: int, until: float) -> int:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": f"reader-{os.getpid()}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "fetch.queue.backoff.ms": 1,
                "queued.min.messages": 500_000,
                "fetch.message.max.bytes": 8 << 20,
                "log_level": 2,
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        got = 0
        while got < count and time.perf_counter() < until:
            got += sum(message.error() is None for message in consumer.consume(READ, timeout=0.2))
        return got

    def join(self, topic: str, member: str) -> None:
        from confluent_kafka import ShareConsumer

        del member
        self._share = ShareConsumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                "fetch.wait.max.ms": 50,
                "max.poll.records": 500,
                "log_level": 2,
            }
        )
        self._share.subscribe([topic])

    def work(self, topic: str, member: str, take: Take) -> None:
        del topic, member
        go_on = True
        while go_on:
            messages = [one for one in self._share.poll(0.2) if one.error() is None]
            if not messages:
                go_on = take(None)
                continue
            for message in messages:
                go_on = take(message.value())
                self._share.acknowledge(message)
            self._share.commit_sync(10.0)
        self._share.close()

    # ------------------------------------------------------------------ clients

    @property
    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        if "admin" not in self._found:
            self._found["admin"] = AdminClient(
                {
                    "bootstrap.servers": self._servers,
                    "log_level": 0,
                    "reconnect.backoff.ms": 10,
                    "reconnect.backoff.max.ms": 50,
                }
            )
        return self._found["admin"]

    def _producer(self, linger_ms: int) -> Any:
        from confluent_kafka import Producer

        name = f"producer-{linger_ms}"
        if name not in self._found:
            self._found[name] = Producer(
                {
                    "bootstrap.servers": self._servers,
                    "acks": "all",
                    "enable.idempotence": True,
                    "linger.ms": linger_ms,
                    "batch.size": 1_000_000,
                    "queue.buffering.max.messages": 2_000_000,
                    "queue.buffering.max.kbytes": 1 << 20,
                    "socket.nagle.disable": True,
                    "reconnect.backoff.ms": 10,
                    "reconnect.backoff.max.ms": 50,
                    "retry.backoff.ms": 10,
                    "retry.backoff.max.ms": 50,
                    "log_level": 0,
                }
            )
        return self._found[name]

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._found.clear()


def _classes() -> str:
    return f"{jars('kafka-broker')}/*"
