"""Dead letters over HTTP: list, show, redrive, purge.

The work is done by the leader of the dead-letter partition (node/letters.py); here it is put into
JSON. ``form=envelope`` shows a letter the way GoQueue stores it.
"""

import binascii
from collections.abc import Callable
from typing import Any

import msgspec

from raftline.config.moments import parse_moment_ms, show_moment
from raftline.gateways.http.answers import LettersAnswer, WorkAnswer
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.fields import Int
from raftline.gateways.http.items import to_item
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.http.topics import decode
from raftline.gateways.letter_rows import PARTITION, Row
from raftline.gateways.message_ids import message_id, parse_message_id
from raftline.gateways.ports import Calls
from raftline.model.errors import (
    InvalidArgument,
    RaftlineError,
    TooLarge,
    UnknownMessage,
    UnknownTopic,
)
from raftline.model.limits import LETTERS_PER_CALL_MAX
from raftline.model.message import Message
from raftline.model.names import dead_letter_topic

LIMIT_DEFAULT = 100
RATE_MAX = 1_000_000
FORMS = ("plain", "envelope")
EXAMPLE = '{"ids": ["orders.dlq.0.7"]}, {"all": true} or {"filter": {"reason": "REJECTED"}}'
LIST_QUERY = "limit after group reason key from to state form"


class Filter(msgspec.Struct, forbid_unknown_fields=True):
    """Which letters: all that fit everything named. Times are those of giving up."""

    group: str | None = None
    reason: str | None = None
    key: str | None = None
    from_: str | Int | None = msgspec.field(default=None, name="from")
    to: str | Int | None = None


