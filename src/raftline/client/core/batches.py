"""Messages on their way: what ``send`` hands back, and the requests they travel in.

A handle knows its request and its place there, nothing else: one answer settles all of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from raftline.model.batch import NO_PRODUCER
from raftline.model.errors import RaftlineError, TimedOut
from raftline.model.message import Header, NewMessage
from raftline.model.records import seal_batch

MESSAGE_BYTES = 64  # what a message weighs here besides its key, value and headers


class Sent(msgspec.Struct, frozen=True, gc=False):
    """Where a message is. A delayed one has no offset yet, and keeps its id."""

    id: str
    topic: str
    partition: int
    offset: int = -1
    is_duplicate: bool = False  # of an earlier message with the dedup key, or of an earlier attempt
    deliver_at: str = ""


class Load:
    """One request's worth of messages, and what became of them."""

    __slots__ = ("count", "deadline_ms", "error", "is_done", "is_urgent", "size_bytes", "waiters")

    def __init__(self) -> None:
        self.count: int = 0
        self.size_bytes: int = 0
        self.deadline_ms = 0.0
        self.error: RaftlineError | None = None
        self.is_done = False
        self.is_urgent = False  # somebody waits for it
        self.waiters: list[Callable[[], None]] = []

    def finish(self, error: RaftlineError | None = None) -> None:
        """Tell everybody who waits."""
        assert not self.is_done
        self.error = error
        self.is_done = True
        waiters, self.waiters = self.waiters, []
        for tell in waiters:
            tell()

    def sent(self, at: int) -> Sent | RaftlineError:
        """Return what became of the message at a place. Only when done."""
        assert self.error is not None
        return self.error


class Batch(Load):
    """Messages of one partition and priority, sealed when they are sent first."""

    __slots__ = (
        "base_offset",
        "data",
        "is_duplicate",
        "is_unknown",
        "messages",
        "number",
        "partition",
        "priority",
        "problem",
        "sequence",
        "since_ms",
        "topic",
        "tries",
    )

    def __init__(self, topic: str, partition: int, priority: int, now_ms: float) -> None:
        super().__init__()
        self.topic = topic
        self.partition = partition
        self.priority = priority
        self.since_ms = now_ms
        self.messages: list[NewMessage] = []
        self.number = 0  # order within the partition
        self.sequence = -1
        self.data: bytes | None = None
        self.base_offset = -1
        self.is_duplicate = False
        self.is_unknown = False  # an attempt may have been stored
        self.problem: RaftlineError | None = None  # of the last attempt
        self.tries = 0

    def seal(self, producer_id: int, epoch: int, sequence: int) -> bytes:
        """Seal the messages under a sequence. Raises RaftlineError."""
        self.sequence = sequence
        self.data = seal_batch(
            self.messages, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        return self.data

    def unseal(self) -> None:
        """Let it be sealed under another sequence: no attempt was stored."""
        self.data = None
        self.sequence = NO_PRODUCER
        self.is_unknown = False

    def finish(self, error: RaftlineError | None = None) -> None:
        """Drop the messages and tell everybody who waits."""
        self.messages = []
        self.data = None
        super().finish(error)

    def sent(self, at: int) -> Sent | RaftlineError:
        """Return what became of the message at a place."""
        if self.error is not None:
            return self.error
        offset = self.base_offset + at
        name = message_id(self.topic, self.partition, offset)
        return Sent(name, self.topic, self.partition, offset, self.is_duplicate)


class Items(Load):
    """Messages with wishes of their own (delay, dedup key), sent as JSON."""

    __slots__ = ("keys", "results", "rows", "topic")

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self.keys: set[bytes] = set()  # of messages that have one
        self.rows: list[dict[str, Any]] = []
        self.results: list[Sent | RaftlineError] = []

    def add(
        self, row: dict[str, Any], key: bytes | None, size_bytes: int, deadline_ms: float
    ) -> int:
        """Take a message; return its place."""
        at = self.count
        if key is not None:
            self.keys.add(key)
        self.deadline_ms = min(self.deadline_ms, deadline_ms) if at else deadline_ms
        self.rows.append(row)
        self.size_bytes += size_bytes
        self.count = at + 1
        return at

    def finish(self, error: RaftlineError | None = None) -> None:
        """Drop the messages and tell everybody who waits."""
        self.rows = []
        super().finish(error)

    def hear(self, at: int, outcome: Sent | RaftlineError) -> None:
        """Note what an attempt was answered. A refusal does not end the doubt of an earlier one."""
        if isinstance(outcome, Sent) or not isinstance(self.results[at], TimedOut):
            self.results[at] = outcome

    def sent(self, at: int) -> Sent | RaftlineError:
        """Return what became of the message at a place."""
        return self.error if self.error is not None else self.results[at]


class Handle(msgspec.Struct, gc=False, eq=False):
    """A message on its way. The shells say how to wait for it.

    There may be hundreds of thousands: the garbage collector is not to look at each of them.
    """

    load: Load | None = None  # not before the core took it in
    at: int = 0

    @property
    def is_done(self) -> bool:
        """Say whether it is known what became of the message."""
        load = self.load
        return load is not None and load.is_done

    def outcome(self) -> Sent:
        """Return where the message is. Only when done. Raises RaftlineError."""
        assert self.load is not None
        found = self.load.sent(self.at)
        if isinstance(found, RaftlineError):
            raise found
        return found


def message_id(topic: str, partition: int, offset: int) -> str:
    """Return the id of the message at ``topic/partition@offset``, as every gateway writes it."""
    return f"{topic}.{partition}.{offset}"


def known_id(topic: str, partition: int, offset: int, waited: bytes | None) -> str:
    """Return the id its sender knows: one that waited keeps that (``raftline-id``), no other's."""
    text = (waited or b"").decode("utf-8", "replace")
    is_own = text.startswith(f"{topic}.{partition}.w")
    return text if is_own else message_id(topic, partition, offset)


def size_of(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Return about how many bytes a message takes here and in a batch."""
    size = MESSAGE_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    if headers:
        size += sum(len(name) + len(content or b"") + 10 for name, content in headers)
    return size
