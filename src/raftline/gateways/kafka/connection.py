"""One Kafka client's connection: frames in, replies out in the order of their requests.

State and the invariants I1-I6 are those of stream_connection.py; here they are

    N1  (I1) Replies leave in the order of their requests; Produce with acks=0 has none.
    N2  (I2) Requests in work, and replies that wait for their turn, are bounded, and who does not
        read is not read from.
    N3  After bytes that cannot be trusted nothing more is read, and the connection is closed: the
        protocol has no way to say more (I3).
    N4  An exchange is answered once; an answer after the client left is dropped (I4).
    N5  A buffer is lent (``lend``) to one borrower at most (I5).
    N6  A request sees what the ones before it changed: behind a change that has no answer yet only
        requests of the same API begin (which keep their order themselves), all others stay unread.
        Kafka promises it for one connection, and clients send without waiting. What may wait for
        others (JoinGroup, SyncGroup, Fetch) holds nobody up.

Costs
    A large frame is read in place, into a pooled buffer of its own, and lent to who keeps its
    bytes.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raftline.gateways.kafka import schema, schema_admin, schema_groups
from raftline.gateways.kafka.codec import Malformed, decoder, encoder, get_uvarint
from raftline.gateways.kafka.dispatch import Handler
from raftline.gateways.stream_connection import StreamConnection

if TYPE_CHECKING:
    from raftline.gateways.kafka.server import KafkaServer
    from raftline.storage.files import Buffer

EXCHANGE_BYTES = 512  # what a request weighs besides its bytes
FRAME_BYTES_MIN = 10  # key, version, correlation id, length of the client's id
LARGE_BYTES = 32 << 10  # a frame from this size on is read alone into its buffer
HEAD = struct.Struct(">hhih")  # key, version, correlation id, length of the client's id
LENGTH = struct.Struct(">i")
REPLY = struct.Struct(">ii")  # length, correlation id
CHANGES = frozenset(
    api.key
    for api in (
        schema.PRODUCE,
        schema_admin.CREATE_TOPICS,
        schema_admin.DELETE_TOPICS,
        schema_admin.CREATE_PARTITIONS,
        schema_admin.DELETE_RECORDS,
        schema_admin.ELECT_LEADERS,
        schema_admin.ALTER_CONFIGS,
        schema_admin.INCREMENTAL_ALTER_CONFIGS,
        schema_groups.LEAVE_GROUP,
        schema_groups.OFFSET_COMMIT,
        schema_groups.OFFSET_DELETE,
        schema_groups.DELETE_GROUPS,
    )
)  # N6


class Exchange:
    """One request and the reply it will get."""

    __slots__ = ("_connection", "client_id", "correlation", "cost", "handler", "reply", "version")

    def __init__(
        self,
        connection: "KafkaConnection",
        handler: Handler,
        version: int,
        correlation: int,
        cost: int,
    ) -> None:
        """Enter the request into its connection's order. N1, N2."""
        self._connection = connection
        self.handler = handler
        self.version = version
        self.correlation = correlation
        self.client_id = ""
        self.cost = cost
        self.reply: list[Buffer] | bytes | None = None
        connection.exchanges.append(self)
        connection.inflight_bytes += cost
        if handler.api.key in CHANGES:
            connection.changes += 1  # N6

    @property
    def client_host(self) -> str:
        """Return where the client is."""
        return self._connection.client_host

    def is_wanted(self) -> bool:
        """Say whether somebody still waits for the reply, as far as one can tell."""
        return not self._connection.has_left

    def send(self, fields: dict[str, Any]) -> None:
        """Answer with a response of the API's table."""
        api, version = self.handler.api, self.version
        out = bytearray(8)
        if api.has_response_tags(version):
            out.append(0)
        encoder(api.response, version, flexible=version >= api.flexible_from)(out, fields)
        REPLY.pack_into(out, 0, len(out) - 4, self.correlation)
        self.weigh(len(out))  # it may have to wait for the ones before it
        self.finish(bytes(out))

    def finish(self, reply: "list[Buffer] | bytes") -> None:
        """Hand the whole reply over. N1, N4."""
        assert self.reply is None, "answered twice"
        self.reply = reply
        connection = self._connection
        if self.handler.api.key in CHANGES:
            connection.changes -= 1
        if not connection.is_dirty:
            connection.is_dirty = True
            connection.server.flush_soon(connection)

    def guarded(self, step: Callable[..., None]) -> Callable[..., None]:
        """Return ``step`` as the ``done`` of a call: what it raises never reaches the node."""

        def done(*answers: Any) -> None:
            try:
                step(*answers)
            except Exception as error:  # noqa: BLE001 - the border of the gateway
                self._connection.fail(error)

        return done

    def weigh(self, reply_bytes: int) -> None:
        """Count a reply that is, or may become, this long against the connection's bound. N2."""
        self.cost += reply_bytes
        self._connection.inflight_bytes += reply_bytes


