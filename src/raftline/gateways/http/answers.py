"""What the native routes answer, as structs: for the document of all routes (openapi.py).

Handlers put their answers together as it suits them; that they fit these is tested with requests
of every kind (tests/conformance/http, tests/cluster/test_schema.py).
"""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from raftline.gateways.http.items import HeaderValues, ReadItem
from raftline.model.calls import NodeRow, PartitionRow, TopicRow

Error = dict[str, Any] | None
Places = dict[str, list[int]]


class PublishResult(msgspec.Struct):
    """What became of one message, or of one sealed batch (``base_offset`` and ``count``)."""

    id: str | UnsetType | None = UNSET
    partition: int | UnsetType | None = UNSET
    offset: int | UnsetType | None = UNSET
    error: Error | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    delayed: bool | UnsetType = UNSET
    deliverAt: str | UnsetType = UNSET  # noqa: N815
    base_offset: int | UnsetType = UNSET
    count: int | UnsetType = UNSET


class PublishAnswer(msgspec.Struct):
    """One result a message, or a batch where batches were sent."""

    results: list[PublishResult]


class ReadAnswer(msgspec.Struct):
    """Messages, and where to go on."""

    messages: list[ReadItem]
    next_offset: int
    log_start: int
    commit_end: int


class OffsetsAnswer(msgspec.Struct):
    """A place in the log, or its bounds."""

    commit_end: int
    offset: int | UnsetType = UNSET
    timestamp: int | UnsetType = UNSET
    log_start: int | UnsetType = UNSET


class SettleResult(msgspec.Struct):
    """What became of one token."""

    lease_token: str
    error: Error


class SettleAnswer(msgspec.Struct):
    """How many were settled; one verdict a token where several were named."""

    settled: int
    results: list[SettleResult] | UnsetType = UNSET
    success: bool | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET


class RangesAnswer(msgspec.Struct):
    """Per settle the ranges whose lease had moved on."""

    lost: list[list[int]]


class LettersAnswer(msgspec.Struct):
    """Dead letters, plain or as envelopes; ``next`` is the ``after`` of the next page."""

    letters: list[dict[str, Any]]
    next: str | None


class Skipped(msgspec.Struct):
    """A letter that was left alone."""

    id: str
    why: str


class WorkAnswer(msgspec.Struct):
    """What a redrive or a purge did."""

    matched: int
    skipped: list[Skipped]
    next: str | None
    dry_run: bool
    redriven: int | UnsetType = UNSET
    purged: int | UnsetType = UNSET


class WaitingRow(msgspec.Struct):
    """One waiting message in a list."""

    id: str
    partition: int
    number: int
    deliverAt: str  # noqa: N815
    due_ms: int
    in_ms: int
    priority: int


class WaitingList(msgspec.Struct):
    """Waiting messages in the order they are due."""

    messages: list[WaitingRow]
    count: int
    next: str | None


class WaitingAnswer(msgspec.Struct):
    """One message that waits or waited."""

    id: str
    partition: int
    number: int
    state: str
    offset: int | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    deliverAt: str | UnsetType = UNSET  # noqa: N815
    due_ms: int | UnsetType = UNSET
    in_ms: int | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    timestamp: int | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    value: str | UnsetType | None = UNSET
    headers: dict[str, HeaderValues] | UnsetType = UNSET


class CancelAnswer(msgspec.Struct):
    """It is never delivered."""

    id: str
    cancelled: bool


class MoveAnswer(msgspec.Struct):
    """When it is due now."""

    id: str
    deliverAt: str  # noqa: N815
    due_ms: int


class WaitingCounts(msgspec.Struct):
    """Delayed messages of a topic."""

    topic: str
    waiting: int
    released: int
    cancelled: int
    scheduled: int
    bytes: int
    next_deliverAt: str | None  # noqa: N815
    partitions: list[dict[str, Any]]


class TraceAnswer(msgspec.Struct):
    """Everything that happened to a message."""

    id: str
    topic: str
    partition: int
    offset: int
    groups: dict[str, str]
    attempts: dict[str, int]
    latencies_ms: dict[str, dict[str, int]]
    timeline: list[dict[str, Any]]
    traced: bool
    complete: bool


class SearchAnswer(msgspec.Struct):
    """Messages that were found; ``next`` has the ``after`` of the next page."""

    messages: list[dict[str, Any]]
    complete: bool
    next: str | None


class MemberAnswer(msgspec.Struct):
    """A member's own place in its group."""

    member_id: str
    generation: int
    state: str
    partitions: Places
    revoke: Places
    members: int


class LeaveAnswer(msgspec.Struct):
    """It left."""

    member_id: str
    generation: int


class CommitAnswer(msgspec.Struct):
    """Cursors that moved, and those that are not the member's."""

    committed: int
    refused: Places


