"""The cluster's calls as methods: topics, messages, administration.

Answers are plain JSON values except messages. Every method may raise ``RaftlineError``.
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec

from raftline.client.caller import DEFAULT_SERVER, TIMEOUT_MS, Caller, Reply
from raftline.client.messages import Message, from_json, put_bytes


class Sent(msgspec.Struct, frozen=True):
    """What became of one message: a place, or the reason why not."""

    id: str | None = None
    partition: int | None = None
    offset: int | None = None
    error: dict[str, Any] | str | None = None


class Page(msgspec.Struct, frozen=True):
    """Messages of one read and where to go on."""

    messages: list[Message]
    next_offset: int
    log_start: int
    commit_end: int


class Client:
    """Calls to a cluster through any of its nodes."""

    __slots__ = ("_caller",)

    def __init__(self, servers: str = DEFAULT_SERVER, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._caller = Caller(servers, timeout_ms=timeout_ms)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._caller.close()

    def topics(self) -> list[dict[str, Any]]:
        """Return all topics, without their partitions."""
        return self._caller.call("GET", "/v1/topics")["topics"]

    def topic(self, name: str) -> Reply:
        """Return one topic with its settings and partitions."""
        return self._caller.call("GET", _topic(name))

    def create_topic(
        self, name: str, *, partitions: int, replication_factor: int, settings: dict[str, Any]
    ) -> Reply:
        """Create a topic; 0 means the cluster's default."""
        body: dict[str, Any] = {"name": name}
        if partitions:
            body["num_partitions"] = partitions
        if replication_factor:
            body["replication_factor"] = replication_factor
        if settings:
            body["settings"] = settings
        return self._caller.call("POST", "/v1/topics", body)

    def set_topic(
        self, name: str, settings: dict[str, Any], partitions: int | None = None
    ) -> Reply:
        """Change settings of a topic, or give it more partitions."""
        body: dict[str, Any] = {"settings": settings}
        if partitions is not None:
            body["num_partitions"] = partitions
        return self._caller.call("PATCH", _topic(name), body)

    def delete_topic(self, name: str) -> Reply:
        """Delete a topic and everything in it."""
        return self._caller.call("DELETE", _topic(name))

    def send(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        key: bytes | None = None,
        partition: int | None = None,
    ) -> list[Sent]:
        """Append messages; the answer has one row for each, in order."""
        rows: list[dict[str, Any]] = []
        for value in values:
            row: dict[str, Any] = {}
            put_bytes(row, "value", value)
            if key is not None:
                put_bytes(row, "key", key)
            if partition is not None:
                row["partition"] = partition
            rows.append(row)
        reply = self._caller.call("POST", f"{_topic(topic)}/messages", {"messages": rows})
        return msgspec.convert(reply["results"], list[Sent])

    def read(
        self, topic: str, partition: int, offset: int, *, limit: int, wait_ms: int = 0
    ) -> Page:
        """Read from ``offset`` on; at the end wait up to ``wait_ms`` for more."""
        reply = self._caller.call(
            "GET",
            f"{_partition(topic, partition)}/messages",
            query={"offset": offset, "limit": limit, "wait_ms": wait_ms},
            wait_ms=wait_ms,
        )
        return Page(
            [from_json(topic, partition, row) for row in reply["messages"]],
            reply["next_offset"],
            reply.get("log_start", 0),
            reply.get("commit_end", reply["next_offset"]),
        )

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return (log_start, commit_end) of a partition's log."""
        reply = self._caller.call("GET", f"{_partition(topic, partition)}/offsets")
        return reply["log_start"], reply["commit_end"]

    def look_up_time(self, topic: str, partition: int, time_ms: int) -> tuple[int, int]:
        """Return (first offset at or after the time or -1, commit_end)."""
        reply = self._caller.call(
            "GET", f"{_partition(topic, partition)}/offsets", query={"time": time_ms}
        )
        return reply["offset"], reply["commit_end"]

    def cluster(self) -> Reply:
        """Return nodes, shards and health as the asked node sees them."""
        return self._caller.call("GET", "/v1/cluster")

    def verify(self) -> Reply:
        """Compare the digests of all replicas."""
        return self._caller.call("POST", "/v1/cluster/verify", {})

    def administer(self, verb: str, **arguments: object) -> Reply:
        """Run ``cluster.<verb>``: add, remove, replace, move, transfer, recover."""
        return self._caller.call("POST", f"/v1/cluster/{verb}", arguments)

    def health(self) -> Reply:
        """Return the node's word on itself; an unready node raises."""
        return self._caller.call("GET", "/health")


def _topic(name: str) -> str:
    return f"/v1/topics/{quote(name, safe='')}"


def _partition(topic: str, partition: int) -> str:
    return f"{_topic(topic)}/partitions/{partition}"
