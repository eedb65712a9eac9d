"""Work groups over HTTP: receive, ack, nack, reject, extend, one by one or many at a time.

Every delivered message comes with a lease token; a settle names tokens. Fast clients read stored
batches instead of JSON (``Accept: application/vnd.raftline.batch``) and settle ranges of a lease
on the partition's own route.
"""

from typing import Any

import msgspec

from raftline.gateways.error_table import row_of
from raftline.gateways.http import replies
from raftline.gateways.http.answers import RangesAnswer, SettleAnswer
from raftline.gateways.http.connection import Exchange, Run
from raftline.gateways.http.items import ReadItem, fill_item
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.http.settling import RangesBody, SettleRanges, answer_ranges
from raftline.gateways.http.spans import tell_delivered
from raftline.gateways.lease_tokens import LeaseToken, decode_token, encode_token
from raftline.gateways.opened import OpenedBatches
from raftline.gateways.ports import Calls
from raftline.gateways.settles import Verdicts, merge_ranges, settles_of
from raftline.machines.delivery.commands import (
    BACKOFF,
    EXTEND,
    NACK,
    START_FIRST,
    START_NEXT,
    VERBS,
    Settle,
)
from raftline.model.calls import Received
from raftline.model.errors import InvalidArgument, RaftlineError, TooLarge
from raftline.model.limits import (
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    MEMBER_ID_CHARS_MAX,
    NACK_DELAY_MS_MAX,
    READ_BYTES_DEFAULT,
    REASON_CHARS_MAX,
    RECEIVE_COUNT_MAX,
    WAIT_MS_MAX,
)
from raftline.model.names import check_group_name
from raftline.model.settings import parse_duration_ms

COUNT_DEFAULT = 10
RAW_COUNT_MAX = 2_000  # their spans are in the head of the reply
SETTLES_MAX = 10_000  # in one request
RANGES_MAX = 20_000  # of them together


class ReceiveBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a receive asks for; everything has a default."""

    count: int = COUNT_DEFAULT
    wait: str | int = 0  # long poll
    lease: str | int = 0  # 0: the topic's own
    member: str = ""
    partition: int = -1
    bytes_max: int = READ_BYTES_DEFAULT
    ordered: bool = False
    start: str = "first"  # where a new group begins: first | next


class SettleBody(msgspec.Struct, forbid_unknown_fields=True):
    """One settle, or many of the same kind."""

    lease_token: str = ""
    lease_tokens: list[str] = []
    receipt_handle: str = ""  # another protocol's word for lease_token
    reason: str = ""
    delay: str | int | None = None  # nack: before it is delivered again
    lease: str | int | None = None  # extend: time from now on
    extension_seconds: int | None = None


class MixedSettle(msgspec.Struct, forbid_unknown_fields=True):
    """One of many settles of any kind."""

    lease_token: str
    verb: str = "ack"
    reason: str = ""
    delay: str | int | None = None
    lease: str | int | None = None


class MixedBody(msgspec.Struct, forbid_unknown_fields=True):
    """Many settles."""

    settles: list[MixedSettle]


class Delivered(ReadItem):
    """One message as a worker gets it."""

    partition: int = 0
    attempt: int = 1
    lease_token: str = ""
    receipt_handle: str = ""
    lease_expires_ms: int = 0


class ReceiveAnswer(msgspec.Struct):
    """Leased messages."""

    messages: list[Delivered]


_receive_decoder = msgspec.json.Decoder(ReceiveBody)
_settle_decoder = msgspec.json.Decoder(SettleBody)
_mixed_decoder = msgspec.json.Decoder(MixedBody)
_ranges_decoder = msgspec.json.Decoder(RangesBody)
_STARTS = {"first": START_FIRST, "next": START_NEXT}


class DeliveryRoutes:
    """The routes of work groups."""

    __slots__ = ("_calls", "_opened", "_reply_bytes_max")

    def __init__(self, calls: Calls, *, reply_bytes_max: int) -> None:
        self._calls = calls
        self._opened = OpenedBatches()
        self._reply_bytes_max = reply_bytes_max

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        add = router.add
        path = "/v1/topics/{topic}/groups/{group}/receive"
        told: dict[str, Any] = {"body": ReceiveBody, "body_optional": True, "sealed": "out"}
        add("POST", path, self.receive, answer=ReceiveAnswer, **told)
        verbs = {**{verb: VERBS.index(verb) for verb in VERBS}, "visibility": EXTEND}
        told = {"body": SettleBody, "answer": SettleAnswer}
        for name, verb in verbs.items():
            summary = f"Settle what was leased, by its tokens: {VERBS[verb]}."
            add("POST", f"/v1/messages/{name}", self._settling(verb), summary=summary, **told)
        told = {"body": MixedBody, "answer": SettleAnswer}
        add("POST", "/v1/messages/settle", self.settle_mixed, **told)
        one = "/v1/topics/{topic}/partitions/{partition}/groups/{group}"
        told = {"body": RangesBody, "answer": RangesAnswer, "prepare": self._prepare_ranges}
        add("POST", f"{one}/settle", self.settle_ranges, **told)

    # ------------------------------------------------------------------ receive

    def receive(self, exchange: Exchange, request: Request) -> None:
        """Lease messages; wait for some if there are none."""
        body = ReceiveBody()
        if request.body:
            body = _decode(_receive_decoder, request.body, '{"count": 10, "wait": "5s"}')
        wait_ms = duration_ms("wait", body.wait, 0, WAIT_MS_MAX)
        lease_ms = duration_ms("lease", body.lease, 0, LEASE_MS_MAX)
        if 0 < lease_ms < LEASE_MS_MIN:
            raise InvalidArgument(f"a lease of {lease_ms} ms is too short", f"{LEASE_MS_MIN} ms up")
        if not 1 <= body.count <= RECEIVE_COUNT_MAX:
            text = f"count={body.count} is out of bounds"
            raise InvalidArgument(text, f"allowed is 1 to {RECEIVE_COUNT_MAX}")
        if body.partition < -1:
            text = f"partition={body.partition} is out of bounds"
            raise InvalidArgument(text, "from 0 on, or -1 for any")
        if len(body.member) > MEMBER_ID_CHARS_MAX:
            raise TooLarge("characters of a member's name", len(body.member), MEMBER_ID_CHARS_MAX)
        if body.start not in _STARTS:
            raise InvalidArgument(f"start={body.start[:40]!r} is neither", "write first or next")
        bytes_max = max(1, min(body.bytes_max, self._reply_bytes_max))
        raw = request.wants(replies.BATCH)
        topic, group = request.topic, request.params["group"]
        check_group_name(group)
        exchange.weigh(bytes_max)

        def answer(received: Received) -> None:
            if raw:
                _send_raw(exchange, received)
            else:
                items = self.items(topic, group, received)
                if exchange.spans is not None:
                    tell_delivered(exchange.spans, topic, group, items)
                exchange.json({"messages": items})

        self._calls.receive(
            topic,
            group,
            body.partition,
            min(body.count, RAW_COUNT_MAX) if raw else body.count,
            bytes_max,
            lease_ms,
            wait_ms,
            body.member,
            wait_ms + request.timeout_ms,
            exchange.then(answer),
            start=_STARTS[body.start],
            ordered=body.ordered,
            is_wanted=exchange.is_wanted,
        )

    def items(self, topic: str, group: str, received: Received) -> list[Delivered]:
        """Return what was received, each message with its token."""
        spans, partition = received.spans, received.partition
        messages = iter(self._opened.pick(topic, partition, received.batches, spans))
        items: list[Delivered] = []
        for at in range(0, len(spans), 4):
            start, end, attempt, generation = spans[at : at + 4]
            for offset in range(start, end):
                item = fill_item(Delivered, topic, partition, next(messages))
                token = encode_token(
                    LeaseToken(
                        topic,
                        partition,
                        group,
                        received.term,
                        received.sequence,
                        offset,
                        attempt,
                        generation,
                    )
                )
                item.partition, item.attempt = partition, attempt
                item.lease_token = item.receipt_handle = token
                item.lease_expires_ms = received.deadline_ms
                items.append(item)
        return items

    # ------------------------------------------------------------------ settle

    def _settling(self, verb: int) -> Any:
        def settle(exchange: Exchange, request: Request) -> None:
            body = _decode(_settle_decoder, request.body, '{"lease_token": "..."}')
            texts = _tokens_of(body)
            lease = body.lease
            if body.extension_seconds is not None:
                if lease is not None:
                    raise InvalidArgument("lease and extension_seconds", "send one of them")
                lease = max(-1, min(body.extension_seconds, LEASE_MS_MAX)) * 1000
            delay_ms = delay_of(verb, body.delay, lease)
            reason = _cut(body.reason)
            rows = [(decode_token(text), verb, delay_ms, reason) for text in texts]
            self._settle(exchange, request, rows, texts, is_one=not body.lease_tokens)

        return settle

    def settle_mixed(self, exchange: Exchange, request: Request) -> None:
        """Settle many deliveries, each in its own way."""
        body = _decode(_mixed_decoder, request.body, '{"settles": [{"lease_token": "..."}]}')
        rows: list[tuple[LeaseToken, int, int, str]] = []
        for item in body.settles:
            verb = _verb(item.verb)
            delay_ms = delay_of(verb, item.delay, item.lease)
            rows.append((decode_token(item.lease_token), verb, delay_ms, _cut(item.reason)))
        texts = [item.lease_token for item in body.settles]
        self._settle(exchange, request, rows, texts, is_one=False)

    def _settle(
        self,
        exchange: Exchange,
        request: Request,
        rows: list[tuple[LeaseToken, int, int, str]],
        texts: list[str],
        *,
        is_one: bool,
    ) -> None:
        if not rows:
            raise InvalidArgument("there is nothing to settle", 'send {"lease_token": "..."}')
        if len(rows) > SETTLES_MAX:
            raise TooLarge("settles in one request", len(rows), SETTLES_MAX)
        places = settles_of(rows)
        verdicts = Verdicts(rows)

        def finished(errors: list[RaftlineError | None]) -> None:
            if is_one:
                if errors[0] is not None:
                    exchange.fail(errors[0])
                else:
                    token = rows[0][0]
                    where = {"topic": token.topic, "partition": token.partition}
                    where |= {"offset": token.offset}
                    exchange.json({"settled": 1, "success": True, **where})
                return
            answer: dict[str, Any] = {
                "settled": sum(error is None for error in errors),
                "results": [
                    {"lease_token": text, "error": error and replies.error_body(error)}
                    for text, error in zip(texts, errors, strict=True)
                ],
            }
            if not answer["settled"] and errors[0] is not None:  # as a publish that stored nothing
                answer["error"] = replies.error_body(errors[0])
                exchange.json(answer, row_of(errors[0]).http)
            else:
                exchange.json(answer)

        verdicts.expect(len(places), lambda errors: exchange.guard(finished, errors))
        for (topic, partition), settles in places.items():
            self._calls.settle(
                topic,
                partition,
                settles,
                request.timeout_ms,
                verdicts.taker(topic, partition, settles),
            )

    def _prepare_ranges(self, request: Request) -> Run:
        def rest(exchange: Exchange, body: bytes) -> None:
            self.settle_ranges(exchange, request.with_body(body))

        group, timeout_ms = request.params["group"], request.timeout_ms
        return SettleRanges(
            self._calls, request.topic, request.partition, group, timeout_ms, rest
        ).run

    def settle_ranges(self, exchange: Exchange, request: Request) -> None:
        """Settle ranges of leases on one partition: for clients that read batches."""
        body = _decode(_ranges_decoder, request.body, '{"settles": [["ack", 1, 1, 1, 0, [0, 9]]]}')
        if not body.settles:
            raise InvalidArgument("there is nothing to settle", 'send {"settles": [...]}')
        if len(body.settles) > SETTLES_MAX:
            raise TooLarge("settles in one request", len(body.settles), SETTLES_MAX)
        count = sum(len(row[-1]) for row in body.settles) // 2
        if count > RANGES_MAX:
            raise TooLarge("ranges in one request", count, RANGES_MAX)
        reason = _cut(body.reason)
        group, partition = request.params["group"], request.partition
        settles: list[Settle] = []
        for name, term, sequence, attempt, generation, ranges in body.settles:
            verb = _verb(name)
            settles.append(
                Settle(
                    group,
                    verb,
                    term,
                    sequence,
                    attempt,
                    generation,
                    _ranges(ranges),
                    delay_of(verb, body.delay, body.lease, is_one=False),
                    reason,
                )
            )

        self._calls.settle(
            request.topic,
            partition,
            settles,
            request.timeout_ms,
            exchange.then(lambda settled: answer_ranges(exchange, settled)),
        )


def _send_raw(exchange: Exchange, received: Received) -> None:
    spans = ",".join(map(str, received.spans))
    extra = (
        f"Raftline-Partition: {received.partition}\r\n"
        f"Raftline-Lease: {received.term}.{received.sequence}\r\n"
        f"Raftline-Lease-Expires-Ms: {received.deadline_ms}\r\n"
        f"Raftline-Spans: {spans}\r\n"
    )
    exchange.send(received.batches, 200, replies.BATCH, extra)


def _decode(decoder: "msgspec.json.Decoder[Any]", body: bytes, example: str) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(str(error), f"the body is like {example}") from error


def _tokens_of(body: SettleBody) -> list[str]:
    """Return the tokens that a settle names, in one of three ways."""
    given = [bool(body.lease_token), bool(body.receipt_handle), bool(body.lease_tokens)]
    if sum(given) > 1:
        text = "lease_token, receipt_handle and lease_tokens are one thing"
        raise InvalidArgument(text, "send one of them")
    one = body.lease_token or body.receipt_handle
    return [one] if one else body.lease_tokens


def _ranges(flat: list[int]) -> list[int]:
    """Return ranges with neighbours joined, if they are such."""
    starts, ends = flat[::2], flat[1::2]
    if not flat or len(flat) % 2 or any(map(int.__ge__, starts, ends)):
        raise InvalidArgument(
            f"{str(flat[:4])[:60]} are no ranges", "start and end, start and end: [0, 9, 12, 13]"
        )
    return merge_ranges(flat)


def _verb(name: str) -> int:
    if name not in VERBS:
        raise InvalidArgument(f"{name[:40]!r} is no settle", "use one of: " + ", ".join(VERBS))
    return VERBS.index(name)


def duration_ms(name: str, given: str | int, low: int, high: int) -> int:
    """Return milliseconds of a duration. Raises InvalidArgument where it is out of bounds."""
    found = parse_duration_ms(given) if isinstance(given, str) else given
    if not low <= found <= high:
        raise InvalidArgument(f"{name}={found} ms is out of bounds", f"allowed is {low} to {high}")
    return found


def delay_of(
    verb: int, delay: str | int | None, lease: str | int | None, *, is_one: bool = True
) -> int:
    """Return what the verb takes; ``is_one``: it is the only verb, so nothing else may be said."""
    if is_one and delay is not None and verb != NACK:
        raise InvalidArgument(f"{VERBS[verb]} takes no delay", "only a nack does")
    if is_one and lease is not None and verb != EXTEND:
        raise InvalidArgument(f"{VERBS[verb]} takes no lease", "only an extend does")
    if verb == NACK:
        return BACKOFF if delay is None else duration_ms("delay", delay, 0, NACK_DELAY_MS_MAX)
    if verb == EXTEND:
        if lease is None:
            raise InvalidArgument("an extend says for how long", 'add "lease": "30s"')
        return duration_ms("lease", lease, LEASE_MS_MIN, LEASE_MS_MAX)
    return 0


def _cut(reason: str) -> str:
    """Return a reason without its tail: nobody loses a settle because an error was long."""
    return reason[:REASON_CHARS_MAX]
