"""Settles: from lease tokens or ranges to what became of each."""

from typing import TYPE_CHECKING, Any

from raftline.gateways.grpc.bounds import counted
from raftline.gateways.grpc.calling import error_message, new_answer, settle
from raftline.gateways.lease_tokens import decode_token
from raftline.gateways.ports import Calls
from raftline.gateways.publication import check_partition
from raftline.gateways.settles import Row, Verdicts, done_in_part, merge_ranges, settles_of
from raftline.machines.delivery.commands import BACKOFF, EXTEND, NACK, VERBS, Settle
from raftline.model.calls import Settled
from raftline.model.errors import InvalidArgument, RaftlineError, TooLarge
from raftline.model.limits import (
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    NACK_DELAY_MS_MAX,
    OFFSET_MAX,
    REASON_CHARS_MAX,
)
from raftline.wire.proto.raftline.v1 import deliveries_pb2 as pb

if TYPE_CHECKING:
    import asyncio

SETTLES_MAX = 10_000  # in one request
RANGES_MAX = 20_000  # of them together


class Settling:
    """Has the node settle deliveries."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def start(
        self, request: pb.SettleRequest, timeout_ms: int
    ) -> "tuple[asyncio.Future[list[RaftlineError | None] | RaftlineError], list[Row]]":
        """Send settles off at once; the answer is a verdict each, or the refusal of all.

        Returns it with the settles as they were read.
        """
        future, rows = new_answer(), list[Row]()
        try:
            counted("settles", len(request.settles), SETTLES_MAX)
            rows += [
                (decode_token(row.lease_token), *_way_of(row, row.reason))
                for row in request.settles
            ]
        except RaftlineError as error:
            settle(future, error)
            return future, []
        places, verdicts = settles_of(rows), Verdicts(rows)
        verdicts.expect(len(places), lambda errors: settle(future, errors))
        for (topic, partition), settles in places.items():
            take = verdicts.taker(topic, partition, settles)
            self._calls.settle(topic, partition, settles, timeout_ms, take)
        return future, rows

    def start_ranges(
        self, request: pb.SettleRangesRequest, timeout_ms: int
    ) -> "asyncio.Future[Settled | RaftlineError]":
        """Send settles of ranges off; the answer says what was lost."""
        future = new_answer()
        try:
            check_partition(request.partition)
            settles = _range_settles(request)
        except RaftlineError as error:
            settle(future, error)
            return future

        def take(answer: Settled | RaftlineError) -> None:
            in_part = done_in_part(answer) if isinstance(answer, Settled) else None
            settle(future, in_part or answer)

        self._calls.settle(request.topic, request.partition, settles, timeout_ms, take)
        return future


def settle_reply(request: pb.SettleRequest, errors: "list[RaftlineError | None]") -> pb.SettleReply:
    """Return the verdicts of a settle."""
    results = [
        pb.SettleResult(
            lease_token=row.lease_token, error=None if error is None else error_message(error)
        )
        for row, error in zip(request.settles, errors, strict=True)
    ]
    return pb.SettleReply(settled=sum(error is None for error in errors), results=results)


def ranges_reply(settled: Settled) -> pb.SettleRangesReply:
    """Return what was lost, settle by settle."""
    return pb.SettleRangesReply(lost=[pb.LostRanges(ranges=lost) for lost in settled.lost])


def _way_of(row: Any, reason: str) -> tuple[int, int, str]:
    """Return verb, delay and reason of a settle. Raises InvalidArgument, TooLarge."""
    verb = _verb(row.verb)
    has_delay = row.HasField("delay_ms")
    if has_delay and verb != NACK:
        raise InvalidArgument(f"{VERBS[verb]} takes no delay_ms", "only a nack does")
    if row.lease_ms and verb != EXTEND:
        raise InvalidArgument(f"{VERBS[verb]} takes no lease_ms", "only an extend does")
    return verb, _delay_of(verb, row), reason[:REASON_CHARS_MAX]


def _delay_of(verb: int, row: Any) -> int:
    if verb == EXTEND:
        if not LEASE_MS_MIN <= row.lease_ms <= LEASE_MS_MAX:
            hint = f"an extend says for how long: {LEASE_MS_MIN} to {LEASE_MS_MAX}"
            raise InvalidArgument(f"lease_ms={row.lease_ms} is out of bounds", hint)
        return row.lease_ms
    if verb == NACK and row.HasField("delay_ms"):
        if not 0 <= row.delay_ms <= NACK_DELAY_MS_MAX:
            hint = f"allowed is 0 to {NACK_DELAY_MS_MAX}"
            raise InvalidArgument(f"delay_ms={row.delay_ms} is out of bounds", hint)
        return row.delay_ms
    return BACKOFF if verb == NACK else 0


def _verb(verb: int) -> int:
    if not pb.VERB_ACK <= verb <= pb.VERB_RELEASE:
        known = ", ".join(f"VERB_{name.upper()}" for name in VERBS)
        raise InvalidArgument(f"{verb} is no settle", f"use one of {known}")
    return verb - pb.VERB_ACK


def _range_settles(request: pb.SettleRangesRequest) -> list[Settle]:
    """Return the settles of a request. Raises InvalidArgument, TooLarge."""
    counted("settles", len(request.settles), SETTLES_MAX)
    count = sum(len(row.ranges) for row in request.settles) // 2
    if count > RANGES_MAX:
        raise TooLarge("ranges in one request", count, RANGES_MAX)
    settles: list[Settle] = []
    for row in request.settles:
        verb = _verb(row.verb)
        numbers = (row.term, row.sequence, row.attempt, row.generation)
        if not all(0 <= number <= OFFSET_MAX for number in numbers):
            raise InvalidArgument(f"{numbers} name no lease", "use those of the LeasedBatches")
        settles.append(
            Settle(
                request.group,
                verb,
                *numbers,
                _ranges(list(row.ranges)),
                _delay_of(verb, request),
                request.reason[:REASON_CHARS_MAX],
            )
        )
    return settles


def _ranges(flat: list[int]) -> list[int]:
    starts, ends = flat[::2], flat[1::2]
    sound = flat and len(flat) % 2 == 0 and 0 <= min(flat) <= max(flat) <= OFFSET_MAX
    if not sound or any(map(int.__ge__, starts, ends)):
        raise InvalidArgument(f"{str(flat[:4])[:60]} are no ranges", "start, end, start, end")
    return merge_ranges(flat)
