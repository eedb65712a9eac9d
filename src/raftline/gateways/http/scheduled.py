"""Waiting messages over HTTP: list, show, cancel, move, count.

A message that was published with a delay waits under its id and is in no log until it is due. The
work is done by the leader of its partition (node/waiting.py). Lists of several partitions are
merged in the order in which messages are due.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from raftline.config.moments import parse_moment_ms, show_moment
from raftline.gateways.fan import Gather
from raftline.gateways.http.answers import (
    CancelAnswer,
    MoveAnswer,
    WaitingAnswer,
    WaitingCounts,
    WaitingList,
)
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.fields import Int
from raftline.gateways.http.items import to_item
from raftline.gateways.http.routes import Request, Router, number_of
from raftline.gateways.http.topics import decode
from raftline.gateways.message_ids import message_id, parse_any_id, waiting_id
from raftline.gateways.ports import Calls
from raftline.gateways.waiting_pages import after_in, parse_cursor
from raftline.model.errors import (
    InvalidArgument,
    RaftlineError,
    UnknownMessage,
    UnknownPartition,
)
from raftline.model.limits import OFFSET_MAX, PARTITIONS_MAX
from raftline.model.records import open_batch
from raftline.model.settings import parse_duration_ms

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
EXAMPLE = '{"delay": "30s"} or {"deliverAt": "2026-01-31T12:00:00Z"}'
COUNTS = ("waiting", "released", "cancelled", "scheduled", "bytes")


class Moving(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a move: one of the two."""

    delay: str | Int | None = None
    deliverAt: str | Int | None = None  # noqa: N815


