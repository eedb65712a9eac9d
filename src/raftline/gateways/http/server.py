"""The HTTP server: connections, what they share, and the bounds on them.

State
    The connections; heads that were seen (``wholes`` by all their bytes, ``prefixes`` by the bytes
    before the digits of a final Content-Length); blocks of header fields that were seen;
    connections with replies to write in this pass.

Bounds
    Connections, heads remembered, idle time, time for one request to arrive, time for a client to
    read its replies. One timer a second watches all of them.
"""

import asyncio
import traceback
from collections import deque
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING

import msgspec

from raftline.gateways import stream_server
from raftline.gateways.http import replies
from raftline.gateways.http.connection import Exchange, HttpConnection, Known, Run
from raftline.gateways.http.head import (
    HEAD_BYTES_MAX,
    Fields,
    Refused,
    RequestLine,
    check,
    is_closing,
)
from raftline.gateways.http.request_log import LoggedExchanges
from raftline.gateways.stream_server import StreamServer
from raftline.gateways.trace_context import TraceContext, parse_context
from raftline.model.errors import Internal, OverLimit, RaftlineError
from raftline.model.limits import WAIT_MS_MAX
from raftline.telemetry.counters import GatewayCounts
from raftline.telemetry.log import LogEvent

if TYPE_CHECKING:
    from raftline.gateways.second_look import SecondLook
    from raftline.telemetry.spans import Spans

KNOWN_MAX = 4_096
KNOWN_BYTES_MAX = 1_024  # a longer head is parsed each time
IDLE_TICKS_MAX = 120
REQUEST_TICKS_MAX = 60  # for a request to arrive whole, and for a client to read its replies
LINGER_TICKS_MAX = 2
WAIT_TICKS_MAX = WAIT_MS_MAX // stream_server.TICK_MS
LABEL_CHARS_MAX = 200
# The ends of paths whose answer waits for messages, where it may: no wonder that it is long.
WAITING = ("/messages", "/receive", "/poll", "/consume", "/lease", "/receiveMessage")

Route = Callable[[RequestLine, Fields], Run]


