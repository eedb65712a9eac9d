"""Produce, by hand: from the bytes of a frame to batches in the partitions led here.

A batch is checked (length, checksum, count) and handed to the node as it came: compressed or not,
nobody opens it. Every acknowledgement means that a majority has it on disk: acks=1 is answered like
acks=all, acks=0 not at all (a refusal closes the connection, as the protocol has it). Nothing is
forwarded: who does not lead says so, with the leader from version 10 on.

Costs
    One pass over the head of the request, one check and one call a batch, one small reply.
"""

import struct
from collections.abc import Callable, Sequence

from crc32c import crc32c

from raftline.gateways.kafka import schema
from raftline.gateways.kafka.codec import Malformed, get_uvarint, put_uvarint
from raftline.gateways.kafka.connection import (
    EXCHANGE_BYTES,
    REPLY,
    Exchange,
    KafkaConnection,
    skip_tags,
)
from raftline.gateways.kafka.dispatch import Handler, Table
from raftline.gateways.kafka.errors import (
    INVALID_RECORD,
    INVALID_REQUEST,
    INVALID_REQUIRED_ACKS,
    NOT_ENOUGH_REPLICAS,
    OUT_OF_ORDER_SEQUENCE,
    partition_code,
)
from raftline.gateways.kafka.gaps import Gaps
from raftline.gateways.kafka.leaders import Terms, leader_tag, node_tag
from raftline.gateways.kafka.ports import KafkaCalls
from raftline.gateways.kafka.server import Raw
from raftline.gateways.kafka.wishes import Wishes
from raftline.model.batch import COMPRESSIONS, CRC_FROM, LENGTH_FROM, MAGIC, check_batch
from raftline.model.calls import Appended
from raftline.model.errors import (
    CorruptBatch,
    InvalidArgument,
    NotLeader,
    OverLimit,
    RaftlineError,
    UnknownProducer,
)
from raftline.model.limits import (
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    PARTITIONS_MAX,
    WAIT_MS_MAX,
)
from raftline.node.appends import AppendDone
from raftline.node.led import LedPartition

MIN_VERSION, MAX_VERSION = 3, 12
TOLD_FROM = 0  # as Kafka 4 does: else librdkafka 2.3, for one, sends nothing compressed but zstd
FLEXIBLE_FROM = schema.PRODUCE.flexible_from
KEEP_BYTES_MIN = 4096  # a smaller batch is copied, a larger one is used where it was read
MESSAGE_CHARS_MAX = 500
NO_OFFSET = -1
CRC_AT = 17  # in a batch

_ACKS = struct.Struct(">hi")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_ROW = struct.Struct(">ihqqq")  # partition, error, base offset, log append time, log start
_ROW_OLD = struct.Struct(">ihqq")  # the same before version 5
_CRC = struct.Struct(">I")
_BATCH_LENGTH = struct.Struct(">i4xb")  # length and magic, from byte 8 of a batch

Row = tuple[int, int, int, int, str, int, int]
"""partition, error, base offset, log start, message, leader, its term"""


