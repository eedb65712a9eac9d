"""Spans: what a gateway did inside somebody's trace, sent to an OpenTelemetry collector.

Loaded only where a collector is configured. Spans are made for traces that somebody samples; they
go by OTLP over HTTP as JSON, many at a time, from a thread of their own.

Bounds
    At most ``WAITING_MAX`` spans wait; more are dropped and counted. A collector that does not
    answer costs nobody anything but its spans.
"""

import http.client
import json
import os
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Mapping
from typing import Any

from raftline.telemetry.log import LogEvent

WAITING_MAX = 10_000
BATCH_MAX = 512
PAUSE_S = 1.0
TIMEOUT_S = 5.0
CLOSE_S = 2.0
TRACES_PATH = "/v1/traces"
PRODUCER, CONSUMER = 4, 5  # kinds of spans

Attributes = Mapping[str, str | int]
Span = dict[str, Any]


class Spans:
    """Takes spans on the loop, sends them from its thread."""

    __slots__ = ("_closing", "_log", "_resource", "_thread", "_url", "_waiting", "_wake", "dropped")

    def __init__(self, endpoint: str, resource: Attributes, log: LogEvent) -> None:
        self._url = traces_url(endpoint)
        self._resource = attributes(resource)
        self._log = log
        self._waiting: deque[Span] = deque()
        self._wake = threading.Event()
        self._closing = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    @staticmethod
    def new_id() -> str:
        """Return the id of a span that begins."""
        return os.urandom(8).hex()

    @staticmethod
    def now_ns() -> int:
        """Return the time for a span."""
        return time.time_ns()

    def add(
        self,
        name: str,
        kind: int,
        trace: str,
        parent: str,
        span: str,
        began_ns: int,
        about: Attributes,
        error: str = "",
    ) -> None:
        """Take a span that ends now."""
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
            return
        made: Span = {
            "traceId": trace,
            "spanId": span,
            "parentSpanId": parent,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(began_ns),
            "endTimeUnixNano": str(time.time_ns()),
            "attributes": attributes(about),
            "status": {"code": 2, "message": error} if error else {},
        }
        self._waiting.append(made)
        if len(self._waiting) >= BATCH_MAX:
            self._wake.set()

    def close(self) -> None:
        """Send what is here, if that is quick."""
        self._closing = True
        self._wake.set()
        self._thread.join(CLOSE_S)

    # -- the thread

    def _run(self) -> None:
        failed = False
        while not self._closing or self._waiting:
            self._wake.wait(PAUSE_S)
            self._wake.clear()
            while self._waiting:
                spans = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
                problem = self._send(spans)
                if problem:
                    self.dropped += len(spans)
                if problem and not failed:  # once, until it works again
                    self._log("warning", "spans.not_sent", reason=problem, to=self._url)
                failed = bool(problem)
                if failed and self._closing:
                    return

    def _send(self, spans: list[Span]) -> str:
        body = {
            "resourceSpans": [
                {
                    "resource": {"attributes": self._resource},
                    "scopeSpans": [{"scope": {"name": "raftline"}, "spans": spans}],
                }
            ]
        }
        asked = urllib.request.Request(
            self._url, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with _direct.open(asked, timeout=TIMEOUT_S) as reply:
                reply.read()
        except (OSError, ValueError, http.client.HTTPException) as error:  # no HTTP: a port of gRPC
            return str(error) or type(error).__name__
        return ""


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def traces_url(endpoint: str) -> str:
    """Return where traces go; an endpoint without a path is a collector's base."""
    base = endpoint.rstrip("/")
    return base if "/" in base.partition("://")[2] else base + TRACES_PATH


def attributes(about: Attributes) -> list[dict[str, Any]]:
    """Return attributes as OTLP writes them."""
    return [
        {"key": key, "value": {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v}}
        for key, v in about.items()
    ]
