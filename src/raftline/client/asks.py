"""The cluster's calls as data: the same for the sync client, the async one and the command line.

Each function returns the call, and how to read its answer. Answers are what JSON says.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from raftline.client.core.ports import Ask, Reply
from raftline.client.core.wire import read_body
from raftline.model.errors import InvalidArgument, RaftlineError

T = TypeVar("T")
Json = dict[str, Any]
Moment = str | int | datetime
"""RFC 3339, Unix milliseconds, or a datetime (one without a zone is UTC)."""


class Query(Generic[T]):
    """A call and what its answer means."""

    __slots__ = ("_pick", "ask")

    def __init__(self, ask: Ask, pick: Callable[[Any], T]) -> None:
        self.ask = ask
        self._pick = pick

    def answer(self, reply: Reply) -> T:
        """Read the answer. Raises Internal: it is none of a node."""
        found = read_body(lambda body: self._pick(msgspec.json.decode(body or b"{}")), reply)
        if isinstance(found, RaftlineError):
            raise found
        return found


def _whole(answer: Any) -> Json:
    return answer


def _ask(
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    query: Mapping[str, Any] | None = None,
    *,
    is_repeatable: bool | None = None,
    wait_ms: int = 0,
) -> Ask:
    given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
    if given:
        path = f"{path}?{urlencode(given)}"
    return Ask(
        method=method,
        path=path,
        body=b"" if body is None else msgspec.json.encode(body),
        is_repeatable=method == "GET" if is_repeatable is None else is_repeatable,
        wait_ms=wait_ms,
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _given(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def moment(value: Moment) -> str | int:
    """Return a moment as nodes read it."""
    return value.isoformat() if isinstance(value, datetime) else value


def _topic(name: str) -> str:
    return f"/v1/topics/{quote(name, safe='')}"


def _group(name: str) -> str:
    return f"/v1/groups/{quote(name, safe='')}"


# ---------------------------------------------------------------------- topics


def topics() -> Query[list[Json]]:
    """All topics, without their partitions."""
    return Query(_ask("GET", "/v1/topics"), lambda answer: answer["topics"])


def topic(name: str) -> Query[Json]:
    """One topic with its settings and partitions."""
    return Query(_ask("GET", _topic(name)), _whole)


def create_topic(
    name: str, partitions: int, replication_factor: int, settings: Mapping[str, Any]
) -> Query[Json]:
    """Create a topic; 0 means the cluster's default."""
    body = _given(
        name=name,
        num_partitions=partitions or None,
        replication_factor=replication_factor or None,
        settings=dict(settings) or None,
    )
    return Query(_ask("POST", "/v1/topics", body), _whole)


def set_topic(name: str, settings: Mapping[str, Any]) -> Query[Json]:
    """Change settings of a topic."""
    body = {"settings": dict(settings)}
    return Query(_ask("PATCH", _topic(name), body, is_repeatable=True), _whole)


def delete_topic(name: str) -> Query[Json]:
    """Delete a topic and everything in it."""
    return Query(_ask("DELETE", _topic(name)), _whole)


# ---------------------------------------------------------------------- groups


def groups(topic_name: str | None) -> Query[list[Json]]:
    """All groups, of both kinds."""
    ask = _ask("GET", "/v1/groups", query={"topic": topic_name})
    return Query(ask, lambda answer: answer["groups"])


def group(name: str, topic_name: str | None) -> Query[Json]:
    """One group: members, cursors, lag, leases."""
    return Query(_ask("GET", _group(name), query={"topic": topic_name}), _whole)


def reset_group(
    name: str,
    topic_name: str,
    *,
    to: str | None,
    offset: int | None,
    time: Moment | None,
    partitions: Sequence[int] | None,
    kind: str,
    dry_run: bool,
    create: bool,
) -> Query[Json]:
    """Move a group to another place."""
    body = _given(
        topic=topic_name,
        to=to,
        offset=offset,
        time=None if time is None else moment(time),
        partitions=None if partitions is None else list(partitions),
        kind=kind,
        dry_run=dry_run,
        create=create or None,
    )
    return Query(_ask("POST", f"{_group(name)}/reset", body), _whole)


def delete_group(name: str, topic_name: str | None) -> Query[Json]:
    """Forget a group."""
    return Query(_ask("DELETE", _group(name), query={"topic": topic_name}), _whole)


# ---------------------------------------------------------------------- scheduled


def scheduled(
    topic_name: str, partition: int | None, limit: int | None, after: str | None
) -> Query[Json]:
    """Waiting messages in the order they are due."""
    query = {"partition": partition, "limit": limit, "after": after}
    return Query(_ask("GET", f"{_topic(topic_name)}/delayed", query=query), _whole)


