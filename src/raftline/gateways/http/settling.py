"""Settles of ranges on one partition: the form for clients that read batches.

One ack of one range is what a worker sends that waits for each of its acks: it takes the shortest
way to the node and back. Everything else in this form goes row by row.

Costs
    One decoded body, one call of the node, a reply that is made already.
"""

from collections.abc import Callable
from typing import Annotated

import msgspec

from raftline.gateways.error_table import row_of
from raftline.gateways.http import replies
from raftline.gateways.http.connection import EXCHANGE_BYTES, Exchange, HttpConnection, Known
from raftline.gateways.ports import Calls
from raftline.gateways.settles import done_in_part
from raftline.machines.delivery.commands import ACK, VERBS, Settle
from raftline.model.calls import Settled
from raftline.model.errors import RaftlineError
from raftline.model.limits import OFFSET_MAX

Number = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]
RangeRow = tuple[str, Number, Number, Number, Number, list[Number]]
"""verb, term, sequence, attempt, generation, flat ranges"""

_ACK = VERBS[ACK]
_DONE_BODY = b'{"lost":[[]]}'
_DONE = replies.OK_JSON_HEADS[len(_DONE_BODY)] + _DONE_BODY
_NOTHING_LOST: list[list[int]] = [[]]


class RangesBody(msgspec.Struct, forbid_unknown_fields=True):
    """Settles of ranges on one partition: the fast form."""

    settles: list[RangeRow]
    delay: str | int | None = None
    lease: str | int | None = None
    reason: str = ""


class SettleExchange(Exchange):
    """One settle on its way: the hot one."""

    __slots__ = ()

    def done(self, answer: Settled | RaftlineError) -> None:
        """Take the node's answer."""
        if isinstance(answer, RaftlineError):
            self.fail(answer)
        elif answer.lost == _NOTHING_LOST and not answer.failed and not self.close:
            self.finish(_DONE)
        else:
            answer_ranges(self, answer)


def answer_ranges(exchange: Exchange, settled: Settled) -> None:
    """Tell what was lost; of a call done in part also what is left, and under which error."""
    error = done_in_part(settled)
    if error is None:
        exchange.json({"lost": settled.lost})
        return
    body = {"error": replies.error_body(error), "lost": settled.lost, "failed": settled.failed}
    exchange.json(body, row_of(error).http)


class SettleRanges:
    """What runs for all settles with one head."""

    __slots__ = ("_calls", "_group", "_partition", "_rest", "_timeout_ms", "_topic")

    def __init__(
        self,
        calls: Calls,
        topic: str,
        partition: int,
        group: str,
        timeout_ms: int,
        rest: Callable[[Exchange, bytes], None],
    ) -> None:
        self._calls = calls
        self._topic = topic
        self._partition = partition
        self._group = group
        self._timeout_ms = timeout_ms
        self._rest = rest  # what is not one ack of one range, or not even sound

    def run(self, connection: HttpConnection, known: Known, body: bytes) -> None:
        """Serve one request."""
        exchange = SettleExchange(connection, known, len(body) + EXCHANGE_BYTES)
        try:
            settle = self._ack_in(body)
            if settle is None:
                exchange.guard(self._rest, exchange, body)
            else:
                self._calls.settle(
                    self._topic, self._partition, [settle], self._timeout_ms, exchange.done
                )
        except Exception as error:  # noqa: BLE001 - the gateway's boundary, as Exchange.guard
            exchange.fail(connection.server.report(error))

    def _ack_in(self, body: bytes) -> Settle | None:
        """Return the only settle of a body, if it acks one range and says nothing else."""
        if len(body) > ONE_BYTES_MAX:
            return None  # many ranges: not worth to be read twice
        try:
            given = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if len(given.settles) != 1 or given.reason:
            return None
        verb, term, sequence, attempt, generation, ranges = given.settles[0]
        if verb != _ACK or len(ranges) != 2 or ranges[0] >= ranges[1]:
            return None
        return Settle(self._group, ACK, term, sequence, attempt, generation, ranges)


ONE_BYTES_MAX = 160
_decode = msgspec.json.Decoder(RangesBody).decode