class ScheduledRoutes:
    """The routes under ``/v1/topics/{topic}/delayed``."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        one = "/v1/topics/{topic}/delayed"
        router.add("GET", one, self.list, query="partition limit after", answer=WaitingList)
        router.add("GET", one + "/{id}", self.show, answer=WaitingAnswer)
        router.add("DELETE", one + "/{id}", self.cancel, answer=CancelAnswer)
        router.add("POST", one + "/{id}/move", self.move, body=Moving, answer=MoveAnswer)
        two = one + "/{partition}/{number}"
        router.add("GET", two, self.show, answer=WaitingAnswer)
        router.add("DELETE", two, self.cancel, answer=CancelAnswer)
        path = "/v1/topics/{topic}/delay/stats"
        router.add("GET", path, self.stats, query="partition", answer=WaitingCounts)

    def list(self, exchange: Exchange, request: Request) -> None:
        """List waiting messages in the order in which they are due."""
        topic = request.topic
        limit = request.number("limit", LIMIT_DEFAULT, 1, LIMIT_MAX)
        text = request.query.get("after")
        after = None if text is None else parse_cursor(text)
        partitions = self._partitions(request)

        def answer(replies: list[Any]) -> None:
            rows = sorted(
                [
                    (due_ms, partition, number, priority, reply["at_ms"])
                    for partition, reply in zip(partitions, replies, strict=True)
                    for due_ms, number, priority in reply["rows"]
                ]
            )
            page = rows[:limit]
            more = sum(reply["count"] for reply in replies) > len(page)
            last = page[-1] if page and more and len(page) == limit else None
            exchange.json(
                {
                    "messages": [_row(topic, *row) for row in page],
                    "count": sum(reply["count"] for reply in replies),
                    "next": None if last is None else f"{last[0]}.{last[1]}.{last[2]}",
                }
            )

        def arguments(partition: int) -> dict[str, object]:
            return {"after": after_in(after, partition), "limit": limit}

        self._ask_all(exchange, request, partitions, "waiting.list", arguments, answer)

    def stats(self, exchange: Exchange, request: Request) -> None:
        """Count what waits, and what waited."""
        partitions = self._partitions(request)

        def answer(replies: list[Any]) -> None:
            rows = [
                {
                    "partition": partition,
                    **{name: reply[name] for name in COUNTS},
                    "next_deliverAt": _moment(reply["earliest_due_ms"]),
                }
                for partition, reply in zip(partitions, replies, strict=True)
            ]
            dues = [r["earliest_due_ms"] for r in replies if r["earliest_due_ms"] >= 0]
            exchange.json(
                {
                    "topic": request.topic,
                    **{name: sum(reply[name] for reply in replies) for name in COUNTS},
                    "next_deliverAt": _moment(min(dues, default=-1)),
                    "partitions": rows,
                }
            )

        self._ask_all(exchange, request, partitions, "waiting.stats", lambda _: {}, answer)

    def show(self, exchange: Exchange, request: Request) -> None:
        """Show one message: what it holds while it waits, where it is after that."""
        topic = request.topic
        partition, number = _place(request)

        def answer(reply: dict[str, Any]) -> None:
            body: dict[str, Any] = {
                "id": waiting_id(topic, partition, number),
                "partition": partition,
                "number": number,
                "state": reply["state"],
            }
            if reply["state"] == "released" and reply["offset"] >= 0:
                body["offset"] = reply["offset"]
                body["message_id"] = message_id(topic, partition, reply["offset"])
            if reply["state"] == "waiting":
                row = (reply["due_ms"], partition, number, reply["priority"], reply["at_ms"])
                body |= {**_row(topic, *row), **_content(topic, partition, reply["batch"])}
            exchange.json(body)

        self._ask(exchange, request, partition, "waiting.show", {"number": number}, answer)

    def cancel(self, exchange: Exchange, request: Request) -> None:
        """Cancel a waiting message: once this is answered it is never delivered."""
        topic = request.topic
        partition, number = _place(request)

        def answer(_reply: dict[str, Any]) -> None:
            exchange.json({"id": waiting_id(topic, partition, number), "cancelled": True})

        self._ask(exchange, request, partition, "waiting.cancel", {"number": number}, answer)

    def move(self, exchange: Exchange, request: Request) -> None:
        """Let a waiting message be due at another time."""
        topic = request.topic
        partition, number = _place(request)
        wanted = decode(request.body, Moving, EXAMPLE)
        if (wanted.delay is None) == (wanted.deliverAt is None):
            raise InvalidArgument("say when the message is to be due", f"send {EXAMPLE}")
        if wanted.deliverAt is not None:
            due_ms = parse_moment_ms("deliverAt", wanted.deliverAt)
        else:
            due_ms = -_delay_ms(wanted.delay)

        def answer(reply: dict[str, Any]) -> None:
            name = waiting_id(topic, partition, number)
            exchange.json(
                {"id": name, "deliverAt": show_moment(reply["due_ms"]), "due_ms": reply["due_ms"]}
            )

        arguments: dict[str, object] = {"number": number, "due_ms": due_ms}
        self._ask(exchange, request, partition, "waiting.move", arguments, answer)

    # ------------------------------------------------------------------ asking

    def _ask(
        self,
        exchange: Exchange,
        request: Request,
        partition: int,
        name: str,
        arguments: dict[str, object],
        answer: Callable[[dict[str, Any]], None],
    ) -> None:
        self._calls.ask(
            request.topic, partition, name, arguments, request.timeout_ms, exchange.then(answer)
        )

    def _ask_all(
        self,
        exchange: Exchange,
        request: Request,
        partitions: "list[int]",
        name: str,
        arguments: Callable[[int], dict[str, object]],
        answer: "Callable[[list[Any]], None]",
    ) -> None:
        """Ask several partitions; the first refusal is the answer of all."""

        def gathered(replies: "list[Any]") -> None:
            refusals = [reply for reply in replies if isinstance(reply, RaftlineError)]
            if refusals:
                exchange.fail(refusals[0])
            else:
                exchange.guard(answer, replies)

        gather = Gather(len(partitions), gathered)
        for slot, partition in enumerate(partitions):
            self._calls.ask(
                request.topic,
                partition,
                name,
                arguments(partition),
                request.timeout_ms,
                gather.taker(slot),
            )

    def _partitions(self, request: Request) -> "list[int]":
        """Return the partitions that are asked: one, or all."""
        count = len(self._calls.known_topic(request.topic).partitions)
        if "partition" in request.query:
            partition = request.number("partition", 0, 0, PARTITIONS_MAX)
            if partition >= count:
                raise UnknownPartition(request.topic, partition, count)
            return [partition]
        return list(range(count))


def _place(request: Request) -> tuple[int, int]:
    """Return partition and number of the message that the path names."""
    if "number" in request.params:
        text = request.params["number"].removeprefix("w")
        return request.partition, number_of("number", text, 0, OFFSET_MAX)
    name = request.params["id"]
    topic, partition, offset, number = parse_any_id(name)
    if topic != request.topic or offset >= 0:
        raise UnknownMessage(name, f"it is no waiting message of {request.topic}")
    return partition, number


def _row(
    topic: str, due_ms: int, partition: int, number: int, priority: int, at_ms: int
) -> dict[str, Any]:
    return {
        "id": waiting_id(topic, partition, number),
        "partition": partition,
        "number": number,
        "deliverAt": show_moment(due_ms),
        "due_ms": due_ms,
        "in_ms": max(0, due_ms - at_ms),
        "priority": priority,
    }


def _content(topic: str, partition: int, batch: bytes) -> dict[str, Any]:
    (message,) = open_batch(batch)
    item = msgspec.to_builtins(to_item(topic, partition, message))
    return {name: value for name, value in item.items() if name not in ("id", "offset")}


def _moment(time_ms: int) -> str | None:
    return None if time_ms < 0 else show_moment(time_ms)


def _delay_ms(delay: str | int | None) -> int:
    delay_ms = delay if isinstance(delay, int) else parse_duration_ms(delay or "")
    if delay_ms < 0:
        raise InvalidArgument(f"a delay of {delay_ms} ms is in the past")
    return delay_ms
