"""Query leases over HTTP: what a job that reads a work group in numbered batches asks.

A query leases number n, hears the same ranges for n as often as it asks, and acks n by leasing
n + 1 (node/query_leases.py). The messages themselves it reads by offset.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from raftline.gateways.http.answers import (
    AckedAnswer,
    HeldAnswer,
    LeasedAnswer,
    RejectedAnswer,
    ReleasedAnswer,
)
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.fields import Int
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.http.topics import decode
from raftline.gateways.ports import Calls
from raftline.model.errors import InvalidArgument, TooLarge
from raftline.model.limits import NACK_REASON_CHARS_MAX, QUERY_COUNT_MAX, WAIT_MS_MAX
from raftline.model.names import check_group_name
from raftline.model.settings import parse_duration_ms

EXAMPLE = '{"query": "q1", "n": 7}'


class LeaseBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a query asks for; ``start`` and ``ordered`` count where the group begins with this."""

    query: str
    n: Int
    count: Int = 10_000
    wait: str | Int = 0
    ordered: bool = False
    start: str = "first"


class NumberBody(msgspec.Struct, forbid_unknown_fields=True):
    """A query and its number."""

    query: str
    n: Int


class RejectBody(msgspec.Struct, forbid_unknown_fields=True):
    """Messages of a lease that are to be dead letters."""

    query: str
    n: Int
    ranges: list[tuple[Int, Int]]
    reason: str = ""


class QueryBody(msgspec.Struct, forbid_unknown_fields=True):
    """A query."""

    query: str


class QueryLeaseRoutes:
    """The routes under ``/v1/topics/{t}/partitions/{p}/groups/{g}/lease``."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        one = "/v1/topics/{topic}/partitions/{partition}/groups/{group}/lease"
        add = router.add
        add("POST", one, self.lease, body=LeaseBody, answer=LeasedAnswer)
        add("GET", one, self.held, query="query", answer=HeldAnswer)
        add("POST", f"{one}/ack", self.ack, body=NumberBody, answer=AckedAnswer)
        add("POST", f"{one}/reject", self.reject, body=RejectBody, answer=RejectedAnswer)
        add("POST", f"{one}/release", self.release, body=QueryBody, answer=ReleasedAnswer)

    def lease(self, exchange: Exchange, request: Request) -> None:
        """Lease messages to a query under a number, or those it has again."""
        check_group_name(request.params["group"])
        body = decode(request.body, LeaseBody, '{"query": "q1", "n": 7, "count": 10000}')
        if body.count < 1:
            raise InvalidArgument(f"a lease of {body.count} messages", f"1 to {QUERY_COUNT_MAX}")
        if body.count > QUERY_COUNT_MAX:
            raise TooLarge("messages of a query lease", body.count, QUERY_COUNT_MAX)
        wait_ms = body.wait if isinstance(body.wait, int) else parse_duration_ms(body.wait)
        if not 0 <= wait_ms <= WAIT_MS_MAX:
            raise InvalidArgument(f"a wait of {wait_ms} ms", f"0 to {WAIT_MS_MAX} ms")
        arguments: dict[str, Any] = {**msgspec.to_builtins(body), "wait_ms": wait_ms}
        del arguments["wait"]

        def answer(reply: dict[str, Any]) -> None:
            exchange.json(
                {**reply, "ranges": _pairs(reply["ranges"]), "lost": _pairs(reply["lost"])}
            )

        self._ask(exchange, request, "query.lease", arguments, answer, wait_ms)

    def held(self, exchange: Exchange, request: Request) -> None:
        """Show the number a query stands at, and what it holds."""
        query = request.query.get("query", "")
        if not query:
            raise InvalidArgument("the query is not named", "add ?query=NAME")

        def answer(reply: dict[str, Any]) -> None:
            exchange.json(
                {**reply, "ranges": _pairs(reply["ranges"]), "lost": _pairs(reply["lost"])}
            )

        self._ask(exchange, request, "query.held", {"query": query}, answer)

    def ack(self, exchange: Exchange, request: Request) -> None:
        """Ack what a query holds under a number, or a lower one."""
        arguments = msgspec.to_builtins(decode(request.body, NumberBody, EXAMPLE))
        self._ask(exchange, request, "query.ack", arguments, exchange.json)

    def reject(self, exchange: Exchange, request: Request) -> None:
        """Make dead letters of messages that a query holds."""
        example = '{"query": "q1", "n": 7, "ranges": [[12, 13]], "reason": "bad total"}'
        body = decode(request.body, RejectBody, example)
        if len(body.reason) > NACK_REASON_CHARS_MAX:
            raise TooLarge("characters of a reason", len(body.reason), NACK_REASON_CHARS_MAX)
        ranges = [edge for pair in body.ranges for edge in pair]
        arguments: dict[str, Any] = {**msgspec.to_builtins(body), "ranges": ranges}
        self._ask(exchange, request, "query.reject", arguments, exchange.json)

    def release(self, exchange: Exchange, request: Request) -> None:
        """Give back what a query holds, and forget it."""
        arguments = msgspec.to_builtins(decode(request.body, QueryBody, '{"query": "q1"}'))
        self._ask(exchange, request, "query.release", arguments, exchange.json)

    def _ask(
        self,
        exchange: Exchange,
        request: Request,
        name: str,
        arguments: dict[str, Any],
        answer: Callable[[dict[str, Any]], None],
        wait_ms: int = 0,
    ) -> None:
        self._calls.ask(
            request.topic,
            request.partition,
            name,
            {**arguments, "group": request.params["group"]},
            request.timeout_ms + wait_ms,
            exchange.then(answer),
        )


def _pairs(edges: list[int]) -> list[list[int]]:
    return [edges[at : at + 2] for at in range(0, len(edges), 2)]
