"""One publish request from its JSON items to its JSON reply (gateways/publication.py)."""

from typing import Any

from raftline.gateways.error_table import row_of
from raftline.gateways.http import replies
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.items import NewItem, to_message
from raftline.gateways.http.spans import PublishSpan
from raftline.gateways.new_messages import check_headers
from raftline.gateways.publication import (
    Draft,
    Finish,
    Publisher,
    Result,
    check_partition,
)
from raftline.gateways.publication import Publication as SharedPublication
from raftline.gateways.trace_context import add_context
from raftline.gateways.wanted import wanted_of
from raftline.model.errors import InvalidArgument, RaftlineError
from raftline.model.message import Header, NewMessage


class Publication(SharedPublication):
    """The way of one request over HTTP."""

    __slots__ = ("_exchange", "_span")

    def __init__(
        self,
        publisher: Publisher,
        exchange: Exchange,
        topic: str,
        timeout_ms: int,
        finish: Finish | None = None,
    ) -> None:
        """Begin; without ``finish`` the answer is the native one."""
        self._exchange = exchange
        self._span = PublishSpan.of(exchange, topic)
        then = finish or self._answer
        super().__init__(
            publisher,
            exchange,
            topic,
            timeout_ms,
            then if self._span is None else self._span.ending(then),
        )

    def start(self, items: list[NewItem], fixed: int | None, producer: str) -> None:
        """Check every item, then choose partitions."""
        now_ms = self._publisher.wall_ms()
        settings = self._publisher.settings_of(self._topic)
        context = self._context()

        def draft_of(slot: int) -> Draft:
            item = items[slot]
            wanted = wanted_of(item, settings, now_ms)
            message = to_message(item, now_ms)
            if context:
                message = _with_context(message, context)
            return Draft(slot, message, partition_of_item(item, fixed), wanted)

        self.send(len(items), draft_of, producer)

    def _context(self) -> list[Header]:
        """Return the headers by which messages belong to the trace of the request."""
        if self._span is not None:
            return self._span.context.headers()
        known = self._exchange.known.context
        return [] if known is None else known.headers()

    def _answer(self, results: list[Result], error: RaftlineError | None) -> None:
        answer_results(self._exchange, results, error)


def answer_results(exchange: Exchange, results: list[Result], error: RaftlineError | None) -> None:
    """Answer in the native form; ``error`` is the first refusal."""
    body: dict[str, Any] = {"results": results}
    if error is not None:
        for result in results:
            if result.error is not None:
                exchange.count_refused(result.error["code"])
    if error is None or any(result.error is None for result in results):
        exchange.json(body)
    else:
        exchange.json({"error": replies.error_body(error), **body}, row_of(error).http)


def _with_context(message: NewMessage, context: list[Header]) -> NewMessage:
    key, value, headers, timestamp_ms = message
    headers = add_context(list(headers), context)
    check_headers(headers)
    return key, value, headers, timestamp_ms


def partition_of_item(item: NewItem, fixed: int | None) -> int | None:
    """Return the partition that item or path name; None if neither does."""
    if item.partition is None:
        return fixed
    partition = check_partition(item.partition)
    if fixed is not None and fixed != partition:
        raise InvalidArgument(f"the message says partition {partition}, the path {fixed}")
    return partition
