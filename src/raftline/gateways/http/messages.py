"""Messages over HTTP as JSON: publish, read, find by time."""

from typing import Any

import msgspec

from raftline.gateways.http import replies
from raftline.gateways.http.answers import OffsetsAnswer, PublishAnswer, ReadAnswer
from raftline.gateways.http.batches import (
    ANY_PARTITION,
    AppendBatches,
    SidedBatches,
    cut_reply,
    send_raw,
)
from raftline.gateways.http.connection import Exchange, Run
from raftline.gateways.http.items import NewItem, ReadItem, to_item
from raftline.gateways.http.plain_publication import PlainPublication, read_plain
from raftline.gateways.http.publication import Publication
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.new_messages import TIMESTAMP_MS_MAX
from raftline.gateways.ports import Calls
from raftline.gateways.publication import Finish
from raftline.gateways.publisher import NodePublisher
from raftline.gateways.topic_finder import TopicFinder
from raftline.gateways.wanted import check_dedup_key
from raftline.model.batch import end_of_batch, split_batches
from raftline.model.calls import Looked, ReadReply
from raftline.model.errors import InvalidArgument, TooLarge
from raftline.model.limits import (
    OFFSET_MAX,
    PRODUCER_NAME_CHARS_MAX,
    READ_BYTES_DEFAULT,
    WAIT_MS_MAX,
)
from raftline.model.message import FIRST_MS
from raftline.model.records import open_batch
from raftline.node.ports import Clock

MESSAGES_MAX = 10_000  # in one request or one JSON reply
LIMIT_DEFAULT = 100
PRODUCER_FIELD = b"raftline-producer"
PRIORITY_FIELD = b"raftline-priority"
DEDUP_FIELD = b"raftline-dedup-key"


