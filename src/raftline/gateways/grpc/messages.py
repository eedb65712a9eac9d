"""Messages over gRPC: send, read, find by time."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.config.moments import parse_moment_ms
from raftline.gateways.error_table import error_body
from raftline.gateways.fan import Gather
from raftline.gateways.grpc.bounds import bounded, counted, short
from raftline.gateways.grpc.calling import (
    Call,
    answer_of,
    error_message,
    error_of_body,
    new_answer,
    settle,
    unwrap,
)
from raftline.gateways.grpc.message_forms import open_from, to_message
from raftline.gateways.grpc.pipeline import run_in_order
from raftline.gateways.grpc.registry import Requests, Send
from raftline.gateways.new_messages import (
    TIMESTAMP_MS_MAX,
    check_headers,
    check_key,
    check_timestamp,
)
from raftline.gateways.ports import Calls
from raftline.gateways.publication import Draft, Publication, Result, check_partition
from raftline.gateways.publisher import NodePublisher
from raftline.gateways.topic_finder import TopicFinder
from raftline.gateways.trace_context import add_context
from raftline.gateways.wanted import NOTHING, Settings, Wanted, check_dedup_key, wanted_of
from raftline.machines.partition.side_car import SideCar, hash_key
from raftline.model.batch import BatchInfo, check_batch, split_batches
from raftline.model.calls import Appended, Looked, ReadReply
from raftline.model.errors import DuplicateKey, InvalidArgument, RaftlineError
from raftline.model.limits import (
    OFFSET_MAX,
    PRODUCER_NAME_CHARS_MAX,
    READ_BYTES_DEFAULT,
    WAIT_MS_MAX,
)
from raftline.model.message import FIRST_MS, Header, NewMessage
from raftline.model.priorities import parse_priority
from raftline.node.ports import Clock
from raftline.wire.proto.raftline.v1 import messages_pb2 as pb

if TYPE_CHECKING:
    import asyncio

MESSAGES_MAX = 10_000  # in one request or one reply
BATCHES_MAX = 1_000
LIMIT_DEFAULT = 100
FOLLOW_MS = 20_000  # one wait of a stream at the end of the log


class Wish(msgspec.Struct):
    """What a message asks for, in the fields that gateways/wanted.py reads."""

    priority: int | str | None = None
    delay: int | str | None = None
    deliverAt: str | int | None = None  # noqa: N815
    deliver_at: str | int | None = None
    dedup_key: str | None = None


class MessageService(NodePublisher):
    """raftline.v1.MessageService."""

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

    # ------------------------------------------------------------------ send

    async def send(self, request: pb.SendRequest, call: Call) -> pb.SendReply:
        """Store messages."""
        results, error = unwrap(
            await Sending(self, request, call.timeout_ms, call.trace_headers()).start()
        )
        if error is not None and all(result.error is not None for result in results):
            raise error
        return pb.SendReply(results=[_result(result) for result in results])

    async def send_stream(self, requests: Requests, call: Call, send: Send) -> None:
        """Store messages of one request after another."""
        trace = call.trace_headers()

        def start(request: pb.SendRequest) -> "asyncio.Future[Any]":
            return Sending(self, request, call.stream_timeout_ms, trace).start()

        def reply_of(answer: Any) -> pb.SendReply:
            if isinstance(answer, RaftlineError):
                return pb.SendReply(error=error_message(answer))
            return pb.SendReply(results=[_result(result) for result in unwrap(answer)[0]])

        await run_in_order(requests, start, reply_of, send)

    async def send_batches(self, request: pb.SendBatchesRequest, call: Call) -> pb.SendBatchesReply:
        """Store sealed batches."""
        answers = unwrap(await self._start_batches(request, call.timeout_ms))
        errors = [answer for answer in answers if isinstance(answer, RaftlineError)]
        if len(errors) == len(answers):
            raise errors[0]
        return pb.SendBatchesReply(results=[_batch_result(answer) for answer in answers])

    async def send_batches_stream(self, requests: Requests, call: Call, send: Send) -> None:
        """Store the batches of one request after another."""

        def start(request: pb.SendBatchesRequest) -> "asyncio.Future[Any]":
            return self._start_batches(request, call.stream_timeout_ms)

        def reply_of(answer: Any) -> pb.SendBatchesReply:
            if isinstance(answer, RaftlineError):
                return pb.SendBatchesReply(error=error_message(answer))
            return pb.SendBatchesReply(results=[_batch_result(one) for one in unwrap(answer)])

        await run_in_order(requests, start, reply_of, send)

    def _start_batches(
        self, request: pb.SendBatchesRequest, timeout_ms: int
    ) -> "asyncio.Future[Any]":
        """Send batches off at once; the answer is one a batch, or the refusal of all."""
        future = new_answer()
        try:
            batches = self._batches_of(request)
            sides = self._sides_of(request, batches)
        except RaftlineError as error:
            settle(future, error)
            return future

        def chosen(partitions: list[int] | RaftlineError) -> None:
            if isinstance(partitions, RaftlineError):
                settle(future, partitions)
                return
            partition = partitions[0]
            gather = Gather(len(batches), lambda answers: settle(future, answers))
            for slot, (batch, info) in enumerate(batches):
                take = _known_as_first(gather.taker(slot), partition)
                self._calls.append(
                    request.topic, partition, batch, info, timeout_ms, take, sides[slot]
                )

        if request.HasField("partition"):
            chosen([request.partition])
        else:
            key = request.dedup_key.encode() if request.HasField("dedup_key") else None
            self.choose(request.topic, [key], timeout_ms, chosen)
        return future

    def _batches_of(self, request: pb.SendBatchesRequest) -> list[tuple[bytes, BatchInfo]]:
        """Check all batches before any is sent. Raises RaftlineError."""
        if request.HasField("partition"):
            check_partition(request.partition)
        content = request.batches
        places = split_batches(content)
        counted("batches", len(places), BATCHES_MAX)
        found: list[tuple[bytes, BatchInfo]] = []
        for start, length in places:
            batch = content[start : start + length]
            info = check_batch(batch, f"at byte {start}", bytes_max=self._batch_bytes_max)
            found.append((batch, info))
        return found

    def _sides_of(
        self, request: pb.SendBatchesRequest, batches: list[tuple[bytes, BatchInfo]]
    ) -> list[SideCar | None]:
        """Return what the request says of the messages of each batch. Raises InvalidArgument."""
        keys: tuple[tuple[int, bytes], ...] = ()
        if request.HasField("dedup_key"):
            if len(batches) > 1 or batches[0][1].count != 1:
                text = "one dedup key for several messages"
                raise InvalidArgument(text, "send the message alone, or with Send")
            keys = ((0, hash_key(check_dedup_key(request.dedup_key.encode()))),)
        lanes = int(self._calls.settings_of(request.topic)["lanes"]) if request.priority else 0
        priority = parse_priority(request.priority, lanes) if request.priority else 0
        if not priority and not keys:
            return [None] * len(batches)
        return [
            SideCar(((0, info.count, priority),) if priority else (), keys) for _, info in batches
        ]

    # ------------------------------------------------------------------ read

    async def read(self, request: pb.ReadRequest, call: Call) -> pb.ReadReply:
        """Read a partition from an offset on."""
        wait_ms, timeout_ms = call.waiting(max(0, min(request.wait_ms, WAIT_MS_MAX)))
        return await self._read(request, request.offset, wait_ms, timeout_ms)

    async def read_stream(self, request: pb.ReadRequest, call: Call, send: Send) -> None:
        """Read on and on; with ``wait_ms`` until nothing came for so long."""
        offset = request.offset
        left_ms = request.wait_ms or FOLLOW_MS
        while True:
            wait_ms = min(left_ms, FOLLOW_MS)
            reply = await self._read(request, offset, wait_ms, wait_ms + call.stream_timeout_ms)
            if reply.next_offset > offset:
                offset, left_ms = reply.next_offset, request.wait_ms or FOLLOW_MS
                await send(reply)
            elif request.wait_ms:
                left_ms -= wait_ms
                if left_ms <= 0:
                    return

    async def _read(
        self, request: pb.ReadRequest, offset: int, wait_ms: int, timeout_ms: int
    ) -> pb.ReadReply:
        check_partition(request.partition)
        limit = bounded("limit", request.limit, LIMIT_DEFAULT, 1, MESSAGES_MAX)
        most = self._reply_bytes_max
        bytes_max = bounded("bytes_max", request.bytes_max, min(READ_BYTES_DEFAULT, most), 1, most)
        if not 0 <= offset <= OFFSET_MAX:
            raise InvalidArgument(f"offset={offset} is out of bounds", "from 0 on")
        reply: ReadReply = await answer_of(
            lambda done: self._calls.read(
                request.topic,
                request.partition,
                offset,
                bytes_max,
                wait_ms,
                timeout_ms,
                done,
                linearizable=request.linearizable,
                any_replica=request.any_replica,
            )
        )
        return _read_reply(request, offset, limit, reply)

    async def find_offset(self, request: pb.FindOffsetRequest, call: Call) -> pb.FindOffsetReply:
        """Find the first message at or after a time; without one, the bounds of the log."""
        check_partition(request.partition)
        time_ms = request.time_ms
        if not 0 <= time_ms <= TIMESTAMP_MS_MAX:
            raise InvalidArgument(f"time_ms={time_ms} is out of bounds", "Unix milliseconds")
        topic, partition = request.topic, request.partition
        since_ms = time_ms if request.HasField("time_ms") else FIRST_MS
        looked: Looked = await answer_of(
            lambda done: self._calls.look_up_time(topic, partition, since_ms, call.timeout_ms, done)
        )
        if not request.HasField("time_ms"):
            start = looked.commit_end if looked.offset < 0 else looked.offset
            return pb.FindOffsetReply(offset=start, log_start=start, commit_end=looked.commit_end)
        if looked.offset < 0:
            return pb.FindOffsetReply(offset=-1, timestamp_ms=-1, commit_end=looked.commit_end)
        # The node knows times of batches only: look into this one.
        reply: ReadReply = await answer_of(
            lambda done: self._calls.read(
                topic, partition, looked.offset, 1, 0, call.timeout_ms, done
            )
        )
        place = (looked.offset, looked.timestamp_ms)
        for messages, _ in open_from(reply.batches, looked.offset):
            late = next((m for m in messages if m.timestamp_ms >= time_ms), None)
            if late is not None:
                place = (late.offset, late.timestamp_ms)
                break
        return pb.FindOffsetReply(
            offset=place[0], timestamp_ms=place[1], commit_end=looked.commit_end
        )


class Sending:
    """One send on its way through a publication; the request is sent off before it is awaited."""

    __slots__ = (
        "_future",
        "_messages",
        "_now_ms",
        "_publication",
        "_request",
        "_settings",
        "_trace",
    )

    def __init__(
        self,
        service: MessageService,
        request: pb.SendRequest,
        timeout_ms: int,
        trace: list[Header],
    ) -> None:
        self._request = request
        self._trace = trace  # headers of messages that have none of the kind
        self._future = new_answer()
        self._now_ms = service.wall_ms()
        self._settings: Settings = service.settings_of(request.topic)
        self._publication = Publication(service, self, request.topic, timeout_ms, self._finish)

    def start(self) -> "asyncio.Future[Any]":
        """Send off; the answer is (results, first error), or the refusal of all."""
        self._messages = self._request.messages
        self.guard(self._start)
        return self._future

    def _start(self) -> None:
        counted("messages", len(self._messages), MESSAGES_MAX)
        producer = short("a producer's name", self._request.producer, PRODUCER_NAME_CHARS_MAX)
        self._publication.send(len(self._messages), self._draft_of, producer)

    def _draft_of(self, slot: int) -> Draft:
        message = self._messages[slot]
        partition = check_partition(message.partition) if message.HasField("partition") else None
        wanted = _wanted(message, self._settings, self._now_ms)
        return Draft(slot, _new_message(message, self._now_ms, self._trace), partition, wanted)

    def _finish(self, results: list[Result], error: RaftlineError | None) -> None:
        settle(self._future, (results, error))

    def fail(self, error: RaftlineError) -> None:
        """Refuse the whole request."""
        settle(self._future, error)

    def guard(self, step: Callable[..., None], *arguments: Any) -> None:
        """Run a step of the request; what it raises is the answer."""
        try:
            step(*arguments)
        except Exception as error:  # noqa: BLE001 - told by the registry, as a bug if it is one
            settle(self._future, error)


def _new_message(message: pb.NewMessage, now_ms: int, trace: list[Header]) -> NewMessage:
    key = message.key if message.HasField("key") else None
    check_key(key)
    headers: list[Header] = [
        (header.name, header.value if header.HasField("value") else None)
        for header in message.headers
    ]
    if trace:
        headers = add_context(headers, trace)
    if headers:
        check_headers(headers)
    value = message.value if message.HasField("value") else None
    timestamp_ms = now_ms
    if message.HasField("timestamp_ms"):
        timestamp_ms = check_timestamp(message.timestamp_ms)
    return key, value, headers, timestamp_ms


def _wanted(message: pb.NewMessage, settings: Settings, now_ms: int) -> Wanted:
    lane, due = message.WhichOneof("lane"), message.WhichOneof("due")
    if lane is None and due is None and not message.HasField("dedup_key"):
        return NOTHING
    wish = Wish()
    if lane is not None:
        wish.priority = message.priority if lane == "priority" else message.priority_name
    if due == "delay_ms":
        wish.delay = message.delay_ms
    elif due == "due_ms":
        wish.deliver_at = message.due_ms
    if message.HasField("dedup_key"):
        wish.dedup_key = message.dedup_key
    return wanted_of(wish, settings, now_ms)


def _result(result: Result) -> pb.SendResult:
    if result.error is not None:
        return pb.SendResult(
            partition=-1 if result.partition is None else result.partition,
            offset=-1,
            error=error_of_body(result.error),
        )
    shown = pb.SendResult(
        id=result.id or "",
        partition=-1 if result.partition is None else result.partition,
        offset=-1 if result.offset is None else result.offset,
    )
    if result.duplicate is True:
        shown.duplicate = True
    if result.delayed is True:
        shown.delayed = True
        shown.due_ms = parse_moment_ms("deliverAt", str(result.deliverAt))
    if isinstance(result.priority, int):
        shown.priority = result.priority
    return shown


def _batch_result(answer: Appended | RaftlineError) -> pb.BatchResult:
    if isinstance(answer, RaftlineError):
        return pb.BatchResult(partition=-1, base_offset=-1, error=error_of_body(error_body(answer)))
    return pb.BatchResult(
        partition=answer.partition,
        base_offset=answer.base_offset,
        count=answer.count,
        duplicate=answer.duplicate,
    )


def _known_as_first(
    take: Callable[[Any], None], partition: int
) -> Callable[[Appended | RaftlineError], None]:
    """Answer a message whose dedup key is remembered with the place of the first one."""

    def done(answer: Appended | RaftlineError) -> None:
        if isinstance(answer, DuplicateKey) and answer.firsts[0][1] >= 0:
            answer = Appended(answer.firsts[0][1], 1, partition, 0, duplicate=True)
        take(answer)

    return done


def _read_reply(request: pb.ReadRequest, offset: int, limit: int, reply: ReadReply) -> pb.ReadReply:
    shown = pb.ReadReply(next_offset=offset, log_start=reply.log_start, commit_end=reply.commit_end)
    if request.form == pb.FORM_BATCHES:
        shown.batches = reply.batches
        for start, _ in split_batches(reply.batches):
            head = reply.batches[start : start + 27]
            end = int.from_bytes(head[:8], "big") + int.from_bytes(head[23:27], "big") + 1
            shown.next_offset = max(offset, end)
        return shown
    room = limit
    for messages, end in open_from(reply.batches, offset):
        taken = messages[:room]
        shown.messages.extend([to_message(request.topic, request.partition, m) for m in taken])
        room -= len(taken)
        if not room:
            shown.next_offset = taken[-1].offset + 1
            break
        shown.next_offset = max(offset, end)
    return shown
