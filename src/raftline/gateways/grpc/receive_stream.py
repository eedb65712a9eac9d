"""One stream of deliveries: messages go out while there is room for them, settles come in.

Flow control
    With a *window*, as many messages are out as it says: a settle in this stream makes room, and so
    does the end of a lease, when a message is nobody's any more. Without one, the client gives
    *credit*, a message each. A stream that is not read from waits in its write, and is let go of
    after a while (registry.py, R3).

State
    ``_out``: messages handed out here and not settled here, with the time their lease ends.

Rules
    S1  Replies to settles come in the order of the settles.
    S2  What was leased and could not be written is given back at once.
    S3  The stream goes on through a change of leaders: what may be tried again is tried again.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from raftline.gateways.grpc.bounds import bounded
from raftline.gateways.grpc.calling import Call, error_message, new_answer, settle, unwrap
from raftline.gateways.grpc.leasing import Leasing, ReceiveWish
from raftline.gateways.grpc.pipeline import together
from raftline.gateways.grpc.registry import Send
from raftline.gateways.grpc.settling import Settling, ranges_reply, settle_reply
from raftline.machines.delivery.commands import EXTEND
from raftline.model.calls import Received
from raftline.model.errors import InvalidArgument, RaftlineError, ShuttingDown
from raftline.node.ports import Clock
from raftline.wire.proto.raftline.v1 import deliveries_pb2 as pb

COUNT_DEFAULT = 100  # of one reply
WINDOW_MAX = 100_000
CREDIT_MAX = 1 << 31
NEVER = float("inf")
WAIT_MS = 20_000  # of one look for messages
AGAIN_MS = 100
SETTLES_WAITING_MAX = 64  # requests in work; then the stream is not read from

Out = tuple[int, int, int, int]  # partition, term, sequence, offset
Pending = tuple["asyncio.Future[Any]", Callable[[Any], pb.ReceiveStreamReply]]


class Closed(Exception):
    """The client closed its half, and everything it asked for is answered."""


class ReceiveStream:
    """The life of one stream."""

    __slots__ = (
        "_call",
        "_clock",
        "_credit",
        "_leasing",
        "_out",
        "_room",
        "_send",
        "_settles",
        "_settling",
        "_soonest",
        "_window",
        "_writing",
    )

    def __init__(
        self, clock: Clock, leasing: Leasing, settling: Settling, call: Call, send: Send
    ) -> None:
        self._clock = clock
        self._leasing = leasing
        self._settling = settling
        self._call = call
        self._send = send
        self._window = self._credit = 0
        self._out: dict[Out, float] = {}
        self._soonest = NEVER  # no lease ends before
        self._room: asyncio.Future[Any] | None = None
        self._settles: asyncio.Queue[Pending | None] = asyncio.Queue(SETTLES_WAITING_MAX)
        self._writing = asyncio.Lock()

    async def run(self, requests: AsyncIterator[pb.ReceiveStreamRequest]) -> None:
        """Serve until the client closes its half."""
        first = await anext(requests, None)
        if first is None or first.WhichOneof("request") != "open":
            raise InvalidArgument("a stream begins with open", "send it first, and once")
        wish = self._leasing.wish_of(first.open, COUNT_DEFAULT)
        self._window = bounded("window", first.open.window, 0, 1, WINDOW_MAX)
        with contextlib.suppress(Closed):
            await together(self._deliver(wish), self._read(requests), self._reply())

    # ------------------------------------------------------------------ out

    async def _deliver(self, wish: ReceiveWish) -> None:
        while True:
            count = min(self._count_free(), wish.count)
            if count <= 0:
                await self._wait_room()
                continue
            received = await self._lease(wish, count)
            if received is None or not received.spans:
                continue
            self._hand_out(received)
            reply = pb.ReceiveStreamReply(received=self._leasing.reply_of(wish, received))
            try:
                await self._write(reply)
            except BaseException:
                self._leasing.give_back(wish, received)  # S2
                raise

    async def _lease(self, wish: ReceiveWish, count: int) -> Received | None:
        timeout_ms = WAIT_MS + self._call.stream_timeout_ms
        try:
            return await self._leasing.lease(wish, count, WAIT_MS, timeout_ms, self._call.is_wanted)
        except RaftlineError as error:
            if not error.retry or isinstance(error, ShuttingDown):
                raise
            await self._pause(AGAIN_MS)  # S3
            return None

    def _hand_out(self, received: Received) -> None:
        ends = self._clock.mono_ms() + received.deadline_ms - received.at_ms
        spans = received.spans
        for at in range(0, len(spans), 4):
            for offset in range(spans[at], spans[at + 1]):
                if self._window:
                    out = (received.partition, received.term, received.sequence, offset)
                    self._out[out] = ends
                else:
                    self._credit -= 1
        self._soonest = min(self._soonest, ends)

    def _count_free(self) -> int:
        if not self._window:
            return self._credit
        now = self._clock.mono_ms()
        if now >= self._soonest:
            self._out = {out: ends for out, ends in self._out.items() if ends > now}
            self._soonest = min(self._out.values(), default=NEVER)
        return self._window - len(self._out)

    async def _wait_room(self) -> None:
        """Wait for a settle, credit, or the end of a lease."""
        self._room = new_answer()
        timer = None
        if self._window and self._soonest != NEVER:
            left_ms = max(1.0, self._soonest - self._clock.mono_ms())
            timer = self._clock.call_later(left_ms, self._make_room)
        await self._room
        if timer is not None:
            timer.cancel()

    def _make_room(self) -> None:
        if self._room is not None:
            settle(self._room, None)

    async def _pause(self, time_ms: int) -> None:
        pause = new_answer()
        self._clock.call_later(time_ms, lambda: settle(pause, None))
        await pause

    async def _write(self, reply: pb.ReceiveStreamReply) -> None:
        async with self._writing:
            await self._send(reply)

    # ------------------------------------------------------------------ in

    async def _read(self, requests: AsyncIterator[pb.ReceiveStreamRequest]) -> None:
        async for request in requests:
            match request.WhichOneof("request"):
                case "settle":
                    await self._settle(request.settle)
                case "settle_ranges":
                    await self._settle_ranges(request.settle_ranges)
                case "credit":
                    self._add_credit(request.credit.count)
                case _:
                    raise InvalidArgument("a stream is opened once", "send credit or settles")
        await self._settles.put(None)

    def _add_credit(self, count: int) -> None:
        if self._window:
            raise InvalidArgument("a stream with a window takes no credit", "settle to make room")
        if count < 1 or self._credit + count > CREDIT_MAX:
            raise InvalidArgument(f"{count} is no credit", f"from 1 on, at most {CREDIT_MAX}")
        self._credit += count
        self._make_room()

    async def _settle(self, request: pb.SettleRequest) -> None:
        started, rows = self._settling.start(request, self._call.stream_timeout_ms)

        def form(errors: Any) -> pb.ReceiveStreamReply:
            for (token, verb, delay_ms, _), error in zip(rows, errors, strict=True):
                if error is None or not error.retry:
                    out = (token.partition, token.term, token.sequence, token.offset)
                    self._settled(out, delay_ms if error is None and verb == EXTEND else 0)
            return pb.ReceiveStreamReply(settled=settle_reply(request, errors))

        await self._settles.put((started, form))

    async def _settle_ranges(self, request: pb.SettleRangesRequest) -> None:
        def form(settled: Any) -> pb.ReceiveStreamReply:
            lease_ms = request.lease_ms
            for row in request.settles:
                extended = lease_ms if row.verb == pb.VERB_EXTEND else 0
                lease = (request.partition, row.term, row.sequence)
                for at in range(0, len(row.ranges) - 1, 2):
                    for offset in self._offsets(lease, row.ranges[at], row.ranges[at + 1]):
                        self._settled((*lease, offset), extended)
            return pb.ReceiveStreamReply(settled_ranges=ranges_reply(settled))

        started = self._settling.start_ranges(request, self._call.stream_timeout_ms)
        await self._settles.put((started, form))

    def _offsets(self, lease: tuple[int, int, int], start: int, end: int) -> Iterable[int]:
        """Return at least the offsets of a range that are out; no more steps than are out."""
        if end - start <= len(self._out):
            return range(start, end)
        return [out[3] for out in self._out if out[:3] == lease and start <= out[3] < end]

    def _settled(self, out: Out, lease_ms: int) -> None:
        """Note that a message is no longer out, or for longer."""
        if out not in self._out:
            return
        if lease_ms:
            ends = self._out[out] = self._clock.mono_ms() + lease_ms
            self._soonest = min(self._soonest, ends)
        else:
            del self._out[out]
            self._make_room()

    async def _reply(self) -> None:
        """Answer settles. S1."""
        while (pending := await self._settles.get()) is not None:
            started, form = pending
            answer = await started
            if isinstance(answer, RaftlineError):
                reply = pb.ReceiveStreamReply(refused=error_message(answer))
            else:
                reply = form(unwrap(answer))
            await self._write(reply)
        raise Closed
