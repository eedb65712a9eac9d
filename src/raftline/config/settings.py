"""Every setting of a node: one tree of frozen structs.

A setting is written ``section.field``. The unit is the end of the name (``_ms``, ``bytes``,
``_ratio``), the bound and the help text are in its ``Meta``. Where values come from is the business
of ``loader``; what must hold between several fields is in ``relations``. Settings of a topic are
catalog state: ``topics`` here holds only what a new topic starts with.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from raftline.model import limits
from raftline.model.limits import GIB, KIB, MIB
from raftline.model.partitioner import PARTITIONERS
from raftline.model.settings import SETTINGS as OF_A_TOPIC

GB = 10**9


def _as_of_a_topic(name: str, description: str) -> Meta:
    """Return the bounds of the topic setting that this is the default of."""
    setting = OF_A_TOPIC[name]
    return Meta(ge=setting.low, le=setting.high, description=description)


class NodeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who this node is and how it finds the others."""

    name: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="name of the node, unique for good"),
    ] = "node-1"
    data_dir: Annotated[
        str, Meta(min_length=1, description="directory of everything it stores")
    ] = "./raftline-data"
    rack: Annotated[
        str, Meta(description="nodes of one rack fail together; replicas are spread over racks")
    ] = ""
    peers: Annotated[
        dict[str, str], Meta(description="all nodes of a new cluster, name = host:port of peers")
    ] = {}
    join: Annotated[str, Meta(description="host:port of any node of the cluster to join")] = ""
    bootstrap: Annotated[
        bool, Meta(description="make a new cluster; refused where the directory holds one")
    ] = False
    insecure: Annotated[
        bool, Meta(description="listen beyond loopback without credentials and TLS")
    ] = False
    test_clock_file: Annotated[
        str, Meta(description="for tests: 8 bytes, ms by which the time of day is wrong")
    ] = ""


class ListenSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Addresses, host:port. An advertised address is what others are told; empty: the same."""

    http: Annotated[str, Meta(description="HTTP: API, metrics, health")] = "127.0.0.1:8080"
    grpc: Annotated[str, Meta(description="gRPC")] = "127.0.0.1:9000"
    kafka: Annotated[str, Meta(description="Kafka clients")] = "127.0.0.1:9092"
    peer: Annotated[str, Meta(description="the other nodes")] = "127.0.0.1:7000"
    advertise_http: Annotated[str, Meta(description="HTTP address told to others")] = ""
    advertise_grpc: Annotated[str, Meta(description="gRPC address told to others")] = ""
    advertise_kafka: Annotated[str, Meta(description="Kafka address told to others")] = ""
    advertise_peer: Annotated[str, Meta(description="peer address told to others")] = ""


class RaftSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Consensus: patience, batching, bounds."""

    tick_ms: Annotated[int, Meta(ge=1, description="length of one tick of the Raft clock")] = 100
    election_ticks: Annotated[
        int, Meta(ge=2, description="ticks without a leader before a campaign (random up to twice)")
    ] = 8
    heartbeat_ms: Annotated[
        int, Meta(ge=1, description="pause between heartbeats of a node, one for all shards")
    ] = 100
    inflight_max: Annotated[
        int, Meta(ge=1, description="appends on the way to one follower of one shard")
    ] = 256
    message_bytes_max: Annotated[
        int, Meta(ge=KIB, description="entries in one append, except that one always fits")
    ] = MIB
    uncommitted_bytes_max: Annotated[
        int, Meta(ge=KIB, description="proposed and not committed yet, per shard; then refused")
    ] = 32 * MIB
    tail_bytes_max: Annotated[
        int, Meta(ge=KIB, description="latest entries kept in memory per shard, for followers")
    ] = 8 * MIB
    commit_flush_ms: Annotated[
        int, Meta(ge=0, description="longest wait of a commit index for an append to ride on")
    ] = 20
    quick_failover_ms_max: Annotated[
        int, Meta(ge=0, description="random wait before campaigning for a leader seen to be gone")
    ] = 40
    campaigns_max: Annotated[
        int, Meta(ge=1, description="campaigns of this node at the same time")
    ] = 100
    quiet_after_ms: Annotated[
        int, Meta(ge=0, description="idle time after which a level shard goes quiet")
    ] = 300  # three heartbeats: from there on going to sleep and waking up costs less than they do


class WalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The write-ahead log of the node."""

    file_bytes: Annotated[int, Meta(ge=MIB, description="size of one preallocated file")] = 64 * MIB
    bytes_max: Annotated[
        int, Meta(ge=4 * MIB, description="all files; reached: checkpoint, then refuse appends")
    ] = GIB
    turn_bytes: Annotated[
        int, Meta(ge=KIB, description="collected bytes that start a turn while a sync runs")
    ] = 256 * KIB


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Segments and checkpoints of the shards."""

    segment_bytes: Annotated[int, Meta(ge=64 * KIB, description="size of one segment")] = 128 * MIB
    flush_bytes: Annotated[
        int, Meta(ge=KIB, description="applied bytes that are written out at once")
    ] = MIB
    flush_ms: Annotated[
        int, Meta(ge=1, description="longest wait of applied bytes before they are written out")
    ] = 20
    tail_bytes: Annotated[
        int, Meta(ge=0, description="latest bytes of a partition kept in memory for readers")
    ] = 4 * MIB
    cache_bytes: Annotated[
        int, Meta(ge=0, description="latest bytes of a partition left in the page cache")
    ] = 64 * MIB
    scrub_bytes_per_second: Annotated[
        int, Meta(ge=0, description="rate of re-reading cold segments for damage; 0: never")
    ] = 8 * MIB
    checkpoint_bytes: Annotated[
        int,
        Meta(ge=64 * KIB, description="applied bytes of a shard after which it is checkpointed"),
    ] = 64 * MIB
    checkpoint_ms: Annotated[
        int, Meta(ge=100, description="longest pause between checkpoints of a changed shard")
    ] = 60_000
    catch_up_bytes_per_second: Annotated[
        int, Meta(ge=0, description="rate of filling replicas that are far behind; 0: no limit")
    ] = 0
    free_ratio_min: Annotated[
        float,
        Meta(ge=0.0, le=0.5, description="free part of the disk below which appends are refused"),
    ] = 0.05
    free_bytes_enough: Annotated[
        int,
        Meta(ge=64 * MIB, description="free bytes that are room enough, however large the disk"),
    ] = 4 * GIB

    def free_bytes_min(self, total_bytes: int) -> int:
        """Return the free bytes below which a disk of that size takes no more messages."""
        return min(int(self.free_ratio_min * total_bytes), self.free_bytes_enough)


class TopicSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a new topic starts with."""

    auto_create: Annotated[bool, Meta(description="create a topic at its first publish")] = True
    partitions: Annotated[int, Meta(ge=1, description="partitions of a new topic")] = (
        limits.PARTITIONS_DEFAULT
    )
    replication_factor: Annotated[
        int,
        Meta(
            ge=0,
            le=limits.REPLICATION_FACTOR_MAX,
            description="replicas of each partition; 0: min(3, nodes)",
        ),
    ] = 0
    retention_ms: Annotated[
        int, _as_of_a_topic("retention_ms", "age at which messages are removed; -1: never")
    ] = limits.RETENTION_MS_DEFAULT
    retention_bytes: Annotated[
        int,
        _as_of_a_topic(
            "retention_bytes", "size of a partition above which the oldest go; -1: no bound"
        ),
    ] = 10 * GB
    lanes: Annotated[
        int, _as_of_a_topic("lanes", "named priorities: 5, or 3 (high, normal, low)")
    ] = 5
    partitioner: Annotated[
        str,
        Meta(
            pattern=f"^({'|'.join(PARTITIONERS)})$",
            description="from key to partition: " + ", ".join(PARTITIONERS),
        ),
    ] = "murmur2"
    delays: Annotated[bool, Meta(description="messages may be published with a delay")] = True
    delay_ms_max: Annotated[int, _as_of_a_topic("delay_ms_max", "longest delay of a message")] = (
        168 * limits.HOUR_MS
    )
    dedup_ms: Annotated[
        int, _as_of_a_topic("dedup_ms", "how long dedup keys are remembered; 0: not at all")
    ] = 24 * limits.HOUR_MS


class DeliverySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the work groups of a new topic deliver."""

    lease_ms: Annotated[int, _as_of_a_topic("lease_ms", "time to settle a message")] = 30_000
    retries_max: Annotated[
        int, _as_of_a_topic("max_retries", "deliveries after the first before a message is dead")
    ] = 3
    backoff_ms: Annotated[
        int, _as_of_a_topic("backoff_ms", "wait after the first nack, doubled by each further one")
    ] = 1_000
    backoff_ms_max: Annotated[
        int, _as_of_a_topic("backoff_ms_max", "longest wait after a nack")
    ] = 60_000
    dead_letters: Annotated[
        bool, Meta(description="keep what is given up on in the topic's .dlq; false: it is settled")
    ] = True


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of one node, at most those of ``model.limits``. Above them callers have to wait."""

    batch_bytes_max: Annotated[
        int, Meta(ge=KIB, le=limits.BATCH_BYTES_MAX, description="one batch")
    ] = limits.BATCH_BYTES_MAX
    node_uncommitted_bytes_max: Annotated[
        int, Meta(ge=MIB, description="proposed and not committed yet, all shards; then refused")
    ] = limits.NODE_UNCOMMITTED_BYTES_MAX
    connection_bytes_max: Annotated[
        int, Meta(ge=64 * KIB, description="requests of one connection in work; then not read from")
    ] = limits.CONNECTION_INFLIGHT_BYTES_MAX
    request_bytes_max: Annotated[
        int, Meta(ge=KIB, le=limits.REQUEST_BYTES_MAX, description="one request to a gateway")
    ] = limits.REQUEST_BYTES_MAX
    reply_bytes_max: Annotated[
        int, Meta(ge=KIB, le=limits.READ_BYTES_MAX, description="batches in one read reply")
    ] = 8 * MIB
    parked_reads_max: Annotated[
        int, Meta(ge=0, description="reads that wait at the end of a partition")
    ] = limits.PARKED_READS_MAX
    connections_max: Annotated[
        int, Meta(ge=1, le=limits.CONNECTIONS_MAX, description="client connections")
    ] = 4_096
    wait_ms_max: Annotated[
        int, Meta(ge=0, le=limits.WAIT_MS_MAX, description="longest wait a reader may ask for")
    ] = limits.WAIT_MS_MAX
    timeout_ms: Annotated[
        int, Meta(ge=1, le=limits.WAIT_MS_MAX, description="answer time of a call that names none")
    ] = limits.TIMEOUT_MS_DEFAULT
    partitions_max: Annotated[
        int, Meta(ge=1, le=limits.PARTITIONS_PER_TOPIC_MAX, description="partitions of one topic")
    ] = limits.PARTITIONS_PER_TOPIC_MAX


class LogOutputSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Log events of the process, written to standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="least level written")
    ] = "info"
    format: Annotated[
        Literal["json", "console"], Meta(description="one JSON object a line, or text for people")
    ] = "json"
    requests: Annotated[
        bool, Meta(description="write a line for every request to the HTTP port")
    ] = False
    slow_request_ms: Annotated[
        int, Meta(ge=0, description="warn of requests without an answer for so long; 0: never")
    ] = 5_000


class TelemetrySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Traces across systems (OpenTelemetry). Metrics are always at /metrics."""

    otlp_endpoint: Annotated[
        str,
        Meta(
            pattern=r"^(https?://[^/\s]+(/\S*)?)?$",
            description="http://host:port of an OTLP collector that is sent spans; empty: none",
        ),
    ] = ""


class PipelineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data pipeline. Commands read it from the environment, nodes give it to new topics."""

    archive_dir: Annotated[
        str,
        Meta(
            max_length=limits.SETTINGS_TEXT_CHARS_MAX,
            description="directory of archives, where a topic and a command name none",
        ),
    ] = ""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole tree."""

    node: NodeSettings = NodeSettings()
    listen: ListenSettings = ListenSettings()
    raft: RaftSettings = RaftSettings()
    wal: WalSettings = WalSettings()
    log: LogSettings = LogSettings()
    topics: TopicSettings = TopicSettings()
    delivery: DeliverySettings = DeliverySettings()
    limits: LimitSettings = LimitSettings()
    log_output: LogOutputSettings = LogOutputSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    pipeline: PipelineSettings = PipelineSettings()
