"""The dialect of sreekar2307/queue: consumers poll one message of a partition they own, and ack it.

The rules are those of ``gateways/queue_consumers.py``. Names in bodies may be written in any case,
as the original takes them; bytes are base64.
"""

import binascii
from typing import Any

import msgspec

from raftline.config.moments import show_moment
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.items import NewItem
from raftline.gateways.http.messages import MessageRoutes
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.ports import Calls
from raftline.gateways.publication import Result
from raftline.gateways.queue_consumers import (
    ConsumerView,
    QueueConsumers,
    message_number,
    parse_message_number,
    parse_partition_id,
    partition_ids,
)
from raftline.model.errors import Internal, InvalidArgument, RaftlineError
from raftline.model.groups import GroupView
from raftline.model.message import Message
from raftline.node.ports import Clock

TAG = "sreekar"


class SendBody(msgspec.Struct, forbid_unknown_fields=True):
    """One message; ``data`` is base64. Without a key the data chooses the partition."""

    topic: str
    data: str
    partitionKey: str = ""  # noqa: N815


class PollBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who polls which partition (``orders-0``)."""

    consumerID: str  # noqa: N815
    partitionID: str  # noqa: N815


class AckBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who acks which message; ``ID`` is base64 of eight bytes."""

    consumerID: str  # noqa: N815
    partitionID: str  # noqa: N815
    ID: str


class ConnectBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who reads which topics with whom."""

    consumerID: str  # noqa: N815
    consumerGroup: str  # noqa: N815
    topics: list[str]


class PingBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who lives."""

    consumerID: str  # noqa: N815
    pingAt: str | None = None  # noqa: N815


class QueueMessage(msgspec.Struct):
    """One message, in the original's spelling."""

    Topic: str
    PartitionKey: str
    PartitionID: str
    Data: str
    ID: str


class QueueGroup(msgspec.Struct):
    """A group: its consumers and what they read."""

    id: str
    consumers: list[str]
    topics: list[str]


class ConnectedAnswer(msgspec.Struct):
    """What a consumer has, and with whom it shares."""

    consumer: ConsumerView
    consumerGroup: QueueGroup  # noqa: N815


