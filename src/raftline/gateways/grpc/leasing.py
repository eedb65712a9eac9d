"""Receives: what is asked for, leased, and how it looks."""

import asyncio
from collections.abc import Callable

import msgspec

from raftline.gateways.grpc.bounds import bounded, short
from raftline.gateways.grpc.calling import new_answer, settle, unwrap
from raftline.gateways.grpc.message_forms import to_message
from raftline.gateways.lease_tokens import LeaseToken, encode_token
from raftline.gateways.opened import OpenedBatches
from raftline.gateways.ports import Calls
from raftline.gateways.publication import check_partition
from raftline.machines.delivery.commands import RELEASE, START_FIRST, START_NEXT, Settle
from raftline.model.calls import Received
from raftline.model.errors import RaftlineError
from raftline.model.limits import (
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    MEMBER_ID_CHARS_MAX,
    READ_BYTES_DEFAULT,
    RECEIVE_COUNT_MAX,
    TIMEOUT_MS_DEFAULT,
)
from raftline.model.names import check_group_name
from raftline.wire.proto.raftline.v1 import deliveries_pb2 as pb
from raftline.wire.proto.raftline.v1.messages_pb2 import FORM_BATCHES


class ReceiveWish(msgspec.Struct, frozen=True):
    """What a receive asks for, checked."""

    topic: str
    group: str
    partition: int
    count: int
    bytes_max: int
    lease_ms: int
    member: str
    start: int
    ordered: bool
    is_raw: bool


class Leasing:
    """Has the node lease messages."""

    __slots__ = ("_calls", "_opened", "_reply_bytes_max")

    def __init__(self, calls: Calls, *, reply_bytes_max: int) -> None:
        self._calls = calls
        self._opened = OpenedBatches()
        self._reply_bytes_max = reply_bytes_max

    def wish_of(self, request: pb.ReceiveRequest | pb.Open, count: int) -> ReceiveWish:
        """Return what is asked for. Raises InvalidArgument, TooLarge."""
        check_group_name(request.group)
        lease_ms = bounded("lease_ms", request.lease_ms, 0, LEASE_MS_MIN, LEASE_MS_MAX)
        most = self._reply_bytes_max
        return ReceiveWish(
            request.topic,
            request.group,
            check_partition(request.partition) if request.HasField("partition") else -1,
            bounded("count", request.count, count, 1, RECEIVE_COUNT_MAX),
            bounded("bytes_max", request.bytes_max, min(READ_BYTES_DEFAULT, most), 1, most),
            lease_ms,
            short("a member's name", request.member, MEMBER_ID_CHARS_MAX),
            START_NEXT if request.start == pb.START_NEXT else START_FIRST,
            request.ordered,
            request.form == FORM_BATCHES,
        )

    async def lease(
        self,
        wish: ReceiveWish,
        count: int,
        wait_ms: int,
        timeout_ms: int,
        is_wanted: Callable[[], bool],
    ) -> Received:
        """Have at most ``count`` messages leased. Raises RaftlineError.

        What comes after the caller left is given back.
        """
        future = new_answer()

        def done(answer: Received | RaftlineError) -> None:
            if future.done() and isinstance(answer, Received):
                self.give_back(wish, answer)
            settle(future, answer)

        self._calls.receive(
            wish.topic,
            wish.group,
            wish.partition,
            count,
            wish.bytes_max,
            wish.lease_ms,
            wait_ms,
            wish.member,
            timeout_ms,
            done,
            start=wish.start,
            ordered=wish.ordered,
            is_wanted=is_wanted,
        )
        try:
            return unwrap(await future)
        except asyncio.CancelledError:
            # The answer may be there and just not heard.
            if future.done() and not future.cancelled():
                answer = future.result()
                if isinstance(answer, Received):
                    self.give_back(wish, answer)
            raise

    def reply_of(self, wish: ReceiveWish, received: Received) -> pb.ReceiveReply:
        """Return what was leased as replies carry it."""
        if wish.is_raw:
            return pb.ReceiveReply(
                batches=pb.LeasedBatches(
                    partition=received.partition,
                    term=received.term,
                    sequence=received.sequence,
                    lease_expires_ms=received.deadline_ms,
                    spans=received.spans,
                    batches=received.batches,
                )
            )
        topic, partition, spans = wish.topic, received.partition, received.spans
        messages = iter(self._opened.pick(topic, partition, received.batches, spans))
        reply = pb.ReceiveReply()
        for at in range(0, len(spans), 4):
            start, end, attempt, generation = spans[at : at + 4]
            for offset in range(start, end):
                token = LeaseToken(
                    topic,
                    partition,
                    wish.group,
                    received.term,
                    received.sequence,
                    offset,
                    attempt,
                    generation,
                )
                reply.deliveries.append(
                    pb.Delivery(
                        message=to_message(topic, partition, next(messages)),
                        attempt=attempt,
                        lease_token=encode_token(token),
                        lease_expires_ms=received.deadline_ms,
                    )
                )
        return reply

    def give_back(self, wish: ReceiveWish, received: Received) -> None:
        """Make messages ready again that did not get out; nobody waits for that."""
        spans = received.spans
        settles = [
            Settle(
                wish.group,
                RELEASE,
                received.term,
                received.sequence,
                spans[at + 2],
                spans[at + 3],
                [spans[at], spans[at + 1]],
                0,
                "the receiver had left",
                wish.member,
            )
            for at in range(0, len(spans), 4)
        ]
        if settles:
            self._calls.settle(
                wish.topic, received.partition, settles, TIMEOUT_MS_DEFAULT, lambda _: None
            )
