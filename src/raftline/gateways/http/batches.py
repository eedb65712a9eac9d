"""Sealed batches over HTTP, without JSON on the way in: the fast way to send and to read.

``POST /v1/topics/{t}[/partitions/{p}]/messages`` with ``application/vnd.raftline.batch``: the body
is one or more record batches; the reply has one result per batch. ``GET`` with that type in
``Accept`` returns the stored bytes.

Costs
    One check of the batch, one call of the node, one reply formatted by hand.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from raftline.gateways.error_table import row_of
from raftline.gateways.fan import Gather
from raftline.gateways.http import replies
from raftline.gateways.http.connection import (
    EXCHANGE_BYTES,
    Exchange,
    HttpConnection,
    Known,
)
from raftline.gateways.ports import Calls
from raftline.gateways.topic_finder import TopicFinder
from raftline.machines.partition.side_car import SideCar, hash_key
from raftline.model.batch import LENGTH_FROM, BatchInfo, check_batch, split_batches
from raftline.model.calls import Appended, ReadReply
from raftline.model.errors import (
    BatchTooLarge,
    CorruptBatch,
    DuplicateKey,
    InvalidArgument,
    RaftlineError,
)
from raftline.model.priorities import parse_priority

BATCHES_MAX = 1_000  # in one request
ANY_PARTITION = -1

Take = Callable[[Appended | RaftlineError], None]


class AppendExchange(Exchange):
    """One batch on its way: the hot one."""

    __slots__ = ()

    def done(self, answer: Appended | RaftlineError) -> None:
        """Take the node's answer."""
        if type(answer) is Appended and not answer.duplicate and not self.close:
            body = (
                b'{"results":[{"base_offset":%d,"count":%d,"partition":%d,"duplicate":false}]}'
                % (
                    answer.base_offset,
                    answer.count,
                    answer.partition,
                )
            )
            self.finish(replies.OK_JSON_HEADS[len(body)] + body)
        elif isinstance(answer, RaftlineError):
            self.fail(answer)
        else:
            self.json({"results": [_result(answer)]})


class AppendBatches:
    """What runs for all requests with one head."""

    __slots__ = (
        "_batch_bytes_max",
        "_calls",
        "_finder",
        "_partition",
        "_timeout_ms",
        "_topic",
        "dedup_key",
        "priority",
    )

    def __init__(
        self,
        calls: Calls,
        finder: TopicFinder,
        topic: str,
        partition: int,
        timeout_ms: int,
        batch_bytes_max: int,
    ) -> None:
        self._calls = calls
        self._finder = finder
        self._topic = topic
        self._partition = partition  # or ANY_PARTITION
        self._timeout_ms = timeout_ms
        self._batch_bytes_max = batch_bytes_max
        self.priority = ""  # as the head says it
        self.dedup_key: bytes | None = None

    def run(self, connection: HttpConnection, known: Known, body: bytes) -> None:
        """Serve one request."""
        exchange = AppendExchange(connection, known, len(body) + EXCHANGE_BYTES)
        partition = self._partition
        try:
            if partition < 0:
                exchange.guard(self._spread, exchange, body)
            else:
                info = check_batch(body, bytes_max=self._batch_bytes_max)
                self._calls.append(
                    self._topic, partition, body, info, self._timeout_ms, exchange.done
                )
        except (CorruptBatch, BatchTooLarge) as error:
            if int.from_bytes(body[8:12], "big") + LENGTH_FROM == len(body):
                exchange.fail(error)
            else:  # several batches, or none
                exchange.guard(self._append_all, exchange, partition, body)
        except Exception as error:  # noqa: BLE001
            exchange.fail(connection.server.report(error))

    def _spread(self, exchange: Exchange, body: bytes) -> None:
        """Choose the partition for the request, once the topic is there."""
        batches = self._split(body)
        self._finder.choose(
            self._topic,
            [self.dedup_key],
            self._timeout_ms,
            exchange.then(lambda chosen: self._send(exchange, chosen[0], batches)),
        )

    def _append_all(self, exchange: Exchange, partition: int, body: bytes) -> None:
        self._send(exchange, partition, self._split(body))

    def _split(self, body: bytes) -> list[tuple[bytes, BatchInfo]]:
        """Check all batches before any is sent. Raises RaftlineError."""
        places = split_batches(body)
        if not 0 < len(places) <= BATCHES_MAX:
            raise InvalidArgument(
                f"a request carries 1 to {BATCHES_MAX} batches, not {len(places)}",
                "send record batches (v2) one after another as the body",
            )
        found: list[tuple[bytes, BatchInfo]] = []
        for start, length in places:
            batch = body[start : start + length]
            info = check_batch(batch, f"at byte {start}", bytes_max=self._batch_bytes_max)
            found.append((batch, info))
        return found

    def _send(
        self, exchange: Exchange, partition: int, batches: list[tuple[bytes, BatchInfo]]
    ) -> None:
        if self.dedup_key is not None and len(batches) > 1:
            raise InvalidArgument("one dedup key for several batches", "send them one by one")
        sides = [self._side(info) for _, info in batches]
        gather = Gather(len(batches), lambda answers: exchange.guard(_reply, exchange, answers))
        for slot, (batch, info) in enumerate(batches):
            self._calls.append(
                self._topic,
                partition,
                batch,
                info,
                self._timeout_ms,
                _known_as_first(gather.taker(slot), partition),
                sides[slot],
            )

    def _side(self, info: BatchInfo) -> SideCar | None:
        """Return what the head says of all messages of a batch."""
        if not self.priority and self.dedup_key is None:
            return None
        if self.dedup_key is not None and info.count != 1:
            raise InvalidArgument(
                f"one dedup key for a batch of {info.count} messages",
                "send the message alone, or as JSON with a dedup_key each",
            )
        priority = self._priority()
        runs = ((0, info.count, priority),) if priority else ()
        keys = ((0, hash_key(self.dedup_key)),) if self.dedup_key is not None else ()
        return SideCar(runs, keys) if runs or keys else None

    def _priority(self) -> int:
        """Read the priority as the topic has it now: heads are kept, its settings change."""
        if not self.priority:
            return 0
        return parse_priority(self.priority, int(self._calls.settings_of(self._topic)["lanes"]))


