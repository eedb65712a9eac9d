"""Replies as bytes.

A small JSON reply is one ``bytes`` with its head; the head of a 200 is looked up by the length of
the body. There is no Date field: the clock of a node is nobody's reference.
"""

from typing import Any

import msgspec

from raftline.gateways.error_table import row_of
from raftline.model.errors import RaftlineError

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BATCH = "application/vnd.raftline.batch"

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

REASONS = {
    200: "OK",
    201: "Created",
    204: "No Content",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    416: "Range Not Satisfiable",
    417: "Expectation Failed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
    507: "Insufficient Storage",
}

OK_JSON_HEADS = tuple(
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % length
    for length in range(512)
)
_RETRY_AFTER = {429, 503, 507}


def head(status: int, content_type: str, length: int, extra: str = "") -> bytes:
    """Return the head of a reply. ``extra`` is whole lines, each with its CRLF."""
    retry = "Retry-After: 1\r\n" if status in _RETRY_AFTER else ""
    return (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {length}\r\n{retry}{extra}\r\n"
    ).encode("latin-1")


def empty_head(extra: str = "") -> bytes:
    """Return a reply without a body."""
    return f"HTTP/1.1 204 {REASONS[204]}\r\n{extra}\r\n".encode("latin-1")


def error_body(error: RaftlineError) -> dict[str, Any]:
    """Return what stands under "error"."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def error_reply(error: RaftlineError) -> tuple[int, bytes]:
    """Return status and body of a refusal."""
    return row_of(error).http, msgspec.json.encode({"error": error_body(error)})
