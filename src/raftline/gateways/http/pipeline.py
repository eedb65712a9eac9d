"""What jobs ask over HTTP: staged writes, the archived mark, bounds of all partitions at once.

Tasks of a job stage sealed batches, which nobody sees; who commits the job's batch publishes those
that count, once (node/staging.py). Extras of a chunk travel before its batch::

    Content-Type: application/vnd.raftline.stage
    4 bytes, big-endian: length of the extras;  extras: msgpack StageExtras;  one sealed batch
"""

from typing import Any

import msgspec

from raftline.gateways.fan import Call, Fan
from raftline.gateways.http import replies
from raftline.gateways.http.answers import (
    ArchivedAnswer,
    BoundsAnswer,
    DroppedAnswer,
    FenceAnswer,
    PublishedAnswer,
    StagedAnswer,
    TrimmedAnswer,
)
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.fields import Int
from raftline.gateways.http.routes import Request, Router, number_of
from raftline.gateways.http.topics import decode
from raftline.gateways.new_messages import TIMESTAMP_MS_MAX
from raftline.gateways.ports import Calls
from raftline.gateways.trace_topics import topic_named
from raftline.machines.partition.side_car import hash_key
from raftline.model.errors import InvalidArgument, RaftlineError
from raftline.model.limits import DEDUP_KEY_BYTES_MAX, OFFSET_MAX
from raftline.model.names import traced_topic

STAGE = "application/vnd.raftline.stage"
CHUNK_MAX = (1 << 32) - 1
_LENGTH_BYTES = 4


class StageExtras(msgspec.Struct, forbid_unknown_fields=True):
    """What a staged batch does not say of its messages itself."""

    priorities: list[tuple[int, int, int]] = []  # first, end, priority: places in the batch
    dedup: list[tuple[int, bytes]] = []  # place in the batch, dedup key
    dues_ms: list[int] = []  # one a message: all of them wait; or none


class PublishBody(msgspec.Struct, forbid_unknown_fields=True):
    """A batch and the attempts that count: task, attempt, how many chunks it staged here."""

    query: str
    batch: Int
    winners: list[tuple[Int, Int, Int]]
    after: Int | None = None  # the batch before it: refused if another is; -1: none


class AbandonBody(msgspec.Struct, forbid_unknown_fields=True):
    """Drop what a query staged, up to and with a batch."""

    query: str
    batch: Int


class ForgetBody(msgspec.Struct, forbid_unknown_fields=True):
    """Drop everything of a query."""

    query: str


class OffsetBody(msgspec.Struct, forbid_unknown_fields=True):
    """A place in a partition."""

    offset: Int


