"""From method and path to what runs.

A pattern is a path whose ``{name}`` segments match anything. Routes are looked up once per new head
(server.py remembers the result) among those with as many segments and the same first one; a
segment that is written out goes before a name.

A route is described where it is added: what it takes and answers, as structs; ``openapi.py``
makes a document of that.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from raftline.gateways.http import replies
from raftline.gateways.http.connection import (
    EXCHANGE_BYTES,
    Exchange,
    HttpConnection,
    Known,
    Run,
)
from raftline.gateways.http.head import Fields, RequestLine, parse_query, unquote
from raftline.model.errors import InvalidArgument, RaftlineError, UnknownMethod, UnknownRoute

TIMEOUT_FIELD = b"raftline-timeout-ms"
NUMBER_DIGITS_MAX = 19
LISTS = frozenset(("topics",))  # parameters that may be repeated


class Request:
    """A request on its way to a handler: everything parsed but the body."""

    __slots__ = ("body", "fields", "params", "path", "query", "timeout_ms")

    def __init__(
        self, path: str, params: dict[str, str], query: dict[str, str], fields: Fields
    ) -> None:
        self.path = path
        self.params = params
        self.query = query
        self.fields = fields
        self.timeout_ms = 0
        self.body = b""

    def with_body(self, body: bytes) -> "Request":
        """Return a copy for one arrival of this head."""
        copy = Request(self.path, self.params, self.query, self.fields)
        copy.timeout_ms = self.timeout_ms
        copy.body = body
        return copy

    @property
    def topic(self) -> str:
        """Return the topic of the path."""
        return self.params["topic"]

    @property
    def partition(self) -> int:
        """Return the partition of the path. Raises InvalidArgument."""
        return number_of("partition", self.params["partition"], 0, (1 << 31) - 1)

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a parameter that is a whole number in ``[low, high]``. Raises InvalidArgument."""
        text = self.query.get(name)
        return default if text is None else number_of(name, text, low, high)

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false; false if it is not there."""
        text = self.query.get(name, "false").lower()
        if text not in {"true", "1", "false", "0"}:
            raise InvalidArgument(f"{name}={text[:40]!r} is neither", "write true or false")
        return text in {"true", "1"}

    def wants(self, content_type: str) -> bool:
        """Say whether the client asks for this form of answer."""
        return content_type in self.fields.text(b"accept")

    def carries(self, content_type: str) -> bool:
        """Say whether the body comes in this form."""
        return self.fields.text(b"content-type").partition(";")[0].strip().lower() == content_type


Handler = Callable[[Exchange, Request], None]
Prepare = Callable[[Request], Run | None]


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What people are told of a route."""

    summary: str
    body: Any = None  # type of the JSON body; None: there is none
    body_optional: bool = False
    answer: Any = None  # type of the JSON answer; None: see ``produces``
    status: int = 200
    empty_status: int = 0  # status of an answer without a body, where there may be one
    produces: str = replies.JSON  # or several, with ", " between
    sealed: str = ""  # "in", "out": sealed batches are taken or given as well
    tag: str = "raftline"
    is_taking: bool = False  # a GET that moves what it gives out: HEAD, which gives nothing, is not


class Route:
    """One method of one path."""

    __slots__ = ("about", "handler", "method", "pattern", "prepare", "query", "segments")

    def __init__(
        self,
        method: str,
        pattern: str,
        handler: Handler,
        query: str,
        prepare: Prepare | None,
        about: Description,
    ) -> None:
        self.method = method
        self.pattern = pattern
        self.segments = pattern.split("/")
        self.handler = handler
        self.query = {"timeout_ms", *query.split()}
        self.prepare = prepare
        self.about = about


