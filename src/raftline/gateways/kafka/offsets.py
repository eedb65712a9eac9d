"""ListOffsets and OffsetForLeaderEpoch: where a partition ends, and where times and terms are.

Both are answered by the leader once it knows all that was committed when it was asked.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from raftline.gateways.kafka import schema
from raftline.gateways.kafka.dispatch import Context, Reply, Table
from raftline.gateways.kafka.errors import (
    FENCED_LEADER_EPOCH,
    NONE,
    UNKNOWN_LEADER_EPOCH,
    UNSUPPORTED_VERSION,
    partition_code,
)
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.model.calls import Looked
from raftline.model.errors import RaftlineError
from raftline.model.limits import BATCH_HEADER_BYTES
from raftline.node.led import LedPartition
from raftline.node.ports import Clock
from raftline.storage.files import Buffer

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
TIMESTAMP_MS_MAX = 1 << 63  # some producers write nanoseconds
UNKNOWN = -1

Fields = dict[str, Any]
Put = Callable[[Fields], None]


class OffsetApi:
    """Answers questions about offsets."""

    __slots__ = ("_calls",)

    def __init__(self, clock: Clock, calls: KafkaCalls) -> None:
        self._calls = calls
        assert clock is not None

    def add_to(self, table: Table) -> None:
        """Serve both."""
        table.add(schema.LIST_OFFSETS, 1, 10, self.list_offsets)
        table.add(schema.OFFSET_FOR_LEADER_EPOCH, 0, 4, self.offset_for_leader_epoch)

    def list_offsets(self, request: Fields, version: int, context: Context, reply: Reply) -> None:
        """Find offsets by time, or the ends of partitions."""
        _Rows(request, "name", context, reply, self._list)

    def offset_for_leader_epoch(
        self, request: Fields, version: int, context: Context, reply: Reply
    ) -> None:
        """Find where the messages of a term end."""
        _Rows(request, "topic", context, reply, self._end_of_epoch)

    # -- one partition

    def _lead(self, topic: str, asked: Fields) -> LedPartition | int:
        """Return the partition if it is led here in the term that the client knows, or a code."""
        led = self._calls.led_partition(topic, asked["partition"])
        if isinstance(led, RaftlineError):
            return partition_code(led)
        epoch, term = asked["current_leader_epoch"], led.term
        if epoch >= 0 and epoch != term:
            return FENCED_LEADER_EPOCH if epoch < term else UNKNOWN_LEADER_EPOCH
        return led

    def _list(self, topic: str, asked: Fields, context: Context, put: Put) -> None:
        led = self._lead(topic, asked)
        if isinstance(led, int):
            put({"error_code": led})
            return
        led.confirm(
            context.guarded(partial(self._confirmed, led, asked["timestamp"], context, put))
        )

    def _confirmed(
        self,
        led: LedPartition,
        time_ms: int,
        context: Context,
        put: Put,
        error: RaftlineError | None,
    ) -> None:
        if error is not None:
            put({"error_code": partition_code(error)})
        elif time_ms == LATEST:
            put({"offset": led.commit_end, "leader_epoch": led.term})
        elif time_ms in (EARLIEST, EARLIEST_LOCAL):
            put({"offset": led.log_start, "leader_epoch": led.term})
        elif time_ms == MAX_TIMESTAMP:
            _Newest(led, context, put).step()
        elif time_ms == LATEST_TIERED:
            put({"offset": UNKNOWN, "leader_epoch": UNKNOWN})  # nothing is tiered
        elif time_ms < 0:
            put({"error_code": UNSUPPORTED_VERSION, "offset": UNKNOWN, "leader_epoch": UNKNOWN})
        else:
            led.look_up_time(time_ms, context.guarded(partial(_found, led, put)))

    def _end_of_epoch(self, topic: str, asked: Fields, context: Context, put: Put) -> None:
        led = self._lead(topic, asked)
        if isinstance(led, int):
            put({"error_code": led})
            return
        epoch: int = asked["leader_epoch"]

        def confirmed(error: RaftlineError | None) -> None:
            if error is not None:
                put({"error_code": partition_code(error)})
            elif epoch >= led.term or epoch < 0:
                known = epoch == led.term
                put(
                    {
                        "leader_epoch": led.term if known else UNKNOWN,
                        "end_offset": led.commit_end if known else UNKNOWN,
                    }
                )
            else:
                _EndOfTerm(led, epoch, context, put).step()

        led.confirm(context.guarded(confirmed))


class _Rows:
    """The partitions of a request, and what they answered."""

    def __init__(
        self,
        request: Fields,
        name: str,
        context: Context,
        reply: Reply,
        ask: Callable[[str, Fields, Context, Put], None],
    ) -> None:
        self._reply = reply
        self._left = 1
        self._topics: list[Fields] = []
        for topic in request["topics"]:
            rows: list[Fields] = [{} for _ in topic["partitions"]]
            self._topics.append({name: topic[name], "partitions": rows})
            for at, asked in enumerate(topic["partitions"]):
                self._left += 1
                ask(topic[name], asked, context, partial(self._put, rows, at, asked["partition"]))
        self._done()

    def _put(self, rows: list[Fields], at: int, partition: int, row: Fields) -> None:
        rows[at] = {"error_code": NONE, "partition": partition, **row}
        self._done()

    def _done(self) -> None:
        self._left -= 1
        if not self._left:
            self._reply({"topics": self._topics})


def _found(led: LedPartition, put: Put, looked: Looked | RaftlineError) -> None:
    if isinstance(looked, RaftlineError):
        put({"error_code": partition_code(looked)})
    elif looked.offset < 0:
        put({"offset": UNKNOWN, "timestamp": UNKNOWN, "leader_epoch": UNKNOWN})
    else:
        put({"offset": looked.offset, "timestamp": looked.timestamp_ms, "leader_epoch": led.term})


class _Newest:
    """Finds the message with the greatest timestamp: halves the time in which it can be."""

    def __init__(self, led: LedPartition, context: Context, put: Put) -> None:
        self._led = led
        self._context = context
        self._put = put
        self._best: Looked | None = None
        self._low, self._high = 0, TIMESTAMP_MS_MAX  # it is in [low, high), if there is one

    def step(self) -> None:
        """Look whether a message is as late as the middle."""
        if self._low >= self._high:
            if self._best is None:
                self._put({"offset": UNKNOWN, "leader_epoch": UNKNOWN})
            else:
                _found(self._led, self._put, self._best)
            return
        middle = self._low if self._best is None else (self._low + self._high) // 2
        self._led.look_up_time(middle, self._context.guarded(partial(self._looked, middle)))

    def _looked(self, middle: int, looked: Looked | RaftlineError) -> None:
        if isinstance(looked, RaftlineError):
            self._put({"error_code": partition_code(looked)})
            return
        if looked.offset < 0:
            self._high = middle
        else:
            self._best, self._low = looked, max(looked.timestamp_ms, middle) + 1
        self.step()


class _EndOfTerm:
    """Finds the first offset of a later term, by halves: terms never fall along the log.

    A term older than all that is kept ends where the log starts: a reader that had read everything
    before it was removed goes on there. Were it told that nothing is known of the term, it would
    take its place for lost, and skip what came since.
    """

    def __init__(self, led: LedPartition, term: int, context: Context, put: Put) -> None:
        self._led = led
        self._term = term
        self._context = context
        self._put = put
        self._low, self._high = led.log_start, led.commit_end
        self._known = UNKNOWN  # the greatest term seen that is not later

    def step(self) -> None:
        """Look at the batch in the middle."""
        if self._low >= self._high:
            known = self._known if self._known >= 0 else self._term
            self._put({"leader_epoch": known, "end_offset": self._low})
            return
        middle = (self._low + self._high) // 2
        self._led.read(middle, 1, self._context.guarded(self._read))

    def _read(self, got: list[Buffer] | RaftlineError) -> None:
        if isinstance(got, RaftlineError):
            self._put({"error_code": partition_code(got)})
            return
        head = bytes(got[0][:BATCH_HEADER_BYTES])
        if len(head) < BATCH_HEADER_BYTES:  # from memory: the place in the log is apart
            head += bytes(got[1][:BATCH_HEADER_BYTES])
        base, term = int.from_bytes(head[:8], "big"), int.from_bytes(head[12:16], "big")
        if term > self._term:
            self._high = max(self._low, base)
        else:
            self._low = base + int.from_bytes(head[23:27], "big") + 1
            self._known = max(self._known, term)
        self.step()
