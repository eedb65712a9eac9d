"""Fetch, by hand: from the bytes of a frame to the bytes of the log.

Batches go out as the log has them, from memory or from a segment; a reply has at least one whole
batch if there is one, and else no more than it asks for or ``reply_bytes_max``: what is read of a
partition may be longer than the room that is left, as batches go out whole, and waits then for the
next request. A request that finds less than it wants
waits: it hears of every growth of its partitions, and looks again when there may be enough. Fetch
sessions are not kept (session 0), so each request names all of its partitions; one that goes on
with a session (its epoch is above 0) leaves out what did not change, so it is refused: clients then
name all.

Only the leader answers. An offset past the end is looked at again once this leader knows all that
was committed: a new leader must not send a reader back to the start.
"""

import struct
from functools import partial
from typing import TYPE_CHECKING

from raftline.gateways.kafka import schema
from raftline.gateways.kafka.codec import ZERO_UUID, Malformed, get_uvarint, put_uvarint
from raftline.gateways.kafka.connection import (
    EXCHANGE_BYTES,
    REPLY,
    Exchange,
    KafkaConnection,
    skip_tags,
)
from raftline.gateways.kafka.dispatch import Handler, Table
from raftline.gateways.kafka.errors import (
    FENCED_LEADER_EPOCH,
    FETCH_SESSION_ID_NOT_FOUND,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    partition_code,
)
from raftline.gateways.kafka.leaders import Terms, leader_tag, node_tag
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.gateways.kafka.server import Raw
from raftline.model.batch import PLACE, end_of_batch, split_batches
from raftline.model.errors import NotLeader, RaftlineError
from raftline.model.limits import BATCH_HEADER_BYTES, WAIT_MS_MAX
from raftline.node.ports import Clock, Timer

if TYPE_CHECKING:
    from raftline.node.led import LedPartition
    from raftline.storage.files import Buffer

MIN_VERSION, MAX_VERSION = 4, 17
FLEXIBLE_FROM = schema.FETCH.flexible_from
IDS_FROM = 13
PARTITIONS_MAX = 10_000  # of one request
LEADER_TAG = 1
UNKNOWN = -1

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_HEAD_OLD = struct.Struct(">iiiib")  # replica, wait, least, most bytes, isolation
_HEAD = struct.Struct(">iiib")  # the same without replica (version 15 on)
_SESSION = struct.Struct(">ii")
_ROW_4 = struct.Struct(">iqi")  # partition, offset, bytes
_ROW_5 = struct.Struct(">iqqi")  # partition, offset, log start, bytes
_ROW_9 = struct.Struct(">iiqqi")  # partition, epoch, offset, log start, bytes
_ROW_12 = struct.Struct(">iiqiqi")  # partition, epoch, offset, fetched epoch, log start, bytes
_OUT = struct.Struct(">ihqq")  # partition, error, commit end, last stable offset
_I64 = struct.Struct(">q")


class Part:
    """One partition of a request."""

    __slots__ = (
        "buffers",
        "bytes_max",
        "commit_end",
        "epoch",
        "error",
        "leader",
        "led",
        "limit",
        "log_start",
        "offset",
        "partition",
        "size",
        "topic",
    )

    def __init__(self, topic: str, partition: int, epoch: int, offset: int, bytes_max: int) -> None:
        self.topic = topic
        self.partition = partition
        self.epoch = epoch  # the leader's term as the client knows it, or -1
        self.offset = offset
        self.bytes_max = max(1, bytes_max)
        self.led: LedPartition | None = None
        self.limit = 0  # bytes that it may have in the reply; 0: no room is left
        self.error = NONE
        self.leader = UNKNOWN
        self.commit_end = UNKNOWN
        self.log_start = UNKNOWN
        self.buffers: list[Buffer] = []
        self.size = 0


