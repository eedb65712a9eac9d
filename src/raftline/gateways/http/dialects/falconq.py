"""FalconQ's dialect: publish, consume (read and ack in one step), peek, and a look at the cluster.

A consumer id is a work group: each has all messages. A consume leases, acks and only then answers,
so a message is never given twice; with ``ack=manual`` it is a lease that the consumer settles under
``/messages``. Without ``partitionID`` both ways go over all partitions.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from raftline.gateways.fan import Call, Chain, Fan
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.deliveries import Delivered, DeliveryRoutes
from raftline.gateways.http.fields import Int
from raftline.gateways.http.items import NewItem, ReadItem, to_item
from raftline.gateways.http.messages import MessageRoutes
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.http.topics import decode
from raftline.gateways.lease_tokens import LeaseToken, decode_token
from raftline.gateways.ports import Calls
from raftline.gateways.publication import Result
from raftline.gateways.settles import Verdicts, settles_of
from raftline.machines.delivery.commands import ACK
from raftline.model.calls import Received
from raftline.model.errors import (
    Internal,
    InvalidArgument,
    OffsetOutOfRange,
    RaftlineError,
    UnknownPartition,
)
from raftline.model.limits import LEASE_MS_MAX, LEASE_MS_MIN, OFFSET_MAX, READ_BYTES_DEFAULT
from raftline.model.names import check_group_name
from raftline.model.priorities import PRIORITY_NAMES
from raftline.model.records import open_batches
from raftline.model.settings import parse_duration_ms

if TYPE_CHECKING:
    from raftline.model.message import Message

BATCH_MAX = 1_000
ONE_BY_ONE_MAX = 16  # a batch up to here is chosen anew, over all partitions, for each message
ALL = -1
TAG = "falconq"
_NAMES = {number: name for name, number in PRIORITY_NAMES.items()}


class PublishBody(msgspec.Struct, forbid_unknown_fields=True):
    """One message; the key chooses its partition."""

    message: str
    priority: str | Int | None = None
    partitionKey: str | None = None  # noqa: N815
    key: str | None = None


class Committed(msgspec.Struct):
    """Where a message is."""

    status: str
    topic: str
    partitionID: int  # noqa: N815
    offset: int
    priority: str | int
    id: str


class FalconMessage(msgspec.Struct):
    """One message: ``v`` its value, ``p`` its priority."""

    v: str | None
    p: str | int
    id: str
    offset: int
    partitionID: int  # noqa: N815
    key: str | None
    v_base64: str | UnsetType = UNSET  # where the value is no text
    lease_token: str | UnsetType = UNSET
    receipt_handle: str | UnsetType = UNSET


class FalconBatch(msgspec.Struct):
    """Messages; offsets are null where they are of several partitions."""

    topic: str
    partitionID: int  # noqa: N815
    messages: list[FalconMessage]
    startOffset: int | None  # noqa: N815
    count: int
    nextOffset: int | None  # noqa: N815
    nextOffsets: dict[int, int]  # noqa: N815
    consumerID: str | UnsetType = UNSET  # noqa: N815


class FalconqRoutes:
    """The routes under ``/topic`` and the list of names under ``/topics``."""

    __slots__ = ("_calls", "_deliveries", "_messages")

    def __init__(self, calls: Calls, messages: MessageRoutes, deliveries: DeliveryRoutes) -> None:
        self._calls = calls
        self._messages = messages
        self._deliveries = deliveries

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        add, one = router.add, "/topic/{topic}"
        add("POST", f"{one}/publish", self.publish, body=PublishBody, answer=Committed, tag=TAG)
        query = "consumerID batch partitionID ack lease"
        takes: dict[str, Any] = {"query": query, "answer": FalconBatch, "is_taking": True}
        add("GET", f"{one}/consume", self.consume, **takes, tag=TAG)
        query = "offset batch partitionID"
        add("GET", f"{one}/peek", self.peek, query=query, answer=FalconBatch, tag=TAG)
        add("GET", "/topics", self.topics, answer=dict[str, list[Any]], tag=TAG)
        query = "topic partitionID"
        add("GET", "/raft/stats", self.raft, query=query, answer=dict[str, str], tag=TAG)

    # ------------------------------------------------------------------ publish

    def publish(self, exchange: Exchange, request: Request) -> None:
        """Publish one message."""
        example = '{"message": "Urgent refund request", "priority": "high"}'
        body: PublishBody = decode(request.body, PublishBody, example)
        if body.key is not None and body.partitionKey is not None:
            raise InvalidArgument("key and partitionKey are one thing", "send one of them")
        key = body.partitionKey if body.key is None else body.key
        item = NewItem(value=body.message, key=key, priority=body.priority)

        def stored(results: list[Result], error: RaftlineError | None) -> None:
            result = results[0]
            if error is not None or result.offset is None or result.partition is None:
                exchange.fail(error or Internal("a message without an offset"))
                return
            number = 0 if result.priority is UNSET else result.priority
            exchange.json(
                Committed(
                    "message committed",
                    request.topic,
                    result.partition,
                    result.offset,
                    _NAMES.get(number, number),
                    result.id or "",
                )
            )

        self._messages.publish_items(
            exchange, request.topic, [item], request.timeout_ms, finish=stored
        )

    # ------------------------------------------------------------------ consume

    def consume(self, exchange: Exchange, request: Request) -> None:
        """Read on for a consumer id, and ack in the same step unless it says ack=manual."""
        consumer = request.query.get("consumerID", "")
        if not consumer:
            raise InvalidArgument("a consume names a consumer", "add consumerID=worker1")
        check_group_name(consumer)
        how = request.query.get("ack", "auto")
        if how not in ("auto", "manual"):
            raise InvalidArgument(f"ack={how[:40]!r} is neither", "write auto or manual")
        batch = request.number("batch", 1, 1, BATCH_MAX)
        partition = self._partition(request)
        lease_ms = parse_duration_ms(request.query.get("lease", "0"))
        if lease_ms and not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
            text = f"a lease of {lease_ms} ms is out of bounds"
            raise InvalidArgument(text, f"allowed is {LEASE_MS_MIN} to {LEASE_MS_MAX} ms")
        exchange.weigh(READ_BYTES_DEFAULT)
        found: list[Delivered] = []
        size = 0

        def answer() -> None:
            messages = [_message(item, item.partition, token=how == "manual") for item in found]
            exchange.json(_batch(request.topic, partition, messages, consumer))

        def lease() -> None:
            left = batch - len(found)
            count = 1 if partition == ALL and batch <= ONE_BY_ONE_MAX else left
            done = partial(exchange.guard, took)
            self._receive(exchange, request, consumer, partition, count, lease_ms, done)

        chain = Chain(lease)

        def took(received: Received | RaftlineError) -> None:
            nonlocal size
            try:
                if isinstance(received, RaftlineError):
                    raise received
                items = self._deliveries.items(request.topic, consumer, received)
            except RaftlineError:
                if not found:
                    raise
                items = []  # what is leased already must not wait out its lease
            found.extend(items)
            size += sum(len(item.value or item.value_base64 or "") for item in items)
            has_room = len(found) < batch and size < READ_BYTES_DEFAULT
            if items and has_room and partition == ALL:
                chain.next()
            elif how == "manual" or not found:
                answer()
            else:
                self._ack(exchange, request, found, answer)

        chain.next()

    def _receive(
        self,
        exchange: Exchange,
        request: Request,
        group: str,
        partition: int,
        count: int,
        lease_ms: int,
        done: Callable[[Any], None],
    ) -> None:
        self._calls.receive(
            request.topic,
            group,
            partition,
            count,
            READ_BYTES_DEFAULT,
            lease_ms,
            0,
            group,
            request.timeout_ms,
            done,
            is_wanted=exchange.is_wanted,
        )

    def _ack(
        self, exchange: Exchange, request: Request, items: list[Delivered], then: Callable[[], None]
    ) -> None:
        """Ack what was leased; answer when it is committed, with what really was."""
        rows: list[tuple[LeaseToken, int, int, str]] = [
            (decode_token(item.lease_token), ACK, 0, "") for item in items
        ]
        places, verdicts = settles_of(rows), Verdicts(rows)

        def finished(errors: list[RaftlineError | None]) -> None:
            failed = [error for error in errors if error is not None]
            if len(failed) == len(errors):
                raise failed[0]
            items[:] = [item for item, error in zip(items, errors, strict=True) if error is None]
            then()

        verdicts.expect(len(places), lambda errors: exchange.guard(finished, errors))
        for (topic, partition), settles in places.items():
            taker = verdicts.taker(topic, partition, settles)
            self._calls.settle(topic, partition, settles, request.timeout_ms, taker)

    # ------------------------------------------------------------------ peek

    def peek(self, exchange: Exchange, request: Request) -> None:
        """Look at messages from an offset on; nothing moves."""
        offset = request.number("offset", 0, 0, OFFSET_MAX)
        batch = request.number("batch", 1, 1, BATCH_MAX)
        partition = self._partition(request)
        topic = request.topic
        partitions = [partition]
        if partition == ALL:
            partitions = list(range(len(self._calls.known_topic(topic).partitions)))
        exchange.weigh(READ_BYTES_DEFAULT)
        bytes_max = max(1, READ_BYTES_DEFAULT // len(partitions))

        def reading(number: int) -> Call:
            def read(at: int, take: Callable[[Any], None]) -> None:
                self._calls.read(topic, number, at, bytes_max, 0, request.timeout_ms, take)

            def peek(take: Callable[[Any], None]) -> None:
                def took(reply: Any) -> None:
                    is_out = isinstance(reply, OffsetOutOfRange)
                    start = int(reply.extras["log_start"]) if is_out else 0
                    if start > offset:
                        read(start, take)  # retention took what was before
                    else:
                        take(reply)

                read(offset, took)

            return peek

        def took(replies: list[Any]) -> None:
            rows: list[tuple[int, int, int, Message]] = []
            for number, reply in zip(partitions, replies, strict=True):
                if isinstance(reply, OffsetOutOfRange):
                    continue  # this one is shorter
                if isinstance(reply, RaftlineError):
                    raise reply
                messages = [m for m in open_batches(reply.batches) if m.offset >= offset][:batch]
                rows += [(m.timestamp_ms, number, m.offset, m) for m in messages]
            rows.sort(key=lambda row: row[:3])
            found = [
                _message(to_item(topic, number, message), number)
                for _, number, _, message in rows[:batch]
            ]
            answer = _batch(topic, partition, found)
            if not found:
                answer.startOffset = answer.nextOffset = offset
            exchange.json(answer)

        calls = [reading(number) for number in partitions]
        Fan(calls, lambda replies: exchange.guard(took, replies)).start()

    # ------------------------------------------------------------------ looking

    def topics(self, exchange: Exchange, request: Request) -> None:
        """List the names of all topics; what they are is under ``details``."""
        rows = self._calls.known_topics()
        details = [
            {
                "name": row.name,
                "partitions": len(row.partitions),
                "replication_factor": row.replication_factor,
            }
            for row in rows
        ]
        exchange.json({"topics": [row.name for row in rows], "details": details})

    def raft(self, exchange: Exchange, request: Request) -> None:
        """Show the consensus of one partition as this node sees it."""
        name = request.query.get("topic", "")
        if not name or "partitionID" not in request.query:
            raise InvalidArgument("say which partition", "add topic=orders&partitionID=0")
        topic = self._calls.known_topic(name)
        number = request.number("partitionID", 0, 0, (1 << 31) - 1)
        if number >= len(topic.partitions):
            raise UnknownPartition(name, number, len(topic.partitions))
        row, status = topic.partitions[number], self._calls.status()
        state = "Follower" if status.node in row.replicas else "Elsewhere"
        names = {node.id: node.name for node in status.nodes}
        told = {
            "state": "Leader" if row.leader == status.node else state,
            "leader": names.get(row.leader, ""),
            "term": row.term,
            "commit_index": row.commit_end,
            "first_index": row.log_start,
            "last_log_index": row.commit_end,
            "applied_index": row.commit_end,
            "num_peers": len(row.replicas) - 1,
            "replicas": ",".join(names.get(node, str(node)) for node in row.replicas),
            "health": row.state,
        }
        exchange.json({name: str(value) for name, value in told.items()})

    def _partition(self, request: Request) -> int:
        """Return the partition that is meant; ALL if none is named."""
        row = self._calls.known_topic(request.topic)
        number = request.number("partitionID", ALL, ALL, (1 << 31) - 1)
        if number >= len(row.partitions):
            raise UnknownPartition(request.topic, number, len(row.partitions))
        return number


def _message(item: ReadItem, partition: int, *, token: bool = False) -> FalconMessage:
    number = 0 if item.priority is UNSET else item.priority
    message = FalconMessage(
        item.value, _NAMES.get(number, number), item.id, item.offset, partition, item.key
    )
    message.v_base64 = item.value_base64
    if token and isinstance(item, Delivered):
        message.lease_token = message.receipt_handle = item.lease_token
    return message


def _batch(
    topic: str, partition: int, messages: list[FalconMessage], consumer: str | UnsetType = UNSET
) -> FalconBatch:
    ends: dict[int, int] = {}
    for message in messages:
        end = ends.get(message.partitionID, 0)
        ends[message.partitionID] = max(end, message.offset + 1)
    is_one = len(ends) == 1
    return FalconBatch(
        topic,
        partition,
        messages,
        min(message.offset for message in messages) if is_one else None,
        len(messages),
        next(iter(ends.values())) if is_one else None,
        ends,
        consumer,
    )