class KafkaConnection(StreamConnection[Exchange, "KafkaServer"]):
    """Reads frames, hands them to their handlers, writes replies."""

    __slots__ = ("changes", "client_host", "known")

    def __init__(self, server: "KafkaServer") -> None:
        super().__init__(server, deque())
        self.client_host = ""
        self.changes = 0  # in work, without an answer yet. N6
        self.known: object | None = None  # what Produce knows of the latest request

    # -- the loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or turn it away if there are too many."""
        address: Any = transport.get_extra_info("peername")
        self.client_host = str(address[0]) if address else ""
        super().connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Lend the shared buffer, or the rest of our own: a large frame is read alone."""
        if self._own is None:
            return self._shared_view
        if self._need >= LARGE_BYTES:
            return self._own_view[self._end : self._start + self._need]
        return self._own_view[self._end :]

    # -- replies

    def _take_replies(self) -> "list[Buffer]":
        """Take the exchanges that are answered, up to the first that is not."""
        exchanges = self.exchanges
        out: list[Buffer] = []
        cost = 0
        before = len(exchanges)
        while exchanges:
            exchange = exchanges[0]
            reply = exchange.reply
            if reply is None:
                break
            exchanges.popleft()
            cost += exchange.cost
            if isinstance(reply, bytes):
                out.append(reply)
            else:
                out += reply
        self.inflight_bytes -= cost
        self.server.counts.requests += before - len(exchanges)
        return out

    def refuse(self, reason: str) -> None:
        """Hang up on a client whose bytes cannot be trusted. N3."""
        if self._ended:
            return
        self._ended = self.has_left = True
        self.server.say_refused(self.client_host, reason)
        self.close()

    def fail(self, error: Exception) -> None:
        """Hang up: a bug of ours met this client."""
        self.server.report(error)
        self._ended = self.has_left = True
        self.close()

    def close(self) -> None:
        """Hang up after what is already on its way."""
        self._drop_own()
        super().close()

    def watch(self, tick: int) -> None:
        """Once a second: hang up on who is idle, too slow, or does not read."""
        transport = self._transport
        if transport is None:
            return
        server = self.server
        if self._stuck or transport.is_closing():
            if self._reads_nothing(transport, tick):
                transport.abort()
        elif self.partial_tick >= 0 and not self._paused:
            if tick - self.partial_tick > server.request_ticks_max:
                self.refuse("a frame did not arrive in time")
        elif not self.exchanges and tick - self.active_tick > server.idle_ticks_max:
            self._end_idle(transport, tick)

    # -- requests

    def _walk(self, buffer: bytearray, view: memoryview, start: int, end: int) -> int:
        """Serve the whole frames in ``[start, end)``; return where the rest begins."""
        self._walking = True
        server = self.server
        try:
            while end - start >= LENGTH.size:
                if self.inflight_bytes > server.inflight_bytes_max or self._stuck:
                    self._pause()
                    break
                (length,) = LENGTH.unpack_from(buffer, start)
                if not FRAME_BYTES_MIN <= length <= server.frame_bytes_max:
                    self.refuse(f"a frame of {length} bytes")
                    return end
                stop = start + LENGTH.size + length
                if stop > end:
                    self._need = stop - start
                    break
                self._need = 0
                if not self._serve(buffer, view, start + LENGTH.size, stop):
                    self._pause()
                    break
                start = stop
                if self._ended:
                    return end
        except Malformed as malformed:
            self.refuse(str(malformed))
            return end
        except Exception as error:  # noqa: BLE001 - the border of the gateway
            self.fail(error)
            return end
        finally:
            self._walking = False
        return start

    def _serve(self, buffer: bytearray, view: memoryview, start: int, stop: int) -> bool:
        """Serve one request; False: it is not its turn yet. N6."""
        key, version, correlation, name = HEAD.unpack_from(buffer, start)
        handler = self.server.handlers.get(key)
        if handler is None or not handler.min_version <= version <= handler.max_version:
            self._unknown(key, version, correlation)
            return True
        if self.changes and self.exchanges[-1].handler is not handler:
            return False
        at = start + HEAD.size + max(0, name)
        if at > stop:
            raise Malformed(f"the client's id has {name} bytes, the frame ends before")
        raw = self.server.raw.get(key)
        if raw is not None:
            raw(self, handler, version, correlation, buffer, view, at, stop)
            return True
        exchange = Exchange(self, handler, version, correlation, stop - start + EXCHANGE_BYTES)
        if name > 0:
            exchange.client_id = str(view[start + HEAD.size : at], "utf-8", "replace")
        frame = bytes(view[at:stop])
        at = 0
        api = handler.api
        if version >= api.flexible_from:
            at = skip_tags(frame, 0)
        decode = decoder(api.request, version, flexible=version >= api.flexible_from)
        assert handler.call is not None
        handler.call(decode(frame, at), version, exchange, exchange.send)
        return True

    def _unknown(self, key: int, version: int, correlation: int) -> None:
        """Answer a version of ApiVersions that we do not know, as all clients expect. N3."""
        answer = self.server.unknown(key)
        if answer is None:
            self.refuse(f"API {key} in version {version} is not served")
            return
        handler, call = answer
        exchange = Exchange(self, handler, 0, correlation, EXCHANGE_BYTES)
        call({}, version, exchange, exchange.send)

    def lend(self, buffer: bytearray, stop: int) -> bool:
        """Lend the buffer of the frame that ends at ``stop``, to one borrower. N5.

        Only our own buffer, and only if nothing comes behind that frame: what is before it was
        served, and copied.
        """
        if buffer is not self._own or self._lent or stop != self._end:
            return False
        self._lent = True
        return True


def skip_tags(frame: bytes | bytearray | memoryview, at: int) -> int:
    """Return where tags end that nobody needs. Raises Malformed."""
    try:
        if frame[at] == 0:
            return at + 1
        count, at = get_uvarint(frame, at)
        for _ in range(count):
            _, at = get_uvarint(frame, at)
            size, at = get_uvarint(frame, at)
            at += size
    except IndexError as error:
        raise Malformed(f"it ends in its tags, at byte {at}") from error
    return at