class FetchExchange(Exchange):
    """One request: what its partitions have, and whether that is enough."""

    __slots__ = (
        "_api",
        "_bytes_max",
        "_deadline_ms",
        "_grew",
        "_is_over",
        "_looking",
        "_min_bytes",
        "_timer",
        "_watched",
        "error",
        "parts",
        "topics",
    )

    def begin(self, api: "FetchApi", wait_ms: int, min_bytes: int, bytes_max: int) -> None:
        """Note what is wanted."""
        self._api = api
        self._bytes_max = max(1, min(bytes_max, api.reply_bytes_max))
        self._min_bytes = min(min_bytes, self._bytes_max)
        self._deadline_ms = api.clock.mono_ms() + max(0, min(wait_ms, WAIT_MS_MAX))
        self.topics: list[tuple[bytes, int]] = []  # names or ids as bytes, where their parts end
        self.parts: list[Part] = []
        self._looking = 0  # partitions that are being read
        self._grew = False  # one of them, meanwhile
        self._timer: Timer | None = None
        self._watched: list[LedPartition] = []
        self._is_over = False
        self.error = NONE  # of all of it: then nothing else is told

    def look(self) -> None:
        """Read every partition, in the order that the client gave, while there is room."""
        self._looking = 1
        self._grew = False
        room = self._bytes_max
        for part in self.parts:
            part.buffers, part.size = [], 0
            self._find(part)
            if part.led is not None:
                room = max(0, room - self._read(part, room))
        self._looked()

    def refuse(self) -> None:
        """Answer without a look."""
        self.topics, self.parts = [], []
        self._end()

    def _find(self, part: Part) -> None:
        """See whether we lead the partition, as the client knows it."""
        if part.error == UNKNOWN_TOPIC_ID:
            return
        led = self._api.calls.led_partition(part.topic, part.partition)
        part.error, part.led = NONE, None
        if isinstance(led, RaftlineError):
            part.error = partition_code(led)
            if isinstance(led, NotLeader):
                part.leader = int(led.extras["leader"])
            return
        term = led.term
        if part.epoch >= 0 and part.epoch != term:
            part.error = FENCED_LEADER_EPOCH if part.epoch < term else UNKNOWN_LEADER_EPOCH
            part.leader = self._api.node
            return
        part.led = led

    def _read(self, part: Part, room: int) -> int:
        """Begin to read a partition; return how much of the room that takes."""
        led = part.led
        assert led is not None
        part.log_start, part.commit_end = led.log_start, led.commit_end
        part.limit = 0
        if part.offset < part.log_start:
            part.error = OFFSET_OUT_OF_RANGE
        elif part.offset > part.commit_end:
            self._looking += 1
            led.confirm(self.guarded(partial(self._confirmed, part)))
        elif part.offset < part.commit_end and room:
            self._looking += 1
            bytes_max = part.limit = min(part.bytes_max, room)
            looking = self._looking
            led.read(part.offset, bytes_max, self.guarded(partial(self._got, part)))
            return bytes_max if self._looking == looking else part.size
        return 0

    def _confirmed(self, part: Part, error: RaftlineError | None) -> None:
        """All that was committed is known here: an offset past the end is none of ours."""
        led = part.led
        assert led is not None
        if error is not None:
            part.error = partition_code(error)
        elif part.offset > led.commit_end:
            part.error = OFFSET_OUT_OF_RANGE
            part.log_start, part.commit_end = led.log_start, led.commit_end
        self._looked()  # else it has grown, at least to where it is read from

    def _got(self, part: Part, got: "list[Buffer] | RaftlineError") -> None:
        if isinstance(got, RaftlineError):
            part.error = partition_code(got)
        else:
            part.buffers = got
            part.size = sum(map(len, got))
        self._looked()

    def _looked(self) -> None:
        """Reply, or wait for more."""
        self._looking -= 1
        if self._looking or self._is_over:
            return
        total, failed = 0, False
        for part in self.parts:
            if total and total + part.size > self._bytes_max:
                part.buffers, part.size, part.limit = [], 0, 0  # one batch, and no room for it
            total += part.size
            failed = failed or part.error != NONE
        left_ms = self._deadline_ms - self._api.clock.mono_ms()
        is_enough = total >= self._min_bytes or failed or left_ms <= 0 or not self.parts
        if not is_enough and self._has_grown():
            self.grown()
        elif is_enough or self._is_full() or not self._wait(left_ms):
            self._end()

    def _has_grown(self) -> bool:
        """Say whether there is more than when we looked; until we watch, nobody tells us."""
        return self._grew or any(
            part.led is not None and part.led.commit_end > part.commit_end for part in self.parts
        )

    def _is_full(self) -> bool:
        """Say whether waiting would bring no more: what is cut off at its limit counts as that.

        Batches go out whole, so a partition that is full has a little less than its limit.
        """
        total = 0
        for part in self.parts:
            if part.led is None or part.offset >= part.commit_end:
                continue
            if not part.limit:
                return True
            is_cut = part.size and _end_of(part.buffers) < part.commit_end
            total += max(part.size, part.limit) if is_cut else part.size
        return total >= self._min_bytes

    def _wait(self, left_ms: float) -> bool:
        if self._timer is not None:
            return True
        for part in self.parts:
            if part.led is not None:
                if not part.led.watch(self):
                    return False
                self._watched.append(part.led)
        self._timer = self._api.clock.call_later(left_ms, self.guarded(self._end))
        return True

    def grown(self) -> None:
        """A partition grew: look again, once what happens now is over. Who left is not read for."""
        if not self.is_wanted():
            self.guarded(self._end)()
        elif self._looking:
            self._grew = True
        elif not self._is_over:
            self._looking = 1
            self._api.clock.call_soon(self.guarded(self._again))

    def _again(self) -> None:
        if not self._is_over:
            self.look()

    def _unwatch(self) -> None:
        self._is_over = True
        for led in self._watched:
            led.unwatch(self)
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        """Reply, also to who left: its connection is closed once all is answered."""
        if self._is_over:
            return
        self._unwatch()
        self.finish(self._encode())

    def _encode(self) -> "list[Buffer]":
        """Write the reply around the buffers of the log."""
        version = self.version
        flexible = version >= FLEXIBLE_FROM
        pieces: list[Buffer] = []
        terms = Terms(self._api.calls)
        out = bytearray(8)
        if flexible:
            out.append(0)
        out += b"\0\0\0\0"  # throttled for no time
        if version >= 7:
            out += _I16.pack(self.error) + b"\0\0\0\0"  # session 0
        _put_count(out, len(self.topics), flexible=flexible)
        at = 0
        leaders: dict[int, None] = {}
        for name, end in self.topics:
            out += name
            _put_count(out, end - at, flexible=flexible)
            for part in self.parts[at:end]:
                if part.leader > 0:
                    leaders[part.leader] = None
                out = self._put(out, part, pieces, terms)
            at = end
            if flexible:
                out.append(0)
        if flexible:
            out += node_tag(self._api.calls, leaders) if leaders and version >= 16 else b"\0"
        pieces.append(out)
        total = sum(map(len, pieces))
        head = pieces[0]
        assert isinstance(head, bytearray)
        REPLY.pack_into(head, 0, total - 4, self.correlation)
        return pieces

    def _put(self, out: bytearray, part: Part, pieces: "list[Buffer]", terms: Terms) -> bytearray:
        version, size = self.version, part.size
        out += _OUT.pack(part.partition, part.error, part.commit_end, part.commit_end)
        if version >= 5:
            out += _I64.pack(part.log_start)
        if version < FLEXIBLE_FROM:
            out += b"\xff\xff\xff\xff"  # no aborted transactions
            if version >= 11:
                out += b"\xff\xff\xff\xff"  # no other replica is better
            out += _I32.pack(size)
        else:
            out += b"\0\xff\xff\xff\xff"
            put_uvarint(out, size + 1)
        if size:
            pieces.append(out)
            pieces += part.buffers
            out = bytearray()
        if version >= FLEXIBLE_FROM:
            if part.leader > 0:
                term = terms.of(part.topic, part.partition)
                out += leader_tag(part.leader, term, LEADER_TAG)
            else:
                out.append(0)
        return out