class SidedBatches(AppendBatches):
    """The same, with a priority or a dedup key in the head."""

    __slots__ = ()

    def run(self, connection: HttpConnection, known: Known, body: bytes) -> None:
        """Serve one request."""
        exchange = Exchange(connection, known, len(body) + EXCHANGE_BYTES)
        if self._partition < 0:
            exchange.guard(self._spread, exchange, body)
        else:
            exchange.guard(self._append_all, exchange, self._partition, body)


def _known_as_first(take: Take, partition: int) -> Take:
    """Answer a message whose dedup key is remembered with the place of the first one."""

    def done(answer: Appended | RaftlineError) -> None:
        if isinstance(answer, DuplicateKey):
            first = answer.firsts[0][1]
            if first >= 0:
                answer = Appended(first, 1, partition, 0, duplicate=True)
        take(answer)

    return done


def _reply(exchange: Exchange, answers: list[Appended | RaftlineError]) -> None:
    errors = [answer for answer in answers if isinstance(answer, RaftlineError)]
    body: dict[str, Any] = {"results": [_result(answer) for answer in answers]}
    if len(errors) < len(answers):
        exchange.json(body)
    else:
        exchange.json({"error": replies.error_body(errors[0]), **body}, row_of(errors[0]).http)


def _result(answer: Appended | RaftlineError) -> dict[str, Any]:
    if isinstance(answer, RaftlineError):
        return {"error": replies.error_body(answer)}
    return {
        "base_offset": answer.base_offset,
        "count": answer.count,
        "partition": answer.partition,
        "duplicate": answer.duplicate,
    }


def cut_reply(reply: ReadReply, end: int) -> ReadReply:
    """Return a reply without the batches that begin at ``end`` or behind."""
    data = reply.batches
    for start, _ in split_batches(data):
        if int.from_bytes(data[start : start + 8], "big") >= end:
            return msgspec.structs.replace(reply, batches=data[:start])
    return reply


def send_raw(exchange: Exchange, reply: ReadReply) -> None:
    """Answer a read with the stored bytes."""
    extra = f"Raftline-Log-Start: {reply.log_start}\r\nRaftline-Commit-End: {reply.commit_end}\r\n"
    exchange.send(reply.batches, 200, replies.BATCH, extra)


assert msgspec.json.encode({"results": [_result(Appended(1, 2, 3, 4))]}) == (
    b'{"results":[{"base_offset":%d,"count":%d,"partition":%d,"duplicate":false}]}' % (1, 2, 3)
)
