"""Replies of ``raftline.v1`` as the native routes answer the same."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any, cast

from raftline.client.messages import put_bytes
from raftline.config.moments import show_moment
from raftline.wire.proto.raftline.v1 import (
    admin_pb2,
    dead_letters_pb2,
    groups_pb2,
    messages_pb2,
    scheduled_pb2,
    traces_pb2,
)

Json = dict[str, Any]

__all__ = ["show_moment"]


# ---------------------------------------------------------------------- messages


def send_result(row: messages_pb2.SendResult) -> Json:
    """Return what became of one message."""
    if row.HasField("error"):
        error = row.error
        return {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    told: Json = {"id": row.id, "partition": row.partition, "duplicate": row.duplicate}
    if row.offset >= 0:
        told["offset"] = row.offset
    if row.delayed:
        told["deliverAt"] = show_moment(row.due_ms)
    return told


def header_pairs(row: Json) -> Iterable[tuple[str, bytes | None]]:
    """Yield the headers of a message as JSON carries it."""
    texts: Json = row.get("headers") or {}
    for name, values in texts.items():
        given = cast("list[Any]", values if isinstance(values, list) else [values])
        for value in given:
            yield name, None if value is None else str(value).encode()
    coded: Json = row.get("headers_base64") or {}
    for name, values in coded.items():
        for text in cast("list[str]", values if isinstance(values, list) else [values]):
            yield name, base64.b64decode(text)


def _item(message: messages_pb2.Message) -> Json:
    """Return a message as a read shows it."""
    item: Json = {
        "id": message.id,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
        "key": None,
        "value": None,
        "headers": {},
    }
    for name in ("key", "value"):
        if message.HasField(name):
            put_bytes(item, name, getattr(message, name))
    for header in message.headers:
        _put_header(item, header.name, header.value if header.HasField("value") else None)
    if "raftline-priority" in item["headers"]:
        item["priority"] = message.priority
    return item


def _put_header(item: Json, name: str, value: bytes | None) -> None:
    headers = item["headers"]
    try:
        text = None if value is None else value.decode()
    except UnicodeDecodeError:
        headers = item.setdefault("headers_base64", {})
        text = base64.b64encode(value or b"").decode()
    if name not in headers:
        headers[name] = text
    else:
        before = headers[name]
        headers[name] = [*before, text] if isinstance(before, list) else [before, text]


# ---------------------------------------------------------------------- topics and the cluster


def topic_summary(row: admin_pb2.Topic) -> Json:
    """Return a topic without its partitions."""
    return {
        "name": row.name,
        "uuid": row.uuid,
        "num_partitions": len(row.partitions),
        "replication_factor": row.replication_factor,
        "created_ms": row.created_ms,
        "settings": _settings(row.settings),
    }


def topic(row: admin_pb2.Topic) -> Json:
    """Return a topic with its partitions."""
    return {**topic_summary(row), "partitions": [_fields(one) for one in row.partitions]}


def shard(row: admin_pb2.Shard) -> Json:
    """Return who leads and who holds a partition."""
    return _fields(row)


def node(row: admin_pb2.Node) -> Json:
    """Return a node."""
    return _fields(row)


def cluster(reply: admin_pb2.ClusterReply) -> Json:
    """Return nodes, topics and health."""
    told = _fields(reply)
    told["nodes"] = [node(row) for row in reply.nodes]
    told["topics"] = [
        {
            "name": row.name,
            "uuid": row.uuid,
            "replication_factor": row.replication_factor,
            "created_ms": row.created_ms,
            "settings": _settings(row.settings),
            "partitions": [_fields(one) for one in row.partitions],
        }
        for row in reply.topics
    ]
    return told


def _settings(settings: Mapping[str, admin_pb2.Setting]) -> Json:
    return {name: getattr(one, one.WhichOneof("value") or "text") for name, one in settings.items()}


# ---------------------------------------------------------------------- groups


def group_summary(row: groups_pb2.GroupSummary) -> Json:
    """Return a group in a list."""
    told: Json = {"group": row.group, "kind": row.kind, "topics": list(row.topics)}
    if row.kind == "work":
        told["lag"] = row.lag
    else:
        told |= {"state": row.state, "members": row.members, "protocol_type": row.protocol_type}
    return told


def group(reply: groups_pb2.ShowGroupReply) -> Json:
    """Return a group: its stream side, and its work side by topic."""
    work: dict[str, list[Json]] = {}
    for row in reply.work:
        told = _fields(row)
        told |= {"group": reply.group, "kind": "work", "policy": _fields(row.policy)}
        work.setdefault(told.pop("topic"), []).append(told)
    stream = _stream(reply.group, reply.stream) if reply.HasField("stream") else None
    return {"group": reply.group, "stream": stream, "work": work}


def _stream(name: str, reply: groups_pb2.StreamGroup) -> Json:
    told = _fields(reply)
    told["group"] = name
    told["lag"] = reply.lag if reply.HasField("lag") else None
    told["pauses"] = _fields(reply.pauses)
    told["members"] = [_member(row) for row in reply.members]
    told["partitions"] = [_cursor(row) for row in reply.partitions]
    return told


def _member(row: groups_pb2.GroupMember) -> Json:
    told = _fields(row)
    told["session_timeout_ms"] = told.pop("session_ms")
    told["partitions"] = {one.topic: list(one.partitions) for one in row.partitions}
    told["revoke"] = {one.topic: list(one.partitions) for one in row.revoke}
    return told


def _cursor(row: groups_pb2.GroupPartition) -> Json:
    told = _fields(row)
    told["at_ms"] = told.pop("committed_ms")
    for name in ("commit_end", "lag"):
        if not row.HasField(name):
            told[name] = None
    return told


def reset_row(row: groups_pb2.ResetPartition) -> Json:
    """Return where a partition goes on."""
    told = _fields(row)
    told["from"], told["to"] = told.pop("from_offset"), told.pop("to_offset")
    return told


# ---------------------------------------------------------------------- scheduled


def waiting(row: scheduled_pb2.WaitingMessage) -> Json:
    """Return a waiting message in a list."""
    return {**_fields(row), "deliverAt": show_moment(row.due_ms)}


def waiting_one(name: str, reply: scheduled_pb2.ShowScheduledReply) -> Json:
    """Return one message that waits or waited."""
    _, partition, number = name.rsplit(".", 2)
    told: Json = {
        "id": name,
        "partition": int(partition),
        "number": int(number.removeprefix("w")),
        "state": reply.state,
    }
    if reply.message_id:
        told["message_id"] = reply.message_id
        told["offset"] = int(reply.message_id.rpartition(".")[2])
    if reply.state == "waiting":
        item = _item(reply.message)
        told |= waiting(reply.waiting)
        told |= {key: value for key, value in item.items() if key not in ("id", "offset")}
    return told


def counts(row: scheduled_pb2.ScheduledCounts) -> Json:
    """Return how many messages wait, and waited."""
    told = _fields(row)
    del told["next_due_ms"]
    has_next = row.HasField("next_due_ms")
    return {**told, "next_deliverAt": show_moment(row.next_due_ms) if has_next else None}


# ---------------------------------------------------------------------- dead letters


def letter(row: dead_letters_pb2.DeadLetter) -> Json:
    """Return a dead letter."""
    told = _fields(row)
    names = ("id", "topic", "partition", "offset")
    origin = {name: told.pop(f"origin_{name}") for name in names}
    del told["message"]
    if not row.lost:
        del told["lost"]
    return {**_item(row.message), **told, "origin": origin}


# ---------------------------------------------------------------------- traces


def trace(reply: traces_pb2.Trace) -> Json:
    """Return the timeline of a message."""
    latencies: dict[str, dict[str, int]] = {}
    for row in reply.groups:
        names = [name for name in ("to_delivery", "to_end") if row.HasField(f"{name}_ms")]  # pyright: ignore[reportArgumentType]
        if names:
            latencies[row.group] = {name: getattr(row, f"{name}_ms") for name in names}
    return {
        "id": reply.id,
        "topic": reply.topic,
        "partition": reply.partition,
        "offset": reply.offset,
        "groups": {row.group: row.state for row in reply.groups if row.state},
        "attempts": {row.group: row.attempts for row in reply.groups if row.attempts},
        "latencies_ms": latencies,
        "timeline": [_line(row) for row in reply.timeline],
        "traced": reply.traced,
        "complete": reply.complete,
    }


def _line(row: traces_pb2.TraceEvent) -> Json:
    told: Json = {"event": row.event, "at_ms": row.at_ms}
    for field, value in row.ListFields():
        told[field.name] = list(value) if field.name == "nodes" else value
    if row.event == "RETAINED":
        told.setdefault("until_ms", None)
    return told


def found(row: traces_pb2.FoundMessage) -> Json:
    """Return a message that a search found."""
    key = row.key.decode("utf-8", "replace") if row.HasField("key") else None
    return {
        "id": row.id,
        "partition": row.partition,
        "offset": row.offset,
        "timestamp": row.timestamp_ms,
        "key": key,
        "groups": dict(row.groups),
    }


def _fields(message: Any) -> Json:
    """Return the fields of a message; repeated ones as lists, those left out with their default."""
    told: Json = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        told[field.name] = list(value) if field.is_repeated else value
    return told
