"""Counters: what a node counts while it works, read when somebody looks.

State
    Plain numbers. Per topic what came in and was read, per work group what was delivered and
    settled, per gateway what was asked; times in buckets.

Rules
    K1  Counted once a batch, an entry or a turn, never once a message: a count is one addition.
    K2  Nothing here is replicated or saved; a process begins at 0, as Prometheus expects.
    K3  Topics and groups beyond a bound share one row, named ``OTHER``.

Costs: about 0.3 us for a time that is put into its bucket, 0.05 us for a count.
"""

from bisect import bisect_left

TOPICS_MAX = 4_096
GROUPS_MAX = 4_096
CODES_MAX = 256
OTHER = "_other"

BOUNDS_MS = (
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0,
    100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0,
)  # fmt: skip


class Times:
    """How long something took, in buckets. The last bucket is for what took longest."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0.0

    def note(self, took_ms: float, count: int = 1) -> None:
        """Count something that took so long, or ``count`` of them that took as long at most."""
        self.counts[bisect_left(BOUNDS_MS, took_ms)] += count
        self.sum_ms += took_ms * count

    @property
    def count(self) -> int:
        """Return how many were counted."""
        return sum(self.counts)


class TopicCounts:
    """Messages of one topic, as far as they went through this node."""

    __slots__ = ("bytes_delivered", "bytes_in", "bytes_read", "messages_in", "messages_read")

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = 0
        self.messages_read = self.bytes_read = 0
        self.bytes_delivered = 0


class GroupCounts:
    """What a work group was given and said, on the partitions of one topic led here."""

    __slots__ = ("delivered", "lost", "redelivered", "settled")

    def __init__(self) -> None:
        self.delivered = self.redelivered = 0
        self.settled = [0, 0, 0, 0, 0]  # by verb: ack, nack, reject, extend, release
        self.lost = 0  # settled too late: the lease had moved on


class GatewayCounts:
    """What clients asked through one gateway."""

    __slots__ = ("connections", "refused", "requests", "slow")

    def __init__(self) -> None:
        self.connections: int | None = None  # now; None: nobody counts them
        self.requests = 0
        self.slow = 0
        self.refused: dict[str, int] = {}  # by code

    def refuse(self, code: str) -> None:
        """Count a refusal."""
        if code not in self.refused and len(self.refused) >= CODES_MAX:
            code = OTHER
        self.refused[code] = self.refused.get(code, 0) + 1


class Counters:
    """Everything one node counts."""

    __slots__ = (
        "append_times",
        "campaigns",
        "elections_won",
        "gateways",
        "groups",
        "leader_changes",
        "receive_times",
        "settle_times",
        "sync_times",
        "topics",
        "turn_times",
        "wal_written_bytes",
    )

    def __init__(self) -> None:
        self.append_times = Times()
        self.receive_times = Times()
        self.settle_times = Times()
        self.sync_times = Times()
        self.turn_times = Times()
        self.wal_written_bytes = 0
        self.campaigns = self.elections_won = self.leader_changes = 0
        self.topics: dict[str, TopicCounts] = {}
        self.groups: dict[tuple[str, str], GroupCounts] = {}
        self.gateways: dict[str, GatewayCounts] = {}

    def topic(self, name: str) -> TopicCounts:
        """Return the counts of a topic; keep them, a look-up per batch is too much. K3."""
        found = self.topics.get(name)
        if found is None:
            if len(self.topics) >= TOPICS_MAX:
                name = OTHER
            found = self.topics.setdefault(name, TopicCounts())
        return found

    def group(self, topic: str, name: str) -> GroupCounts:
        """Return the counts of a work group on a topic. K3."""
        found = self.groups.get((topic, name))
        if found is None:
            if len(self.groups) >= GROUPS_MAX:
                topic = name = OTHER
            found = self.groups.setdefault((topic, name), GroupCounts())
        return found

    def gateway(self, name: str) -> GatewayCounts:
        """Return the counts of a gateway: ``http``, ``grpc``."""
        return self.gateways.setdefault(name, GatewayCounts())
