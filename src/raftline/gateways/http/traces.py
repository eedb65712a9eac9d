"""Traces over HTTP: the timeline of one message, and finding messages."""

from typing import Any

from raftline.config.moments import parse_moment_ms
from raftline.gateways.http.answers import SearchAnswer, TraceAnswer
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.ports import Calls
from raftline.gateways.traces import LIMIT_DEFAULT, LIMIT_MAX, SearchWish, Traces
from raftline.model.limits import PARTITIONS_MAX


class TraceRoutes:
    """The routes under ``/v1/traces``."""

    __slots__ = ("_traces",)

    def __init__(self, calls: Calls) -> None:
        self._traces = Traces(calls)

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        query = "topic partition key from to member group state limit after"
        router.add("GET", "/v1/traces/search", self.search, query=query, answer=SearchAnswer)
        router.add("GET", "/v1/traces/{id}", self.show, answer=TraceAnswer)
        router.add("GET", "/v1/messages/{id}/trace", self.show, answer=TraceAnswer)

    def show(self, exchange: Exchange, request: Request) -> None:
        """Tell what happened to a message."""
        self._traces.show(request.params["id"], request.timeout_ms, exchange.then(exchange.json))

    def search(self, exchange: Exchange, request: Request) -> None:
        """Find messages by key, time window, member, group and state."""
        query = request.query
        wish = SearchWish(
            topic=query.get("topic", ""),
            partition=(
                request.number("partition", 0, 0, PARTITIONS_MAX) if "partition" in query else None
            ),
            key=query["key"].encode() if "key" in query else None,
            from_ms=_moment_of("from", query["from"]) if "from" in query else None,
            to_ms=_moment_of("to", query["to"]) if "to" in query else None,
            member=query.get("member", ""),
            group=query.get("group", ""),
            state=query.get("state", ""),
            limit=request.number("limit", LIMIT_DEFAULT, 1, LIMIT_MAX),
            after=query.get("after", ""),
        )

        def answer(page: dict[str, Any]) -> None:
            exchange.json({**page, "messages": [_row(row) for row in page["messages"]]})

        self._traces.search(wish, request.timeout_ms, exchange.then(answer))


def _row(row: dict[str, Any]) -> dict[str, Any]:
    key = row["key"]
    return {**row, "key": key.decode("utf-8", "replace") if key is not None else None}


def _moment_of(name: str, text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 19
    return parse_moment_ms(name, int(text) if is_number else text)
