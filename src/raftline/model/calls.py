"""Answers of a node's calls: what gateways, the forwarder and the client pass around."""

import msgspec

from raftline.model.errors import ErrorWire


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The batch is committed: on the disks of a majority."""

    base_offset: int
    count: int
    partition: int
    at_ms: int
    duplicate: bool = False  # an earlier send of the same sequence; base_offset is the first one's
    log_start: int = 0
    term: int = 0


class NewWaiting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that is to wait: a sealed batch of it alone, and until when."""

    batch: bytes
    due_ms: int  # log time; negative: so many milliseconds after it is stored
    priority: int = 0
    dedup: bytes = b""  # hash of its dedup key (side_car.hash_key)


class Scheduled(msgspec.Struct, frozen=True):
    """Messages wait now, each under its number; 0 for those in ``refusals``."""

    numbers: list[int]
    partition: int
    at_ms: int
    refusals: dict[int, ErrorWire] = {}  # place of a message -> why nothing of it is stored


class ReadReply(msgspec.Struct, frozen=True):
    """Whole batches from the one that holds the asked offset; empty at the end."""

    batches: bytes
    log_start: int
    commit_end: int  # exclusive: first offset not readable yet
    term: int = 0


class Looked(msgspec.Struct, frozen=True):
    """Where a moment is: -1 where no message is that late."""

    offset: int
    timestamp_ms: int
    commit_end: int


class Received(msgspec.Struct, frozen=True):
    """Messages leased to a member of a work group; without spans: there was nothing."""

    partition: int
    term: int  # with ``sequence`` the name of the lease
    sequence: int
    deadline_ms: int  # log time
    spans: list[int]  # flat runs of start, end, attempt, generation, in the order of delivery
    batches: bytes  # whole batches that hold them, and perhaps others
    at_ms: int  # log time when they were handed out


class Settled(msgspec.Struct, frozen=True):
    """Settles are committed; per settle the flat ranges whose lease had moved on.

    A call of many pieces may end in the midst: then ``failed`` has, per settle, the flat ranges
    that were not tried or of which nothing was heard, and ``error`` says why. What is in neither
    is settled.
    """

    lost: list[list[int]]
    failed: list[list[int]] = []
    error: ErrorWire | None = None


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node as the catalog knows it and as the asked node sees it."""

    id: int
    name: str
    rack: str
    peer: str
    http: str
    grpc: str
    kafka: str
    state: str  # "live" | "silent" | "leaving"
    free_bytes: int = -1
    clock_offset_ms: int = 0


class NodesView(msgspec.Struct, frozen=True):
    """The nodes of a cluster, and who is asked."""

    cluster: str
    node: int
    catalog_leader: int  # 0: nobody known
    nodes: tuple[NodeRow, ...]


class PartitionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One partition: where it lives and who leads it (0: nobody known)."""

    partition: int
    shard: int
    leader: int
    term: int
    replicas: tuple[int, ...]  # nodes, preferred leader first
    learners: tuple[int, ...] = ()
    log_start: int = -1  # -1: this node has no replica
    commit_end: int = -1
    bytes: int = -1
    archived: int = -1  # all below is archived, as this node's replica knows
    state: str = "ok"  # "ok" | "moving" | "no leader" | "quarantined: …"


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """One topic with its settings and partitions."""

    name: str
    uuid: str
    replication_factor: int
    created_ms: int
    settings: dict[str, str | int | bool]
    partitions: tuple[PartitionRow, ...]


class CatalogView(msgspec.Struct, frozen=True, kw_only=True):
    """Topics and nodes at one version of the catalog."""

    cluster: str
    version: int
    nodes: tuple[NodeRow, ...]
    topics: tuple[TopicRow, ...]


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The asked node's word on the whole cluster."""

    cluster: str
    node: int
    name: str
    ready: bool  # a catalog leader is known and this node is admitted
    reason: str  # why not ready, or what is degraded; "" when all is well
    catalog_leader: int
    catalog_version: int
    nodes: tuple[NodeRow, ...]
    shards: int
    leaderless: tuple[str, ...]  # "orders/2"
    quarantined: tuple[str, ...]
    wal_bytes: int
    free_bytes: int
    uptime_ms: int


class ReplicaDigest(msgspec.Struct, frozen=True):
    """One replica's digest of one shard at one index."""

    node: int
    log_start: int
    commit_end: int
    log: str  # chain digest over the bytes of [max log_start, commit_end)
    state: str  # digest of the machine's state
    error: str = ""


class VerifiedShard(msgspec.Struct, frozen=True):
    """One shard: what each replica answered and whether they agree."""

    name: str  # "catalog" or "orders/2"
    identical: bool
    replicas: tuple[ReplicaDigest, ...]


class Verified(msgspec.Struct, frozen=True):
    """The verdict over all shards."""

    identical: bool
    shards: tuple[VerifiedShard, ...]
