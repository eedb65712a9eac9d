"""One client connection: requests in, replies out in the same order.

State and the invariants I1-I6 are those of stream_connection.py; here they are

    H1  (I1) Replies leave in the order of their requests.
    H2  (I2) Requests in work are bounded, and who does not read is not read from.
    H3  After a request that cannot be trusted, or that says close, nothing more is read (I3).
    H4  An exchange is answered once; an answer after the client left is dropped (I4).

Costs
    A request with the head of the one before it costs one comparison; one whose head was seen
    before a search for its end and one dictionary lookup: heads that end in ``Content-Length: N``
    are known by the bytes before N.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.gateways.http import replies
from raftline.gateways.http.chunks import ChunkedBody
from raftline.gateways.http.head import HEAD_BYTES_MAX, LENGTH_DIGITS_MAX, Refused
from raftline.gateways.stream_connection import StreamConnection
from raftline.model.errors import InvalidArgument, RaftlineError, TooLarge

if TYPE_CHECKING:
    from raftline.gateways.http.server import HttpServer
    from raftline.gateways.trace_context import TraceContext
    from raftline.telemetry.spans import Spans

EXCHANGE_BYTES = 512  # what a request weighs besides its body
SMALL_BYTES = len(replies.OK_JSON_HEADS)  # a reply below this has a head that is made already
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


class HttpConnection(StreamConnection[Exchange, "HttpServer"]):
    """Reads requests, hands them to their routes, writes replies."""

    __slots__ = (
        "_chunks",
        "_chunks_tick",
        "_continued",
        "_last_head",
        "_last_known",
        "_last_length",
        "_linger_tick",
        "_refused",
        "_watched",
        "_watched_tick",
    )

    def __init__(self, server: "HttpServer") -> None:
        super().__init__(server, server.new_exchanges())
        self._chunks: tuple[Known, ChunkedBody] | None = None
        self._chunks_tick = -1
        self._continued = False
        self._last_head = b""  # of the latest request, and what it said
        self._last_known: Known | None = None
        self._last_length = 0
        self._refused = False
        self._linger_tick = -1  # when the last reply left, where the client is read on
        self._watched: Exchange | None = None  # the oldest request at the last look
        self._watched_tick = 0

    # -- replies

    def _turned_away(self) -> bytes:
        return self.server.full_reply()

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
        is_lingering = self._linger_tick >= 0
        if self._refused and not is_lingering and transport.can_write_eof():
            self._linger_tick = self.server.tick
            transport.write_eof()
            if self._paused:
                transport.resume_reading()
        elif not is_lingering:
            transport.close()

    def watch(self, tick: int) -> None:
        """Once a second: hang up on who is idle, too slow, or does not read."""
        transport = self._transport
        if transport is None:
            return
        if self.exchanges:
            self._watch_oldest(tick)
        begun = self.partial_tick if self._chunks is None else self._chunks_tick
        if self._linger_tick >= 0:
            if tick - self._linger_tick > self.server.linger_ticks_max:
                transport.abort()
        elif self._stuck:
            if self._reads_nothing(transport, tick):
                transport.abort()
        elif begun >= 0 and not self._paused and tick - begun > self.server.request_ticks_max:
            self._refuse(Refused(408, "the request did not arrive in time"))
        elif not self.exchanges and tick - self.active_tick > self.server.idle_ticks_max:
            self._end_idle(transport, tick)

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
        error = _error_of(refusal)
        body = msgspec.json.encode({"error": replies.error_body(error)})
        self.server.counts.refuse(error.code)
        exchange.send(body, refusal.status)


def _error_of(refusal: Refused) -> RaftlineError:
    if refusal.status != 413:
        return InvalidArgument(str(refusal), "send HTTP/1.1 as RFC 9112 has it")
    hint = "send less in one request; limits.request_bytes_max is the node's setting"
    return RaftlineError.from_wire((TooLarge.code, str(refusal), hint, {}))


def _never(connection: HttpConnection, known: Known, body: bytes) -> None:
    raise AssertionError("a refused request does not run")