class ProduceExchange(Exchange):
    """One request: what its partitions answered."""

    __slots__ = ("_buffer", "_left", "_terms", "acks", "api", "names", "partitions", "rows")

    api: "ProduceApi"
    acks: int

    def begin(self, api: "ProduceApi", acks: int) -> None:
        """Nothing is asked yet."""
        self.api = api
        self.acks = acks
        self.names: list[tuple[bytes, int]] = []  # topics as bytes, where their rows end
        self.rows: list[Row | None] = []
        self.partitions: list[int] = []
        self._left = 1  # the request itself, until it is read
        self._terms = Terms(api.calls)
        self._buffer: bytearray | None = None

    def keep(self, buffer: bytearray, stop: int) -> bool:
        """Keep the buffer that the request is in until all is answered, if we may."""
        if self._buffer is None and self._connection.lend(buffer, stop):
            self._buffer = buffer
        return self._buffer is not None

    def slot(self, partition: int) -> int:
        """Make room for one partition's answer."""
        self.rows.append(None)
        self.partitions.append(partition)
        self._left += 1
        return len(self.rows) - 1

    def refuse(self, slot: int, partition: int, code: int, message: str) -> None:
        """Answer for a partition: nothing was stored."""
        self._put(slot, (partition, code, NO_OFFSET, NO_OFFSET, message, -1, -1))

    def taker(self, slot: int, topic: str, partition: int) -> Callable[..., None]:
        """Return who takes the node's answer."""

        def done(answer: Appended | RaftlineError) -> None:
            try:
                self._take(slot, topic, partition, answer)
            except Exception as error:  # noqa: BLE001 - the border of the gateway
                self._connection.fail(error)

        return done

    def _take(
        self, slot: int, topic: str, partition: int, answer: Appended | RaftlineError
    ) -> None:
        if type(answer) is Appended:
            self._put(slot, (partition, 0, answer.base_offset, answer.log_start, "", -1, -1))
            return
        assert isinstance(answer, RaftlineError)
        self._connection.server.counts.refuse(answer.code)
        self._put(slot, self.api.refusal(topic, partition, answer, self._terms))

    def _put(self, slot: int, row: Row) -> None:
        self.rows[slot] = row
        self.read()

    def read(self) -> None:
        """One answer more is here, or the request is read to its end: reply with the last."""
        self._left -= 1
        if self._left:
            return
        if self._buffer is not None:
            self._connection.server.pool.give(self._buffer)
            self._buffer = None
        if self.acks:
            reply = encode(self.api.calls, self.version, self.correlation, self.names, self.rows)
            self.finish(reply)
            return
        wrong = [row for row in self.rows if row is not None and row[1]]
        if wrong:
            self._connection.refuse(f"acks=0 and a refusal: {wrong[0][4]}")
        self.finish(b"")


class OneProduce(Exchange):
    """A request like the one before it on its connection: one batch for the same partition."""

    __slots__ = ("_api", "_buffer", "_known")

    _api: "ProduceApi"
    _known: "Known"
    _buffer: bytearray | None

    def begin(self, api: "ProduceApi", known: "Known") -> None:
        """Note what it is like."""
        self._api = api
        self._known = known
        self._buffer = None

    def keep(self, buffer: bytearray, stop: int) -> bool:
        """Keep the buffer that the request is in until it is answered, if we may."""
        if self._connection.lend(buffer, stop):
            self._buffer = buffer
            return True
        return False

    def done(self, answer: Appended | RaftlineError) -> None:
        """Take the node's answer."""
        try:
            self._answer(answer)
        except Exception as error:  # noqa: BLE001 - the border of the gateway
            self._connection.fail(error)

    def _answer(self, answer: Appended | RaftlineError) -> None:
        if self._buffer is not None:
            self._connection.server.pool.give(self._buffer)
            self._buffer = None
        known = self._known
        if type(answer) is not Appended:
            assert isinstance(answer, RaftlineError)
            self._refuse(known, answer)
        elif not known.acks:
            self.finish(b"")
        else:
            row = _ROW.pack(known.partition, 0, answer.base_offset, NO_OFFSET, answer.log_start)
            head = REPLY.pack(known.reply_bytes, self.correlation)
            self.finish(b"".join((head, known.head, row, known.tail)))

    def _refuse(self, known: "Known", error: RaftlineError) -> None:
        self._connection.server.counts.refuse(error.code)
        terms = Terms(self._api.calls)
        row = self._api.refusal(known.topic, known.partition, error, terms)
        if known.acks:
            names = [(known.name, 1)]
            reply = encode(self._api.calls, self.version, self.correlation, names, [row])
            self.finish(reply)
        else:
            self._connection.refuse(f"acks=0 and a refusal: {row[4]}")
            self.finish(b"")


class Known:
    """What all requests with the same bytes before their one batch ask for."""

    __slots__ = (
        "acks",
        "head",
        "name",
        "partition",
        "prefix",
        "reply_bytes",
        "tail",
        "timeout_ms",
        "topic",
        "version",
    )

    def __init__(
        self,
        prefix: bytes,
        version: int,
        acks: int,
        timeout_ms: int,
        name: bytes,
        topic: str,
        partition: int,
    ) -> None:
        self.prefix = prefix  # from the end of the client's id to the number of the partition
        self.version = version
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.name = name
        self.topic = topic
        self.partition = partition
        if version >= FLEXIBLE_FROM:
            self.head = b"\0\x02" + name + b"\x02"
            self.tail = b"\x01\0\0" + b"\0" + b"\0\0\0\0" + b"\0"
        else:
            self.head = b"\0\0\0\1" + name + b"\0\0\0\1"
            self.tail = b"\0\0\0\0\xff\xff" * (version >= 8) + b"\0\0\0\0"
        self.reply_bytes = REPLY.size - 4 + len(self.head) + _ROW.size + len(self.tail)


