"""The log as Spark's tasks read it: bounds of partitions, and ranges of stored batches.

A range is read from the node that leads its partition, or from any that has a copy. The next
reply is fetched while the last one is being opened. Where a node does not answer the leader is
looked up again, until the timeout; a copy that is behind is left for the leader.
"""

import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any
from urllib.parse import quote

import msgspec

from raftline.client import clock
from raftline.client.caller import Caller
from raftline.model.batch import split_batches
from raftline.model.errors import (
    Internal,
    OffsetOutOfRange,
    RaftlineError,
    TimedOut,
    Unavailable,
    UnknownTopic,
)
from raftline.model.names import place

BATCH = "application/vnd.raftline.batch"
PAUSE_MS = 100
BEHIND_WAIT_MS = 200  # a copy is given so long to catch up, then the leader is asked


class _Told(msgspec.Struct):
    code: str
    message: str = ""
    hint: str = ""


class _Refusal(msgspec.Struct):
    error: _Told


_decode = msgspec.json.Decoder(_Refusal).decode


class Bounds(msgspec.Struct, frozen=True):
    """What a partition's log holds: ``[log_start, commit_end)``."""

    partition: int
    log_start: int
    commit_end: int
    offset: int = -1  # first message at or after the time asked for; the end if there is none


class Log:
    """Reads logs of a cluster; made where it is used, by each task its own."""

    __slots__ = ("_any", "_caller", "_connection", "_fetch_bytes", "_host", "_timeout_ms")

    def __init__(
        self,
        servers: str,
        *,
        timeout_ms: int,
        fetch_bytes: int = 8 << 20,
        any_replica: bool = False,
    ) -> None:
        self._caller = Caller(servers, timeout_ms=timeout_ms)
        self._timeout_ms = timeout_ms
        self._fetch_bytes = fetch_bytes
        self._any = any_replica
        self._connection: http.client.HTTPConnection | None = None
        self._host = ""

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._caller.close()
        self._hang_up()

    # ------------------------------------------------------------------ asking

    def call(self, method: str, path: str, body: object = None, **query: Any) -> dict[str, Any]:
        """Make any call. Raises RaftlineError."""
        return self._caller.call(method, path, body, query=query)

    def topic(self, name: str) -> dict[str, Any]:
        """Return a topic with its settings and partitions. Raises UnknownTopic."""
        return self._caller.call("GET", topic_path(name))

    def bounds(self, topic: str, time_ms: int | None = None) -> list[Bounds]:
        """Return what the log of each partition holds now, and where a time is in it."""
        path = f"{topic_path(topic)}/offsets"
        told = self._caller.call("GET", path, query={"time": time_ms})
        return msgspec.convert(told["partitions"], list[Bounds])

    # ------------------------------------------------------------------ reading

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[bytes]:
        """Yield stored batches that cover ``[start, end)``; first and last may reach beyond.

        Raises:
            OffsetOutOfRange: the log no longer holds ``start``.
            RaftlineError: nobody answered in time, or a refusal.
        """
        if start >= end:
            return
        with ThreadPoolExecutor(1) as helper:
            coming = helper.submit(self._fetch, topic, partition, start, end)
            while coming is not None:
                batches = coming.result()
                start = next_offset(batches)
                coming = (
                    helper.submit(self._fetch, topic, partition, start, end)
                    if start < end
                    else None
                )
                yield batches

    def _fetch(self, topic: str, partition: int, offset: int, end: int) -> bytes:
        """Fetch at least one batch."""
        until_ms = clock.mono_ms() + self._timeout_ms
        from_any, wait_ms = self._any, 0
        while True:
            host = ""
            problem: RaftlineError
            try:
                host = self._host or self._find(topic, partition, from_any=from_any)
                path = _read_path(topic, partition, offset, self._fetch_bytes, wait_ms)
                found = self._get(host, path + "&any_replica=true" if from_any else path)
                if found:
                    return found
                problem = TimedOut(
                    f"nothing came for {place(topic, partition, offset)} of a range to {end}",
                    self._timeout_ms,
                )
                if wait_ms:  # this copy stays behind
                    from_any, self._host = False, ""
                wait_ms = BEHIND_WAIT_MS
            except (OSError, http.client.HTTPException) as error:
                problem = Unavailable(f"{host} does not answer: {error or type(error).__name__}")
                self._hang_up()
            except OffsetOutOfRange:
                if not from_any:
                    raise
                from_any, self._host = False, ""  # a copy may be behind; the leader knows
                continue
            except RaftlineError as error:
                if not error.retry:
                    raise
                problem = error
                self._hang_up()
            if clock.mono_ms() > until_ms:
                raise problem
            if not wait_ms:
                clock.pause(PAUSE_MS)

    def _find(self, topic: str, partition: int, *, from_any: bool) -> str:
        """Return the address of the leader, or of some node with a copy."""
        told = self._caller.call("GET", "/shards-info", query={"topics": topic})
        nodes = {row["id"]: str(row.get("http", "")) for row in told["nodes"]}
        for row in told["shards"]:
            if row["topic"] != topic or row["partition"] != partition:
                continue
            wanted = [row["leader"]]
            if from_any:
                others = [one for one in row.get("replicas", []) if one != row["leader"]]
                turn = partition + (clock.wall_ms() if others else 0)
                wanted = [others[turn % len(others)], row["leader"]] if others else wanted
            for number in wanted:
                host = nodes.get(number, "").removeprefix("http://")
                if host:
                    self._host = host
                    return host
        if not any(row["topic"] == topic for row in told["shards"]):
            raise UnknownTopic(topic)
        raise Unavailable(f"{topic}/{partition} has no leader now")

    def _get(self, host: str, path: str) -> bytes:
        connection = self._connection
        if connection is None or f"{connection.host}:{connection.port}" != host:
            self._close_connection()
            name, _, port = host.rpartition(":")
            seconds = self._timeout_ms / 1000
            connection = http.client.HTTPConnection(name.strip("[]"), int(port), timeout=seconds)
            connection.blocksize = 1 << 20
            self._connection = connection
        connection.request("GET", path, headers={"Accept": BATCH})
        response = connection.getresponse()
        body = response.read()
        if response.status >= 400:
            raise _error(response.status, body, host)
        return body

    def _hang_up(self) -> None:
        self._host = ""
        self._close_connection()

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def next_offset(batches: bytes) -> int:
    """Return the offset after the last of these batches."""
    split = split_batches(batches)
    if not split:
        raise Internal("a reply without a batch")
    at = split[-1][0]
    base = int.from_bytes(batches[at : at + 8], "big")
    return base + int.from_bytes(batches[at + 23 : at + 27], "big") + 1


def _error(status: int, body: bytes, host: str) -> RaftlineError:
    try:
        told = _decode(body).error
    except msgspec.DecodeError:
        return Unavailable(f"{host} answered {status} without saying why")
    return RaftlineError.from_wire((told.code, told.message, told.hint, {}))


def topic_path(topic: str) -> str:
    """Return the path of a topic's routes."""
    return f"/v1/topics/{quote(topic, safe='')}"


def _read_path(topic: str, partition: int, offset: int, bytes_max: int, wait_ms: int) -> str:
    path = f"{topic_path(topic)}/partitions/{partition}/messages"
    return f"{path}?offset={offset}&bytes_max={bytes_max}&wait_ms={wait_ms}"