class Publish(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a publish."""

    messages: list[NewItem]
    producer: str = ""  # who sends, for the messages' timelines


_publish_decoder = msgspec.json.Decoder(Publish)


class MessageRoutes(NodePublisher):
    """The routes under ``/v1/topics/{topic}`` that carry messages."""

    __slots__ = ("_reply_bytes_max",)

    def __init__(
        self,
        clock: Clock,
        calls: Calls,
        finder: TopicFinder,
        *,
        batch_bytes_max: int,
        reply_bytes_max: int,
    ) -> None:
        super().__init__(clock, calls, finder, batch_bytes_max=batch_bytes_max)
        self._reply_bytes_max = reply_bytes_max

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        add, fast = router.add, self._fast
        one = "/v1/topics/{topic}/partitions/{partition}"
        told: dict[str, Any] = {"body": Publish, "answer": PublishAnswer, "sealed": "in"}
        add("POST", "/v1/topics/{topic}/messages", self.publish, prepare=fast, **told)
        add("POST", f"{one}/messages", self.publish, prepare=fast, **told)
        query = "offset end_offset limit wait_ms bytes_max linearizable any_replica"
        add("GET", f"{one}/messages", self.read, query=query, answer=ReadAnswer, sealed="out")
        add("GET", f"{one}/offsets", self.offsets, query="time", answer=OffsetsAnswer)

    def publish(self, exchange: Exchange, request: Request) -> None:
        """Store messages given as JSON."""
        if self._publish_plain(exchange, request):
            return
        try:
            body = _publish_decoder.decode(request.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            hint = 'the body is {"messages": [{"value": "...", "key": "..."}]}'
            raise InvalidArgument(str(error), hint) from error
        items = body.messages
        producer = body.producer or request.fields.text(PRODUCER_FIELD)
        if len(producer) > PRODUCER_NAME_CHARS_MAX:
            raise TooLarge(
                "characters of a producer's name", len(producer), PRODUCER_NAME_CHARS_MAX
            )
        if not items:
            raise InvalidArgument("there are no messages", 'send {"messages": [{"value": "..."}]}')
        if len(items) > MESSAGES_MAX:
            raise TooLarge("messages in one request", len(items), MESSAGES_MAX)
        partition = request.partition if "partition" in request.params else None
        self.publish_items(exchange, request.topic, items, request.timeout_ms, partition, producer)

    def _publish_plain(self, exchange: Exchange, request: Request) -> bool:
        """Take the short way if the request can; say whether it did."""
        if exchange.known.context is not None or PRODUCER_FIELD in request.fields.values:
            return False
        messages = read_plain(request.body, MESSAGES_MAX, self.wall_ms())
        if messages is None:
            return False
        partition = request.partition if "partition" in request.params else None
        publication = PlainPublication(self, exchange, request.topic, messages, request.timeout_ms)
        publication.start(partition)
        return True

    def publish_items(
        self,
        exchange: Exchange,
        topic: str,
        items: list[NewItem],
        timeout_ms: int,
        partition: int | None = None,
        producer: str = "",
        finish: Finish | None = None,
    ) -> None:
        """Store messages; ``finish`` answers where the native form is not wanted."""
        publication = Publication(self, exchange, topic, timeout_ms, finish)
        publication.start(items, partition, producer)

    def read(self, exchange: Exchange, request: Request) -> None:
        """Read messages from an offset on, as JSON or as stored batches."""
        topic, partition = request.topic, request.partition
        offset = request.number("offset", 0, 0, OFFSET_MAX)
        limit = request.number("limit", LIMIT_DEFAULT, 1, MESSAGES_MAX)
        wait_ms = request.number("wait_ms", 0, 0, WAIT_MS_MAX)
        bytes_max = min(READ_BYTES_DEFAULT, self._reply_bytes_max)
        bytes_max = request.number("bytes_max", bytes_max, 1, self._reply_bytes_max)
        raw = request.wants(replies.BATCH)
        end = request.number("end_offset", OFFSET_MAX, 0, OFFSET_MAX)
        exchange.weigh(bytes_max)

        def answer(reply: ReadReply) -> None:
            reply = reply if end == OFFSET_MAX else cut_reply(reply, end)
            if raw:
                send_raw(exchange, reply)
            else:
                exchange.json(_read_body(topic, partition, offset, limit, reply))

        self._calls.read(
            topic,
            partition,
            offset,
            bytes_max,
            wait_ms,
            wait_ms + request.timeout_ms,
            exchange.then(answer),
            linearizable=request.flag("linearizable"),
            any_replica=request.flag("any_replica"),
        )

    def offsets(self, exchange: Exchange, request: Request) -> None:
        """Find the first message at or after a time; without one, the bounds of the log."""
        topic, partition = request.topic, request.partition
        time_ms = request.number("time", -1, 0, TIMESTAMP_MS_MAX)

        def bounds(looked: Looked) -> None:
            start = looked.commit_end if looked.offset < 0 else looked.offset
            exchange.json({"log_start": start, "commit_end": looked.commit_end})

        def near(looked: Looked) -> None:
            if looked.offset < 0:
                exchange.json(_place(-1, -1, looked.commit_end))
            else:
                self._exact(exchange, request, looked, time_ms)

        step, since_ms = (bounds, FIRST_MS) if time_ms < 0 else (near, time_ms)
        self._calls.look_up_time(
            topic, partition, since_ms, request.timeout_ms, exchange.then(step)
        )

    def _exact(self, exchange: Exchange, request: Request, looked: Looked, time_ms: int) -> None:
        """Look into the batch: the node knows times of batches only."""

        def answer(reply: ReadReply) -> None:
            for start, length in split_batches(reply.batches):
                for message in open_batch(memoryview(reply.batches)[start : start + length]):
                    if message.offset >= looked.offset and message.timestamp_ms >= time_ms:
                        place = _place(message.offset, message.timestamp_ms, reply.commit_end)
                        exchange.json(place)
                        return
            exchange.json(_place(looked.offset, looked.timestamp_ms, looked.commit_end))

        self._calls.read(
            request.topic,
            request.partition,
            looked.offset,
            1,
            0,
            request.timeout_ms,
            exchange.then(answer),
        )

    def _fast(self, request: Request) -> Run | None:
        """Return the way of sealed batches, if the head says that it carries them."""
        if not request.carries(replies.BATCH):
            return None
        partition = request.partition if "partition" in request.params else ANY_PARTITION
        dedup_key = None
        if DEDUP_FIELD in request.fields.values:
            dedup_key = check_dedup_key(request.fields.values[DEDUP_FIELD])
        priority = request.fields.text(PRIORITY_FIELD)
        kind = SidedBatches if priority or dedup_key is not None else AppendBatches
        batches = kind(
            self._calls,
            self._finder,
            request.topic,
            partition,
            request.timeout_ms,
            self._batch_bytes_max,
        )
        batches.priority, batches.dedup_key = priority, dedup_key
        return batches.run


def _place(offset: int, timestamp_ms: int, commit_end: int) -> dict[str, int]:
    return {"offset": offset, "timestamp": timestamp_ms, "commit_end": commit_end}


def _read_body(
    topic: str, partition: int, offset: int, limit: int, reply: ReadReply
) -> dict[str, Any]:
    """Open as many batches as the limit needs; drop what is below the offset."""
    items: list[ReadItem] = []
    next_offset = offset
    view = memoryview(reply.batches)
    for start, length in split_batches(reply.batches):
        batch = view[start : start + length]
        for message in open_batch(batch):
            if message.offset >= offset and len(items) < limit:
                items.append(to_item(topic, partition, message))
        if len(items) == limit:
            next_offset = items[-1].offset + 1
            break
        next_offset = max(offset, end_of_batch(batch))
    return {
        "messages": items,
        "next_offset": next_offset,
        "log_start": reply.log_start,
        "commit_end": reply.commit_end,
    }
