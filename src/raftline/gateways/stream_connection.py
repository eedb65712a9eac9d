"""What connections of byte streams share: requests in, replies out in the same order.

A protocol says what a request is (``_walk``) and what its replies are; bytes that are no whole
request, bounds on what is in work, and writing are the same for all.

State
    ``_own`` holds bytes of a request that is not whole yet; as long as there is none, reads go to
    the server's shared buffer (loops read and deliver in one step). ``exchanges`` are the requests
    that have no reply on its way yet, oldest first.

Invariants
    I1  Replies leave in the order of their requests.
    I2  Requests in work hold at most ``inflight_bytes_max`` plus one request; then the socket is
        not read until some are answered. The same while the client does not read its replies.
    I3  After ``_ended`` nothing more is read.
    I4  An answer after the client left is dropped.
    I5  A buffer that was lent (``_lent``) is never written to by the connection again: who borrowed
        it gives it back to the pool.
    I6  Who reads slowly is waited for: a long reply may take minutes. Who reads nothing is not.

Costs
    Replies of one pass of the loop leave in one write.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Sequence

    from raftline.gateways.stream_server import StreamServer
    from raftline.storage.files import Buffer

JOIN_BYTES_MAX = 64 << 10
UNSENT_BYTES_HIGH = 1 << 20

E = TypeVar("E")  # an exchange
S = TypeVar("S", bound="StreamServer[Any]")


class StreamConnection(asyncio.BufferedProtocol, Generic[E, S]):
    """Reads requests, has them served, writes replies."""

    __slots__ = (
        "_end",
        "_ended",
        "_is_ending",
        "_lent",
        "_need",
        "_own",
        "_own_view",
        "_paused",
        "_shared",
        "_shared_view",
        "_start",
        "_stuck",
        "_transport",
        "_unsent",
        "_walking",
        "active_tick",
        "exchanges",
        "has_left",
        "inflight_bytes",
        "is_dirty",
        "partial_tick",
        "server",
    )

    def __init__(self, server: S, exchanges: "deque[E]") -> None:
        self.server = server
        self.exchanges = exchanges
        self.inflight_bytes: int = 0
        self.has_left = False  # the client hung up, or its half at least
        self.active_tick = server.tick
        self.partial_tick = -1  # when the request that is not whole began
        self.is_dirty = False  # to be flushed in this pass
        self._transport: asyncio.Transport | None = None
        self._shared = server.shared
        self._shared_view = server.shared_view
        self._own: bytearray | None = None
        self._own_view = server.shared_view[:0]
        self._start = 0
        self._end = 0
        self._need = 0  # bytes from the start without which nothing new can be said
        self._lent = False  # I5
        self._ended = False  # I3
        self._is_ending = False  # idle, and seen to be so
        self._paused = False
        self._stuck = False  # the client does not read
        self._unsent = 0  # bytes that it had not read at the last look
        self._walking = False

    # -- what differs from protocol to protocol

    def _walk(self, buffer: bytearray, view: memoryview, start: int, end: int) -> int:
        """Serve the whole requests in ``[start, end)``; return where the rest begins."""
        raise NotImplementedError

    def _take_replies(self) -> "Sequence[Buffer]":
        """Take the exchanges that are answered, up to the first that is not. I1."""
        raise NotImplementedError

    def _turned_away(self) -> bytes:
        """Return what a client hears that is one too many."""
        return b""

    def _end_well(self, transport: asyncio.Transport) -> None:
        """Everything is answered and nothing more is read: close."""
        transport.close()

    # -- the loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or turn it away if there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        if not self.server.adopt(self):
            self._ended = True
            self._transport.write(self._turned_away())
            self._transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Lend the shared buffer, or the rest of our own."""
        if self._own is None:
            return self._shared_view
        return self._own_view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Serve every request that is whole."""
        self.active_tick = self.server.tick
        if self._ended:
            self._drop_own()
        elif self._own is None:
            left = self._walk(self._shared, self._shared_view, 0, nbytes)
            if left < nbytes:
                self._keep(self._shared_view, left, nbytes)
        else:
            self._end += nbytes
            if self._end - self._start >= self._need:
                self._walk_own()

    def eof_received(self) -> bool:
        """Answer what is in work, then close: the client may have closed its half only."""
        self._ended = self.has_left = True
        self.active_tick = self.server.tick
        return bool(self.exchanges)

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read. I2."""
        self._stuck = True
        self.active_tick = self.server.tick
        self._pause()

    def resume_writing(self) -> None:
        """Go on."""
        self._stuck = False
        self.active_tick = self.server.tick
        self._resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything; answers still to come are dropped. I4."""
        self._ended = self.has_left = True
        self._transport = None
        self.exchanges.clear()
        self._drop_own()
        self.server.forget(self)

    # -- replies

    def flush(self) -> None:
        """Write the replies that are next in order, in one call. I1."""
        self.is_dirty = False
        transport = self._transport
        if transport is None:
            return
        out = self._take_replies()
        if len(out) == 1:
            transport.write(out[0])
        elif out:
            if sum(map(len, out)) <= JOIN_BYTES_MAX:
                transport.write(b"".join(out))
            else:
                transport.writelines(out)
        if self._ended and not self.exchanges:
            self.active_tick = self.server.tick
            self._end_well(transport)
        elif self._paused:
            self._resume()

    def close(self) -> None:
        """Hang up after what is already on its way."""
        if self._transport is not None:
            self.active_tick = self.server.tick
            self._transport.close()

    def _reads_nothing(self, transport: asyncio.Transport, tick: int) -> bool:
        """Say whether a client that is stuck has read nothing for too long. I6."""
        unsent, before = transport.get_write_buffer_size(), self._unsent
        self._unsent = unsent
        if unsent < before:
            self.active_tick = tick
        return tick - self.active_tick > self.server.request_ticks_max

    def _end_idle(self, transport: asyncio.Transport, tick: int) -> None:
        """Close; who has not read the replies before is waited for no longer than others. I6."""
        if not self._is_ending:  # the close may have been begun with the last reply: look anew
            self._is_ending = True
            transport.close()
            self.active_tick, self._unsent = tick, transport.get_write_buffer_size()
        elif self._reads_nothing(transport, tick):
            transport.abort()

    # -- the bytes of a request that is not whole

    def _walk_own(self) -> None:
        own = self._own
        assert own is not None
        left = self._walk(own, self._own_view, self._start, self._end)
        if self._own is not own:  # refused meanwhile
            return
        if left == self._end:
            self._drop_own()
            return
        if left != self._start:
            self.partial_tick = self.server.tick
        self._start = left
        self._make_room()

    def _keep(self, view: memoryview, start: int, end: int) -> None:
        """Move what is left to a buffer of our own, or to another one."""
        if self._ended:
            return
        self._own = self.server.pool.take(max(self._need, end - start + 1))
        self._own_view = memoryview(self._own)
        self._own_view[: end - start] = view[start:end]
        self._start, self._end = 0, end - start
        if self.partial_tick < 0:
            self.partial_tick = self.server.tick

    def _make_room(self) -> None:
        """Make sure that what is needed next fits behind what is here."""
        assert self._own is not None
        size, start, end = len(self._own), self._start, self._end
        need = max(self._need, end - start + 1)
        if self._lent or need > size:
            old, lent = self._own, self._lent
            self._lent = False
            self._keep(self._own_view, start, end)
            if not lent:
                self.server.pool.give(old)
        elif start and (size - start < need or size - end < size // 4):
            self._own_view[: end - start] = self._own_view[start:end]
            self._start, self._end = 0, end - start

    def _drop_own(self) -> None:
        if self._own is not None:
            if not self._lent:
                self.server.pool.give(self._own)
            self._own = None
            self._own_view = self._shared_view[:0]
        self._lent = False
        self._start = self._end = self._need = 0
        self.partial_tick = -1

    def _pause(self) -> None:
        transport = self._transport
        if not self._paused and transport is not None and not transport.is_closing():
            self._paused = True
            transport.pause_reading()

    def _resume(self) -> None:
        """Read again once there is room: first what was left lying. I2."""
        if self._stuck or self._ended or self._walking or not self._paused:
            return
        if self.inflight_bytes > self.server.inflight_bytes_max:
            return
        self._paused = False
        if self._own is not None:
            self.partial_tick = self.server.tick
            self._walk_own()
        transport = self._transport
        if not self._paused and transport is not None and not transport.is_closing():
            transport.resume_reading()