class ProduceApi:
    """Takes Produce requests."""

    __slots__ = ("_batch_bytes_max", "_gaps", "_wishes", "calls")

    def __init__(self, calls: KafkaCalls, wishes: Wishes, gaps: Gaps, batch_bytes_max: int) -> None:
        self.calls = calls
        self._gaps = gaps
        self._wishes = wishes
        self._batch_bytes_max = batch_bytes_max

    def add_to(self, table: Table, raw: dict[int, Raw]) -> None:
        """Serve it."""
        table.add(schema.PRODUCE, MIN_VERSION, MAX_VERSION, None, TOLD_FROM)
        raw[schema.PRODUCE.key] = self.run

    def refusal(self, topic: str, partition: int, error: RaftlineError, terms: Terms) -> Row:
        """Return the row of a batch that was not stored."""
        code = _CODES.get(type(error)) or partition_code(error)
        if code == OUT_OF_ORDER_SEQUENCE and self._gaps.is_passing(topic, partition, error):
            code = NOT_ENOUGH_REPLICAS
        message = error.message[:MESSAGE_CHARS_MAX]
        leader = int(error.extras["leader"]) if isinstance(error, NotLeader) else -1
        term = terms.of(topic, partition) if leader != -1 else -1
        return partition, code, NO_OFFSET, NO_OFFSET, message, leader, term

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
        known = connection.known
        try:
            if (
                isinstance(known, Known)
                and known.version == version
                and buffer.startswith(known.prefix, at, stop)
                and self._run_known(connection, handler, known, correlation, buffer, view, at, stop)
            ):
                return
            self._run(connection, handler, version, correlation, buffer, view, at, stop)
        except (IndexError, struct.error) as error:
            raise Malformed(f"a Produce that ends too early: {error}") from error

    def _run_known(
        self,
        connection: KafkaConnection,
        handler: Handler,
        known: Known,
        correlation: int,
        buffer: bytearray,
        view: memoryview,
        start: int,
        stop: int,
    ) -> bool:
        """Serve a request that is like the last one; False: it is not, after all."""
        at = start + len(known.prefix)
        if known.version >= FLEXIBLE_FROM:
            end = stop - len(_NO_TAGS)
            size, at = get_uvarint(buffer, at)
            if at + size - 1 != end or not buffer.startswith(_NO_TAGS, end, stop):
                return False
        else:
            end = stop
            if at + 4 + _I32.unpack_from(buffer, at)[0] != end:
                return False
            at += 4
        cost = stop - start + EXCHANGE_BYTES
        exchange = OneProduce(connection, handler, known.version, correlation, cost)
        exchange.begin(self, known)
        led = self.calls.led_partition(known.topic, known.partition)
        if isinstance(led, RaftlineError):
            exchange.done(led)
            return True
        keeps = end - at >= KEEP_BYTES_MIN and exchange.keep(buffer, stop)
        batch = view[at:end] if keeps else bytes(view[at:end])
        self._store(led, known.partition, batch, known.timeout_ms, exchange.done)
        return True

    def _run(
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
        start = at
        cost = stop - at + EXCHANGE_BYTES
        flexible = version >= FLEXIBLE_FROM
        if flexible:
            at = skip_tags(buffer, at)
            length, at = get_uvarint(buffer, at)
            length -= 1
        else:
            (length,) = _I16.unpack_from(buffer, at)
            at += 2
        at += max(0, length)  # of the transactional id
        if at + _ACKS.size > stop:
            raise Malformed("a Produce that ends in its head")
        acks, timeout_ms = _ACKS.unpack_from(buffer, at)
        exchange = ProduceExchange(connection, handler, version, correlation, cost)
        exchange.begin(self, acks)
        timeout_ms = max(1, min(timeout_ms, WAIT_MS_MAX))
        connection.known = None
        problem = 0 if acks in (-1, 0, 1) else INVALID_REQUIRED_ACKS
        if length > 0:
            problem = INVALID_REQUEST  # transactions
        walk = self._walk_flexible if flexible else self._walk_plain
        batch_at = walk(exchange, buffer, view, at + _ACKS.size, stop, timeout_ms, problem)
        if len(exchange.rows) == 1 == len(exchange.names) and not problem and version >= 5:
            name = exchange.names[0][0]
            topic = str(name[2 if not flexible or len(name) > 127 else 1 :], "utf-8", "replace")
            prefix, partition = bytes(view[start:batch_at]), exchange.partitions[0]
            connection.known = Known(prefix, version, acks, timeout_ms, name, topic, partition)
        exchange.read()

    def _walk_plain(
        self,
        exchange: ProduceExchange,
        buffer: bytearray,
        view: memoryview,
        at: int,
        stop: int,
        timeout_ms: int,
        problem: int,
    ) -> int:
        """Read topics; return where the number of the last partition ends."""
        number_end = 0
        (topics,) = _I32.unpack_from(buffer, at)
        at += 4
        for _ in range(topics):
            (length,) = _I16.unpack_from(buffer, at)
            end = at + 2 + length
            if length < 0 or end + 4 > stop:
                raise Malformed("a Produce that ends in the name of a topic")
            raw = bytes(view[at:end])
            topic = str(raw[2:], "utf-8", "replace")
            (partitions,) = _I32.unpack_from(buffer, end)
            _check_count(exchange, partitions)
            at = end + 4
            for _ in range(partitions):
                if at + 8 > stop:
                    raise Malformed("a Produce that ends in a partition")
                partition, size = _TWO.unpack_from(buffer, at)
                number_end = at + 4
                at += 8
                end = at + max(0, size)
                if end > stop:
                    raise Malformed(f"a batch of {size} bytes, {stop - at} are left")
                self._append(
                    exchange, topic, partition, buffer, view, at, end, stop, timeout_ms, problem
                )
                at = end
            exchange.names.append((raw, len(exchange.rows)))
        return number_end

    def _walk_flexible(
        self,
        exchange: ProduceExchange,
        buffer: bytearray,
        view: memoryview,
        at: int,
        stop: int,
        timeout_ms: int,
        problem: int,
    ) -> int:
        """Read topics; return where the number of the last partition ends."""
        number_end = 0
        topics, at = get_uvarint(buffer, at)
        for _ in range(topics - 1):
            length, end = get_uvarint(buffer, at)
            end += length - 1
            if length < 1 or end >= stop:
                raise Malformed("a Produce that ends in the name of a topic")
            raw = bytes(view[at:end])
            topic = str(view[end - length + 1 : end], "utf-8", "replace")
            partitions, at = get_uvarint(buffer, end)
            _check_count(exchange, partitions - 1)
            for _ in range(partitions - 1):
                if at + 5 > stop:
                    raise Malformed("a Produce that ends in a partition")
                (partition,) = _I32.unpack_from(buffer, at)
                number_end = at + 4
                size, at = get_uvarint(buffer, number_end)
                end = at + max(0, size - 1)
                if end >= stop:
                    raise Malformed(f"a batch of {size - 1} bytes, {stop - at} are left")
                self._append(
                    exchange, topic, partition, buffer, view, at, end, stop, timeout_ms, problem
                )
                at = skip_tags(buffer, end)
            at = skip_tags(buffer, at)
            exchange.names.append((raw, len(exchange.rows)))
        return number_end

    def _append(
        self,
        exchange: ProduceExchange,
        topic: str,
        partition: int,
        buffer: bytearray,
        view: memoryview,
        at: int,
        end: int,
        stop: int,
        timeout_ms: int,
        problem: int,
    ) -> None:
        """Check one batch and hand it to the node."""
        slot = exchange.slot(partition)
        if problem:
            exchange.refuse(slot, partition, problem, _PROBLEMS[problem])
            return
        size = end - at
        led = self.calls.led_partition(topic, partition)
        take = exchange.taker(slot, topic, partition)
        if isinstance(led, RaftlineError):
            take(led)
            return
        keeps = size >= KEEP_BYTES_MIN and exchange.keep(buffer, stop)
        batch = view[at:end] if keeps else bytes(view[at:end])
        self._store(led, partition, batch, timeout_ms, take)

    def _store(
        self,
        led: LedPartition,
        partition: int,
        batch: bytes | memoryview,
        timeout_ms: int,
        take: AppendDone,
    ) -> None:
        """Check a batch and hand it to the node."""
        if len(batch) >= BATCH_HEADER_BYTES:
            length, magic = _BATCH_LENGTH.unpack_from(batch, 8)
            if magic != MAGIC or 0 <= length + LENGTH_FROM < len(batch):
                take(InvalidArgument(_explain(magic)))
                return
        settings = led.settings
        bytes_max = min(self._batch_bytes_max, int(settings.get(_BYTES_MAX, BATCH_BYTES_MAX)))
        try:
            info = check_batch(batch, led.replica.name, bytes_max=bytes_max)
            if settings.get(_HEADERS):
                self._wishes.append(led, partition, batch, info, timeout_ms, take)
                return
        except CorruptBatch as error:
            take(InvalidArgument(error.message) if _is_sealed_so(batch) else error)
            return
        except RaftlineError as error:
            take(error)
            return
        led.append(batch, info, timeout_ms, take)


_HEADERS, _BYTES_MAX = "headers", "batch_bytes_max"  # settings of topics
_NO_TAGS = b"\0\0\0"  # of the partition, the topic, the request
_TWO = struct.Struct(">ii")
# What clients take for "again, in order", where the table's code would end a producer.
_CODES: dict[type[RaftlineError], int] = {
    UnknownProducer: OUT_OF_ORDER_SEQUENCE,
    OverLimit: NOT_ENOUGH_REPLICAS,
    InvalidArgument: INVALID_RECORD,
}
_PROBLEMS = {
    INVALID_REQUIRED_ACKS: "acks is 0, 1 or -1 (all)",
    INVALID_REQUEST: "transactions are not served",
}


def _check_count(exchange: ProduceExchange, more: int) -> None:
    """Refuse a topic with so many partitions more, before they are read."""
    if max(len(exchange.rows) + more, len(exchange.names)) > PARTITIONS_MAX:
        raise Malformed(f"a Produce to more than {PARTITIONS_MAX} partitions")


def _explain(magic: int) -> str:
    if magic != MAGIC:
        return f"messages of format {magic}: only record batches (format {MAGIC}) are taken"
    return "one batch a partition and request"


def _is_sealed_so(batch: bytes | memoryview) -> bool:
    """Say whether a refused batch is what its client meant: control, a transaction and the like.

    Clients repeat what is called corrupt, until their time for delivery is over.
    """
    if len(batch) < BATCH_HEADER_BYTES:
        return False
    (attributes,) = _I16.unpack_from(batch, CRC_FROM)
    is_known = 0 <= attributes < len(COMPRESSIONS)
    return not is_known and crc32c(batch[CRC_FROM:]) == _CRC.unpack_from(batch, CRC_AT)[0]


def encode(
    calls: KafkaCalls,
    version: int,
    correlation: int,
    names: list[tuple[bytes, int]],
    rows: Sequence[Row | None],
) -> bytes:
    """Return a reply: of topics as bytes and where their rows end, and the rows."""
    flexible = version >= FLEXIBLE_FROM
    out = bytearray(8)
    if flexible:
        out.append(0)
        put_uvarint(out, len(names) + 1)
    else:
        out += _I32.pack(len(names))
    at = 0
    leaders: dict[int, None] = {}
    for name, end in names:
        out += name
        if flexible:
            put_uvarint(out, end - at + 1)
        else:
            out += _I32.pack(end - at)
        for row in rows[at:end]:
            assert row is not None
            _put_row(out, version, row)
            if row[5] > 0:
                leaders[row[5]] = None
        at = end
        if flexible:
            out.append(0)
    out += b"\0\0\0\0"  # throttled for no time
    if flexible:
        out += node_tag(calls, leaders) if leaders and version >= 10 else b"\0"
    REPLY.pack_into(out, 0, len(out) - 4, correlation)
    return bytes(out)


def _put_row(out: bytearray, version: int, row: Row) -> None:
    partition, error, offset, log_start, message, leader, term = row
    if version < 5:
        out += _ROW_OLD.pack(partition, error, offset, -1)
        return
    out += _ROW.pack(partition, error, offset, -1, log_start)
    if version < 8:
        return
    if version < FLEXIBLE_FROM:
        out += b"\0\0\0\0"
        out += _I16.pack(len(message.encode()) if message else -1) + message.encode()
        return
    out.append(1)  # no errors of single messages
    if not message:
        out.append(0)
    else:
        text = message.encode()
        put_uvarint(out, len(text) + 1)
        out += text
    out += leader_tag(leader, term) if leader > 0 and version >= 10 else b"\0"
