"""Dead letters over gRPC: list, show, redrive, purge."""

from typing import Any

import msgspec

from raftline.gateways.grpc.bounds import bounded
from raftline.gateways.grpc.calling import Call, answer_of
from raftline.gateways.grpc.message_forms import to_message
from raftline.gateways.letter_rows import PARTITION, Row
from raftline.gateways.message_ids import message_id, parse_message_id
from raftline.gateways.ports import Calls
from raftline.model.errors import InvalidArgument, TooLarge, UnknownMessage, UnknownTopic
from raftline.model.limits import LETTERS_PER_CALL_MAX
from raftline.model.message import Message
from raftline.model.names import dead_letter_topic
from raftline.wire.proto.raftline.v1 import dead_letters_pb2 as pb

LIMIT_DEFAULT = 100
RATE_MAX = 1_000_000
SUFFIX = dead_letter_topic("")
NONE: dict[str, Any] = {"letters": [], "next": -1, "matched": 0, "done": 0, "skipped": []}


class DeadLetterService:
    """raftline.v1.DeadLetterService."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def list(self, request: pb.ListDeadLettersRequest, call: Call) -> pb.ListDeadLettersReply:
        """List dead letters, oldest first."""
        topic, state = request.topic, request.state
        wanted = {
            **_fields(request.filter),
            "after": _offset(topic, request.after) if request.after else -1,
            "limit": bounded("limit", request.limit, LIMIT_DEFAULT, 1, LETTERS_PER_CALL_MAX),
            "purged": state == "purged",
        }
        reply = await self._ask(topic, "letters.list", {"wanted": wanted}, call)
        rows = msgspec.convert(reply["letters"], list[Row])
        return pb.ListDeadLettersReply(
            letters=[_letter(topic, row) for row in rows if state in ("", row.state)],
            next=_cursor(topic, reply["next"]),
        )

    async def show(self, request: pb.ShowDeadLetterRequest, call: Call) -> pb.DeadLetter:
        """Show one dead letter."""
        topic = request.topic or parse_message_id(request.id)[0].removesuffix(SUFFIX)
        wanted = {"offsets": [_offset(topic, request.id)], "limit": 1, "purged": True}
        reply = await self._ask(topic, "letters.list", {"wanted": wanted}, call)
        rows = msgspec.convert(reply["letters"], list[Row])
        if not rows:
            raise UnknownMessage(request.id[:300], "it is no dead letter, or retention took it")
        return _letter(topic, rows[0])

    async def redrive(self, request: pb.DeadLetterWork, call: Call) -> pb.DeadLetterWorkReply:
        """Deliver dead letters again where they came from."""
        return await self._work(request, "letters.redrive", call)

    async def purge(self, request: pb.DeadLetterWork, call: Call) -> pb.DeadLetterWorkReply:
        """Be done with dead letters."""
        return await self._work(request, "letters.purge", call)

    async def _work(
        self, request: pb.DeadLetterWork, name: str, call: Call
    ) -> pb.DeadLetterWorkReply:
        topic = request.topic
        arguments = {
            "wanted": _wanted(request),
            "rate_per_s": bounded("rate_per_s", request.rate_per_s, 0, 0, RATE_MAX),
            "dry_run": request.dry_run,
        }
        reply = await self._ask(topic, name, arguments, call)
        letters = dead_letter_topic(topic)
        return pb.DeadLetterWorkReply(
            matched=reply["matched"],
            done=reply["done"],
            skipped=[
                pb.SkippedLetter(id=message_id(letters, PARTITION, offset), why=why)
                for offset, why in reply["skipped"]
            ],
            next=_cursor(topic, reply["next"]),
            dry_run=request.dry_run,
        )

    async def _ask(
        self, topic: str, name: str, arguments: dict[str, Any], call: Call
    ) -> dict[str, Any]:
        """Ask the dead-letter partition; a topic that never had a dead letter has none of them."""
        letters = dead_letter_topic(topic)
        try:
            return await answer_of(
                lambda done: self._calls.ask(
                    letters, PARTITION, name, arguments, call.timeout_ms, done
                )
            )
        except UnknownTopic as error:
            if error.extras.get("topic") != letters:
                raise
            self._calls.known_topic(topic)  # raises if there is no such topic either
            return NONE


def _wanted(request: pb.DeadLetterWork) -> dict[str, object]:
    """Return what the node is asked for. Raises InvalidArgument, TooLarge."""
    if bool(request.ids) + request.all + request.HasField("filter") != 1:
        raise InvalidArgument("say which dead letters", "one of ids, all, filter")
    topic = request.topic
    wanted: dict[str, object] = {
        "after": _offset(topic, request.after) if request.after else -1,
        "limit": bounded("limit", request.limit, LETTERS_PER_CALL_MAX, 1, LETTERS_PER_CALL_MAX),
    }
    if request.ids:
        if len(request.ids) > LETTERS_PER_CALL_MAX:
            raise TooLarge("dead letters in one call", len(request.ids), LETTERS_PER_CALL_MAX)
        wanted["offsets"] = sorted({_offset(topic, name) for name in request.ids})
    elif not request.all:
        wanted |= _fields(request.filter)
    return wanted


def _fields(chosen: pb.DeadLetterFilter) -> dict[str, object]:
    names = ("group", "reason", "key", "from_ms", "to_ms")
    return {name: getattr(chosen, name) for name in names if chosen.HasField(name)}


def _offset(topic: str, name: str) -> int:
    letters, partition, offset = parse_message_id(name)
    if (letters, partition) != (dead_letter_topic(topic), PARTITION):
        raise InvalidArgument(
            f"{name[:100]!r} is not the id of a dead letter of {topic}",
            f"ids look like {message_id(dead_letter_topic(topic), PARTITION, 7)}",
        )
    return offset


def _cursor(topic: str, offset: int) -> str:
    return "" if offset < 0 else message_id(dead_letter_topic(topic), PARTITION, offset)


def _letter(topic: str, row: Row) -> pb.DeadLetter:
    story = row.story
    message = Message(row.offset, row.timestamp_ms, row.key, row.value, tuple(row.headers))
    return pb.DeadLetter(
        message=to_message(dead_letter_topic(topic), PARTITION, message),
        state=row.state,
        origin_id=message_id(story.topic, story.partition, story.offset),
        origin_topic=story.topic,
        origin_partition=story.partition,
        origin_offset=story.offset,
        group=story.group,
        generation=story.generation,
        reason=story.reason,
        attempts=story.attempts,
        first_ms=story.first_ms,
        last_ms=story.last_ms,
        dead_ms=story.dead_ms,
        member=story.member,
        error=story.error,
        lost=story.lost,
    )
