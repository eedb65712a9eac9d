"""Waiting messages, dead letters and traces: native routes as calls of ``raftline.v1``."""

from raftline.client.grpc import forms
from raftline.client.grpc.remotes import Asked, Json, Remote, as_json, known, moment_ms
from raftline.model.errors import InvalidArgument
from raftline.wire.proto.raftline.v1 import dead_letters_pb2, scheduled_pb2, traces_pb2

# ---------------------------------------------------------------------- scheduled


def list_scheduled(asked: Asked) -> Remote:
    """List waiting messages."""
    request = scheduled_pb2.ListScheduledRequest(
        topic=asked.topic, **asked.numbers("partition", "limit"), **asked.given("after")
    )

    def answer(reply: scheduled_pb2.ListScheduledReply) -> Json:
        rows = [forms.waiting(row) for row in reply.messages]
        return {"messages": rows, "count": reply.count, "next": reply.next or None}

    return Remote("ScheduledService/List", request, as_json(answer))


def scheduled_stats(asked: Asked) -> Remote:
    """Count waiting messages."""
    request = scheduled_pb2.ScheduledStatsRequest(topic=asked.topic)

    def answer(reply: scheduled_pb2.ScheduledStatsReply) -> Json:
        total = forms.counts(reply.total)
        del total["partition"]
        rows = [forms.counts(row) for row in reply.partitions]
        return {"topic": asked.topic, **total, "partitions": rows}

    return Remote("ScheduledService/Stats", request, as_json(answer))


def show_scheduled(asked: Asked) -> Remote:
    """Show a waiting message."""
    name = asked.params["id"]
    request = scheduled_pb2.ShowScheduledRequest(id=name)
    return Remote(
        "ScheduledService/Show", request, as_json(lambda reply: forms.waiting_one(name, reply))
    )


def cancel_scheduled(asked: Asked) -> Remote:
    """Cancel a waiting message."""
    name = asked.params["id"]
    told: Json = {"id": name, "cancelled": True}
    return Remote(
        "ScheduledService/Cancel", scheduled_pb2.CancelScheduledRequest(id=name), known(told)
    )


def move_scheduled(asked: Asked) -> Remote:
    """Let a waiting message be due at another time."""
    body, name = asked.body(), asked.params["id"]
    request = scheduled_pb2.MoveScheduledRequest(id=name, delay_ms=body.get("delay"))
    if "deliverAt" in body:
        request.due_ms = moment_ms("deliver_at", body["deliverAt"])

    def answer(reply: scheduled_pb2.MoveScheduledReply) -> Json:
        due_ms = reply.due_ms
        return {"id": name, "deliverAt": forms.show_moment(due_ms), "due_ms": due_ms}

    return Remote("ScheduledService/Move", request, as_json(answer))


# ---------------------------------------------------------------------- dead letters


def list_letters(asked: Asked) -> Remote:
    """List dead letters."""
    request = dead_letters_pb2.ListDeadLettersRequest(
        topic=asked.topic,
        filter=_letter_filter(asked.given("group", "reason", "key") | asked.moments()),
        **asked.numbers("limit"),
        **asked.given("state"),
        **_letter_place(asked.topic, asked.query.get("after")),
    )

    def answer(reply: dead_letters_pb2.ListDeadLettersReply) -> Json:
        return {"letters": [forms.letter(row) for row in reply.letters], "next": reply.next or None}

    return Remote("DeadLetterService/List", request, as_json(answer))


def show_letter(asked: Asked) -> Remote:
    """Show a dead letter."""
    request = dead_letters_pb2.ShowDeadLetterRequest(
        topic=asked.topic, id=_letter_id(asked.topic, asked.params["id"])
    )
    return Remote("DeadLetterService/Show", request, as_json(forms.letter))


def end_letters(asked: Asked) -> Remote:
    """Redrive or purge dead letters."""
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

    return Remote(f"DeadLetterService/{verb.capitalize()}", request, as_json(answer))


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


def show_trace(asked: Asked) -> Remote:
    """Show the timeline of a message."""
    request = traces_pb2.ShowTraceRequest(id=asked.params["id"])
    return Remote("TraceService/Show", request, as_json(forms.trace))


def search_traces(asked: Asked) -> Remote:
    """Find messages."""
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

    return Remote("TraceService/Search", request, as_json(answer))
