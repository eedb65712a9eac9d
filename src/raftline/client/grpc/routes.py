"""From the native routes that the client's core names to the calls of ``raftline.v1``.

Each row of ``ROUTES`` is one route: what is asked for over gRPC, and how its reply looks as the
answer of that route. The core, and who uses it, cannot tell the two apart.
"""

import re
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from raftline.client.core.ports import Ask, Reply
from raftline.client.grpc import forms
from raftline.client.messages import take_bytes
from raftline.config.moments import parse_moment_ms
from raftline.model.errors import InvalidArgument
from raftline.wire.proto.raftline.v1 import (
    admin_pb2,
    dead_letters_pb2,
    deliveries_pb2,
    errors_pb2,
    groups_pb2,
    messages_pb2,
    scheduled_pb2,
    traces_pb2,
)

Json = dict[str, Any]
OK = 200
REFUSED = 500
VERBS = {
    name.removeprefix("VERB_").lower(): number
    for name, number in deliveries_pb2.Verb.items()
    if number
}


class Remote:
    """One call: its name, its request, and what its reply means."""

    __slots__ = ("_answer", "method", "reply", "request")

    def __init__(self, method: str, request: Message, answer: Callable[[Any], Reply]) -> None:
        self.method = f"/raftline.v1.{method}"
        self.request = request
        self.reply = REPLIES[method]
        self._answer = answer

    def answer(self, reply: Message) -> Reply:
        """Return the reply as the route would have answered."""
        return self._answer(reply)


class Asked:
    """A route with its parameters."""

    __slots__ = ("ask", "params", "query")

    def __init__(self, ask: Ask, params: dict[str, str], query: dict[str, str]) -> None:
        self.ask = ask
        self.params = params
        self.query = query

    @property
    def topic(self) -> str:
        """The topic of the path."""
        return self.params["topic"]

    @property
    def partition(self) -> int:
        """The partition of the path."""
        return int(self.params["partition"])

    def body(self) -> Json:
        """Return what the body says."""
        return msgspec.json.decode(self.ask.body or b"{}")

    def given(self, *names: str) -> Json:
        """Return the parameters of the query that are there."""
        return {name: self.query[name] for name in names if name in self.query}

    def numbers(self, *names: str) -> Json:
        """Return the parameters of the query that are there and are numbers."""
        return {name: int(text) for name, text in self.given(*names).items()}

    def moments(self) -> Json:
        """Return ``from`` and ``to`` as milliseconds. Raises InvalidArgument."""
        names = {"from": "from_ms", "to": "to_ms"}
        return {names[name]: moment_ms(name, text) for name, text in self.given(*names).items()}


Route = Callable[[Asked], Remote]


def remote_of(ask: Ask) -> Remote:
    """Return the call that carries an ask. Raises RaftlineError."""
    if ask.is_batch:
        return _send_batch(ask)
    parts = urlsplit(ask.path)
    for method, pattern, route in ROUTES:
        found = pattern.fullmatch(parts.path) if method == ask.method else None
        if found is not None:
            params = {name: unquote(text) for name, text in found.groupdict().items()}
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            return route(Asked(ask, params, query))
    raise InvalidArgument(
        f"{ask.method} {parts.path} is not to be had over gRPC", "connect with http://"
    )


