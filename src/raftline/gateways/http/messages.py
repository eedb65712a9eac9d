"""Messages over HTTP as JSON: publish, read, find by time.

A publish is grouped by partition and sealed into one batch each; every message has its own result,
so one that is refused does not hold up the others.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from raftline.gateways.error_table import row_of
from raftline.gateways.http import replies
from raftline.gateways.http.batches import ANY_PARTITION, AppendBatches, Gather, send_raw
from raftline.gateways.http.connection import Exchange, Run
from raftline.gateways.http.items import (
    TIMESTAMP_MS_MAX,
    NewItem,
    ReadItem,
    size_of,
    to_item,
    to_message,
)
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.http.topic_finder import TopicFinder
from raftline.gateways.message_ids import message_id
from raftline.gateways.ports import Calls
from raftline.model.batch import check_batch, split_batches
from raftline.model.calls import Appended, Looked, ReadReply
from raftline.model.errors import InvalidArgument, OverLimit, RaftlineError
from raftline.model.limits import (
    BATCH_BYTES_MAX,
    OFFSET_MAX,
    READ_BYTES_DEFAULT,
    WAIT_MS_MAX,
)
from raftline.model.records import open_batch, seal_batch
from raftline.node.ports import Clock

if TYPE_CHECKING:
    from raftline.model.message import NewMessage

MESSAGES_MAX = 10_000  # in one request or one JSON reply
LIMIT_DEFAULT = 100


class Publish(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a publish."""

    messages: list[NewItem]


class Result(msgspec.Struct, gc=False):
    """What became of one message."""

    id: str | None
    partition: int | None
    offset: int | None
    error: dict[str, Any] | None = None


_publish_decoder = msgspec.json.Decoder(Publish)


