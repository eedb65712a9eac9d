"""One Kafka client's connection: frames in, replies out in the order of their requests.

State
    ``_own`` holds bytes of a frame that is not whole yet; as long as there is none, reads go to the
    server's shared buffer (loops read and deliver in one step). ``exchanges`` are the requests that
    have no reply on its way yet, oldest first.

Invariants
    N1  Replies leave in the order of their requests; Produce with acks=0 has none.
    N2  Requests in work hold at most ``inflight_bytes_max`` plus one request; then the socket is
        not read until some are answered. The same while the client does not read its replies.
    N3  After bytes that cannot be trusted nothing more is read, and the connection is closed: the
        protocol has no way to say more.
    N4  An exchange is answered once; an answer after the client left is dropped.
    N5  A buffer is lent (``lend``) to one borrower at most, and then never written to by the
        connection again: who borrowed it gives it back to the pool.

Costs
    A large frame is read in place, into a pooled buffer of its own, and lent to who keeps its
    bytes. Replies of one pass of the loop leave in one write.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from raftline.gateways.kafka.codec import Malformed, decoder, encoder, get_uvarint
from raftline.gateways.kafka.dispatch import Handler

if TYPE_CHECKING:
    from raftline.gateways.kafka.server import KafkaServer
    from raftline.storage.files import Buffer

EXCHANGE_BYTES = 512  # what a request weighs besides its bytes
FRAME_BYTES_MIN = 10  # key, version, correlation id, length of the client's id
JOIN_BYTES_MAX = 64 << 10
UNSENT_BYTES_HIGH = 1 << 20
LARGE_BYTES = 32 << 10  # a frame from this size on is read alone into its buffer
HEAD = struct.Struct(">hhih")  # key, version, correlation id, length of the client's id
LENGTH = struct.Struct(">i")
REPLY = struct.Struct(">ii")  # length, correlation id


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
        self.finish(bytes(out))

    def finish(self, reply: "list[Buffer] | bytes") -> None:
        """Hand the whole reply over. N1, N4."""
        assert self.reply is None, "answered twice"
        self.reply = reply
        connection = self._connection
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
        """Count a reply that may become this long against the connection's bound. N2."""
        self.cost += reply_bytes
        self._connection.inflight_bytes += reply_bytes