def scheduled_stats(topic_name: str) -> Query[Json]:
    """How many messages wait, and waited."""
    return Query(_ask("GET", f"{_topic(topic_name)}/delay/stats"), _whole)


def scheduled_one(message: str) -> Query[Json]:
    """One waiting message; where it is if it waits no more."""
    return Query(_ask("GET", _waiting(message)), _whole)


def cancel(message: str) -> Query[Json]:
    """Cancel a waiting message."""
    return Query(_ask("DELETE", _waiting(message), is_repeatable=True), _whole)


def move(message: str, delay_ms: int | None, deliver_at: Moment | None) -> Query[Json]:
    """Let a waiting message be due at another time."""
    at = None if deliver_at is None else moment(deliver_at)
    body = _given(delay=delay_ms, deliverAt=at)
    return Query(_ask("POST", f"{_waiting(message)}/move", body, is_repeatable=True), _whole)


def _waiting(message: str) -> str:
    topic_name, partition, place = split_id(message)
    if not place.startswith("w"):
        raise InvalidArgument(
            f"{message!r} is no waiting message", "its id ends with .w and a number"
        )
    return f"{_topic(topic_name)}/delayed/{quote(f'{topic_name}.{partition}.{place}', safe='')}"


# ---------------------------------------------------------------------- dead letters


def letters(
    topic_name: str, limit: int | None, after: str | int | None, **wanted: Any
) -> Query[Json]:
    """Dead letters of a topic."""
    names = {"from_time": "from", "to_time": "to"}
    query: Json = {"limit": limit, "after": after}
    for name, value in wanted.items():
        if value is not None:
            query[names.get(name, name)] = moment(value)
    return Query(_ask("GET", f"{_topic(topic_name)}/dlq", query=query), _whole)


def letter(topic_name: str, message: str) -> Query[Json]:
    """One dead letter."""
    return Query(_ask("GET", f"{_topic(topic_name)}/dlq/{quote(message, safe='')}"), _whole)


def end_letters(
    verb: str,
    topic_name: str,
    *,
    ids: Sequence[str] | None,
    every: bool,
    where: Mapping[str, Any] | None,
    rate_per_s: int | None,
    limit: int | None,
    dry_run: bool,
) -> Query[Json]:
    """Redrive or purge: by ``ids``, all, or by a filter."""
    body = _given(
        ids=None if ids is None else list(ids),
        filter=None if where is None else dict(where),
        rate_per_s=rate_per_s,
        limit=limit,
    )
    if every:
        body["all"] = True
    if dry_run:
        body["dry_run"] = True
    return Query(_ask("POST", f"{_topic(topic_name)}/dlq/{verb}", body), _whole)


# ---------------------------------------------------------------------- messages


def trace(message: str) -> Query[Json]:
    """The timeline of a message."""
    topic_name, partition, place = split_id(message)
    name = quote(f"{topic_name}.{partition}.{place}", safe="")
    return Query(_ask("GET", f"/v1/traces/{name}"), _whole)


def search(topic_name: str, **wanted: Any) -> Query[Json]:
    """Find messages by key, time, member, group, state."""
    names = {"from_time": "from", "to_time": "to"}
    query: Json = {"topic": topic_name}
    for name, value in wanted.items():
        if value is not None:
            query[names.get(name, name)] = moment(value)
    return Query(_ask("GET", "/v1/traces/search", query=query), _whole)


def offsets(topic_name: str, partition: int, time_ms: int | None) -> Query[Json]:
    """The bounds of a partition's log, or the first message at or after a time."""
    path = f"{_topic(topic_name)}/partitions/{partition}/offsets"
    return Query(_ask("GET", path, query={"time": time_ms}), _whole)


def cluster() -> Query[Json]:
    """Nodes, topics and health as the asked node sees them."""
    return Query(_ask("GET", "/v1/cluster"), _whole)


def split_id(message: str) -> tuple[str, int, str]:
    """Return topic, partition and offset (or ``w`` and a number) of an id.

    ``topic/partition@offset`` is understood as well.

    Raises:
        InvalidArgument: it is none.
    """
    parts = message.replace("/", ".").replace("@", ".").rsplit(".", 2)
    is_id = len(parts) == 3 and parts[0] and parts[1].isdecimal()
    if is_id and parts[2].removeprefix("w").isdecimal():
        return parts[0], int(parts[1]), parts[2]
    raise InvalidArgument(
        f"{message[:100]!r} is not the id of a message",
        "use an id that a send returned, or topic/partition@offset",
    )
