"""The live log as jobs and ``consume`` read it: its bounds, and stored batches as Arrow columns.

A range is read from the node that leads its partition; where that one does not answer, any other
is asked, which forwards. Reads change nothing, so they are repeated until the time is up.
"""

import contextlib
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from raftline.archive.unreadable import to_arrow_anyhow
from raftline.client import clock
from raftline.client.caller import Caller, parse_servers
from raftline.client.core.ports import BATCH
from raftline.model.errors import Internal, RaftlineError, TimedOut, Unavailable
from raftline.model.names import place

READ_BYTES = 8 << 20
LOOK_BYTES = 64 << 10
TIMEOUT_MS = 30_000
PAUSE_MS = 100


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
    """The logs of a cluster."""

    __slots__ = ("_caller", "_connection", "_hosts", "_servers", "_timeout_ms")

    def __init__(self, servers: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._servers = [f"{host}:{port}" for host, port in parse_servers(servers)]
        self._caller = Caller(servers, timeout_ms=timeout_ms)
        self._connection: http.client.HTTPConnection | None = None
        self._hosts: dict[tuple[str, int], str] = {}  # who leads a partition
        self._timeout_ms = timeout_ms

    def __enter__(self) -> "LiveLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._caller.close()
        self._hang_up()

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

    def mark_archived(self, topic: str, partition: int, offset: int) -> int:
        """Say that all below ``offset`` is archived; return the mark that stands. Never lower."""
        path = f"{_path(topic)}/partitions/{partition}/archived"
        until_ms = clock.mono_ms() + self._timeout_ms
        while True:
            try:
                return int(self._caller.call("POST", path, {"offset": offset})["archived"])
            except TimedOut:  # marking again changes nothing
                if clock.mono_ms() > until_ms:
                    raise

    def read(self, piece: LogRange) -> Iterator[bytes]:
        """Yield stored batches that cover a range; the first and last may reach beyond it.

        Raises:
            OffsetOutOfRange: the log no longer holds the beginning.
            Unavailable, TimedOut: nobody answered in time.
        """
        offset = piece.start
        while offset < piece.end:
            batches = self._fetch(piece.topic, piece.partition, offset)
            offset = next_offset(batches)
            if offset < 0:
                raise Internal(
                    f"nothing is at {place(piece.topic, piece.partition, piece.start)}, though the"
                    f" log was said to reach {piece.end}"
                )
            yield batches

    def read_arrow(self, piece: LogRange) -> Iterator[Any]:
        """Yield the messages of a range as Arrow record batches, in order."""
        for batches in self.read(piece):
            place_of = (piece.topic, piece.partition, piece.start, piece.end)
            yield from to_arrow_anyhow(batches, *place_of)

    def message_bytes(self, topic: str, partition: int, offset: int) -> float:
        """Return the stored size of a message about there; 1 where there is none."""
        batches = self._fetch(topic, partition, offset, LOOK_BYTES)
        end = next_offset(batches)
        first = int.from_bytes(batches[:8], "big")
        return max(1.0, len(batches) / (end - first)) if end > first else 1.0

    def _fetch(self, topic: str, partition: int, offset: int, bytes_max: int = READ_BYTES) -> bytes:
        path = f"{_path(topic)}/partitions/{partition}/messages"
        path = f"{path}?offset={offset}&bytes_max={bytes_max}"
        until_ms = clock.mono_ms() + self._timeout_ms
        while True:
            host = self._host(topic, partition)
            try:
                return self._get(host, path)
            except (OSError, http.client.HTTPException) as error:
                problem: RaftlineError = Unavailable(f"{host} does not answer: {error}")
            except RaftlineError as error:
                if not error.retry:
                    raise
                problem = error
            self._hang_up()
            self._hosts.clear()
            self._servers.append(self._servers.pop(0))
            if clock.mono_ms() > until_ms:
                raise problem
            clock.pause(PAUSE_MS)

    def _host(self, topic: str, partition: int) -> str:
        """Return the node that leads a partition, or any."""
        if (topic, partition) not in self._hosts:
            with contextlib.suppress(RaftlineError):
                told = self._caller.call("GET", "/shards-info", query={"topics": topic})
                nodes = {row["id"]: row.get("http", "") for row in told["nodes"]}
                for row in told["shards"]:
                    host = nodes.get(row["leader"], "").removeprefix("http://")
                    self._hosts[row["topic"], row["partition"]] = host or self._servers[0]
        return self._hosts.get((topic, partition), self._servers[0])

    def _get(self, host: str, path: str) -> bytes:
        connection = self._connection
        if connection is None or f"{connection.host}:{connection.port}" != host:
            self._hang_up()
            name, _, port = host.rpartition(":")
            seconds = self._timeout_ms / 1000
            connection = http.client.HTTPConnection(name.strip("[]"), int(port), timeout=seconds)
            self._connection = connection
        connection.request("GET", path, headers={"Accept": BATCH})
        response = connection.getresponse()
        body = response.read()
        if response.status >= 400:
            raise _error(response.status, body, host)
        return body

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def next_offset(batches: bytes) -> int:
    """Return the offset after the last of these batches; -1 if there is none."""
    at, found = 0, -1
    while at + 61 <= len(batches):
        length = int.from_bytes(batches[at + 8 : at + 12], "big") + 12
        base = int.from_bytes(batches[at : at + 8], "big")
        found = base + int.from_bytes(batches[at + 23 : at + 27], "big") + 1
        at += length
    return found


def _error(status: int, body: bytes, host: str) -> RaftlineError:
    with contextlib.suppress(ValueError, TypeError, KeyError):
        told = json.loads(body)["error"]
        return RaftlineError.from_wire((told["code"], told["message"], told.get("hint", ""), {}))
    return Internal(f"{host} answered {status} without saying why")


def _path(topic: str) -> str:
    return f"/v1/topics/{quote(topic, safe='')}"