class KafkaConnection(asyncio.BufferedProtocol):
    """Reads frames, hands them to their handlers, writes replies."""

    __slots__ = (
        "_end",
        "_ended",
        "_lent",
        "_need",
        "_own",
        "_own_view",
        "_paused",
        "_start",
        "_stuck",
        "_transport",
        "_walking",
        "active_tick",
        "client_host",
        "exchanges",
        "has_left",
        "inflight_bytes",
        "is_dirty",
        "known",
        "partial_tick",
        "server",
    )

    def __init__(self, server: "KafkaServer") -> None:
        self.server = server
        self.exchanges: deque[Exchange] = deque()
        self.inflight_bytes = 0
        self.has_left = False
        self.client_host = ""
        self.active_tick = server.tick
        self.partial_tick = -1  # when the frame that is not whole began
        self.is_dirty = False  # to be flushed in this pass
        self.known: object | None = None  # what Produce knows of the latest request
        self._transport: asyncio.Transport | None = None
        self._own: bytearray | None = None
        self._own_view = server.shared_view[:0]
        self._start = 0
        self._end = 0
        self._need = 0  # bytes of the frame that is not whole
        self._lent = False  # N5
        self._ended = False  # N3
        self._paused = False
        self._stuck = False  # the client does not read
        self._walking = False

    # -- the loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or turn it away if there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        address: Any = transport.get_extra_info("peername")
        self.client_host = str(address[0]) if address else ""
        if not self.server.adopt(self):
            self._ended = True
            self._transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Lend the shared buffer, or the rest of our own: a large frame is read alone."""
        if self._own is None:
            return self.server.shared_view
        if self._need >= LARGE_BYTES:
            return self._own_view[self._end : self._start + self._need]
        return self._own_view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Serve every request that is whole."""
        self.active_tick = self.server.tick
        if self._ended:
            self._drop_own()
        elif self._own is None:
            shared = self.server.shared
            left = self._walk(shared, self.server.shared_view, 0, nbytes)
            if left < nbytes:
                self._keep(self.server.shared_view, left, nbytes)
        else:
            self._end += nbytes
            if self._end - self._start >= self._need:
                self._walk_own()

    def eof_received(self) -> bool:
        """Answer what is in work, then close."""
        self._ended = self.has_left = True
        return bool(self.exchanges)

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read. N2."""
        self._stuck = True
        self.active_tick = self.server.tick
        self._pause()

    def resume_writing(self) -> None:
        """Go on."""
        self._stuck = False
        self.active_tick = self.server.tick
        self._resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything; answers still to come are dropped. N4."""
        self._ended = self.has_left = True
        self._transport = None
        self.exchanges.clear()
        self._drop_own()
        self.server.forget(self)

    # -- replies

    def flush(self) -> None:
        """Write the replies that are next in order, in one call. N1."""
        self.is_dirty = False
        transport = self._transport
        if transport is None:
            return
        out, size = self._take_replies()
        if len(out) == 1:
            transport.write(out[0])
        elif out:
            if size <= JOIN_BYTES_MAX:
                transport.write(b"".join(out))
            else:
                transport.writelines(out)
        if self._ended and not self.exchanges:
            transport.close()
        elif self._paused:
            self._resume()

    def _take_replies(self) -> "tuple[list[Buffer], int]":
        """Take the exchanges that are answered, up to the first that is not."""
        exchanges = self.exchanges
        out: list[Buffer] = []
        size = cost = 0
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
                size += len(reply)
            else:
                out += reply
                size += sum(map(len, reply))
        self.inflight_bytes -= cost
        self.server.counts.requests += before - len(exchanges)
        return out, size

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
        if self._transport is not None:
            self._transport.close()

    def watch(self, tick: int) -> None:
        """Once a second: hang up on who is idle, too slow, or does not read."""
        transport = self._transport
        if transport is None:
            return
        server = self.server
        if self._stuck:
            if tick - self.active_tick > server.request_ticks_max:
                transport.abort()
        elif self.partial_tick >= 0 and not self._paused:
            if tick - self.partial_tick > server.request_ticks_max:
                self.refuse("a frame did not arrive in time")
        elif not self.exchanges and tick - self.active_tick > server.idle_ticks_max:
            transport.close()

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
                self._serve(buffer, view, start + LENGTH.size, stop)
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

    def _serve(self, buffer: bytearray, view: memoryview, start: int, stop: int) -> None:
        key, version, correlation, name = HEAD.unpack_from(buffer, start)
        handler = self.server.handlers.get(key)
        if handler is None or not handler.min_version <= version <= handler.max_version:
            self._unknown(key, version, correlation)
            return
        at = start + HEAD.size + max(0, name)
        if at > stop:
            raise Malformed(f"the client's id has {name} bytes, the frame ends before")
        raw = self.server.raw.get(key)
        if raw is not None:
            raw(self, handler, version, correlation, buffer, view, at, stop)
            return
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

    # -- the bytes of a frame that is not whole

    def _walk_own(self) -> None:
        own = self._own
        assert own is not None
        left = self._walk(own, self._own_view, self._start, self._end)
        if self._own is not own:  # refused meanwhile
            return
        if left == self._end:
            self._drop_own()
            return
        if left != self._start:
            self.partial_tick = self.server.tick
        self._start = left
        self._make_room()

    def _keep(self, view: memoryview, start: int, end: int) -> None:
        """Move what is left to a buffer of our own, or to another one."""
        if self._ended:
            return
        self._own = self.server.pool.take(max(self._need, end - start + 1))
        self._own_view = memoryview(self._own)
        self._own_view[: end - start] = view[start:end]
        self._start, self._end = 0, end - start
        if self.partial_tick < 0:
            self.partial_tick = self.server.tick

    def _make_room(self) -> None:
        """Make sure that what is needed next fits behind what is here."""
        assert self._own is not None
        size, start, end = len(self._own), self._start, self._end
        need = max(self._need, end - start + 1)
        if self._lent or need > size:
            old, lent = self._own, self._lent
            self._lent = False
            self._keep(self._own_view, start, end)
            if not lent:
                self.server.pool.give(old)
        elif start and (size - start < need or size - end < size // 4):
            self._own_view[: end - start] = self._own_view[start:end]
            self._start, self._end = 0, end - start

    def _drop_own(self) -> None:
        if self._own is not None:
            if not self._lent:
                self.server.pool.give(self._own)
            self._own = None
            self._own_view = self.server.shared_view[:0]
        self._lent = False
        self._start = self._end = self._need = 0
        self.partial_tick = -1

    def _pause(self) -> None:
        transport = self._transport
        if not self._paused and transport is not None and not transport.is_closing():
            self._paused = True
            transport.pause_reading()

    def _resume(self) -> None:
        """Read again once there is room: first what was left lying. N2."""
        if self._stuck or self._ended or self._walking or not self._paused:
            return
        if self.inflight_bytes > self.server.inflight_bytes_max:
            return
        self._paused = False
        if self._own is not None:
            self.partial_tick = self.server.tick
            self._walk_own()
        transport = self._transport
        if not self._paused and transport is not None and not transport.is_closing():
            transport.resume_reading()


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