class MessageRoutes:
    """The routes under ``/v1/topics/{topic}`` that carry messages."""

    __slots__ = ("_batch_bytes_max", "_calls", "_clock", "_finder", "_reply_bytes_max")

    def __init__(
        self,
        clock: Clock,
        calls: Calls,
        finder: TopicFinder,
        *,
        batch_bytes_max: int,
        reply_bytes_max: int,
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._finder = finder
        self._batch_bytes_max = batch_bytes_max
        self._reply_bytes_max = reply_bytes_max

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        add, fast = router.add, self._fast
        one = "/v1/topics/{topic}/partitions/{partition}"
        add("POST", "/v1/topics/{topic}/messages", self.publish, prepare=fast)
        add("POST", f"{one}/messages", self.publish, prepare=fast)
        query = "offset limit wait_ms bytes_max linearizable any_replica"
        add("GET", f"{one}/messages", self.read, query=query)
        add("GET", f"{one}/offsets", self.offsets, query="time")

    def publish(self, exchange: Exchange, request: Request) -> None:
        """Store messages given as JSON."""
        try:
            items = _publish_decoder.decode(request.body).messages
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            hint = 'the body is {"messages": [{"value": "...", "key": "..."}]}'
            raise InvalidArgument(str(error), hint) from error
        if not items:
            raise InvalidArgument("there are no messages", 'send {"messages": [{"value": "..."}]}')
        if len(items) > MESSAGES_MAX:
            raise OverLimit("messages in one request", len(items), MESSAGES_MAX)
        partition = request.partition if "partition" in request.params else None
        _Publication(self, exchange, request, items, partition).start()

    def read(self, exchange: Exchange, request: Request) -> None:
        """Read messages from an offset on, as JSON or as stored batches."""
        topic, partition = request.topic, request.partition
        offset = request.number("offset", 0, 0, OFFSET_MAX)
        limit = request.number("limit", LIMIT_DEFAULT, 1, MESSAGES_MAX)
        wait_ms = request.number("wait_ms", 0, 0, WAIT_MS_MAX)
        bytes_max = min(READ_BYTES_DEFAULT, self._reply_bytes_max)
        bytes_max = request.number("bytes_max", bytes_max, 1, self._reply_bytes_max)
        raw = request.wants(replies.BATCH)
        exchange.weigh(bytes_max)

        def answer(reply: ReadReply) -> None:
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

        step = bounds if time_ms < 0 else near
        self._calls.look_up_time(
            topic, partition, max(time_ms, 0), request.timeout_ms, exchange.then(step)
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
        return AppendBatches(
            self._calls,
            self._finder,
            request.topic,
            partition,
            request.timeout_ms,
            self._batch_bytes_max,
        ).run

    # -- what a publication needs

    def wall_ms(self) -> int:
        """Return the time for messages that come without one."""
        return self._clock.wall_ms()

    def choose(self, publication: "_Publication", keys: list[bytes | None]) -> None:
        """Choose partitions for ``keys``; ``publication`` hears them."""
        self._finder.choose(
            publication.topic, keys, publication.timeout_ms, publication.partitions_chosen
        )

    def append(self, publication: "_Publication", batches: "list[_Group]") -> None:
        """Send the batches; ``publication`` hears all answers together."""
        gather = Gather(len(batches), publication.answered)
        for slot, group in enumerate(batches):
            take = gather.taker(slot)
            try:
                batch = seal_batch(group.messages)
                info = check_batch(batch, bytes_max=self._batch_bytes_max)
            except RaftlineError as error:
                take(error)
                continue
            self._calls.append(
                publication.topic, group.partition, batch, info, publication.timeout_ms, take
            )


class _Group:
    """Messages of one request that go into one batch."""

    __slots__ = ("bytes", "messages", "partition", "slots")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.slots: list[int] = []
        self.messages: list[NewMessage] = []
        self.bytes = 0


class _Publication:
    """One publish request from its items to its reply."""

    __slots__ = (
        "_exchange",
        "_first_error",
        "_fixed",
        "_free",
        "_groups",
        "_items",
        "_messages",
        "_results",
        "_routes",
        "timeout_ms",
        "topic",
    )

    def __init__(
        self,
        routes: MessageRoutes,
        exchange: Exchange,
        request: Request,
        items: list[NewItem],
        partition: int | None,
    ) -> None:
        self._routes = routes
        self._exchange = exchange
        self._items = items
        self._fixed = partition
        self._first_error: RaftlineError | None = None
        self._messages: list[NewMessage | None] = []
        self._results: list[Result] = [Result(None, None, None) for _ in items]
        self._free: list[int] = []  # slots whose partition must be chosen
        self._groups: list[_Group] = []
        self.topic = request.topic
        self.timeout_ms = request.timeout_ms

    def start(self) -> None:
        """Check every item, then choose partitions."""
        now_ms = self._routes.wall_ms()
        errors = 0
        keys: list[bytes | None] = []
        for slot, item in enumerate(self._items):
            try:
                message = to_message(item, now_ms)
                partition = _partition(item, self._fixed)
            except RaftlineError as error:
                self._fail(slot, None, error)
                self._messages.append(None)
                errors += 1
                continue
            self._messages.append(message)
            item.partition = partition
            if partition is None:
                self._free.append(slot)
                keys.append(message[0])
        if errors == len(self._items):
            self._reply()
        elif keys:
            self._routes.choose(self, keys)
        else:
            self._send()

    def partitions_chosen(self, chosen: list[int] | RaftlineError) -> None:
        """Take the partitions for the items that named none."""
        if isinstance(chosen, RaftlineError):
            self._exchange.fail(chosen)
            return
        for slot, partition in zip(self._free, chosen, strict=True):
            self._items[slot].partition = partition
        self._exchange.guard(self._send)

    def answered(self, answers: list[Appended | RaftlineError]) -> None:
        """Take the node's answers, one per batch."""
        self._exchange.guard(self._take, answers)

    def _take(self, answers: list[Appended | RaftlineError]) -> None:
        for group, answer in zip(self._groups, answers, strict=True):
            if isinstance(answer, RaftlineError):
                for slot in group.slots:
                    self._fail(slot, group.partition, answer)
                continue
            for delta, slot in enumerate(group.slots):
                offset = answer.base_offset + delta
                result = self._results[slot]
                result.id = message_id(self.topic, answer.partition, offset)
                result.partition, result.offset = answer.partition, offset
        self._reply()

    def _send(self) -> None:
        open_groups: dict[int, _Group] = {}
        for slot, (item, message) in enumerate(zip(self._items, self._messages, strict=True)):
            if message is None or item.partition is None:
                continue
            size = size_of(message)
            group = open_groups.get(item.partition)
            if group is None or group.bytes + size > BATCH_BYTES_MAX // 2:
                group = open_groups[item.partition] = _Group(item.partition)
                self._groups.append(group)
            group.slots.append(slot)
            group.messages.append(message)
            group.bytes += size
        self._routes.append(self, self._groups)

    def _fail(self, slot: int, partition: int | None, error: RaftlineError) -> None:
        self._results[slot] = Result(None, partition, None, replies.error_body(error))
        self._first_error = self._first_error or error

    def _reply(self) -> None:
        body: dict[str, Any] = {"results": self._results}
        error = self._first_error
        if error is None or any(result.error is None for result in self._results):
            self._exchange.json(body)
        else:
            self._exchange.json({"error": replies.error_body(error), **body}, row_of(error).http)


def _partition(item: NewItem, fixed: int | None) -> int | None:
    partition = item.partition
    if partition is None:
        return fixed
    if partition < 0:
        raise InvalidArgument(f"partition {partition} is below 0", "leave it out to have it chosen")
    if fixed is not None and fixed != partition:
        raise InvalidArgument(f"the message says partition {partition}, the path {fixed}")
    return partition


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
        next_offset = max(offset, _end_of(batch))
    return {
        "messages": items,
        "next_offset": next_offset,
        "log_start": reply.log_start,
        "commit_end": reply.commit_end,
    }


def _end_of(batch: memoryview) -> int:
    return int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1
