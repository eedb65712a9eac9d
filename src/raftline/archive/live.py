"""The live log as jobs and ``consume`` read it: its bounds, and stored batches as Arrow columns."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from raftline.archive.unreadable import to_arrow_anyhow
from raftline.client.caller import Caller
from raftline.client.fenced import Fenced, end_of
from raftline.model.errors import OffsetOutOfRange

LOOK_BYTES = 64 << 10
TIMEOUT_MS = 30_000


class LogRange(msgspec.Struct, frozen=True):
    """Offsets [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int


class Bounds(msgspec.Struct, frozen=True):
    """What a partition's log holds: [log_start, commit_end)."""

    partition: int
    log_start: int
    commit_end: int


class LiveLog:
    """The logs of a cluster. Traces are topics here, too: ``orders.trace``."""

    __slots__ = ("_caller", "_fenced")

    def __init__(self, servers: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._caller = Caller(servers, timeout_ms=timeout_ms)
        self._fenced = Fenced(servers, timeout_ms / 1000)

    def __enter__(self) -> "LiveLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._caller.close()
        self._fenced.close()

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return sorted(row["name"] for row in self._caller.call("GET", "/v1/topics")["topics"])

    def topic(self, name: str) -> dict[str, Any]:
        """Return a topic with its settings and partitions. Raises UnknownTopic."""
        return self._caller.call("GET", _path(name))

    def bounds(self, topic: str) -> list[Bounds]:
        """Return what the log of each partition holds."""
        numbers = [row["partition"] for row in self.topic(topic)["partitions"]]
        return [self.partition_bounds(topic, number) for number in numbers]

    def partition_bounds(self, topic: str, partition: int) -> Bounds:
        """Return what the log of one partition holds."""
        told = self._caller.call("GET", f"{_path(topic)}/partitions/{partition}/offsets")
        return Bounds(partition, told["log_start"], told["commit_end"])

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        """Return the first offset of a message at or after a time, or the end of the log."""
        path = f"{_path(topic)}/partitions/{partition}/offsets"
        told = self._caller.call("GET", path, query={"time": max(0, time_ms)})
        return told["offset"] if told["offset"] >= 0 else told["commit_end"]

    def archived_mark(self, topic: str, partition: int) -> int:
        """Return the offset up to which a partition counts as archived."""
        return self._fenced.archived_mark(topic, partition)

    def mark_archived(self, topic: str, partition: int, offset: int) -> int:
        """Say that all below ``offset`` is archived; return the mark that stands. Never lower."""
        return self._fenced.archived(topic, partition, offset)

    def read(self, piece: LogRange) -> Iterator[bytes]:
        """Yield stored batches that cover a range; the first and last may reach beyond it.

        Raises:
            OffsetOutOfRange: the log no longer holds the beginning.
            Unavailable, TimedOut: nobody answered in time.
        """
        return self._fenced.read(piece.topic, piece.partition, piece.start, piece.end)

    def read_arrow(self, piece: LogRange) -> Iterator[Any]:
        """Yield the messages of a range as Arrow record batches, in order."""
        for batches in self.read(piece):
            place_of = (piece.topic, piece.partition, piece.start, piece.end)
            yield from to_arrow_anyhow(batches, *place_of)

    def message_bytes(self, topic: str, partition: int, offset: int) -> float:
        """Return the stored size of a message about there; 1 where there is none any more."""
        look = self._fenced.read(topic, partition, offset, offset + 1, bytes_max=LOOK_BYTES)
        try:
            batches = next(look, b"")
        except OffsetOutOfRange:  # retention was faster
            batches = b""
        if not batches:
            return 1.0
        return max(1.0, len(batches) / (end_of(batches) - int.from_bytes(batches[:8], "big")))


def _path(topic: str) -> str:
    return f"/v1/topics/{quote(topic, safe='')}"
