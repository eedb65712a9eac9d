"""The history of the work queue: what producers, workers and schedulers did and were told.

Every call is an ``Op`` of the ``History``; its details are here, by the op's number. A message is
known by its *number*, which its value begins with (``b"job 17 ..."``): batches are built anew when
waiting messages are released, so bodies do not come back as they were sent.

Times: ``invoked_ms`` and ``ended_ms`` of an op are the client's; ``at_ms``, ``due_ms`` and
``deadline_ms`` are log time of the partition.
"""

import msgspec

from raftline.testing.history import History, Op

UNKNOWN_NUMBER = -1

Grantee = tuple[str, int, str, int, int, int]  # topic, partition, group, term, sequence, offset


class Sent(msgspec.Struct, kw_only=True):
    """One message that a producer sent, and what it was told."""

    op: int
    number: int
    topic: str
    partition: int
    key: bytes | None = None
    priority: int = 0
    dedup_key: str = ""
    delay_ms: int = 0
    # the answer
    offset: int = -1  # -1 too where it waits
    waiting: int = -1  # the number of a waiting message
    due_ms: int = 0
    duplicate: bool = False  # offset or waiting is the first one's


class Item(msgspec.Struct, frozen=True):
    """One message as a worker got it."""

    offset: int
    attempt: int
    generation: int
    number: int


class Delivery(msgspec.Struct, kw_only=True):
    """One receive that brought something: a lease on its items."""

    op: int
    topic: str
    partition: int
    group: str
    member: str
    term: int
    sequence: int
    at_ms: int
    deadline_ms: int
    items: tuple[Item, ...]
    ordered: bool = False

    @property
    def lease(self) -> tuple[int, int]:
        """Return the name of the lease."""
        return (self.term, self.sequence)


class Settlement(msgspec.Struct, kw_only=True):
    """One settle of some messages of a lease."""

    op: int
    topic: str
    partition: int
    group: str
    verb: str  # "ack" | "nack" | "reject" | "extend"
    term: int
    sequence: int
    attempt: int
    generation: int
    offsets: tuple[int, ...]
    lost: tuple[int, ...] = ()  # offsets whose lease had moved on, as answered

    @property
    def lease(self) -> tuple[int, int]:
        """Return the name of the lease."""
        return (self.term, self.sequence)


class Change(msgspec.Struct, kw_only=True):
    """A waiting message was cancelled or moved, if ``done``."""

    op: int
    topic: str
    partition: int
    verb: str  # "cancel" | "move"
    waiting: int
    number: int
    due_ms: int = 0
    done: bool = False


class Redrive(msgspec.Struct, kw_only=True):
    """Dead messages were asked to be delivered again (or purged)."""

    op: int
    topic: str
    group: str  # "": of all
    verb: str  # "redrive" | "purge"


class Stored(msgspec.Struct, frozen=True):
    """One message of the log, read at the end."""

    offset: int
    number: int
    key: bytes | None = None


class DeadLetter(msgspec.Struct, frozen=True):
    """One message of the dead-letter topic, read at the end."""

    topic: str  # where it came from
    partition: int
    group: str
    offset: int
    generation: int
    attempts: int
    number: int


class Left(msgspec.Struct, frozen=True):
    """A message that a group still owes somebody after the workers had drained it."""

    topic: str
    partition: int
    group: str
    offset: int
    state: str
    attempts: int
    delivered: bool  # at least once


class QueueFinal(msgspec.Struct, kw_only=True):
    """What was found after the faults had ended and the workers had drained the groups."""

    logs: dict[str, tuple[Stored, ...]] = {}  # by "topic/partition"
    ever: dict[str, tuple[Stored, ...]] = {}  # the same, with what was trimmed since
    log_starts: dict[str, int] = {}
    letters: tuple[DeadLetter, ...] = ()
    left: tuple[Left, ...] = ()
    waiting: tuple[str, ...] = ()  # waiting messages that should have been released
    granted: dict[Grantee, bool] = {}  # leases that the committed log gave
    clocks_are_true: bool = False  # nobody's time of day was ever wrong


class QueueHistory:
    """Details of the queue's calls, beside the ops of the ``History``."""

    __slots__ = (
        "changes", "deliveries", "history", "numbers", "redrives", "sends", "settlements",
    )  # fmt: skip

    def __init__(self, history: History) -> None:
        self.history = history
        self.numbers = 0
        self.sends: list[Sent] = []
        self.deliveries: list[Delivery] = []
        self.settlements: list[Settlement] = []
        self.changes: list[Change] = []
        self.redrives: list[Redrive] = []

    def op(self, number: int) -> Op:
        """Return the call with this number."""
        return self.history.ops[number]

    def next_value(self, padding: int = 0) -> tuple[int, bytes]:
        """Return the number of a new message and its value."""
        self.numbers += 1
        return self.numbers, b"job %d " % self.numbers + b"x" * padding

    def sent(self) -> dict[int, Sent]:
        """Return the sends by message number."""
        return {sent.number: sent for sent in self.sends}

    def counts(self) -> dict[str, int]:
        """Return how much of what was done."""
        counts = {"jobs": len(self.sends), "deliveries": 0, "redeliveries": 0, "lost": 0}
        for delivery in self.deliveries:
            counts["deliveries"] += len(delivery.items)
            counts["redeliveries"] += sum(1 for item in delivery.items if item.attempt > 1)
        for settlement in self.settlements:
            counts["lost"] += len(settlement.lost)
            if self.op(settlement.op).outcome == "ok":
                done = len(settlement.offsets) - len(settlement.lost)
                counts[settlement.verb] = counts.get(settlement.verb, 0) + done
        return counts


def number_of(value: bytes | None) -> int:
    """Return the number of a message by its value; ``UNKNOWN_NUMBER`` if nobody sent that."""
    words = (value or b"").split(b" ", 2)
    if len(words) < 2 or words[0] != b"job" or not words[1].isdigit():
        return UNKNOWN_NUMBER
    return int(words[1])
