"""Metrics and the overview over HTTP: what a machine scrapes, and what the status page shows."""

import platform
from typing import Any

from raftline import __version__
from raftline.gateways.http.connection import Exchange
from raftline.gateways.http.routes import Request, Router
from raftline.gateways.overviews import merge
from raftline.gateways.ports import Calls
from raftline.model.overview import Overview
from raftline.node.pacing import pace
from raftline.node.ports import Clock
from raftline.telemetry.metrics import CONTENT_TYPE, Board
from raftline.telemetry.process import ProcessSigns, read_process

OVERVIEW_TIMEOUT_MS = 2_000  # a node that does not answer holds the page up no longer


class MetricRoutes:
    """``/metrics`` and ``/v1/overview``."""

    __slots__ = ("_calls", "_clock")

    def __init__(self, clock: Clock, calls: Calls) -> None:
        self._clock = clock
        self._calls = calls

    def add_to(self, router: Router) -> None:
        """Add the routes."""
        router.add("GET", "/metrics", self.metrics, produces=CONTENT_TYPE)
        router.add("GET", "/v1/overview", self.overview, answer=dict[str, Any])

    def metrics(self, exchange: Exchange, request: Request) -> None:
        """Write the metrics of this node as Prometheus reads them."""

        def answer(board: Board) -> None:
            board.put("raftline_build_info", 1, __version__, platform.python_version())
            put_process(board, read_process())
            lines: list[str] = []

            def send() -> None:
                text = "\n".join([*lines, ""]).encode()
                exchange.send(text, content_type=CONTENT_TYPE)

            pace(self._clock, board.write(lines), send)

        self._calls.metrics(exchange.then(answer))

    def overview(self, exchange: Exchange, request: Request) -> None:
        """Show nodes, topics and groups of the whole cluster, as the leaders have them now."""
        timeout_ms = min(request.timeout_ms, OVERVIEW_TIMEOUT_MS)

        def answer(seen: Overview) -> None:
            body = merge(self._calls.status(), self._calls.catalog(), seen)
            exchange.json({**body, "at_ms": self._clock.wall_ms()})

        self._calls.overview(timeout_ms, exchange.then(answer))


def put_process(board: Board, signs: ProcessSigns) -> None:
    """Add what the operating system knows of this process."""
    board.put("process_cpu_seconds_total", signs.cpu_seconds)
    board.put("process_start_time_seconds", signs.start_seconds)
    if signs.resident_bytes >= 0:
        board.put("process_resident_memory_bytes", signs.resident_bytes)
    if signs.open_fds >= 0:
        board.put("process_open_fds", signs.open_fds)
