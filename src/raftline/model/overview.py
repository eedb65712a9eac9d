"""The cluster at a glance: what each node tells of the shards it leads, and all of it together.

Told from memory, without a round of consensus: it may be a moment old, and asking wakes no shard.
"""

import msgspec


class PartitionGlance(msgspec.Struct, frozen=True, array_like=True):
    """A partition, told by its leader."""

    topic: str
    partition: int
    log_start: int
    commit_end: int
    bytes: int
    waiting: int  # messages until they are due
    dead: int  # given up on by work groups, and not redriven or purged
    dead_total: int  # ever given up on


class GroupGlance(msgspec.Struct, frozen=True, array_like=True):
    """A work group on one partition, told by the partition's leader."""

    topic: str
    partition: int
    group: str
    lag: int
    lag_ms: int  # age of the oldest message that is not settled
    leased: int
    resting: int
    dead: int
    receivers: int  # that wait for messages


class StreamGlance(msgspec.Struct, frozen=True, array_like=True):
    """A stream group, told by its coordinator."""

    group: str
    state: str
    members: int
    generation: int
    cursors: list[tuple[str, int, int, int]]  # topic, partition, offset (-1: none), age or -1


class NodeGlance(msgspec.Struct, frozen=True):
    """One node and what it leads."""

    node: int
    leads: int = 0
    replicas: int = 0
    uptime_ms: int = 0
    connections: int = 0
    free_bytes: int = -1
    total_bytes: int = -1
    wal_bytes: int = 0
    messages_in: dict[str, int] = {}  # by topic, since the process began
    messages_out: dict[str, int] = {}  # read and delivered
    partitions: list[PartitionGlance] = []
    groups: list[GroupGlance] = []
    streams: list[StreamGlance] = []


class Overview(msgspec.Struct, frozen=True):
    """What the nodes told that answered, and the numbers of those that did not."""

    nodes: list[NodeGlance]
    silent: list[int]