class HttpServer(StreamServer[HttpConnection]):
    """Serves requests on the node's loop. ``route`` turns a head into what runs for it."""

    __slots__ = (
        "_blocks",
        "_log",
        "_reports",
        "_route",
        "_says_requests",
        "_slow_ticks",
        "linger_ticks_max",
        "prefixes",
        "request_bytes_max",
        "second_look",
        "spans",
        "wholes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        route: Route,
        log: LogEvent,
        *,
        connections_max: int,
        request_bytes_max: int,
        inflight_bytes_max: int,
        counts: GatewayCounts | None = None,
        slow_request_ms: int = 0,
        says_requests: bool = False,
    ) -> None:
        super().__init__(
            loop,
            counts or GatewayCounts(),
            connections_max=connections_max,
            inflight_bytes_max=inflight_bytes_max,
            buffer_bytes_min=HEAD_BYTES_MAX,
            idle_ticks_max=IDLE_TICKS_MAX,
            request_ticks_max=REQUEST_TICKS_MAX,
        )
        self._slow_ticks = -(-slow_request_ms // stream_server.TICK_MS)  # 0: none is too slow
        self._says_requests = says_requests
        self._route = route
        self._log = log
        self.request_bytes_max = request_bytes_max
        self.linger_ticks_max = LINGER_TICKS_MAX
        self.wholes: dict[bytes, Known] = {}
        self.prefixes: dict[bytes, Known] = {}
        self.second_look: SecondLook | None = None  # nobody denies anything here
        self.spans: Spans | None = None
        self._blocks: dict[bytes, Fields] = {}
        self._reports = 0

    def connect(self) -> HttpConnection:
        """Return the protocol of a new connection."""
        return HttpConnection(self)

    @property
    def connection_count(self) -> int:
        """Return how many clients are connected."""
        return len(self._connections)

    # -- what connections call

    def full_reply(self) -> bytes:
        """Return what a client hears that is one too many."""
        error = OverLimit("connections", self._connections_max + 1, self._connections_max)
        self.counts.refuse(error.code)
        body = msgspec.json.encode({"error": replies.error_body(error)})
        return replies.head(503, replies.JSON, len(body), "Connection: close\r\n") + body

    def learn(self, block: bytes) -> Known:
        """Parse a head that was not seen before, and remember it. Raises Refused."""
        if len(block) > HEAD_BYTES_MAX:
            raise Refused(431, f"the head is over the limit of {HEAD_BYTES_MAX} bytes")
        # A line end too many after the last body is forgiven (RFC 9112, 2.2).
        first, _, rest = block.removeprefix(b"\r\n").partition(b"\r\n")
        line = RequestLine(first)
        fields = self._fields(rest)
        check(line, fields)
        if fields.length > self.request_bytes_max:
            limit = self.request_bytes_max
            raise Refused(413, f"a body of {fields.length} bytes is over the limit of {limit}")
        known = Known(self._route(line, fields), length=fields.length, chunked=fields.chunked)
        known.close = is_closing(line, fields)
        known.expects = fields.expects and line.is_1_1  # RFC 9110, 10.1.1: others know of no 100
        known.head_only = line.method == "HEAD"
        known.label = f"{line.method} {line.path[:LABEL_CHARS_MAX]}"
        known.waits = _may_wait(line)
        known.context = _context_of(fields)
        if len(block) <= KNOWN_BYTES_MAX and not line.query and known.context is None:
            self._remember(block, known)
        return known

    def new_exchanges(self) -> "deque[Exchange]":
        """Return where a connection keeps its requests in work."""
        return LoggedExchanges(self._log, self._loop.time) if self._says_requests else deque()

    def is_slow(self, known: Known, ticks: int) -> bool:
        """Say whether a request without an answer for so long is worth a warning."""
        limit = self._slow_ticks + (WAIT_TICKS_MAX if known.waits else 0)
        return bool(self._slow_ticks) and ticks >= limit

    def say_slow(self, known: Known, in_work: Sized) -> None:
        """Warn of a request that has no answer yet."""
        self.counts.slow += 1
        self._log("warning", "request.slow", request=known.label, in_work=len(in_work))

    def report(self, error: Exception) -> RaftlineError:
        """Log a bug; return what the client is told: a number to find it by."""
        self._reports += 1
        number = f"h{self._reports}"
        where = "".join(traceback.format_exception(error)[-3:])
        self._log("error", "request.failed", report=number, error=repr(error), where=where)
        return Internal(f"the request failed; the node's log has it as report {number}")

    # -- inside

    def _fields(self, block: bytes) -> Fields:
        fields = self._blocks.get(block)
        if fields is None:
            fields = Fields(block)
            if len(block) <= KNOWN_BYTES_MAX:
                _make_place(self._blocks)
                self._blocks[block] = fields
        return fields

    def _remember(self, block: bytes, known: Known) -> None:
        prefix = block.rstrip(b"0123456789")
        last_name = prefix[prefix.rfind(b"\r\n") + 2 :].rstrip(b" \t").lower()
        if last_name == b"content-length:" and len(prefix) < len(block):
            _make_place(self.prefixes)
            self.prefixes[prefix] = known
        else:
            _make_place(self.wholes)
            self.wholes[block] = known


def _context_of(fields: Fields) -> TraceContext | None:
    if b"traceparent" not in fields.values:
        return None
    return parse_context(fields.text(b"traceparent"), fields.text(b"tracestate"))


def _may_wait(line: RequestLine) -> bool:
    path = line.path.rstrip("/")
    return path.endswith(WAITING) and (line.method == "GET" or not path.endswith("/messages"))


def _make_place(cache: dict[bytes, Known] | dict[bytes, Fields]) -> None:
    """Forget the oldest quarter of a full cache."""
    if len(cache) >= KNOWN_MAX:
        for key in list(cache)[: KNOWN_MAX // 4]:
            del cache[key]