class Work(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a redrive or a purge: ``ids``, ``all`` or ``filter``."""

    ids: list[str] | None = None
    all: bool = False
    filter: Filter | None = None
    rate_per_s: Int = 0
    dry_run: bool = False
    limit: Int = LETTERS_PER_CALL_MAX
    after: str | Int | None = None


class Listed(msgspec.Struct, frozen=True):
    """A page of letters."""

    letters: list[Row]
    next: int


class Worked(msgspec.Struct, frozen=True):
    """What became of a redrive or a purge."""

    matched: int
    done: int
    skipped: list[tuple[int, str]]
    next: int
    dry_run: bool


class DeadLetterRoutes:
    """The routes under ``/v1/topics/{topic}/dlq``."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        one = "/v1/topics/{topic}/dlq"
        router.add("GET", one, self.list, query=LIST_QUERY, answer=LettersAnswer)
        router.add("GET", one + "/{id}", self.show, query="form", answer=dict[str, Any])
        router.add("POST", one + "/redrive", self.redrive, body=Work, answer=WorkAnswer)
        router.add("POST", one + "/purge", self.purge, body=Work, answer=WorkAnswer)

    def list(self, exchange: Exchange, request: Request) -> None:
        """List dead letters, oldest first."""
        topic, query, form = request.topic, request.query, _form(request)
        state = query.get("state")
        chosen = Filter(
            query.get("group"),
            query.get("reason"),
            query.get("key"),
            _moment(query.get("from")),
            _moment(query.get("to")),
        )
        wanted = {
            **_fields(chosen),
            "after": _offset(topic, query["after"]) if "after" in query else -1,
            "limit": request.number("limit", LIMIT_DEFAULT, 1, LETTERS_PER_CALL_MAX),
            "purged": state == "purged",
        }

        def answer(reply: dict[str, object]) -> None:
            page = msgspec.convert(reply, Listed)
            rows = [row for row in page.letters if state in (None, row.state)]
            exchange.json(
                {"letters": [form(topic, row) for row in rows], "next": _cursor(topic, page.next)}
            )

        self._ask(exchange, request, "letters.list", {"wanted": wanted}, answer)

    def show(self, exchange: Exchange, request: Request) -> None:
        """Show one dead letter."""
        topic, form = request.topic, _form(request)
        name = request.params["id"]
        offset = _offset(topic, name)

        def answer(reply: dict[str, object]) -> None:
            rows = msgspec.convert(reply, Listed).letters
            if not rows:
                raise UnknownMessage(name, "it is no dead letter, or retention took it")
            exchange.json(form(topic, rows[0]))

        wanted = {"offsets": [offset], "limit": 1, "purged": True}
        self._ask(exchange, request, "letters.list", {"wanted": wanted}, answer)

    def redrive(self, exchange: Exchange, request: Request) -> None:
        """Deliver dead letters again where they came from."""
        self._work(exchange, request, "letters.redrive", "redriven")

    def purge(self, exchange: Exchange, request: Request) -> None:
        """Be done with dead letters."""
        self._work(exchange, request, "letters.purge", "purged")

    def _work(self, exchange: Exchange, request: Request, name: str, done: str) -> None:
        topic = request.topic
        work: Work = decode(request.body, Work, EXAMPLE)
        if not 0 <= work.rate_per_s <= RATE_MAX:
            raise InvalidArgument(f"rate_per_s cannot be {work.rate_per_s}", "0 means at once")
        arguments: dict[str, object] = {
            "wanted": _wanted(topic, work),
            "rate_per_s": work.rate_per_s,
            "dry_run": work.dry_run,
        }

        def answer(reply: dict[str, object]) -> None:
            worked = msgspec.convert(reply, Worked)
            letters = dead_letter_topic(topic)
            skipped = [
                {"id": message_id(letters, PARTITION, offset), "why": why}
                for offset, why in worked.skipped
            ]
            exchange.json(
                {
                    "matched": worked.matched,
                    done: worked.done,
                    "skipped": skipped,
                    "next": _cursor(topic, worked.next),
                    "dry_run": worked.dry_run,
                }
            )

        self._ask(exchange, request, name, arguments, answer)

    def _ask(
        self,
        exchange: Exchange,
        request: Request,
        name: str,
        arguments: dict[str, object],
        answer: Callable[[dict[str, object]], None],
    ) -> None:
        """Ask the dead-letter partition; a topic that never had a dead letter has none of them."""
        topic = request.topic
        letters = dead_letter_topic(topic)
        none: list[object] = []
        empty = {"letters": none, "next": -1, "matched": 0, "done": 0, "skipped": none}

        def none_yet() -> None:
            self._calls.known_topic(topic)  # raises if there is no such topic either
            answer({**empty, "dry_run": arguments.get("dry_run", False)})

        def answered(reply: dict[str, object] | RaftlineError) -> None:
            if isinstance(reply, UnknownTopic) and reply.extras.get("topic") == letters:
                exchange.guard(none_yet)
            else:
                exchange.then(answer)(reply)

        self._calls.ask(letters, PARTITION, name, arguments, request.timeout_ms, answered)


def _wanted(topic: str, work: Work) -> dict[str, object]:
    """Return what the node is asked for."""
    if (work.ids is not None) + work.all + (work.filter is not None) != 1:
        text = "say which dead letters: one of ids, all, filter"
        raise InvalidArgument(text, f"the body looks like {EXAMPLE}")
    wanted: dict[str, object] = {
        "after": -1 if work.after is None else _offset(topic, str(work.after)),
        "limit": max(1, min(work.limit, LETTERS_PER_CALL_MAX)),
    }
    if work.ids is not None:
        if len(work.ids) > LETTERS_PER_CALL_MAX:
            raise TooLarge("dead letters in one call", len(work.ids), LETTERS_PER_CALL_MAX)
        wanted["offsets"] = sorted({_offset(topic, name) for name in work.ids})
    elif work.filter is not None:
        wanted |= _fields(work.filter)
    return wanted


def _fields(chosen: Filter) -> dict[str, object]:
    found: dict[str, object] = {"group": chosen.group, "reason": chosen.reason}
    found["key"] = None if chosen.key is None else chosen.key.encode()
    if chosen.from_ is not None:
        found["from_ms"] = parse_moment_ms("from", chosen.from_)
    if chosen.to is not None:
        found["to_ms"] = parse_moment_ms("to", chosen.to)
    return found


def _moment(text: str | None) -> str | int | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 19
    return int(text) if text is not None and is_number else text


def _offset(topic: str, name: str) -> int:
    """Return the offset of a letter named by its id, or by its offset alone."""
    if name.isascii() and name.isdigit() and len(name) < 19:
        return int(name)
    letters, partition, offset = parse_message_id(name)
    if (letters, partition) != (dead_letter_topic(topic), PARTITION):
        raise InvalidArgument(
            f"{name[:100]!r} is not the id of a dead letter of {topic}",
            f"ids look like {message_id(dead_letter_topic(topic), PARTITION, 7)}",
        )
    return offset


def _cursor(topic: str, offset: int) -> str | None:
    return None if offset < 0 else message_id(dead_letter_topic(topic), PARTITION, offset)


def _form(request: Request) -> Callable[[str, Row], dict[str, Any]]:
    form = request.query.get("form", "plain")
    if form not in FORMS:
        raise InvalidArgument(f"form={form[:40]!r} is not known", f"use {' or '.join(FORMS)}")
    return _plain if form == "plain" else _envelope


def _plain(topic: str, row: Row) -> dict[str, Any]:
    story = row.story
    message = Message(row.offset, row.timestamp_ms, row.key, row.value, tuple(row.headers))
    item = to_item(dead_letter_topic(topic), PARTITION, message)
    origin = {
        "id": message_id(story.topic, story.partition, story.offset),
        "topic": story.topic,
        "partition": story.partition,
        "offset": story.offset,
    }
    return {
        **msgspec.to_builtins(item),
        "state": row.state,
        "origin": origin,
        "group": story.group,
        "generation": story.generation,
        "reason": story.reason,
        "attempts": story.attempts,
        "first_ms": story.first_ms,
        "last_ms": story.last_ms,
        "dead_ms": story.dead_ms,
        "member": story.member,
        "error": story.error,
        **({"lost": story.lost} if story.lost else {}),
    }


def _envelope(_topic: str, row: Row) -> dict[str, Any]:
    story = row.story
    return {
        "original_topic": story.topic,
        "original_partition": story.partition,
        "original_offset": story.offset,
        "original_timestamp": show_moment(row.timestamp_ms),
        "key": _base64(row.key),
        "value": _base64(row.value),
        "delivery_attempts": story.attempts,
        "first_delivery": show_moment(story.first_ms),
        "last_delivery": show_moment(story.last_ms),
        "last_consumer": story.member,
        "last_group": story.group,
        "reason": story.reason,
        "last_error": story.error,
        "dlq_time": show_moment(story.dead_ms),
    }


def _base64(content: bytes | None) -> str | None:
    return None if content is None else binascii.b2a_base64(content, newline=False).decode()
