"""Waiting messages over gRPC: list, count, show, cancel, move."""

from collections.abc import Callable
from typing import Any

from raftline.config.moments import MOMENT_MS_MAX
from raftline.gateways.fan import Fan
from raftline.gateways.grpc.bounds import bounded
from raftline.gateways.grpc.calling import Call, answer_of, unwrap
from raftline.gateways.grpc.message_forms import to_message
from raftline.gateways.message_ids import message_id, parse_any_id, waiting_id
from raftline.gateways.ports import Calls
from raftline.gateways.waiting_pages import after_in, parse_cursor
from raftline.model.errors import InvalidArgument, UnknownMessage, UnknownPartition
from raftline.model.records import open_batch
from raftline.wire.proto.raftline.v1 import scheduled_pb2 as pb

LIMIT_DEFAULT, LIMIT_MAX = 100, 1_000
COUNTS = ("waiting", "released", "cancelled", "scheduled", "bytes")


class ScheduledService:
    """raftline.v1.ScheduledService."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def list(self, request: pb.ListScheduledRequest, call: Call) -> pb.ListScheduledReply:
        """List waiting messages in the order in which they are due."""
        topic = request.topic
        limit = bounded("limit", request.limit, LIMIT_DEFAULT, 1, LIMIT_MAX)
        after = parse_cursor(request.after) if request.after else None
        partitions = self._partitions(request)

        def arguments(partition: int) -> dict[str, object]:
            return {"after": after_in(after, partition), "limit": limit}

        replies = await self._ask_all(topic, partitions, "waiting.list", arguments, call)
        rows = sorted(
            (due_ms, partition, number, priority, reply["at_ms"])
            for partition, reply in zip(partitions, replies, strict=True)
            for due_ms, number, priority in reply["rows"]
        )
        count = sum(reply["count"] for reply in replies)
        page = rows[:limit]
        last = page[-1] if len(page) == limit and count > limit else None
        return pb.ListScheduledReply(
            messages=[_row(topic, *row) for row in page],
            count=count,
            next="" if last is None else f"{last[0]}.{last[1]}.{last[2]}",
        )

    async def stats(self, request: pb.ScheduledStatsRequest, call: Call) -> pb.ScheduledStatsReply:
        """Count what waits, and what waited."""
        partitions = self._partitions(request)
        replies = await self._ask_all(
            request.topic, partitions, "waiting.stats", lambda _: {}, call
        )
        dues = [r["earliest_due_ms"] for r in replies if r["earliest_due_ms"] >= 0]
        total = {name: sum(reply[name] for reply in replies) for name in COUNTS}
        total["earliest_due_ms"] = min(dues, default=-1)
        return pb.ScheduledStatsReply(
            total=_counts(-1, total),
            partitions=[_counts(p, reply) for p, reply in zip(partitions, replies, strict=True)],
        )

    async def show(self, request: pb.ShowScheduledRequest, call: Call) -> pb.ShowScheduledReply:
        """Show one message: what it holds while it waits, where it is after that."""
        topic, partition, number = _place(request.id)
        reply = await self._ask(request.id, "waiting.show", {}, call)
        shown = pb.ShowScheduledReply(state=reply["state"])
        if reply["state"] == "released" and reply["offset"] >= 0:
            shown.message_id = message_id(topic, partition, reply["offset"])
        if reply["state"] == "waiting":
            row = (reply["due_ms"], partition, number, reply["priority"], reply["at_ms"])
            shown.waiting.CopyFrom(_row(topic, *row))
            (message,) = open_batch(reply["batch"])
            shown.message.CopyFrom(to_message(topic, partition, message))
            shown.message.id, shown.message.offset = request.id, -1
        return shown

    async def cancel(
        self, request: pb.CancelScheduledRequest, call: Call
    ) -> pb.CancelScheduledReply:
        """Cancel a waiting message."""
        await self._ask(request.id, "waiting.cancel", {}, call)
        return pb.CancelScheduledReply()

    async def move(self, request: pb.MoveScheduledRequest, call: Call) -> pb.MoveScheduledReply:
        """Let a waiting message be due at another time."""
        match request.WhichOneof("due"):
            case "delay_ms" if request.delay_ms >= 0:
                due_ms = -request.delay_ms
            case "due_ms" if 0 < request.due_ms <= MOMENT_MS_MAX:
                due_ms = request.due_ms
            case _:
                raise InvalidArgument("say when the message is to be due", "delay_ms or due_ms")
        reply = await self._ask(request.id, "waiting.move", {"due_ms": due_ms}, call)
        return pb.MoveScheduledReply(due_ms=reply["due_ms"])

    async def _ask(
        self, name: str, question: str, arguments: dict[str, object], call: Call
    ) -> dict[str, Any]:
        topic, partition, number = _place(name)
        asked = {**arguments, "number": number}
        return await answer_of(
            lambda done: self._calls.ask(topic, partition, question, asked, call.timeout_ms, done)
        )

    async def _ask_all(
        self,
        topic: str,
        partitions: "list[int]",
        question: str,
        arguments: Callable[[int], dict[str, object]],
        call: Call,
    ) -> "list[dict[str, Any]]":
        timeout_ms = call.timeout_ms

        def asking(partition: int) -> Callable[[Callable[[Any], None]], None]:
            return lambda take: self._calls.ask(
                topic, partition, question, arguments(partition), timeout_ms, take
            )

        answers = await answer_of(lambda done: Fan([asking(p) for p in partitions], done).start())
        return [unwrap(answer) for answer in answers]

    def _partitions(
        self, request: pb.ListScheduledRequest | pb.ScheduledStatsRequest
    ) -> "list[int]":
        """Return the partitions that are asked: one, or all."""
        count = len(self._calls.known_topic(request.topic).partitions)
        if not request.HasField("partition"):
            return list(range(count))
        if not 0 <= request.partition < count:
            raise UnknownPartition(request.topic, request.partition, count)
        return [request.partition]


def _place(name: str) -> tuple[str, int, int]:
    topic, partition, offset, number = parse_any_id(name)
    if offset >= 0:
        raise UnknownMessage(name[:300], "it is no waiting message")
    return topic, partition, number


def _row(
    topic: str, due_ms: int, partition: int, number: int, priority: int, at_ms: int
) -> pb.WaitingMessage:
    return pb.WaitingMessage(
        id=waiting_id(topic, partition, number),
        partition=partition,
        number=number,
        due_ms=due_ms,
        in_ms=max(0, due_ms - at_ms),
        priority=priority,
    )


def _counts(partition: int, reply: dict[str, Any]) -> pb.ScheduledCounts:
    due_ms: int = reply["earliest_due_ms"]
    return pb.ScheduledCounts(
        partition=partition,
        next_due_ms=None if due_ms < 0 else due_ms,
        **{name: reply[name] for name in COUNTS},
    )