class SreekarRoutes:
    """The routes of sreekar2307/queue that the native API does not have."""

    __slots__ = ("_calls", "_clock", "_consumers", "_messages")

    def __init__(self, clock: Clock, calls: Calls, messages: MessageRoutes) -> None:
        self._clock = clock
        self._calls = calls
        self._messages = messages
        self._consumers = QueueConsumers(calls)

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        add = router.add
        add("POST", "/sendMessage", self.send, body=SendBody, answer=QueueMessage, tag=TAG)
        add(
            "GET",
            "/receiveMessage",
            self.receive,
            query="consumerID partitionID",
            body=PollBody,
            body_optional=True,
            answer=QueueMessage | None,
            tag=TAG,
        )
        add("POST", "/ackMessage", self.ack, body=AckBody, answer=dict[str, bool], tag=TAG)
        add("POST", "/connect", self.connect, body=ConnectBody, answer=ConnectedAnswer, tag=TAG)
        add("POST", "/healthCheck", self.ping, body=PingBody, answer=ConsumerView, tag=TAG)

    def send(self, exchange: Exchange, request: Request) -> None:
        """Send one message."""
        body: SendBody = _decode(request.body, SendBody, '{"topic": "orders", "data": "aGk="}')
        data = _bytes("data", body.data)
        if not data:
            raise InvalidArgument("data is empty", "send at least one byte, as base64")
        key = body.partitionKey
        item = NewItem(value_base64=body.data, key=key or None)

        def stored(results: list[Result], error: RaftlineError | None) -> None:
            result = results[0]
            if error is not None or result.offset is None:
                exchange.fail(error or Internal("a message without an offset"))
                return
            partition = f"{body.topic}-{result.partition}"
            number = _text(message_number(result.offset))
            exchange.json(QueueMessage(body.topic, key, partition, body.data, number))

        def chosen(partitions: list[int]) -> None:
            self._messages.publish_items(
                exchange,
                body.topic,
                [item],
                request.timeout_ms,
                partitions[0],
                finish=stored,
            )

        choosing: list[bytes | None] = [key.encode() if key else data]
        self._messages.choose(body.topic, choosing, request.timeout_ms, exchange.then(chosen))

    def receive(self, exchange: Exchange, request: Request) -> None:
        """Read the first message that the consumer's group has not acked; null if there is none."""
        names = ("consumerID", "partitionID")
        if request.body:
            body: PollBody = _decode(request.body, PollBody, '{"consumerID": "c-1", ...}')
        elif all(name in request.query for name in names):
            body = PollBody(*[request.query[name] for name in names])
        else:
            raise InvalidArgument(
                "a poll names consumerID and partitionID", "as JSON in the body, or as parameters"
            )
        topic, partition = parse_partition_id(body.partitionID)

        def polled(found: tuple[int, Message] | None) -> None:
            if found is None:
                exchange.json(None)
                return
            offset, message = found
            key = (message.key or b"").decode("utf-8", "replace")
            data, number = _text(message.value or b""), _text(message_number(offset))
            exchange.json(QueueMessage(topic, key, body.partitionID, data, number))

        done = exchange.then(polled)
        self._consumers.poll(body.consumerID, topic, partition, request.timeout_ms, done)

    def ack(self, exchange: Exchange, request: Request) -> None:
        """Ack one message."""
        body: AckBody = _decode(request.body, AckBody, '{"consumerID": "c-1", ...}')
        topic, partition = parse_partition_id(body.partitionID)
        offset = parse_message_number(_bytes("ID", body.ID))
        acked = exchange.then(lambda _: exchange.json({"acked": True}))
        self._consumers.ack(body.consumerID, topic, partition, offset, request.timeout_ms, acked)

    def connect(self, exchange: Exchange, request: Request) -> None:
        """Join a group; answered when its partitions have moved."""
        example = '{"consumerID": "c-1", "consumerGroup": "billing", "topics": ["orders"]}'
        body: ConnectBody = _decode(request.body, ConnectBody, example)

        def connected(view: GroupView) -> None:
            group = QueueGroup(view.group, [row.member for row in view.members], _topics(view))
            exchange.json(ConnectedAnswer(self._consumer(view, body.consumerID), group))

        self._consumers.connect(
            body.consumerID,
            body.consumerGroup,
            body.topics,
            request.timeout_ms,
            exchange.then(connected),
        )

    def ping(self, exchange: Exchange, request: Request) -> None:
        """Say that a consumer lives; hear what it has."""
        body: PingBody = _decode(request.body, PingBody, '{"consumerID": "c-1"}')

        def beaten(_: Any) -> None:
            group = self._consumers.group_of(body.consumerID)
            told = exchange.then(lambda view: exchange.json(self._consumer(view, body.consumerID)))
            self._consumers.show(group, request.timeout_ms, told)

        self._consumers.beat(body.consumerID, request.timeout_ms, exchange.then(beaten))

    def _consumer(self, view: GroupView, consumer: str) -> ConsumerView:
        row = next((member for member in view.members if member.member == consumer), None)
        return ConsumerView(
            id=consumer,
            partitions=[] if row is None else partition_ids(row.partitions),
            consumer_group=view.group,
            topics=[] if row is None else list(row.topics),
            is_active=row is not None,
            last_health_check_at=show_moment(self._clock.wall_ms()),
        )


def _topics(view: GroupView) -> list[str]:
    return sorted({topic for row in view.members for topic in row.topics})


def _decode(body: bytes, kind: type[Any], example: str) -> Any:
    """Return the body as a struct, whatever the case of its names. Raises InvalidArgument."""
    names = {name.lower(): name for name in kind.__struct_fields__}
    try:
        found = msgspec.json.decode(body or b"{}", type=dict[str, Any])
        named = {names.get(name.lower(), name): value for name, value in found.items()}
        return msgspec.convert(named, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(str(error), f"the body looks like {example}") from error


def _bytes(name: str, text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise InvalidArgument(f"{name} is not base64: {error}", "as aGVsbG8=") from error


def _text(content: bytes) -> str:
    return binascii.b2a_base64(content, newline=False).decode()
