"""What jobs ask of a cluster: staged writes, query leases, the archived mark, reads of ranges.

One call at a time, no threads, no loop: made in each task and in the driver of a Spark job. Every
call may be repeated without harm, and is, until its time is up::

    with Fenced("http://127.0.0.1:8080") as fenced:
        fenced.stage("orders", 0, "q1", batch=7, task=0, attempt=3, chunk=0, payload=sealed)
        fenced.publish("orders", 0, "q1", 7, [(0, 3, 1)])

Rules
    F1  A partition's leader is asked first; a node that did not answer is left alone for a while,
        and any other one is asked: it forwards.
    F2  A call ends by its deadline: with the last refusal, or ``TimedOut``. A refusal that will not
        pass by itself is raised at once.
    F3  Where no node listens at all, the caller hears it after ``PATIENCE_MS``.

The routes are in docs/protocols/http.md, "Jobs".
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from raftline.client.fenced_calls import BATCH, JSON, FencedCalls, Reply
from raftline.model.batch import split_batches
from raftline.model.errors import InvalidArgument, LeaseLost, OffsetOutOfRange, TimedOut

STAGE = "application/vnd.raftline.stage"
READ_BYTES = 8 << 20
READ_WAIT_MS = 1_000  # for a replica that is behind

Ranges = list[tuple[int, int]]


class Staged(msgspec.Struct, frozen=True):
    """What became of a chunk; ``already``: its batch is published, nothing was kept."""

    already: bool


class Published(msgspec.Struct, frozen=True):
    """What came of a batch in one partition."""

    offset: int  # of its first message; -1: none went into the log
    count: int  # messages put into the log
    already: bool  # it was published before
    waiting: int = 0  # messages that wait for their time
    duplicates: int = 0  # left out: their dedup key is remembered


class Held(msgspec.Struct, frozen=True):
    """What a query holds of a group in one partition."""

    n: int
    ranges: Ranges
    acked: bool
    lost: Ranges = []


class Bounds(msgspec.Struct, frozen=True):
    """Where one partition begins and ends."""

    partition: int
    log_start: int
    commit_end: int
    archived: int = 0
    offset: int = -1  # first message at or after the time asked for; commit_end if there is none
    timestamp: int = -1


class Fenced:
    """Calls of jobs to one cluster."""

    __slots__ = ("_calls",)

    def __init__(
        self, servers: Sequence[str] | str, timeout_s: float = 30.0, *, turn: int = 0
    ) -> None:
        """``turn``: which of the nodes is asked first where any will do."""
        self._calls = FencedCalls(servers, timeout_s, turn)

    def __enter__(self) -> "Fenced":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._calls.close()

    # ------------------------------------------------------------------ staged writes

    def stage(
        self,
        topic: str,
        partition: int,
        query: str,
        batch: int,
        task: int,
        attempt: int,
        chunk: int,
        payload: bytes,
        *,
        priorities: Sequence[tuple[int, int, int]] = (),
        dedup: Sequence[tuple[int, bytes]] = (),
        dues_ms: Sequence[int] = (),
    ) -> Staged:
        """Keep one sealed batch, invisible until its batch number is published.

        ``priorities``: (first, end, priority) of places in the batch. ``dedup``: (place, key).
        ``dues_ms``: one a message, then all of them wait for it; or none.
        """
        keys = {"batch": batch, "task": task, "attempt": attempt, "chunk": chunk}
        body, kind = payload, BATCH
        if priorities or dedup or dues_ms:
            extras = msgspec.msgpack.encode(
                {
                    "priorities": list(priorities),
                    "dedup": [(place, bytes(key)) for place, key in dedup],
                    "dues_ms": list(dues_ms),
                }
            )
            body, kind = b"".join((len(extras).to_bytes(4, "big"), extras, payload)), STAGE
        path = f"{_one(topic, partition)}/stage?{urlencode({'query': query, **keys})}"
        reply = self._calls.call("PUT", path, (topic, partition), body, kind)
        return Staged(reply.json()["already"])

    def publish(
        self,
        topic: str,
        partition: int,
        query: str,
        batch: int,
        winners: Sequence[tuple[int, int, int]],
        *,
        after: int | None = None,
    ) -> Published:
        """Put the chunks that count into the log, once: (task, attempt, chunks it staged here).

        ``after``: the batch that was published last (-1: none). Raises FencedQuery if another was.
        """
        body: dict[str, Any] = {"query": query, "batch": batch, "winners": [*map(list, winners)]}
        if after is not None:
            body["after"] = after
        return msgspec.convert(self._post(topic, partition, "publish", body), Published)

    def abandon(self, topic: str, partition: int, query: str, batch: int) -> int:
        """Drop what a query staged, up to and with a batch; return how many chunks."""
        return self._post(topic, partition, "abandon", {"query": query, "batch": batch})["dropped"]

    def forget(self, topic: str, partition: int, query: str) -> None:
        """Drop what a query staged, and its fence."""
        self._post(topic, partition, "forget", {"query": query})

    def fence(self, topic: str, partition: int, query: str) -> int:
        """Return the last batch of a query that is published; -1: none."""
        path = f"{_one(topic, partition)}/fence?{urlencode({'query': query})}"
        return self._calls.call("GET", path, (topic, partition)).json()["fence"]

    # ------------------------------------------------------------------ query leases

    def lease(
        self,
        topic: str,
        partition: int,
        group: str,
        query: str,
        n: int,
        count_max: int,
        *,
        wait_ms: int = 0,
        ordered: bool = False,
        start: str = "first",
        allow_lost: bool = False,
    ) -> Ranges:
        """Lease messages under number n, or those that n has; acks n - 1.

        Raises:
            FencedQuery: the query stands at another number.
            LeaseLost: part of what n had ran out, unless ``allow_lost``.
        """
        body = {
            "query": query,
            "n": n,
            "count": count_max,
            "wait": wait_ms,
            "ordered": ordered,
            "start": start,
        }
        answer = self._post(topic, partition, _lease(group), body, wait_ms=wait_ms)
        lost = _ranges(answer["lost"])
        if lost and not allow_lost:
            where = f"{topic}/{partition}@{lost[0][0]} (number {n} of query {query!r})"
            raise LeaseLost(where)
        return _ranges(answer["ranges"])

    def held(self, topic: str, partition: int, group: str, query: str) -> Held | None:
        """Return what a query holds; None if nothing is known of it. Changes nothing."""
        path = f"{_one(topic, partition)}/{_lease(group)}?{urlencode({'query': query})}"
        answer = self._calls.call("GET", path, (topic, partition)).json()
        return msgspec.convert(answer, Held) if answer["n"] >= 0 else None

    def ack(self, topic: str, partition: int, group: str, query: str, n: int) -> int:
        """Ack what a query holds under n or a lower number; return how many messages."""
        path = f"{_lease(group)}/ack"
        return self._post(topic, partition, path, {"query": query, "n": n})["acked"]

    def reject(
        self,
        topic: str,
        partition: int,
        group: str,
        query: str,
        n: int,
        ranges: Sequence[tuple[int, int]],
        reason: str,
    ) -> int:
        """Make dead letters of messages that n holds; return how many are so since this call."""
        body = {"query": query, "n": n, "ranges": [list(r) for r in ranges], "reason": reason}
        return self._post(topic, partition, f"{_lease(group)}/reject", body)["rejected"]

    def release(self, topic: str, partition: int, group: str, query: str) -> int:
        """Give back what a query holds and forget it; return how many messages."""
        path = f"{_lease(group)}/release"
        return self._post(topic, partition, path, {"query": query})["released"]

    # ------------------------------------------------------------------ the archived mark

    def archived(self, topic: str, partition: int, offset: int) -> int:
        """Note that everything below ``offset`` is archived; return the mark that stands."""
        return self._post(topic, partition, "archived", {"offset": offset})["archived"]

    def archived_mark(self, topic: str, partition: int) -> int:
        """Return up to where a partition is archived; 0: nothing is."""
        path = f"{_one(topic, partition)}/archived"
        return self._calls.call("GET", path, (topic, partition)).json()["archived"]

    def trim(self, topic: str, partition: int, offset: int) -> int:
        """Remove messages below ``offset``; return where the log starts. Raises NotArchived."""
        return self._post(topic, partition, "trim", {"offset": offset})["log_start"]

    # ------------------------------------------------------------------ topics and reading

    def topic(self, topic: str) -> dict[str, Any]:
        """Return a topic with its settings and partitions. Raises UnknownTopic."""
        return self._calls.call("GET", _topic(topic), (topic, -1)).json()

    def ensure_topic(self, topic: str) -> dict[str, Any]:
        """Return a topic; where it is not there it is created as a first publish does."""
        return self._calls.call("PUT", _topic(topic), (topic, -1)).json()

    def bounds(self, topic: str, time_ms: int | None = None) -> list[Bounds]:
        """Return where every partition begins and ends, and where a time is."""
        path = f"{_topic(topic)}/offsets" + ("" if time_ms is None else f"?time={time_ms}")
        rows = self._calls.call("GET", path, (topic, -1)).json()["partitions"]
        return msgspec.convert(rows, list[Bounds])

    def group(self, group: str, topic: str) -> dict[str, Any]:
        """Return how a group stands in a topic. Raises UnknownGroup."""
        path = f"/v1/groups/{quote(group, safe='')}?{urlencode({'topic': topic})}"
        return self._calls.call("GET", path, (topic, -1)).json()

    def commit(self, group: str, topic: str, cursors: Mapping[int, int]) -> None:
        """Move cursors of a stream group that has no members: a stream's progress for people."""
        offsets = {topic: {str(partition): offset for partition, offset in cursors.items()}}
        path = f"/v1/groups/{quote(group, safe='')}/offsets"
        body = msgspec.json.encode({"offsets": offsets})
        self._calls.call("POST", path, (topic, -1), body, JSON)

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        bytes_max: int = READ_BYTES,
        any_replica: bool = False,
    ) -> Iterator[bytes]:
        """Yield stored batches, many at a time, that hold the messages ``[start, end)``.

        The first batch may begin below ``start`` and the last may end above ``end``.

        Raises:
            OffsetOutOfRange: ``start`` is below where the log starts.
            TimedOut: ``end`` did not come in time.
        """
        waited_ms = 0
        while start < end:
            try:
                reply = self._read(topic, partition, start, end, bytes_max, waited_ms, any_replica)
            except OffsetOutOfRange:
                if not any_replica:
                    raise
                any_replica = False  # it may be behind; the leader knows
                continue
            if reply.body:
                waited_ms = 0
                start = max(start, end_of(reply.body))
                yield reply.body
                continue
            any_replica = False  # it may be behind
            if waited_ms >= self._calls.timeout_ms:
                what = f"messages of {topic}/{partition} from {start} to {end}"
                raise TimedOut(what, int(self._calls.timeout_ms))
            waited_ms += READ_WAIT_MS

    def _read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        bytes_max: int,
        waited_ms: int,
        any_replica: bool,  # noqa: FBT001
    ) -> Reply:
        wanted: dict[str, int | str] = {"offset": start, "end_offset": end, "bytes_max": bytes_max}
        if waited_ms:
            wanted["wait_ms"] = READ_WAIT_MS
        if any_replica:
            wanted["any_replica"] = "true"
        path = f"{_one(topic, partition)}/messages?{urlencode(wanted)}"
        place = (topic, partition)
        return self._calls.call("GET", path, place, accept=BATCH, is_any=any_replica)

    def _post(
        self, topic: str, partition: int, path: str, body: dict[str, Any], *, wait_ms: int = 0
    ) -> dict[str, Any]:
        data = msgspec.json.encode(body)
        path = f"{_one(topic, partition)}/{path}"
        return self._calls.call(
            "POST", path, (topic, partition), data, JSON, wait_ms=wait_ms
        ).json()


def _topic(name: str) -> str:
    if not name:
        raise InvalidArgument("no topic is named")
    return f"/v1/topics/{quote(name, safe='')}"


def _one(topic: str, partition: int) -> str:
    return f"{_topic(topic)}/partitions/{partition}"


def _lease(group: str) -> str:
    if not group:
        raise InvalidArgument("no group is named")
    return f"groups/{quote(group, safe='')}/lease"


def _ranges(rows: Sequence[Sequence[int]]) -> Ranges:
    return [(start, end) for start, end in rows]


def end_of(batches: bytes) -> int:
    """Return the offset behind the last message of whole batches, at least one."""
    start, _ = split_batches(batches)[-1]
    base = int.from_bytes(batches[start : start + 8], "big")
    return base + int.from_bytes(batches[start + 23 : start + 27], "big") + 1
