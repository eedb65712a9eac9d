"""Traces as people see them: the timeline of one message, and finding messages.

The node answers with events in ranges; here they become the words that people know.
"""

import heapq
from collections.abc import Callable
from typing import Any

import msgspec

from raftline.gateways.message_ids import message_id, parse_any_id
from raftline.gateways.new_messages import ID_HEADER
from raftline.gateways.ports import Calls
from raftline.machines.delivery.commands import ACK, EXTEND, NACK, REJECT, RELEASE
from raftline.model.calls import ReadReply
from raftline.model.errors import InvalidArgument, RaftlineError, UnknownPartition
from raftline.model.limits import OFFSET_MAX
from raftline.model.message import Message
from raftline.model.records import open_batches
from raftline.model.settings import FOREVER, effective

LIMIT_DEFAULT, LIMIT_MAX = 100, 1_000
STATES = ("fresh", "leased", "resting", "ready", "settled", "dying", "dead")
PRODUCER_HEADER = "raftline-producer"

Answer = dict[str, Any]
Tell = Callable[[Any], None]
"""Hears an answer, or the exception it is."""


class SearchWish(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages are meant."""

    topic: str
    partition: int | None = None
    key: bytes | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    member: str = ""
    group: str = ""
    state: str = ""
    limit: int = LIMIT_DEFAULT
    after: str = ""  # next of the page before


class Traces:
    """Asks the node, and tells what it says."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def show(self, name: str, timeout_ms: int, done: Tell) -> None:
        """Tell what happened to a message. Raises InvalidArgument: it is no id."""
        _Showing(self._calls, name, timeout_ms, done).start()

    def search(self, wish: SearchWish, timeout_ms: int, done: Tell) -> None:
        """Find messages. Raises InvalidArgument, UnknownTopic, UnknownPartition."""
        if not wish.topic:
            raise InvalidArgument("a search needs a topic", "name the topic: topic=orders")
        row = self._calls.known_topic(wish.topic)
        if wish.state and wish.state not in STATES:
            hint = "use one of: " + ", ".join(STATES)
            raise InvalidArgument(f"no state {wish.state[:40]!r}", hint)
        count = len(row.partitions)
        places = _places_of(wish.after, count) if wish.after else dict.fromkeys(range(count), -1)
        if wish.partition is not None:
            if not 0 <= wish.partition < count:
                raise UnknownPartition(wish.topic, wish.partition, count)
            places = {wish.partition: places.get(wish.partition, -1)}
        gather = _Found(wish.topic, places, wish.limit, done)
        arguments = _arguments(wish)
        for partition, after in places.items():
            asked: dict[str, object] = {**arguments, "after": after}
            take = gather.taker(partition)
            self._calls.ask(wish.topic, partition, "trace.search", asked, timeout_ms, take)


class _Showing:
    """One timeline on its way."""

    __slots__ = ("_calls", "_done", "_name", "_partition", "_timeout_ms", "_topic")

    def __init__(self, calls: Calls, name: str, timeout_ms: int, done: Tell) -> None:
        self._calls = calls
        self._name = name
        self._timeout_ms = timeout_ms
        self._done = done
        self._topic, self._partition = "", 0

    def start(self) -> None:
        self._topic, self._partition, offset, number = parse_any_id(self._name)
        self._ask(offset, number)

    def _ask(self, offset: int, number: int) -> None:
        arguments: Answer = {"number": number} if number else {"offset": offset}

        def traced(answer: Answer | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                self._done(answer)
            else:
                self._read(answer, number)

        self._calls.ask(
            self._topic, self._partition, "trace.show", arguments, self._timeout_ms, traced
        )

    def _read(self, answer: Answer, number: int) -> None:
        """Read the message itself: it knows when it was published, by whom, and if it waited."""
        offset = int(answer["offset"])
        if offset < int(answer["log_start"]):
            self._done(self._timeline(answer, None))
            return

        def took(reply: ReadReply | RaftlineError) -> None:
            message = None
            try:
                if isinstance(reply, ReadReply):
                    messages = open_batches(reply.batches)
                    message = next((m for m in messages if m.offset == offset), None)
            except RaftlineError as error:
                self._done(error)
                return
            waited = _waited_as(message, self._topic, self._partition)
            if waited and not number:  # its story begins before it was in the log
                self._ask(offset, waited)
            else:
                self._done(self._timeline(answer, message))

        self._calls.read(self._topic, self._partition, offset, 1, 0, self._timeout_ms, took)

    def _timeline(self, answer: Answer, message: Message | None) -> Answer:
        names = {row.id: row.name for row in self._calls.catalog().nodes}
        nodes = [names.get(node, str(node)) for node in answer["nodes"]]
        story = Story(answer["events"]).lines()
        before = [line for line in story if "group" not in line]  # while it waited
        lines = _published(message, self._partition) + before + _replicated(message, before, nodes)
        lines += [line for line in story if "group" in line]
        offset = int(answer["offset"])
        until_ms = self._kept_until(message)
        if offset >= 0:
            lines.append({"event": "RETAINED", "until_ms": until_ms, "at_ms": answer["at_ms"]})
        return {
            "id": self._name,
            "topic": self._topic,
            "partition": self._partition,
            "offset": offset,
            "groups": answer["groups"],
            "attempts": _attempts(lines),
            "latencies_ms": _latencies(lines),
            "timeline": lines,
            "traced": answer["traced"],
            "complete": answer["complete"],
        }

    def _kept_until(self, message: Message | None) -> int | None:
        row = next((t for t in self._calls.catalog().topics if t.name == self._topic), None)
        if row is None or message is None:
            return None
        age = int(effective(row.settings)["retention_ms"])
        return None if age == FOREVER else message.timestamp_ms + age


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
    RELEASE: {"event": "GIVEN_BACK"},
}
_WORDS = {
    "revived": "REDRIVEN",
    "forgotten": "PURGED",
    "replayed": "REPLAYED",
    "cancelled": "CANCELLED",
    "released": "RELEASED",
}


def _arguments(wish: SearchWish) -> Answer:
    arguments: Answer = {
        "member": wish.member,
        "group": wish.group,
        "state": wish.state,
        "limit": wish.limit,
    }
    given = {"key": wish.key, "from_ms": wish.from_ms, "to_ms": wish.to_ms}
    return arguments | {name: value for name, value in given.items() if value is not None}


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
    if before is not None and before["kind"] == "ended" and before["verb"] in (NACK, RELEASE):
        reason = before["reason"] or ("nacked" if before["verb"] == NACK else "given back")
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
    last: dict[str, int] = {}
    for line in lines:
        group = line.get("group", "")
        if "attempt" in line:
            last[group] = line["attempt"]
            found[group] = max(found.get(group, 0), line["attempt"])
        elif line["event"] == "GIVEN_BACK" and found.get(group, 0) == last.get(group):
            found[group] -= 1  # it did not count
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

    __slots__ = ("_answers", "_done", "_limit", "_missing", "_places", "_topic")

    def __init__(self, topic: str, places: dict[int, int], limit: int, done: Tell) -> None:
        self._topic = topic
        self._places = places  # partition -> the offset behind which it goes on
        self._limit = limit
        self._done = done
        self._missing = len(places)
        self._answers: dict[int, Answer | RaftlineError] = {}

    def taker(self, partition: int) -> Callable[[Answer | RaftlineError], None]:
        """Return who hears of one partition."""

        def take(answer: Answer | RaftlineError) -> None:
            self._answers[partition] = answer
            self._missing -= 1
            if not self._missing:
                self._reply()

        return take

    def _reply(self) -> None:
        pages: list[list[Answer]] = []
        more: dict[int, int] = {}
        complete = True
        for partition, answer in sorted(self._answers.items()):
            if isinstance(answer, RaftlineError):
                self._done(answer)
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
        self._done({"messages": rows, "next": following or None, "complete": complete})

    def _row(self, partition: int, message: Answer) -> Answer:
        name = message_id(self._topic, partition, message["offset"])
        return {"id": name, "partition": partition, **message}