class PipelineRoutes:
    """The routes of jobs that write and archive."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        one = "/v1/topics/{topic}/partitions/{partition}"
        add, keys = router.add, "query batch task attempt chunk"
        add("PUT", f"{one}/stage", self.stage, query=keys, answer=StagedAnswer, sealed="in")
        add("POST", f"{one}/publish", self.publish, body=PublishBody, answer=PublishedAnswer)
        add("POST", f"{one}/abandon", self.abandon, body=AbandonBody, answer=DroppedAnswer)
        add("POST", f"{one}/forget", self.forget, body=ForgetBody, answer=DroppedAnswer)
        add("GET", f"{one}/fence", self.fence, query="query", answer=FenceAnswer)
        add("GET", f"{one}/archived", self.archived, answer=ArchivedAnswer)
        add("POST", f"{one}/archived", self.archive, body=OffsetBody, answer=ArchivedAnswer)
        add("POST", f"{one}/trim", self.trim, body=OffsetBody, answer=TrimmedAnswer)
        path = "/v1/topics/{topic}/offsets"
        add("GET", path, self.bounds, query="time", answer=BoundsAnswer)

    # ------------------------------------------------------------------ staging

    def stage(self, exchange: Exchange, request: Request) -> None:
        """Keep a chunk of a batch, invisible until that is published."""
        arguments: dict[str, object] = {"query": _query(request)}
        for name in ("batch", "task", "attempt", "chunk"):
            high = CHUNK_MAX if name == "chunk" else OFFSET_MAX
            arguments[name] = number_of(name, request.query.get(name, ""), 0, high)
        if request.carries(STAGE):
            arguments["extras"], arguments["payload"] = _split(request.body)
        elif request.carries(replies.BATCH):
            arguments["payload"] = request.body
        else:
            raise InvalidArgument(
                "a staged chunk is a sealed batch", f"send Content-Type: {replies.BATCH} or {STAGE}"
            )
        self._ask(exchange, request, "stage.put", arguments)

    def publish(self, exchange: Exchange, request: Request) -> None:
        """Put the chunks of a batch that count into the log, once."""
        example = '{"query": "q1", "batch": 7, "winners": [[0, 3, 2], [1, 4, 2]]}'
        self._ask(exchange, request, "stage.publish", _body(request, PublishBody, example))

    def abandon(self, exchange: Exchange, request: Request) -> None:
        """Drop what a query staged, up to and with a batch."""
        example = '{"query": "q1", "batch": 7}'
        self._ask(exchange, request, "stage.abandon", _body(request, AbandonBody, example))

    def forget(self, exchange: Exchange, request: Request) -> None:
        """Drop what a query staged and what is known of its batches."""
        arguments = _body(request, ForgetBody, '{"query": "q1"}')
        self._ask(exchange, request, "stage.forget", arguments)

    def fence(self, exchange: Exchange, request: Request) -> None:
        """Show the last batch of a query that is published, and what it has staged."""
        self._ask(exchange, request, "stage.show", {"query": _query(request)})

    # ------------------------------------------------------------------ the archived mark

    def archived(self, exchange: Exchange, request: Request) -> None:
        """Show up to where a partition is archived."""
        self._ask(exchange, request, "log.bounds", {}, ("archived",))

    def archive(self, exchange: Exchange, request: Request) -> None:
        """Note that everything below an offset is archived; it never goes back."""
        arguments = _body(request, OffsetBody, '{"offset": 1000}')
        self._ask(exchange, request, "log.archived", arguments)

    def trim(self, exchange: Exchange, request: Request) -> None:
        """Remove the messages below an offset."""
        wanted = decode(request.body, OffsetBody, '{"offset": 1000}')
        self._ask(exchange, request, "log.trim", {"offset": wanted.offset})

    def bounds(self, exchange: Exchange, request: Request) -> None:
        """Show the bounds of all partitions, and the first message at or after a time."""
        time_ms = request.number("time", -1, 0, TIMESTAMP_MS_MAX)
        count = len(topic_named(self._calls, request.topic).partitions)
        source, question = request.topic, "log.bounds"
        if isinstance(self._calls.locate(source, 0), RaftlineError):  # the trace of another
            source, question = traced_topic(request.topic), "trace.bounds"

        def answer(found: list[Any]) -> None:
            refusals = [reply for reply in found if isinstance(reply, RaftlineError)]
            if refusals:
                raise refusals[0]
            rows = [{"partition": at, **reply} for at, reply in enumerate(found)]
            exchange.json({"topic": request.topic, "partitions": rows})

        def call(partition: int) -> Call:
            arguments: dict[str, object] = {"time": time_ms}
            return lambda done: self._calls.ask(
                source, partition, question, arguments, request.timeout_ms, done
            )

        calls = [call(partition) for partition in range(count)]
        Fan(calls, lambda found: exchange.guard(answer, found)).start()

    def _ask(
        self,
        exchange: Exchange,
        request: Request,
        name: str,
        arguments: dict[str, object],
        only: tuple[str, ...] = (),
    ) -> None:
        def answer(reply: dict[str, Any]) -> None:
            exchange.json({key: reply[key] for key in only} if only else reply)

        self._calls.ask(
            request.topic,
            request.partition,
            name,
            arguments,
            request.timeout_ms,
            exchange.then(answer),
        )


def _query(request: Request) -> str:
    name = request.query.get("query", "")
    if not name:
        raise InvalidArgument("the query is not named", "add ?query=NAME")
    return name


def _body(request: Request, kind: type[Any], example: str) -> dict[str, object]:
    return msgspec.to_builtins(decode(request.body, kind, example))


def _split(body: bytes) -> tuple[tuple[object, ...], bytes]:
    """Return extras as the leader takes them, and the batch. Raises InvalidArgument."""
    length = int.from_bytes(body[:_LENGTH_BYTES], "big")
    end = _LENGTH_BYTES + length
    hint = "4 bytes of length, extras as msgpack, one sealed batch"
    if end >= len(body):
        raise InvalidArgument(f"extras of {length} bytes in a body of {len(body)}", hint)
    try:
        extras = _decode_extras(memoryview(body)[_LENGTH_BYTES:end])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"extras of a staged chunk: {error}", hint) from error
    if any(not 0 < len(key) <= DEDUP_KEY_BYTES_MAX for _, key in extras.dedup):
        raise InvalidArgument("a dedup key is out of bounds", f"1 to {DEDUP_KEY_BYTES_MAX} bytes")
    dedup = [(delta, hash_key(key)) for delta, key in extras.dedup]
    return (extras.priorities, dedup, extras.dues_ms), body[end:]


_decode_extras = msgspec.msgpack.Decoder(StageExtras).decode
