"""A line per request, where the settings ask for it; else none of this is in the way.

A connection keeps the requests in work in a deque. One that logs notes when each of them came, and
writes its line when the reply leaves.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, SupportsIndex

from raftline.telemetry.log import LogEvent

if TYPE_CHECKING:
    from raftline.gateways.http.connection import Exchange

STATUS_AT = slice(9, 12)  # in "HTTP/1.1 200 OK"
CONTINUE = 100


class LoggedExchanges(deque["Exchange"]):
    """The requests in work of one connection, oldest first."""

    def __init__(self, log: LogEvent, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._log = log
        self._now_s = now_s
        self._began: deque[float] = deque()

    def append(self, exchange: "Exchange", /) -> None:
        """Take a request in."""
        super().append(exchange)
        self._began.append(self._now_s())

    def __delitem__(self, key: SupportsIndex, /) -> None:
        """Let the oldest go: it is answered."""
        exchange, began = self[0], self._began.popleft()
        super().__delitem__(key)
        reply = exchange.reply
        assert reply is not None
        pieces = (reply,) if isinstance(reply, bytes) else reply
        status = int(pieces[0][STATUS_AT])
        if status != CONTINUE:
            self._log(
                "info",
                "request.answered",
                request=exchange.known.label,
                status=status,
                bytes=sum(map(len, pieces)),
                ms=round((self._now_s() - began) * 1000, 3),
            )

    def clear(self) -> None:
        """Forget all of them."""
        super().clear()
        self._began.clear()