def moment_ms(name: str, value: str | int) -> int:
    """Return a moment in milliseconds. Raises InvalidArgument."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    return parse_moment_ms(name, value)


def _json(answer: Callable[[Any], Any]) -> Callable[[Any], Reply]:
    return lambda reply: Reply(OK, b"", msgspec.json.encode(answer(reply)))


def _told(answer: Json) -> Callable[[Any], Reply]:
    """Answer what is known beforehand."""
    return _json(lambda _: answer)


def _refused(error: errors_pb2.Error) -> Reply:
    told = {"code": error.code, "message": error.message, "hint": error.hint}
    return Reply(REFUSED, b"", msgspec.json.encode({"error": told}))


# ---------------------------------------------------------------------- messages


def _send_batch(ask: Ask) -> Remote:
    request = messages_pb2.SendBatchesRequest(
        topic=ask.topic, partition=ask.partition, batches=ask.body, priority=ask.priority
    )

    def answer(reply: messages_pb2.SendBatchesReply) -> Reply:
        row = reply.results[0]
        if row.HasField("error"):
            return _refused(row.error)
        told = {"base_offset": row.base_offset, "duplicate": row.duplicate}
        return Reply(OK, b"", msgspec.json.encode({"results": [told]}))

    return Remote("MessageService/SendBatches", request, answer)


def _send(asked: Asked) -> Remote:
    request = messages_pb2.SendRequest(
        topic=asked.topic, messages=[_new_message(row) for row in asked.body()["messages"]]
    )

    def answer(reply: messages_pb2.SendReply) -> Json:
        return {"results": [forms.send_result(row) for row in reply.results]}

    return Remote("MessageService/Send", request, _json(answer))


def _new_message(row: Json) -> messages_pb2.NewMessage:
    message = messages_pb2.NewMessage(
        value=take_bytes(row, "value"),
        key=take_bytes(row, "key"),
        headers=[
            messages_pb2.Header(name=name, value=value) for name, value in forms.header_pairs(row)
        ],
        partition=row.get("partition"),
        timestamp_ms=row.get("timestamp"),
        dedup_key=row.get("dedup_key"),
    )
    priority = row.get("priority", 0)
    if isinstance(priority, str):
        message.priority_name = priority
    elif priority:
        message.priority = priority
    if "delay" in row:
        message.delay_ms = row["delay"]
    if "deliverAt" in row:
        message.due_ms = moment_ms("deliver_at", row["deliverAt"])
    return message


def _read(asked: Asked) -> Remote:
    request = messages_pb2.ReadRequest(
        topic=asked.topic,
        partition=asked.partition,
        form=messages_pb2.FORM_BATCHES,
        **asked.numbers("offset", "wait_ms", "bytes_max"),
    )

    def answer(reply: messages_pb2.ReadReply) -> Reply:
        head = f"\r\nRaftline-Log-Start: {reply.log_start}"
        head += f"\r\nRaftline-Commit-End: {reply.commit_end}"
        return Reply(OK, head.encode(), reply.batches)

    return Remote("MessageService/Read", request, answer)


def _offsets(asked: Asked) -> Remote:
    time = asked.query.get("time")
    request = messages_pb2.FindOffsetRequest(
        topic=asked.topic,
        partition=asked.partition,
        time_ms=None if time is None else moment_ms("time", time),
    )

    def answer(reply: messages_pb2.FindOffsetReply) -> Json:
        if time is None:
            return {"log_start": reply.log_start, "commit_end": reply.commit_end}
        return {
            "offset": reply.offset,
            "timestamp": reply.timestamp_ms,
            "commit_end": reply.commit_end,
        }

    return Remote("MessageService/FindOffset", request, _json(answer))


# ---------------------------------------------------------------------- work groups


def _receive(asked: Asked) -> Remote:
    body = asked.body()
    partition = body["partition"]
    request = deliveries_pb2.ReceiveRequest(
        topic=asked.topic,
        group=asked.params["group"],
        count=body["count"],
        wait_ms=body["wait"],
        lease_ms=body["lease"],
        member=body["member"],
        partition=partition if partition >= 0 else None,
        bytes_max=body["bytes_max"],
        ordered=body["ordered"],
        start=(
            deliveries_pb2.START_NEXT if body["start"] == "next" else deliveries_pb2.START_FIRST
        ),
        form=messages_pb2.FORM_BATCHES,
    )

    def answer(reply: deliveries_pb2.ReceiveReply) -> Reply:
        leased = reply.batches
        if not leased.spans:
            return Reply(OK, b"", b"")
        head = f"\r\nRaftline-Partition: {leased.partition}"
        head += f"\r\nRaftline-Lease: {leased.term}.{leased.sequence}"
        head += f"\r\nRaftline-Spans: {','.join(map(str, leased.spans))}"
        return Reply(OK, head.encode(), leased.batches)

    return Remote("DeliveryService/Receive", request, answer)


def _settle(asked: Asked) -> Remote:
    body = asked.body()
    request = deliveries_pb2.SettleRangesRequest(
        topic=asked.topic,
        partition=asked.partition,
        group=asked.params["group"],
        settles=[_range_settle(*row) for row in body["settles"]],
        reason=body.get("reason", ""),
        delay_ms=body.get("delay"),
        lease_ms=body.get("lease", 0),
    )

    def answer(reply: deliveries_pb2.SettleRangesReply) -> Json:
        return {"lost": [list(row.ranges) for row in reply.lost]}

    return Remote("DeliveryService/SettleRanges", request, _json(answer))


def _range_settle(
    verb: str, term: int, sequence: int, attempt: int, generation: int, ranges: list[int]
) -> deliveries_pb2.RangeSettle:
    return deliveries_pb2.RangeSettle(
        verb=cast("Any", VERBS[verb]),
        term=term,
        sequence=sequence,
        attempt=attempt,
        generation=generation,
        ranges=ranges,
    )


# ---------------------------------------------------------------------- topics and the cluster


def _list_topics(asked: Asked) -> Remote:
    def answer(reply: admin_pb2.ListTopicsReply) -> Json:
        return {"topics": [forms.topic_summary(row) for row in reply.topics]}

    return Remote("AdminService/ListTopics", admin_pb2.ListTopicsRequest(), _json(answer))


def _create_topic(asked: Asked) -> Remote:
    body = asked.body()
    request = admin_pb2.CreateTopicRequest(
        name=body["name"],
        partitions=body.get("num_partitions", 0),
        replication_factor=body.get("replication_factor", 0),
        settings=_settings(body),
    )

    def answer(reply: admin_pb2.CreateTopicReply) -> Json:
        return {
            "name": reply.name,
            "created": True,
            "partitions": reply.partitions,
            "Name": reply.name,
            "NumberOfPartitions": reply.partitions,
        }

    return Remote("AdminService/CreateTopic", request, _json(answer))


def _show_topic(asked: Asked) -> Remote:
    request = admin_pb2.ShowTopicRequest(name=asked.topic)
    return Remote("AdminService/ShowTopic", request, _json(forms.topic))


def _ensure_topic(asked: Asked) -> Remote:
    request = admin_pb2.EnsureTopicRequest(name=asked.topic)
    return Remote("AdminService/EnsureTopic", request, _json(forms.topic))


def _set_topic(asked: Asked) -> Remote:
    request = admin_pb2.SetTopicRequest(name=asked.topic, settings=_settings(asked.body()))
    return Remote("AdminService/SetTopic", request, _told({}))


def _delete_topic(asked: Asked) -> Remote:
    told: Json = {"name": asked.topic, "deleted": True}
    request = admin_pb2.DeleteTopicRequest(name=asked.topic)
    return Remote("AdminService/DeleteTopic", request, _told(told))


def _settings(body: Json) -> dict[str, admin_pb2.Setting]:
    found: dict[str, admin_pb2.Setting] = {}
    for name, value in body.get("settings", {}).items():
        if isinstance(value, bool):
            found[name] = admin_pb2.Setting(flag=value)
        elif isinstance(value, int):
            found[name] = admin_pb2.Setting(number=value)
        else:
            found[name] = admin_pb2.Setting(text=str(value))
    return found


def _new_producer(asked: Asked) -> Remote:
    def answer(reply: admin_pb2.NewProducerReply) -> Json:
        return {"producer_id": reply.producer_id, "epoch": reply.epoch}

    return Remote("AdminService/NewProducer", admin_pb2.NewProducerRequest(), _json(answer))


def _list_shards(asked: Asked) -> Remote:
    topics = asked.query.get("topics")
    request = admin_pb2.ListShardsRequest(
        topics=[] if topics is None else filter(None, topics.split(",")), all=topics is None
    )

    def answer(reply: admin_pb2.ListShardsReply) -> Json:
        return {
            "shards": [forms.shard(row) for row in reply.shards],
            "nodes": [forms.node(row) for row in reply.nodes],
        }

    return Remote("AdminService/ListShards", request, _json(answer))


def _cluster(asked: Asked) -> Remote:
    return Remote("AdminService/ShowCluster", admin_pb2.ShowClusterRequest(), _json(forms.cluster))


# ---------------------------------------------------------------------- groups


def _list_groups(asked: Asked) -> Remote:
    request = groups_pb2.ListGroupsRequest(topic=asked.query.get("topic", ""))

    def answer(reply: groups_pb2.ListGroupsReply) -> Json:
        return {"groups": [forms.group_summary(row) for row in reply.groups]}

    return Remote("GroupService/List", request, _json(answer))


def _show_group(asked: Asked) -> Remote:
    request = groups_pb2.ShowGroupRequest(
        group=asked.params["group"], topic=asked.query.get("topic", "")
    )
    return Remote("GroupService/Show", request, _json(forms.group))


def _delete_group(asked: Asked) -> Remote:
    group = asked.params["group"]
    request = groups_pb2.DeleteGroupRequest(group=group, topic=asked.query.get("topic", ""))

    def answer(reply: groups_pb2.DeleteGroupReply) -> Json:
        return {"group": group, "deleted": True, "work_partitions": reply.work_partitions}

    return Remote("GroupService/Delete", request, _json(answer))


def _reset_group(asked: Asked) -> Remote:
    body, group = asked.body(), asked.params["group"]
    kind = body.get("kind", "stream")
    request = groups_pb2.ResetGroupRequest(
        group=group,
        topic=body["topic"],
        partitions=body.get("partitions", ()),
        kind=groups_pb2.KIND_WORK if kind == "work" else groups_pb2.KIND_STREAM,
        dry_run=body.get("dry_run", False),
        create=body.get("create", False),
    )
    to = body.get("to")
    if to in ("earliest", "latest"):
        request.end = groups_pb2.END_LATEST if to == "latest" else groups_pb2.END_EARLIEST
    elif to is not None:
        request.time_ms = moment_ms("to", to)
    if "offset" in body:
        request.offset = body["offset"]
    if "time" in body:
        request.time_ms = moment_ms("time", body["time"])

    def answer(reply: groups_pb2.ResetGroupReply) -> Json:
        rows = [forms.reset_row(row) for row in reply.partitions]
        return {"group": group, "kind": kind, "dry_run": reply.dry_run, "partitions": rows}

    return Remote("GroupService/Reset", request, _json(answer))


# ---------------------------------------------------------------------- scheduled


def _list_scheduled(asked: Asked) -> Remote:
    request = scheduled_pb2.ListScheduledRequest(
        topic=asked.topic, **asked.numbers("partition", "limit"), **asked.given("after")
    )

    def answer(reply: scheduled_pb2.ListScheduledReply) -> Json:
        rows = [forms.waiting(row) for row in reply.messages]
        return {"messages": rows, "count": reply.count, "next": reply.next or None}

    return Remote("ScheduledService/List", request, _json(answer))


def _scheduled_stats(asked: Asked) -> Remote:
    request = scheduled_pb2.ScheduledStatsRequest(topic=asked.topic)

    def answer(reply: scheduled_pb2.ScheduledStatsReply) -> Json:
        total = forms.counts(reply.total)
        del total["partition"]
        rows = [forms.counts(row) for row in reply.partitions]
        return {"topic": asked.topic, **total, "partitions": rows}

    return Remote("ScheduledService/Stats", request, _json(answer))


def _show_scheduled(asked: Asked) -> Remote:
    name = asked.params["id"]
    request = scheduled_pb2.ShowScheduledRequest(id=name)
    return Remote(
        "ScheduledService/Show", request, _json(lambda reply: forms.waiting_one(name, reply))
    )


def _cancel_scheduled(asked: Asked) -> Remote:
    name = asked.params["id"]
    told: Json = {"id": name, "cancelled": True}
    return Remote(
        "ScheduledService/Cancel", scheduled_pb2.CancelScheduledRequest(id=name), _told(told)
    )


def _move_scheduled(asked: Asked) -> Remote:
    body, name = asked.body(), asked.params["id"]
    request = scheduled_pb2.MoveScheduledRequest(id=name, delay_ms=body.get("delay"))
    if "deliverAt" in body:
        request.due_ms = moment_ms("deliver_at", body["deliverAt"])

    def answer(reply: scheduled_pb2.MoveScheduledReply) -> Json:
        due_ms = reply.due_ms
        return {"id": name, "deliverAt": forms.show_moment(due_ms), "due_ms": due_ms}

    return Remote("ScheduledService/Move", request, _json(answer))


# ---------------------------------------------------------------------- dead letters


def _list_letters(asked: Asked) -> Remote:
    request = dead_letters_pb2.ListDeadLettersRequest(
        topic=asked.topic,
        filter=_letter_filter(asked.given("group", "reason", "key") | asked.moments()),
        **asked.numbers("limit"),
        **asked.given("state"),
        **_letter_place(asked.topic, asked.query.get("after")),
    )

    def answer(reply: dead_letters_pb2.ListDeadLettersReply) -> Json:
        return {"letters": [forms.letter(row) for row in reply.letters], "next": reply.next or None}

    return Remote("DeadLetterService/List", request, _json(answer))


def _show_letter(asked: Asked) -> Remote:
    request = dead_letters_pb2.ShowDeadLetterRequest(
        topic=asked.topic, id=_letter_id(asked.topic, asked.params["id"])
    )
    return Remote("DeadLetterService/Show", request, _json(forms.letter))


def _end_letters(asked: Asked) -> Remote:
    body, verb = asked.body(), asked.params["verb"]
    request = dead_letters_pb2.DeadLetterWork(
        topic=asked.topic,
        ids=[_letter_id(asked.topic, name) for name in body.get("ids", ())],
        all=body.get("all", False),
        rate_per_s=body.get("rate_per_s", 0),
        dry_run=body.get("dry_run", False),
        limit=body.get("limit", 0),
    )
    if "filter" in body:
        chosen = dict(body["filter"])
        for name in ("from", "to"):
            if name in chosen:
                chosen[f"{name}_ms"] = moment_ms(name, chosen.pop(name))
        request.filter.CopyFrom(_letter_filter(chosen))
    done = "redriven" if verb == "redrive" else "purged"

    def answer(reply: dead_letters_pb2.DeadLetterWorkReply) -> Json:
        return {
            "matched": reply.matched,
            done: reply.done,
            "skipped": [{"id": row.id, "why": row.why} for row in reply.skipped],
            "next": reply.next or None,
            "dry_run": reply.dry_run,
        }

    return Remote(f"DeadLetterService/{verb.capitalize()}", request, _json(answer))


def _letter_filter(chosen: Json) -> dead_letters_pb2.DeadLetterFilter:
    if "key" in chosen:
        chosen = {**chosen, "key": str(chosen["key"]).encode()}
    try:
        return dead_letters_pb2.DeadLetterFilter(**chosen)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(str(error), "a filter has group, reason, key, from, to") from error


def _letter_id(topic: str, name: str) -> str:
    """Return the id of a letter that may be named by its offset alone."""
    return f"{topic}.dlq.0.{name}" if name.isascii() and name.isdigit() else name


def _letter_place(topic: str, after: str | None) -> Json:
    return {} if after is None else {"after": _letter_id(topic, after)}


# ---------------------------------------------------------------------- traces


def _show_trace(asked: Asked) -> Remote:
    request = traces_pb2.ShowTraceRequest(id=asked.params["id"])
    return Remote("TraceService/Show", request, _json(forms.trace))


def _search_traces(asked: Asked) -> Remote:
    key = asked.query.get("key")
    request = traces_pb2.SearchTracesRequest(
        key=None if key is None else key.encode(),
        **asked.given("topic", "member", "group", "state", "after"),
        **asked.numbers("partition", "limit"),
        **asked.moments(),
    )

    def answer(reply: traces_pb2.SearchTracesReply) -> Json:
        return {
            "messages": [forms.found(row) for row in reply.messages],
            "complete": reply.complete,
            "next": reply.next or None,
        }

    return Remote("TraceService/Search", request, _json(answer))


# ---------------------------------------------------------------------- the table


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))


_T = "/v1/topics/{topic}"
ROUTES: list[tuple[str, re.Pattern[str], Route]] = [
    (method, _pattern(path), route)
    for method, path, route in (
        ("POST", f"{_T}/partitions/{{partition}}/groups/{{group}}/settle", _settle),
        ("POST", f"{_T}/groups/{{group}}/receive", _receive),
        ("POST", f"{_T}/messages", _send),
        ("GET", f"{_T}/partitions/{{partition}}/messages", _read),
        ("GET", f"{_T}/partitions/{{partition}}/offsets", _offsets),
        ("GET", "/shards-info", _list_shards),
        ("POST", "/v1/producers", _new_producer),
        ("GET", "/v1/topics", _list_topics),
        ("POST", "/v1/topics", _create_topic),
        ("GET", _T, _show_topic),
        ("PUT", _T, _ensure_topic),
        ("PATCH", _T, _set_topic),
        ("DELETE", _T, _delete_topic),
        ("GET", "/v1/cluster", _cluster),
        ("GET", "/v1/groups", _list_groups),
        ("GET", "/v1/groups/{group}", _show_group),
        ("DELETE", "/v1/groups/{group}", _delete_group),
        ("POST", "/v1/groups/{group}/reset", _reset_group),
        ("GET", f"{_T}/delayed", _list_scheduled),
        ("GET", f"{_T}/delay/stats", _scheduled_stats),
        ("GET", f"{_T}/delayed/{{id}}", _show_scheduled),
        ("DELETE", f"{_T}/delayed/{{id}}", _cancel_scheduled),
        ("POST", f"{_T}/delayed/{{id}}/move", _move_scheduled),
        ("GET", f"{_T}/dlq", _list_letters),
        ("GET", f"{_T}/dlq/{{id}}", _show_letter),
        ("POST", f"{_T}/dlq/(?P<verb>redrive|purge)", _end_letters),
        ("GET", "/v1/traces/search", _search_traces),
        ("GET", "/v1/traces/{id}", _show_trace),
    )
]

REPLIES: dict[str, type[Message]] = {
    f"{service.name}/{method.name}": GetMessageClass(method.output_type)
    for file in (
        admin_pb2,
        dead_letters_pb2,
        deliveries_pb2,
        groups_pb2,
        messages_pb2,
        scheduled_pb2,
        traces_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
