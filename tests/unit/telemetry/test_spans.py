"""Spans on their way to a collector that may be anything."""

import socketserver
import threading
from typing import Any

from raftline.telemetry.spans import Spans

HTTP_2_SETTINGS = b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00d"


class GrpcPort(socketserver.BaseRequestHandler):
    """Answers as the other port of a collector does (4317 in place of 4318)."""

    def handle(self) -> None:
        self.request.recv(65_536)
        self.request.sendall(HTTP_2_SETTINGS)


def test_a_port_that_speaks_no_http_is_told_once_and_costs_spans_only() -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), GrpcPort) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        spans = Spans(
            f"http://127.0.0.1:{server.server_address[1]}",
            {},
            lambda _, event, **fields: told.append((event, fields)),
        )
        spans.add("publish", 4, "0" * 32, "", spans.new_id(), spans.now_ns(), {})
        spans.close()
        server.shutdown()
    assert [event for event, _ in told] == ["spans.not_sent"]
    assert told[0][1]["reason"]
    assert spans.dropped == 1