class OffsetsOfGroup(msgspec.Struct):
    """The cursors of a stream group."""

    group: str
    offsets: dict[str, dict[int, dict[str, Any]]]


class ResetAnswer(msgspec.Struct):
    """Where the group goes on, or would."""

    group: str
    kind: str
    dry_run: bool
    partitions: list[dict[str, Any]]


class GroupsAnswer(msgspec.Struct):
    """Groups of both kinds."""

    groups: list[dict[str, Any]]


class GroupAnswer(msgspec.Struct):
    """A group: its stream side, and its work side by topic."""

    group: str
    stream: dict[str, Any] | None
    work: dict[str, list[dict[str, Any]]]


class GroupDeleted(msgspec.Struct):
    """It is forgotten."""

    group: str
    deleted: bool
    work_partitions: int


class TopicSummary(msgspec.Struct):
    """A topic in a list."""

    name: str
    uuid: str
    num_partitions: int
    replication_factor: int
    created_ms: int
    settings: dict[str, str | int | bool]


class TopicsAnswer(msgspec.Struct):
    """All topics."""

    topics: list[TopicSummary]


class TopicAnswer(TopicSummary):
    """A topic and where its partitions live."""

    partitions: list[PartitionRow]


class TopicCreated(msgspec.Struct):
    """It is there."""

    name: str
    created: bool
    partitions: int
    Name: str
    NumberOfPartitions: int


class TopicDeleted(msgspec.Struct):
    """It is gone."""

    name: str
    deleted: bool


class PartitionsAnswer(msgspec.Struct):
    """Where the partitions of a topic live."""

    topic: str
    partitions: list[PartitionRow]
    configuredPartitions: int  # noqa: N815
    partitionKeyStrategy: str  # noqa: N815
    activePartitions: list[dict[str, int]]  # noqa: N815


class ProducerAnswer(msgspec.Struct):
    """An id for sends that may be repeated."""

    producer_id: int
    epoch: int


class HealthAnswer(msgspec.Struct):
    """Whether a node takes work; 503 if not."""

    status: str
    reason: str
    node: int
    name: str
    leader: str | None
    timestamp: str
    uptime_ms: int


class ClusterAnswer(msgspec.Struct):
    """A node's word on the whole cluster."""

    cluster: str
    node: int
    name: str
    ready: bool
    reason: str
    catalog_leader: int
    nodes: list[NodeRow]
    topics: list[TopicRow]


class StagedAnswer(msgspec.Struct):
    """Whether a chunk is kept; ``already``: its batch is published, nothing was kept."""

    staged: bool
    already: bool


class PublishedAnswer(msgspec.Struct):
    """What came of a batch: where it begins (-1: nowhere), how many messages, and not."""

    offset: int
    count: int
    waiting: int
    duplicates: int
    already: bool


class LeasedAnswer(msgspec.Struct):
    """What a query holds under its number, as ranges of offsets, and what of that is lost."""

    n: int
    ranges: list[list[int]]
    lost: list[list[int]]
    count: int


class HeldAnswer(msgspec.Struct):
    """The number a query stands at (-1: none is known), and what it holds under it."""

    n: int
    ranges: list[list[int]]
    lost: list[list[int]]
    acked: bool


class AckedAnswer(msgspec.Struct):
    """How many messages were acked."""

    acked: int


class RejectedAnswer(msgspec.Struct):
    """How many messages are given up on."""

    rejected: int


class ReleasedAnswer(msgspec.Struct):
    """How many messages were given back."""

    released: int


class DroppedAnswer(msgspec.Struct):
    """How many staged chunks are gone."""

    dropped: int


class FenceAnswer(msgspec.Struct):
    """The last batch of a query that is published (-1: none), and what it has staged."""

    fence: int
    chunks: int
    bytes: int
    publishing: bool


class ArchivedAnswer(msgspec.Struct):
    """Everything below is archived."""

    archived: int


class TrimmedAnswer(msgspec.Struct):
    """Where the log starts now."""

    log_start: int


class BoundsRow(msgspec.Struct):
    """Where a partition begins and ends, and the place of the time that was asked for."""

    partition: int
    log_start: int
    commit_end: int
    archived: int
    offset: int  # of the first message at or after the time, commit_end if there is none; or -1
    timestamp: int


class BoundsAnswer(msgspec.Struct):
    """The bounds of all partitions."""

    topic: str
    partitions: list[BoundsRow]


class ShardsAnswer(msgspec.Struct):
    """Who leads and who holds each partition; below in the words of sreekar2307/queue."""

    shards: list[dict[str, Any]]
    nodes: list[NodeRow]
    shardInfo: dict[str, dict[str, Any]]  # noqa: N815
    brokers: list[dict[str, Any]]
    leader: dict[str, Any] | None
