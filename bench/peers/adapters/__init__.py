"""The systems that are compared: for each its servers, its client and what durable means."""

import importlib
from pathlib import Path

import msgspec

from bench.peers.clients import Client
from bench.peers.servers import Servers


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One system in one setting."""

    name: str
    title: str
    adapter: str  # module; its classes are <Adapter>Servers and <Adapter>Client
    client_adapter: str = ""  # where the client is of another module
    workloads: tuple[str, ...] = ()  # where it does not take part in all
    option: str = ""
    replicates: bool = False
    durable: str  # what an acknowledged publish means in these runs
    client: str
    acks: str  # what an ack of a worker means

    def servers(self, directory: Path, count: int) -> Servers:
        """Return its servers, not started yet."""
        return _class(self.adapter, "Servers")(directory, count, self.option)

    def connect(self, address: str) -> Client:
        """Return its client."""
        return _class(self.client_adapter or self.adapter, "Client")(address, self.option)


def _class(adapter: str, kind: str) -> type:
    module = importlib.import_module(f"bench.peers.adapters.{adapter}")
    return getattr(module, f"{adapter.capitalize()}{kind}")


SYSTEMS = {
    system.name: system
    for system in (
        System(
            name="raftline",
            title="Raftline",
            adapter="raftline",
            replicates=True,
            durable="fdatasync on a majority before the answer",
            client="raftline over HTTP: connect_async (a, b, f), send in a loop (c), read (d), "
            "receive + ack (e)",
            acks="each ack is a durable, replicated settle; the client sends many in one request",
        ),
        System(
            name="raftline-kafka",
            title="Raftline by Kafka's client",
            adapter="raftline",
            client_adapter="kafka",
            option="kafka",
            workloads=("single", "window", "bulk", "consume"),
            replicates=True,
            durable="as above",
            client="confluent-kafka, as for Kafka: the same load on both",
            acks="not measured",
        ),
        System(
            name="kafka-fsync",
            title="Kafka (fsync)",
            adapter="kafka",
            option="fsync",
            replicates=True,
            durable="acks=all, flush.messages=1: fsync of every batch on every replica",
            client="confluent-kafka; ShareConsumer, explicit acks (e, f)",
            acks="share group, commit_sync after each poll",
        ),
        System(
            name="kafka",
            title="Kafka (default)",
            adapter="kafka",
            replicates=True,
            durable="acks=all, no fsync: an answer means page cache (of all in-sync replicas)",
            client="confluent-kafka; ShareConsumer, explicit acks (e, f)",
            acks="share group, commit_sync after each poll",
        ),
        System(
            name="nats",
            title="NATS JetStream",
            adapter="nats",
            replicates=True,
            durable="file storage, sync_interval: always",
            client="nats-py; atomic batches of 1000 (c), ordered push consumer (d), "
            "pull fetch(100) (e)",
            acks="sent and not answered; the consumer's state is stored later",
        ),
        System(
            name="rabbitmq",
            title="RabbitMQ",
            adapter="rabbitmq",
            replicates=True,
            durable="quorum queue, publisher confirms: fsync on a majority",
            client="pika SelectConnection; confirms, 1000 on their way (c), prefetch 100 (e)",
            acks="sent and not answered",
        ),
        System(
            name="redis",
            title="Redis Streams",
            adapter="redis",
            durable="AOF, appendfsync always",
            client="redis-py with hiredis; 64 connections in threads (b), pipelines of 1000 XADD "
            "(c), XRANGE 5000 (d), XREADGROUP 100 (e)",
            acks="one XACK for all messages of a read, synced",
        ),
        System(
            name="beanstalkd",
            title="beanstalkd",
            adapter="beanstalkd",
            durable="binlog, -f0: fsync at every write",
            client="greenstalk; 8 connections in threads (c, d): no batches in the protocol",
            acks="one delete a message, synced",
        ),
        System(
            name="elasticmq",
            title="ElasticMQ",
            adapter="elasticmq",
            durable="kept in an H2 file, which H2 writes up to 0.5 s later and does not sync",
            client="http.client, JSON protocol, no signing; batches of 10, 8 connections (c, d)",
            acks="DeleteMessageBatch of up to 10",
        ),
    )
}