class FetchApi:
    """Takes Fetch requests."""

    __slots__ = ("calls", "clock", "reply_bytes_max")

    def __init__(self, clock: Clock, calls: KafkaCalls, reply_bytes_max: int) -> None:
        self.clock = clock
        self.calls = calls
        self.reply_bytes_max = reply_bytes_max

    @property
    def node(self) -> int:
        """Return our own number."""
        return self.calls.nodes_view().node

    def add_to(self, table: Table, raw: dict[int, Raw]) -> None:
        """Serve it."""
        table.add(schema.FETCH, MIN_VERSION, MAX_VERSION, None)
        raw[schema.FETCH.key] = self.run

    def run(
        self,
        connection: KafkaConnection,
        handler: Handler,
        version: int,
        correlation: int,
        buffer: bytearray,
        view: memoryview,
        at: int,
        stop: int,
    ) -> None:
        """Serve one request. Raises Malformed."""
        frame = bytes(view[at:stop])
        exchange = FetchExchange(connection, handler, version, correlation, EXCHANGE_BYTES)
        try:
            at = self._read_head(exchange, frame)
            (self._walk_flexible if version >= FLEXIBLE_FROM else self._walk_plain)(
                exchange, frame, at
            )
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise Malformed(f"a Fetch that ends too early: {error}") from error
        if exchange.error != NONE:
            exchange.refuse()
        else:
            exchange.look()

    def _read_head(self, exchange: FetchExchange, frame: bytes) -> int:
        version = exchange.version
        at = skip_tags(frame, 0) if version >= FLEXIBLE_FROM else 0
        if version < 15:
            _, wait_ms, min_bytes, bytes_max, _ = _HEAD_OLD.unpack_from(frame, at)
            at += _HEAD_OLD.size
        else:
            wait_ms, min_bytes, bytes_max, _ = _HEAD.unpack_from(frame, at)
            at += _HEAD.size
        exchange.begin(self, wait_ms, min_bytes, bytes_max)
        if version >= 7:
            _, session_epoch = _SESSION.unpack_from(frame, at)
            at += _SESSION.size
            if session_epoch > 0:  # the next request of a session, and we keep none
                exchange.error = FETCH_SESSION_ID_NOT_FOUND
        exchange.weigh(min(max(0, bytes_max), self.reply_bytes_max))
        return at

    def _walk_plain(self, exchange: FetchExchange, frame: bytes, at: int) -> None:
        version = exchange.version
        (topics,) = _I32.unpack_from(frame, at)
        at += 4
        for _ in range(topics):
            (length,) = _I16.unpack_from(frame, at)
            end = at + 2 + length
            if length < 0 or end > len(frame):
                raise Malformed("a Fetch that ends in the name of a topic")
            name = frame[at:end]
            topic = str(name[2:], "utf-8")
            (partitions,) = _I32.unpack_from(frame, end)
            _check_count(exchange, partitions)
            at = end + 4
            for _ in range(partitions):
                if version >= 9:
                    partition, epoch, offset, _, size = _ROW_9.unpack_from(frame, at)
                    at += _ROW_9.size
                elif version >= 5:
                    partition, offset, _, size = _ROW_5.unpack_from(frame, at)
                    epoch, at = UNKNOWN, at + _ROW_5.size
                else:
                    partition, offset, size = _ROW_4.unpack_from(frame, at)
                    epoch, at = UNKNOWN, at + _ROW_4.size
                exchange.parts.append(Part(topic, partition, epoch, offset, size))
            exchange.topics.append((name, len(exchange.parts)))

    def _walk_flexible(self, exchange: FetchExchange, frame: bytes, at: int) -> None:
        topics, at = get_uvarint(frame, at)
        for _ in range(topics - 1):
            if exchange.version >= IDS_FROM:
                name = frame[at : at + 16]
                topic = self.calls.topic_of(name.hex()) if name != ZERO_UUID else None
                at += 16
            else:
                length, end = get_uvarint(frame, at)
                end += length - 1
                name, topic = frame[at:end], str(frame[end - length + 1 : end], "utf-8")
                at = end
            partitions, at = get_uvarint(frame, at)
            _check_count(exchange, partitions - 1)
            for _ in range(partitions - 1):
                partition, epoch, offset, _, _, size = _ROW_12.unpack_from(frame, at)
                at = skip_tags(frame, at + _ROW_12.size)
                part = Part(topic or "", partition, epoch, offset, size)
                if topic is None:
                    part.error = UNKNOWN_TOPIC_ID
                exchange.parts.append(part)
            at = skip_tags(frame, at)
            exchange.topics.append((name, len(exchange.parts)))


def _end_of(buffers: "list[Buffer]") -> int:
    """Return the offset behind the last batch that was read."""
    if len(buffers) > 1:  # from memory: the place in the log is apart
        head = bytes(buffers[-2]) + bytes(buffers[-1][: BATCH_HEADER_BYTES - PLACE.size])
    else:
        batches = b"".join(buffers)
        head = batches[split_batches(batches)[-1][0] :]
    return end_of_batch(head)


def _check_count(exchange: FetchExchange, more: int) -> None:
    """Refuse a topic with so many partitions more, before they are read."""
    if max(len(exchange.parts) + more, len(exchange.topics)) > PARTITIONS_MAX:
        raise Malformed(f"a Fetch of more than {PARTITIONS_MAX} partitions")


def _put_count(out: bytearray, count: int, *, flexible: bool) -> None:
    if flexible:
        put_uvarint(out, count + 1)
    else:
        out += _I32.pack(count)
