"""Traces over HTTP: the timeline of one message, and finding messages.

The node answers with events in ranges; here they become the words that people know.
"""

import heapq
from collections.abc import Callable
from typing import Any

from raftline.gateways.http.answers import SearchAnswer, TraceAnswer
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.message_ids import message_id, parse_any_id
from raftline.gateways.moments import parse_moment_ms
from raftline.gateways.new_messages import ID_HEADER
from raftline.gateways.ports import Calls
from raftline.machines.delivery.commands import ACK, EXTEND, NACK, REJECT
from raftline.model.calls import ReadReply
from raftline.model.errors import InvalidArgument, RaftlineError, UnknownTopic
from raftline.model.limits import OFFSET_MAX
from raftline.model.message import Message
from raftline.model.records import open_batches
from raftline.model.settings import FOREVER, effective

LIMIT_DEFAULT, LIMIT_MAX = 100, 1_000
STATES = ("fresh", "leased", "resting", "ready", "settled", "dying", "dead")
PRODUCER_HEADER = "raftline-producer"

Answer = dict[str, Any]


class TraceRoutes:
    """The routes under ``/v1/traces``."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        query = "topic partition key from to member group state limit after"
        router.add("GET", "/v1/traces/search", self.search, query=query, answer=SearchAnswer)
        router.add("GET", "/v1/traces/{id}", self.show, answer=TraceAnswer)
        router.add("GET", "/v1/messages/{id}/trace", self.show, answer=TraceAnswer)

    # ------------------------------------------------------------------ one message

    def show(self, exchange: Exchange, request: Request) -> None:
        """Tell what happened to a message."""
        topic, partition, offset, number = parse_any_id(request.params["id"])
        self._ask(exchange, request, topic, partition, offset, number)

    def _ask(
        self,
        exchange: Exchange,
        request: Request,
        topic: str,
        partition: int,
        offset: int,
        number: int,
    ) -> None:
        arguments: Answer = {"number": number} if number else {"offset": offset}

        def traced(answer: Answer) -> None:
            self._read(exchange, request, topic, partition, answer, number)

        self._calls.ask(
            topic, partition, "trace.show", arguments, request.timeout_ms, exchange.then(traced)
        )

    def _read(
        self,
        exchange: Exchange,
        request: Request,
        topic: str,
        partition: int,
        answer: Answer,
        number: int,
    ) -> None:
        """Read the message itself: it knows when it was published, by whom, and if it waited."""
        offset = int(answer["offset"])
        if offset < int(answer["log_start"]):
            exchange.json(self._timeline(request, topic, partition, answer, None))
            return

        def took(reply: ReadReply | RaftlineError) -> None:
            message = None
            if isinstance(reply, ReadReply):
                messages = open_batches(reply.batches)
                message = next((m for m in messages if m.offset == offset), None)
            waited = _waited_as(message, topic, partition)
            if waited and not number:  # its story begins before it was in the log
                self._ask(exchange, request, topic, partition, offset, waited)
                return
            exchange.json(self._timeline(request, topic, partition, answer, message))

        self._calls.read(
            topic,
            partition,
            offset,
            1,
            0,
            request.timeout_ms,
            lambda reply: exchange.guard(took, reply),
        )

    def _timeline(
        self,
        request: Request,
        topic: str,
        partition: int,
        answer: Answer,
        message: Message | None,
    ) -> Answer:
        names = {row.id: row.name for row in self._calls.catalog().nodes}
        nodes = [names.get(node, str(node)) for node in answer["nodes"]]
        story = Story(answer["events"]).lines()
        before = [line for line in story if "group" not in line]  # while it waited
        lines = _published(message, partition) + before + _replicated(message, before, nodes)
        lines += [line for line in story if "group" in line]
        offset = int(answer["offset"])
        until_ms = self._kept_until(topic, message)
        if offset >= 0:
            lines.append({"event": "RETAINED", "until_ms": until_ms, "at_ms": answer["at_ms"]})
        return {
            "id": request.params["id"],
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "groups": answer["groups"],
            "attempts": _attempts(lines),
            "latencies_ms": _latencies(lines),
            "timeline": lines,
            "traced": answer["traced"],
            "complete": answer["complete"],
        }

    def _kept_until(self, topic: str, message: Message | None) -> int | None:
        row = next((t for t in self._calls.catalog().topics if t.name == topic), None)
        if row is None or message is None:
            return None
        age = int(effective(row.settings)["retention_ms"])
        return None if age == FOREVER else message.timestamp_ms + age

    # ------------------------------------------------------------------ many

    def search(self, exchange: Exchange, request: Request) -> None:
        """Find messages by key, time window, member, group and state."""
        query, arguments = request.query, dict[str, Any]()
        topic = query.get("topic", "")
        row = next((t for t in self._calls.catalog().topics if t.name == topic), None)
        if not topic:
            raise InvalidArgument("a search needs a topic", "add topic=...")
        if row is None:
            raise UnknownTopic(topic)
        state = query.get("state", "")
        if state and state not in STATES:
            raise InvalidArgument(f"no state {state[:40]!r}", "use one of: " + ", ".join(STATES))
        limit = request.number("limit", LIMIT_DEFAULT, 1, LIMIT_MAX)
        arguments |= {
            "member": query.get("member", ""),
            "group": query.get("group", ""),
            "state": state,
            "limit": limit,
        }
        if "key" in query:
            arguments["key"] = query["key"].encode()
        if "from" in query:
            arguments["from_ms"] = _moment_of("from", query["from"])
        if "to" in query:
            arguments["to_ms"] = _moment_of("to", query["to"])
        places = dict.fromkeys(range(len(row.partitions)), -1)
        if "after" in query:
            places = _places_of(query["after"], len(row.partitions))
        if "partition" in query:
            partition = request.number("partition", 0, 0, len(row.partitions) - 1)
            places = {partition: places.get(partition, -1)}
        gather = _Found(topic, places, limit, exchange)
        for partition, after in places.items():
            self._calls.ask(
                topic,
                partition,
                "trace.search",
                {**arguments, "after": after},
                request.timeout_ms,
                gather.taker(partition),
            )


class Story:
    """The events of one message, told group by group."""

    __slots__ = ("_events", "_last")

    def __init__(self, events: list[Answer]) -> None:
        self._events = events
        self._last: dict[str, Answer] = {}  # by group: the last event

    def lines(self) -> list[Answer]:
        """Return the events in the words of a timeline."""
        return [line for event in self._events if (line := self._line(event)) is not None]

    def _line(self, event: Answer) -> Answer | None:
        kind = event["kind"]
        before = self._last.get(event.get("group", ""))
        if "group" in event:
            self._last[event["group"]] = event
        told = {name: event[name] for name in ("at_ms", "group", "member") if name in event}
        match kind:
            case "given":
                return {**told, **_given(event, before)}
            case "ended":
                return {**told, **_ENDED[event["verb"]], **_because(event)}
            case "died":
                attempts = event["attempts"]
                return {
                    **told,
                    "event": "DEAD_LETTERED",
                    "reason": event["reason"].upper(),  # as the dead letter says it
                    "attempts": attempts,
                }
            case "waits":
                return {**told, "event": "SCHEDULED", "due_ms": event["due_ms"]}
            case "moved":
                return {**told, "event": "MOVED", "due_ms": event["due_ms"]}
            case _:
                return {**told, "event": _WORDS[kind]}


_ENDED: dict[int, Answer] = {
    ACK: {"event": "ACKNOWLEDGED"},
    NACK: {"event": "NACKED"},
    REJECT: {"event": "REJECTED"},
    EXTEND: {"event": "EXTENDED"},
}
_WORDS = {
    "revived": "REDRIVEN",
    "forgotten": "PURGED",
    "replayed": "REPLAYED",
    "cancelled": "CANCELLED",
    "released": "RELEASED",
}


def _moment_of(name: str, text: str) -> int:
    return parse_moment_ms(name, int(text) if text.isascii() and text.isdigit() else text)


def _places_of(text: str, count: int) -> dict[int, int]:
    """Return behind which offset each partition goes on: 0:17,2:-1, as a search said in next."""
    found: dict[int, int] = {}
    for part in text.split(","):
        partition, _, after = part.partition(":")
        try:
            found[int(partition)] = int(after)
        except ValueError as error:
            hint = "use the next of the search before"
            raise InvalidArgument(f"after={text[:40]!r} is no place", hint) from error
    if not all(0 <= p < count and -1 <= after <= OFFSET_MAX for p, after in found.items()):
        raise InvalidArgument(f"after={text[:40]!r} is out of bounds", "use the next of a search")
    return found


def _given(event: Answer, before: Answer | None) -> Answer:
    """Say that it was delivered; again: why."""
    attempt = event["attempt"]
    if attempt == 1:
        return {"event": "DELIVERED", "attempt": attempt}
    reason = "lease expired"
    if before is not None and before["kind"] == "ended" and before["verb"] == NACK:
        reason = before["reason"] or "nacked"
    return {"event": "REDELIVERED", "attempt": attempt, "reason": reason}


def _waited_as(message: Message | None, topic: str, partition: int) -> int:
    """Return the number under which a message waited; 0: it did not."""
    waited = dict(message.headers).get(ID_HEADER) if message is not None else None
    try:
        found = parse_any_id((waited or b"").decode())
    except (InvalidArgument, UnicodeDecodeError):
        return 0
    return found[3] if found[:2] == (topic, partition) else 0


def _because(event: Answer) -> Answer:
    return {"reason": event["reason"]} if event["reason"] else {}


def _published(message: Message | None, partition: int) -> list[Answer]:
    if message is None:
        return []
    headers = dict(message.headers)
    producer = (headers.get(PRODUCER_HEADER) or b"").decode("utf-8", "replace")
    at_ms = message.timestamp_ms
    published: Answer = {"event": "PUBLISHED", "at_ms": at_ms, "partition": partition}
    if producer:
        published["producer"] = producer
    return [published]


def _replicated(message: Message | None, before: list[Answer], nodes: list[str]) -> list[Answer]:
    """Say which nodes have the message; one that waited has been in the log since its release."""
    if message is None:
        return []
    at_ms = before[-1]["at_ms"] if before else message.timestamp_ms
    return [{"event": "REPLICATED", "at_ms": at_ms, "nodes": nodes}]


def _attempts(lines: list[Answer]) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in lines:
        if "attempt" in line:
            group = line["group"]
            found[group] = max(found.get(group, 0), line["attempt"])
    return found


def _latencies(lines: list[Answer]) -> dict[str, dict[str, int]]:
    """Return per group the time from publishing to first delivery and to the end."""
    first = next((line["at_ms"] for line in lines if line["event"] == "PUBLISHED"), None)
    found: dict[str, dict[str, int]] = {}
    if first is None:
        return found
    for line in lines:
        if "group" not in line:
            continue
        row = found.setdefault(line["group"], {})
        if line["event"] in ("DELIVERED", "REDELIVERED"):
            row.setdefault("to_delivery", max(0, line["at_ms"] - first))
        elif line["event"] in ("ACKNOWLEDGED", "DEAD_LETTERED"):
            row["to_end"] = max(0, line["at_ms"] - first)
    return found


class _Found:
    """Gathers what the partitions found, the oldest first; none of it is left out by a page."""

    __slots__ = ("_answers", "_exchange", "_limit", "_missing", "_places", "_topic")

    def __init__(self, topic: str, places: dict[int, int], limit: int, exchange: Exchange) -> None:
        self._topic = topic
        self._places = places  # partition -> the offset behind which it goes on
        self._limit = limit
        self._exchange = exchange
        self._missing = len(places)
        self._answers: dict[int, Answer | RaftlineError] = {}

    def taker(self, partition: int) -> Callable[[Answer | RaftlineError], None]:
        """Return who hears of one partition."""

        def take(answer: Answer | RaftlineError) -> None:
            self._answers[partition] = answer
            self._missing -= 1
            if not self._missing:
                self._exchange.guard(self._reply)

        return take

    def _reply(self) -> None:
        pages: list[list[Answer]] = []
        more: dict[int, int] = {}
        complete = True
        for partition, answer in sorted(self._answers.items()):
            if isinstance(answer, RaftlineError):
                self._exchange.fail(answer)
                return
            pages.append([self._row(partition, message) for message in answer["messages"]])
            complete = complete and answer["complete"]
            if answer["after"] >= 0:
                more[partition] = answer["after"]
        # Each partition's rows stay in their order, so that a page ends at one offset in each.
        merged = list(heapq.merge(*pages, key=lambda row: row["timestamp"]))
        rows, rest = merged[: self._limit], merged[self._limit :]
        for row in rest:
            more[row["partition"]] = self._places[row["partition"]]
        cut = {row["partition"] for row in rest}
        for row in rows:
            if row["partition"] in cut:
                more[row["partition"]] = row["offset"]
        following = ",".join(f"{partition}:{after}" for partition, after in sorted(more.items()))
        page: Answer = {"messages": rows, "next": following or None, "complete": complete}
        self._exchange.json(page)

    def _row(self, partition: int, message: Answer) -> Answer:
        key = message["key"]
        return {
            "id": message_id(self._topic, partition, message["offset"]),
            "partition": partition,
            **message,
            "key": key.decode("utf-8", "replace") if key is not None else None,
        }
