"""The receiving end of the framing: one buffer per link, walked in place.

State
    ``[start, end)`` of the buffer holds bytes that arrived and were not delivered yet. The buffer
    grows to the frame it must hold; once it is empty again a big one goes back to the pool.

Invariants
    R1  A delivered view is valid only during the call: the buffer is used again.
    R2  A buffer is never resized (views may exist); a larger one replaces it.
    R3  There is always room for the next read.

Costs
    One checksum and one slice per frame; bytes move only when a frame does not fit behind the
    bytes in front of it.
"""

from collections.abc import Callable

from crc32c import crc32c

from raftline.model.limits import FRAME_BYTES_MAX
from raftline.wire.peer.frames import HEAD, HEAD_BYTES, HELLO_BYTES_MAX

BUFFER_BYTES = 256 << 10
SPACE_BYTES_MIN = 16 << 10
POOL_BYTES_MAX = 32 << 20


class BufferPool:
    """Receive buffers that are not in use, by size (powers of two). Bounded."""

    __slots__ = ("_bytes", "_free", "_least_bytes")

    def __init__(self, least_bytes: int = BUFFER_BYTES) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._bytes = 0
        self._least_bytes = least_bytes

    def take(self, bytes_min: int) -> bytearray:
        """Return a buffer of at least ``bytes_min`` bytes; its content is left over."""
        size = max(self._least_bytes, 1 << (bytes_min - 1).bit_length())
        free = self._free.get(size)
        if not free:
            return bytearray(size)
        self._bytes -= size
        return free.pop()

    def give(self, buffer: bytearray) -> None:
        """Take ``buffer`` back; one too many is dropped."""
        size = len(buffer)
        if self._bytes + size <= POOL_BYTES_MAX:
            self._bytes += size
            self._free.setdefault(size, []).append(buffer)


class FrameReader:
    """Cuts what a socket reads into frames."""

    __slots__ = ("_buffer", "_end", "_pool", "_start", "_view", "body_bytes_max")

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._buffer = pool.take(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self.body_bytes_max = HELLO_BYTES_MAX

    def trust(self) -> None:
        """Allow frames of full size: the other end has said who it is."""
        self.body_bytes_max = FRAME_BYTES_MAX

    def space(self) -> memoryview:
        """Return where the next bytes go. R3."""
        return self._view[self._end :]

    def filled(self, count: int, deliver: Callable[[memoryview], bool]) -> str:
        """Deliver each whole frame, until ``deliver`` says False; return what is wrong, or "".

        ``count`` bytes were put into ``space()``.
        """
        start, end, view = self._start, self._end + count, self._view
        need = HEAD_BYTES
        while end - start >= HEAD_BYTES:
            length, crc = HEAD.unpack_from(view, start)
            if not 0 < length <= self.body_bytes_max:
                return f"a frame of {length} bytes, allowed are 1 to {self.body_bytes_max}"
            stop = start + HEAD_BYTES + length
            if stop > end:
                need = HEAD_BYTES + length
                break
            frame = view[start + HEAD_BYTES : stop]
            if crc32c(frame) != crc:
                return f"a frame of {length} bytes does not match its checksum"
            start = stop
            if not deliver(frame):
                return ""
        self._start, self._end = start, end
        self._make_room(need)
        return ""

    def close(self) -> None:
        """Give the buffer back. The reader is not used afterwards."""
        self._pool.give(self._buffer)
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)

    def _make_room(self, need: int) -> None:
        start, end, size = self._start, self._end, len(self._buffer)
        if start == end:
            self._start = self._end = 0
            if size > BUFFER_BYTES and need <= BUFFER_BYTES:
                self._replace(BUFFER_BYTES)
        elif need > size:
            self._replace(need)
        elif start and (size - start < need or size - end < SPACE_BYTES_MIN):
            self._view[: end - start] = self._view[start:end]
            self._start, self._end = 0, end - start

    def _replace(self, bytes_min: int) -> None:
        buffer = self._pool.take(bytes_min)
        kept = self._end - self._start
        buffer[:kept] = self._view[self._start : self._end]
        self._pool.give(self._buffer)  # R2
        self._buffer, self._view = buffer, memoryview(buffer)
        self._start, self._end = 0, kept
