"""A body that comes in chunks (RFC 9112, 7.1), put together within a bound.

State: what is expected next (a size line, data, the line end after data, trailer lines).
"""

import re

from raftline.gateways.http.head import HEAD_BYTES_MAX, Refused

LINE_BYTES_MAX = 1024
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[\x20-\x7e\t]*)?")


class ChunkedBody:
    """Takes bytes as they come until the body is whole."""

    __slots__ = ("_bytes_max", "_data", "_rest", "_size", "_state", "_trailer_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._data = bytearray()
        self._size = 0
        self._rest = 0  # of the chunk at hand
        self._trailer_bytes = 0
        self._state = "size"  # "data", "end", "trailer", "done"

    def feed(self, buffer: bytearray, start: int, end: int) -> int:
        """Take what can be taken of ``[start, end)``; return where it stopped. Raises Refused."""
        while self._state != "done":
            if self._state == "data":
                took = min(self._rest, end - start)
                self._data += memoryview(buffer)[start : start + took]
                self._rest -= took
                start += took
                if self._rest:
                    return start
                self._state = "end"
            at = buffer.find(b"\r\n", start, min(end, start + LINE_BYTES_MAX))
            if at < 0:
                if end - start >= LINE_BYTES_MAX:
                    raise Refused(400, "a line of the chunked body is too long")
                return start
            self._line(bytes(memoryview(buffer)[start:at]))
            start = at + 2
        return start

    @property
    def body(self) -> bytes | None:
        """Return the whole body, or None as long as something is missing."""
        return bytes(self._data) if self._state == "done" else None

    @property
    def held_bytes(self) -> int:
        """Return how much of the body is here."""
        return self._size - self._rest

    def _line(self, line: bytes) -> None:
        if self._state == "size":
            match = _SIZE.fullmatch(line)
            if match is None:
                raise Refused(400, "a chunk has no proper size")
            self._rest = int(match[1], 16)
            self._size += self._rest
            if self._size > self._bytes_max:
                raise Refused(413, f"the body is over the limit of {self._bytes_max} bytes")
            self._state = "data" if self._rest else "trailer"
        elif self._state == "end":
            if line:
                raise Refused(400, "a chunk is longer than its size")
            self._state = "size"
        elif line:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > HEAD_BYTES_MAX or b":" not in line:
                raise Refused(400, "the trailer of the chunked body is malformed")
        else:
            self._state = "done"
