"""HTTP/1.1 as the client speaks it: requests as bytes, replies out of bytes as they come."""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from raftline.client.core.ports import Ask, Reply
from raftline.model.errors import Internal, RaftlineError

HEAD_BYTES_MAX = 256 << 10  # the spans of a receive are in the head

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,12})", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)


class BadReply(Exception):
    """The other end does not speak HTTP as a node does."""


def request_of(host: str, ask: Ask, timeout_ms: int) -> bytes:
    """Return a whole request. Its length comes last in the head: nodes remember what is before."""
    fields = f"{ask.method} {ask.path} HTTP/1.1\r\nHost: {host}\r\n"
    if ask.body:
        fields += f"Content-Type: {ask.content_type}\r\n"
    if ask.accept:
        fields += f"Accept: {ask.accept}\r\n"
    fields += f"Raftline-Timeout-Ms: {timeout_ms}\r\n"
    if ask.priority:
        fields += f"Raftline-Priority: {ask.priority}\r\n"
    head = fields.encode("latin-1")
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(ask.body), ask.body)


class ReplyReader:
    """Cuts what comes from a connection into replies."""

    __slots__ = ("_body_bytes", "_buffer", "_head", "is_last")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: bytes | None = None
        self._body_bytes = 0
        self.is_last = False  # the node hangs up after this reply

    def feed(self, data: bytes) -> list[Reply]:
        """Take bytes; return the replies that are whole now. Raises BadReply."""
        self._buffer += data
        found: list[Reply] = []
        while (reply := self._next()) is not None:
            if reply.status != 100:
                found.append(reply)
        return found

    def _next(self) -> Reply | None:
        buffer = self._buffer
        if self._head is None:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(buffer) > HEAD_BYTES_MAX:
                    raise BadReply("a head without an end")
                return None
            head = bytes(buffer[:end])
            del buffer[: end + 4]
            if not (head.startswith(b"HTTP/1.") and head[9:12].isdigit()):
                raise BadReply(f"a reply that begins with {head[:40]!r}")
            length = _LENGTH.search(head)
            if length is None and head[9:12] not in (b"100", b"204", b"304"):
                raise BadReply("a reply that does not say how long it is")
            self._head, self._body_bytes = head, int(length[1]) if length else 0
            self.is_last = self.is_last or _CLOSE.search(head) is not None
        if len(buffer) < self._body_bytes:
            return None
        head, size = self._head, self._body_bytes
        body = bytes(memoryview(buffer)[:size]) if size != len(buffer) else bytes(buffer)
        del buffer[:size]
        self._head = None
        return Reply(int(head[9:12]), head, body)


class ErrorText(msgspec.Struct):
    """What a node says of an error."""

    code: str = ""
    message: str = ""
    hint: str = ""


class ErrorBody(msgspec.Struct):
    """The body of a refusal."""

    error: ErrorText | str | None = None


_decode_error = msgspec.json.Decoder(ErrorBody).decode


def error_of(reply: Reply, host: str) -> RaftlineError:
    """Return the error that a reply of status 400 and above carries."""
    try:
        found = _decode_error(reply.body).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    if isinstance(found, ErrorText) and found.code:
        return RaftlineError.from_wire((found.code, found.message, found.hint, {}))
    return Internal(f"{host} answered {reply.status} without saying why")


T = TypeVar("T")


def read_body(decode: Callable[[bytes], T], reply: Reply) -> "T | RaftlineError":
    """Return what a body says; something else in front of the nodes may have answered."""
    try:
        return decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        return Internal(f"a reply of status {reply.status} that makes no sense: {error}")
