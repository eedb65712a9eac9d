"""One HTTP call at a time, on a kept connection, to whichever node answers.

Rules
    C1  A call that may have reached a node is repeated only if repeating changes nothing (GET).
    C2  A refused connection, or an error that says "nothing was proposed", is tried on the next
        node, within the caller's timeout.
    C3  Where no listed node listens at all, the caller hears it after ``PATIENCE_MS``.
    C4  After the timeout the effect of anything but a GET is unknown: ``TimedOut``.
    C5  A node that is silent is left: connecting to it has ``CONNECT_MS``, a GET each node's share
        of the time, and what is asked after that goes to the next one.
"""

import contextlib
import http.client
import json
import select
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from raftline.client import clock
from raftline.model.errors import (
    Internal,
    InvalidArgument,
    NoLeader,
    NotLeader,
    NotReady,
    RaftlineError,
    ShuttingDown,
    TimedOut,
    Unavailable,
)
from raftline.model.limits import WAIT_MS_MAX

DEFAULT_SERVER = "http://127.0.0.1:8080"
TIMEOUT_MS = 15_000
PATIENCE_MS = 1_000
CONNECT_MS = 2_000
PAUSE_MS = 50
PASSING = (NotLeader, NoLeader, NotReady, ShuttingDown)
TIMEOUT_HEADER = "Raftline-Timeout-Ms"

Reply = dict[str, Any]


class _Unsent(Exception):
    """The node was not reached: nothing happened there."""


class _Broken(Exception):
    """The connection broke after the request went out: it may have happened."""


class _Silent(Exception):
    """No answer came in time: it may have happened."""


class Caller:
    """Calls to the nodes of one cluster, in the order given, staying with the one that answers."""

    __slots__ = ("_at", "_connection", "_hosts", "timeout_ms")

    def __init__(self, servers: str = DEFAULT_SERVER, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._hosts = parse_servers(servers)
        self._at = 0
        self._connection: http.client.HTTPConnection | None = None
        self.timeout_ms = timeout_ms

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: dict[str, Any] | None = None,
        wait_ms: int = 0,
    ) -> Reply:
        """Make one call and return its JSON answer. ``wait_ms``: how long the node may wait.

        Raises:
            RaftlineError: refused, unknown or nobody there.
        """
        if query:
            path = f"{path}?{urlencode({k: v for k, v in query.items() if v is not None})}"
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        started_ms = clock.mono_ms()
        until_ms = started_ms + self.timeout_ms + wait_ms
        most_ms = self.timeout_ms if method != "GET" else self.timeout_ms / len(self._hosts)  # C5
        problem: RaftlineError | None = None
        unreached = 0  # nodes, one after the other
        while True:
            left_ms = until_ms - clock.mono_ms()
            if left_ms <= 0:
                raise problem or TimedOut(f"{method} {path}", self.timeout_ms)
            before, unreached = unreached, 0
            try:
                return self._once(method, path, data, min(left_ms, most_ms + wait_ms), most_ms)
            except _Unsent as error:
                problem, unreached = self._nobody(error), before + 1
                is_everywhere = unreached >= len(self._hosts)
                if is_everywhere and clock.mono_ms() - started_ms > PATIENCE_MS:  # C3
                    raise problem from error
            except (_Broken, _Silent) as error:
                problem = self._unanswered(error, method, path)
            except TimedOut as error:
                if most_ms == self.timeout_ms:  # else it had a share of it
                    raise
                problem = error
            except PASSING as error:  # C2
                problem = error
            self._next()
            clock.pause(PAUSE_MS)

    def _unanswered(self, error: Exception, method: str, path: str) -> RaftlineError:
        """Return what a read that is made again has met; what else went out is not. C1, C5."""
        silence = TimedOut(f"{method} {path} at {self._host()}", self.timeout_ms)
        is_silent = isinstance(error, _Silent)
        if method != "GET" or (is_silent and len(self._hosts) == 1):
            self._next()
            raise silence from error
        return silence if is_silent else self._nobody(error)

    def _once(
        self, method: str, path: str, data: bytes | None, left_ms: float, most_ms: float
    ) -> Reply:
        connection = self._connect(left_ms)
        # A node adds the wait of a long poll itself.
        headers = {TIMEOUT_HEADER: str(max(1, int(min(left_ms, most_ms, WAIT_MS_MAX))))}
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body=data, headers=headers)
            response = connection.getresponse()
            text = response.read()
        except TimeoutError as error:
            self.close()
            raise _Silent from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _Broken(_in_words(error)) from error
        return _answer(response.status, text, self._host())

    def _connect(self, left_ms: float) -> http.client.HTTPConnection:
        connection = self._connection
        if connection is not None and not _is_open(connection):
            self.close()
            connection = None
        if connection is None:
            host, port = self._hosts[self._at]
            patience_ms = min(left_ms, CONNECT_MS)  # C5
            connection = http.client.HTTPConnection(host, port, timeout=patience_ms / 1000)
            try:
                connection.connect()
            except OSError as error:
                raise _Unsent(error.strerror or str(error)) from error
            self._connection = connection
        if connection.sock is not None:
            # The node ends the call in time itself; the second is for its answer to arrive.
            connection.sock.settimeout(left_ms / 1000 + 1)
        return connection

    def _next(self) -> None:
        if len(self._hosts) > 1:
            self.close()
            self._at = (self._at + 1) % len(self._hosts)

    def _host(self) -> str:
        host, port = self._hosts[self._at]
        return f"{host}:{port}"

    def _nobody(self, reason: Exception) -> RaftlineError:
        where = ", ".join(f"{host}:{port}" for host, port in self._hosts)
        return Unavailable(
            f"no node answers at {where}: {reason}",
            "start one (make up, raftline up, raftline serve) or name one: --server URL",
        )


