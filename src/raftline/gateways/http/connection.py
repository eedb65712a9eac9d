"""One client connection: requests in, replies out in the same order.

State
    ``_own`` holds bytes of a request that is not whole yet; as long as there is none, reads go to
    the server's shared buffer (loops read and deliver in one step). ``exchanges`` are the requests
    that have no reply on its way yet, oldest first.

Invariants
    H1  Replies leave in the order of their requests.
    H2  Requests in work hold at most ``inflight_bytes_max`` plus one request; then the socket is
        not read until some are answered. The same while the client does not read its replies.
    H3  After a request that cannot be trusted, or that says close, nothing more is read.
    H4  An exchange is answered once; an answer after the client left is dropped.

Costs
    A request with the head of the one before it costs one comparison; one whose head was seen
    before a search for its end and one dictionary lookup: heads that end in ``Content-Length: N``
    are known by the bytes before N. Replies of one pass of the loop leave in one write.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from raftline.gateways.http import replies
from raftline.gateways.http.chunks import ChunkedBody
from raftline.gateways.http.head import HEAD_BYTES_MAX, LENGTH_DIGITS_MAX, Refused
from raftline.model.errors import InvalidArgument, RaftlineError

if TYPE_CHECKING:
    from collections import deque

    from raftline.gateways.http.server import HttpServer
    from raftline.gateways.trace_context import TraceContext
    from raftline.telemetry.spans import Spans

EXCHANGE_BYTES = 512  # what a request weighs besides its body
SMALL_BYTES = len(replies.OK_JSON_HEADS)  # a reply below this has a head that is made already
JOIN_BYTES_MAX = 64 << 10
UNSENT_BYTES_HIGH = 1 << 20
DOUBT_MS = 500  # a denial may wait so long where it is not known how long its caller does
LAST_BYTES_MAX = 1 << 10  # of a head that is kept for comparison
NEVER_TICK = 1 << 60
_DIGITS = b"0123456789"
_HEAD_END = b"\r\n\r\n"


class Known:
    """A parsed head: what to run, and how the body comes."""

    __slots__ = (
        "chunked",
        "close",
        "context",
        "expects",
        "head_only",
        "label",
        "length",
        "run",
        "waits",
    )

    def __init__(self, run: "Run", *, length: int, chunked: bool = False) -> None:
        self.run = run
        self.length = length  # of the body; not used where it follows the known bytes
        self.chunked = chunked
        self.close = False
        self.expects = False
        self.head_only = False
        self.context: TraceContext | None = None  # of the trace the request is part of
        self.label = ""  # what people know the request by
        self.waits = False  # its answer may be long in coming: it waits for messages


class Exchange:
    """One request and the reply it will get."""

    __slots__ = ("_connection", "close", "cost", "known", "reply")

    def __init__(self, connection: "HttpConnection", known: Known, cost: int) -> None:
        """Enter the request into its connection's order. H1, H2."""
        self._connection = connection
        self.close = known.close
        self.known = known
        self.cost = cost
        self.reply: tuple[bytes, ...] | bytes | None = None
        connection.exchanges.append(self)
        connection.inflight_bytes += cost

    def send(
        self,
        body: bytes,
        status: int = 200,
        content_type: str = replies.JSON,
        extra: str = "",
    ) -> None:
        """Answer."""
        if self.close:
            extra += "Connection: close\r\n"
        head = replies.head(status, content_type, len(body), extra)
        self.finish((head,) if self.known.head_only else (head, body))

    def json(self, body: Any, status: int = 200) -> None:
        """Answer with a value as JSON."""
        self.json_bytes(msgspec.json.encode(body), status)

    def json_bytes(self, body: bytes, status: int = 200) -> None:
        """Answer with JSON that is encoded already; the usual small reply is one piece."""
        if status != 200 or len(body) >= SMALL_BYTES or self.close or self.known.head_only:
            self.send(body, status)
        else:
            self.finish(replies.OK_JSON_HEADS[len(body)] + body)

    def empty(self) -> None:
        """Answer that there is nothing (204)."""
        self.finish((replies.empty_head("Connection: close\r\n" if self.close else ""),))

    def fail(self, error: RaftlineError, extra: str = "") -> None:
        """Answer with a refusal; what denies something is looked at twice (second_look.py)."""
        look = self._connection.server.second_look
        if look is not None and look.is_due(error):
            look.verdict(error, DOUBT_MS, self.refuse)
        else:
            self.refuse(error, extra)

    def refuse(self, error: RaftlineError, extra: str = "") -> None:
        """Answer with a refusal that holds."""
        self._connection.server.counts.refuse(error.code)
        status, body = replies.error_reply(error)
        self.send(body, status, extra=extra)

    def then(self, step: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a ``done`` for a call: refusals are answered here, the rest goes to ``step``.

        What ``step`` raises becomes an answer too: it never reaches the node.
        """

        def done(answer: Any) -> None:
            if isinstance(answer, RaftlineError):
                self.fail(answer)
            else:
                self.guard(step, answer)

        return done

    def guard(self, step: Callable[..., None], *arguments: Any) -> None:
        """Run ``step``; whatever it raises is answered. The gateway's one boundary."""
        try:
            step(*arguments)
        except RaftlineError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001
            told = self._connection.server.report(error)
            if self.reply is None:
                self.fail(told)

    def finish(self, reply: tuple[bytes, ...] | bytes) -> None:
        """Hand the reply over. H1, H4."""
        assert self.reply is None, "answered twice"
        self.reply = reply
        connection = self._connection
        if not connection.is_dirty:
            connection.is_dirty = True
            connection.server.flush_soon(connection)

    def is_wanted(self) -> bool:
        """Say whether somebody still waits for the reply, as far as one can tell."""
        return not self._connection.has_left

    @property
    def spans(self) -> "Spans | None":
        """Return who is told what was done inside traces; None: nobody wants to know."""
        return self._connection.server.spans

    def count_refused(self, code: str) -> None:
        """Count a part of the request that was refused, where the reply has others."""
        self._connection.server.counts.refuse(code)

    def weigh(self, reply_bytes: int) -> None:
        """Count a reply that may become this long against the connection's bound. H2."""
        self.cost += reply_bytes
        self._connection.inflight_bytes += reply_bytes


Run = Callable[["HttpConnection", Known, bytes], None]


class HttpConnection(asyncio.BufferedProtocol):
    """Reads requests, hands them to their routes, writes replies."""

    __slots__ = (
        "_chunks",
        "_chunks_tick",
        "_continued",
        "_end",
        "_ended",
        "_last_head",
        "_last_known",
        "_last_length",
        "_lingering",
        "_need",
        "_own",
        "_own_view",
        "_paused",
        "_refused",
        "_shared",
        "_shared_view",
        "_start",
        "_stuck",
        "_transport",
        "_walking",
        "_watched",
        "_watched_tick",
        "active_tick",
        "exchanges",
        "has_left",
        "inflight_bytes",
        "is_dirty",
        "partial_tick",
        "server",
    )

    def __init__(self, server: "HttpServer") -> None:
        self.server = server
        self.exchanges: deque[Exchange] = server.new_exchanges()
        self.inflight_bytes = 0
        self.has_left = False  # the client hung up, or its half at least
        self.active_tick = server.tick
        self.partial_tick = -1  # when the request that is not whole began
        self._transport: asyncio.Transport | None = None
        self._shared = server.shared
        self._shared_view = server.shared_view
        self._own: bytearray | None = None
        self._own_view = server.shared_view[:0]
        self._start = 0
        self._end = 0
        self._need = 0  # bytes from the start without which nothing new can be said
        self._chunks: tuple[Known, ChunkedBody] | None = None
        self._chunks_tick = -1
        self._continued = False
        self._last_head = b""  # of the latest request, and what it said
        self._last_known: Known | None = None
        self._last_length = 0
        self.is_dirty = False  # to be flushed in this pass
        self._ended = False  # H3
        self._paused = False
        self._refused = False
        self._lingering = False
        self._stuck = False  # the client does not read
        self._walking = False
        self._watched: Exchange | None = None  # the oldest request at the last look
        self._watched_tick = 0

    # -- the loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or turn it away if there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        if not self.server.adopt(self):
            self._ended = True
            self._transport.write(self.server.full_reply())
            self._transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Lend the shared buffer, or the rest of our own."""
        if self._own is None:
            return self._shared_view
        return self._own_view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Serve every request that is whole."""
        self.active_tick = self.server.tick
        if self._ended:
            self._drop_own()
        elif self._own is None:
            left = self._walk(self._shared, self._shared_view, 0, nbytes)
            if left < nbytes:
                self._keep(self._shared_view, left, nbytes)
        else:
            self._end += nbytes
            self._walk_own()

    def eof_received(self) -> bool:
        """Answer what is in work, then close: the client may have closed its half only."""
        self._ended = self.has_left = True
        return bool(self.exchanges)

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read. H2."""
        self._stuck = True
        self.active_tick = self.server.tick
        self._pause()

    def resume_writing(self) -> None:
        """Go on."""
        self._stuck = False
        self.active_tick = self.server.tick
        self._resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything; answers still to come are dropped. H4."""
        self._ended = self.has_left = True
        self._transport = None
        self.exchanges.clear()
        self._drop_own()
        self.server.forget(self)

    # -- replies

    def flush(self) -> None:
        """Write the replies that are next in order, in one call. H1."""
        self.is_dirty = False
        transport = self._transport
        if transport is None:
            return
        out = self._take_replies()
        if len(out) == 1:
            transport.write(out[0])
        elif out:
            if sum(map(len, out)) <= JOIN_BYTES_MAX:
                transport.write(b"".join(out))
            else:
                transport.writelines(out)
        if self._ended and not self.exchanges:
            self._end_well(transport)
        elif self._paused:
            self._resume()

    def _take_replies(self) -> list[bytes]:
        """Take the exchanges that are answered, up to the first that is not."""
        exchanges = self.exchanges
        out: list[bytes] = []
        cost = 0
        before = len(exchanges)
        while exchanges:
            exchange = exchanges[0]
            reply = exchange.reply
            if reply is None:
                break
            del exchanges[0]
            cost += exchange.cost
            if isinstance(reply, bytes):
                out.append(reply)
            else:
                out.extend(reply)
            if exchange.close:
                self._ended = True
                exchanges.clear()
        self.inflight_bytes -= cost
        self.server.counts.requests += before - len(exchanges)
        return out

    def _end_well(self, transport: asyncio.Transport) -> None:
        """Close. After a refusal the client is read on for a moment, or it might lose the reply."""
        if self._refused and not self._lingering and transport.can_write_eof():
            self._lingering = True
            self.partial_tick = self.server.tick
            transport.write_eof()
            if self._paused:
                transport.resume_reading()
        elif not self._lingering:
            transport.close()

    def close(self) -> None:
        """Hang up after what is already on its way."""
        if self._transport is not None:
            self._transport.close()

    def watch(self, tick: int) -> None:
        """Once a second: hang up on who is idle, too slow, or does not read."""
        transport = self._transport
        if transport is None:
            return
        if self.exchanges:
            self._watch_oldest(tick)
        begun = self.partial_tick if self._chunks is None else self._chunks_tick
        if self._lingering:
            if tick - begun > self.server.linger_ticks_max:
                transport.abort()
        elif self._stuck:
            if tick - self.active_tick > self.server.request_ticks_max:
                transport.abort()
        elif begun >= 0 and not self._paused and tick - begun > self.server.request_ticks_max:
            self._refuse(Refused(408, "the request did not arrive in time"))
        elif not self.exchanges and tick - self.active_tick > self.server.idle_ticks_max:
            transport.close()

    def _watch_oldest(self, tick: int) -> None:
        """Say so when the same request is the oldest for too long."""
        oldest = self.exchanges[0]
        if oldest is not self._watched:
            self._watched, self._watched_tick = oldest, tick
        elif self.server.is_slow(oldest.known, tick - self._watched_tick):
            self._watched_tick = NEVER_TICK  # once a request
            self.server.say_slow(oldest.known, self.exchanges)

    # -- requests

    def _walk(self, buffer: bytearray, view: memoryview, start: int, end: int) -> int:
        """Serve the whole requests in ``[start, end)``; return where the rest begins."""
        self._walking = True
        prefixes, wholes = self.server.prefixes, self.server.wholes
        inflight_bytes_max = self.server.inflight_bytes_max
        last = self._last_head
        try:
            while start < end:
                if self.inflight_bytes > inflight_bytes_max or self._stuck:
                    self._pause()
                    break
                if self._chunks is not None:
                    start, whole = self._take_chunks(buffer, start, end)
                    if whole:
                        continue
                    break
                if end - start < self._need:
                    break
                known = self._last_known
                if known is not None and buffer.startswith(last, start, end):
                    length = self._last_length
                    body_from = start + len(last)
                else:
                    at = buffer.find(_HEAD_END, start, end)
                    if at < 0:
                        self._judge_unfinished(end - start)
                        break
                    block = bytes(view[start:at])
                    prefix = block.rstrip(_DIGITS)
                    known = prefixes.get(prefix)
                    if known is None or len(prefix) == len(block):
                        known = wholes.get(block) or self.server.learn(block)
                        length = known.length
                    else:
                        length = self._length(block[len(prefix) :])
                    body_from = at + 4
                    if body_from - start <= LAST_BYTES_MAX:
                        self._last_known, self._last_length = known, length
                        last = self._last_head = block + _HEAD_END
                stop = body_from + length
                if stop > end or known.chunked:
                    if known.expects and not self._continued:
                        self._say_continue(known)
                    if known.chunked:
                        self._chunks = (known, ChunkedBody(self.server.request_bytes_max))
                        self._chunks_tick = self.server.tick
                        start = body_from
                        continue
                    self._need = stop - start
                    break
                self._need = 0
                self._continued = False
                body = bytes(view[body_from:stop]) if length else b""
                start = stop
                if known.close:
                    self._ended = True  # H3
                known.run(self, known, body)
                if self._ended:
                    return end
        except Refused as refusal:
            self._refuse(refusal)
            return end
        finally:
            self._walking = False
        return start

    def _judge_unfinished(self, size: int) -> None:
        if size > HEAD_BYTES_MAX:
            raise Refused(431, f"the head is over the limit of {HEAD_BYTES_MAX} bytes")

    def _take_chunks(self, buffer: bytearray, start: int, end: int) -> tuple[int, bool]:
        """Take more of a chunked body; say where it stopped and whether the request ran."""
        assert self._chunks is not None
        known, chunks = self._chunks
        start = chunks.feed(buffer, start, end)
        body = chunks.body
        if body is None:
            return start, False
        self._chunks = None
        self._continued = False
        if known.close:
            self._ended = True  # H3
        known.run(self, known, body)
        return (end if self._ended else start), True

    def _say_continue(self, known: Known) -> None:
        self._continued = True
        exchange = Exchange(self, known, 0)
        exchange.close = False
        exchange.finish(replies.CONTINUE)

    def _length(self, digits: bytes) -> int:
        if len(digits) > LENGTH_DIGITS_MAX or int(digits) > self.server.request_bytes_max:
            limit = self.server.request_bytes_max
            raise Refused(
                413, f"a body of {digits[:20].decode()} bytes is over the limit of {limit}"
            )
        return int(digits)

    def _refuse(self, refusal: Refused) -> None:
        """Answer what cannot be trusted, and close after it. H3."""
        self._ended = self._refused = True
        self._chunks = None
        self._drop_own()
        known = Known(_never, length=0)
        known.close = True
        exchange = Exchange(self, known, EXCHANGE_BYTES)
        known.label = "a request that does not parse"
        error = InvalidArgument(str(refusal), "send HTTP/1.1 as RFC 9112 has it")
        body = msgspec.json.encode({"error": replies.error_body(error)})
        self.server.counts.refuse(error.code)
        exchange.send(body, refusal.status)

    # -- the bytes of a request that is not whole

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
        """Move what is left of the shared buffer to one of our own."""
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
        if need > size:
            old = self._own
            self._keep(self._own_view, start, end)
            self.server.pool.give(old)
        elif start and (size - start < need or size - end < size // 4):
            self._own_view[: end - start] = self._own_view[start:end]
            self._start, self._end = 0, end - start

    def _drop_own(self) -> None:
        if self._own is not None:
            self.server.pool.give(self._own)
            self._own = None
            self._own_view = self._shared_view[:0]
        self._start = self._end = 0
        self.partial_tick = -1

    def _pause(self) -> None:
        transport = self._transport
        if not self._paused and transport is not None and not transport.is_closing():
            self._paused = True
            transport.pause_reading()

    def _resume(self) -> None:
        """Read again once there is room: first what was left lying. H2."""
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


def _never(connection: HttpConnection, known: Known, body: bytes) -> None:
    raise AssertionError("a refused request does not run")