class Router:
    """All routes of the gateway."""

    __slots__ = ("_by_start", "_timeout_ms", "_timeout_ms_max", "routes")

    def __init__(self, timeout_ms: int, timeout_ms_max: int) -> None:
        self.routes: list[Route] = []
        self._by_start: dict[tuple[int, str], list[Route]] = {}  # segments, the first of them
        self._timeout_ms = timeout_ms
        self._timeout_ms_max = timeout_ms_max

    def add(
        self,
        method: str,
        pattern: str,
        handler: Handler,
        *,
        query: str = "",
        prepare: Prepare | None = None,
        summary: str = "",
        **about: Any,
    ) -> None:
        """Add a route. ``query`` names the parameters it takes, ``about`` is its Description.

        ``prepare`` may turn a head into a faster way than ``handler``, once for all its requests.
        Without a ``summary`` the first line of the handler's docstring is one.
        """
        summary = summary or (handler.__doc__ or "").strip().partition("\n")[0]
        described = Description(summary=summary, **about)
        self._enter(Route(method, pattern, handler, query, prepare, described))

    def add_alias(self, route: Route, pattern: str, tag: str) -> None:
        """Let a route be found under another pattern too, unless something is there already."""
        if not any((r.method, r.pattern) == (route.method, pattern) for r in self.routes):
            about = msgspec.structs.replace(route.about, tag=tag)
            query = " ".join(route.query)
            self._enter(Route(route.method, pattern, route.handler, query, route.prepare, about))

    def _enter(self, route: Route) -> None:
        self.routes.append(route)
        key = (len(route.segments), route.segments[1])
        found = self._by_start.setdefault(key, [])
        found.append(route)
        found.sort(key=lambda known: [part.startswith("{") for part in known.segments])

    def route(self, line: RequestLine, fields: Fields) -> Run:
        """Return what runs for this head; a refusal runs too. Raises Refused."""
        method = "GET" if line.method == "HEAD" else line.method
        segments = [unquote(part) for part in line.path.split("/")]
        if len(segments) > 2 and not segments[-1]:
            segments.pop()  # a slash at the end means nothing
        allowed: list[str] = []
        start = (len(segments), segments[1] if len(segments) > 1 else "")
        for route in self._by_start.get(start, ()):
            params = _match(route.segments, segments)
            if params is None:
                continue
            if route.method == method and (line.method == method or not route.about.is_taking):
                return self._prepare(route, line, fields, params)
            allowed.append(route.method)
        return _refusing(_not_here(line, allowed), allowed)

    def _prepare(
        self, route: Route, line: RequestLine, fields: Fields, params: dict[str, str]
    ) -> Run:
        request = Request(line.path, params, parse_query(line.query, LISTS), fields)
        try:
            unknown = sorted(request.query.keys() - route.query)
            if unknown:
                taken = ", ".join(sorted(route.query))
                text = f"{line.path} takes no parameter {unknown[0][:40]!r}"
                raise InvalidArgument(text, f"parameters here: {taken}")
            request.timeout_ms = self._timeout_of(request)
            run = route.prepare(request) if route.prepare is not None else None
        except RaftlineError as error:
            return _refusing(error, [])
        return run or _handling(route.handler, request)

    def _timeout_of(self, request: Request) -> int:
        text = request.query.get("timeout_ms") or request.fields.text(TIMEOUT_FIELD)
        if not text:
            return self._timeout_ms
        return number_of("timeout_ms", text, 1, self._timeout_ms_max)


def number_of(name: str, text: str, low: int, high: int) -> int:
    """Return ``text`` as a number in ``[low, high]``. Raises InvalidArgument."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > NUMBER_DIGITS_MAX:
        text = f"{name}={text[:40]!r} is not a whole number"
        raise InvalidArgument(text, f"allowed is {low} to {high}")
    if not low <= int(text) <= high:
        raise InvalidArgument(f"{name}={text[:40]} is out of bounds", f"allowed is {low} to {high}")
    return int(text)


def _match(pattern: list[str], segments: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    params: dict[str, str] = {}
    for want, have in zip(pattern, segments, strict=True):
        if want.startswith("{"):
            if not have:
                return None
            params[want[1:-1]] = have
        elif want != have:
            return None
    return params


def _not_here(line: RequestLine, allowed: list[str]) -> RaftlineError:
    if allowed:
        return UnknownMethod(f"{line.method} {line.path[:200]}", ", ".join(allowed))
    return UnknownRoute(line.path[:200])


def _refusing(error: RaftlineError, allowed: list[str]) -> Run:
    extra = f"Allow: {', '.join(allowed)}\r\n" if allowed else ""

    def run(connection: HttpConnection, known: Known, body: bytes) -> None:
        Exchange(connection, known, len(body) + EXCHANGE_BYTES).fail(error, extra)

    return run


class Handled(Exchange):
    """A request that a handler works on; run again if a second look says so, once."""

    __slots__ = ("_began_ms", "_handler", "_request")

    def __init__(
        self, connection: HttpConnection, known: Known, handler: Handler, request: Request
    ) -> None:
        super().__init__(connection, known, len(request.body) + EXCHANGE_BYTES)
        look = connection.server.second_look
        self._began_ms = 0.0 if look is None else look.mono_ms()
        self._handler = handler
        self._request: Request | None = request  # None: looked at twice already

    def fail(self, error: RaftlineError, extra: str = "") -> None:
        """Answer with a refusal, unless it is for want of knowing."""
        look, request = self._connection.server.second_look, self._request
        if look is None or request is None or not look.is_due(error):
            self.refuse(error, extra)
            return
        self._request = None
        end_ms = self._began_ms + request.timeout_ms

        def judged(told: RaftlineError | None) -> None:
            if told is not None:
                self.refuse(told, extra)
            else:
                request.timeout_ms = max(1, int(end_ms - look.mono_ms()))
                self.guard(self._handler, self, request)

        look.take(error, int(end_ms - look.mono_ms()), judged)


def _handling(handler: Handler, request: Request) -> Run:
    def run(connection: HttpConnection, known: Known, body: bytes) -> None:
        arrived = request.with_body(body)
        exchange = Handled(connection, known, handler, arrived)
        exchange.guard(handler, exchange, arrived)

    return run