def parse_servers(text: str) -> list[tuple[str, int]]:
    """Read ``http://a:8080,b:8081``.

    Raises:
        InvalidArgument: one of them is no address.
    """
    found: list[tuple[str, int]] = []
    for one in filter(None, (part.strip() for part in text.split(","))):
        with contextlib.suppress(ValueError):
            parts = urlsplit(one if "://" in one else f"http://{one}")
            port = 80 if parts.port is None else parts.port
            if parts.scheme == "http" and parts.hostname and parts.path in ("", "/") and port:
                found.append((_ascii(parts.hostname), port))
                continue
        raise InvalidArgument(
            f"{one!r} is no server", "write http://host:port, several with commas"
        )
    if not found:
        raise InvalidArgument("no server is named", "write --server http://host:port")
    return found


def _ascii(host: str) -> str:
    """Return a host's name as it is looked up. Raises ValueError: it cannot be."""
    if not host.isprintable() or " " in host:
        raise ValueError(host)
    return host.encode("idna").decode()


def _in_words(error: Exception) -> str:
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
        return "what listens there does not speak HTTP"  # its bytes are for no terminal
    return str(error) or type(error).__name__


def _is_open(connection: http.client.HTTPConnection) -> bool:
    """Say whether the node left the idle connection alone. Readable now means it hung up."""
    if connection.sock is None:
        return False
    poll = select.poll()  # select() takes no file numbers above 1023
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def _answer(status: int, text: bytes, host: str) -> Reply:
    reply: object = None
    with contextlib.suppress(ValueError):
        reply = json.loads(text or b"{}")
    if not isinstance(reply, dict):
        raise Internal(f"{host} answered {status} with something that is no JSON object")
    found = cast("Reply", reply)
    error = found.get("error")
    if status >= 400 and isinstance(error, dict):
        raise _to_error(cast("Reply", error))
    if status >= 400:
        raise Internal(f"{host} answered {status} without saying why")
    return found


def _to_error(error: Reply) -> RaftlineError:
    code, message, hint = (str(error.get(name, "")) for name in ("code", "message", "hint"))
    return RaftlineError.from_wire((code, message, hint, {}))
