"""Messages as the async client hands them out: as received.py, awaited."""

import asyncio
import contextlib
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING

from raftline.client.core.receives import Leased, Receiver, Wish
from raftline.client.leased import Duration, LeasedMessage, failure_text
from raftline.model.errors import Unavailable

if TYPE_CHECKING:
    from raftline.client.async_line import AsyncLine

TURN_MESSAGES = 64  # after so many messages others have a turn


class Turn:
    """Awaiting it lets others have a turn."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


class AsyncMessage(LeasedMessage):
    """A message leased to this worker; settle it with ``ack``, ``nack``, ``reject``, ``release``.

    ``async with message:`` extends it while the block runs, acks it at its end, and nacks it if
    the block raises.
    """

    __slots__ = ("_line",)

    def __init__(self, line: "AsyncLine", receiver: Receiver, leased: Leased) -> None:
        super().__init__(receiver, leased)
        self._line = line

    async def ack(self, *, wait: bool = False) -> None:
        """Say that the work is done."""
        await self._line.settle(self.acked(), wait=wait)

    async def nack(
        self, reason: str = "", delay: Duration | None = None, *, wait: bool = False
    ) -> None:
        """Give it back: it comes again after ``delay``, or the topic's backoff."""
        await self._line.settle(self._nacked(reason, delay), wait=wait)

    async def reject(self, reason: str = "", *, wait: bool = False) -> None:
        """Give up on it: it goes to the dead letters at once."""
        await self._line.settle(self._rejected(reason), wait=wait)

    async def release(self, *, wait: bool = False) -> None:
        """Give it back unbegun: others can have it at once, and this delivery is not counted."""
        await self._line.settle(self._released(), wait=wait)

    async def extend(self, lease: Duration | None = None, *, wait: bool = True) -> None:
        """Have the message for that long from now on (default: as long as at first)."""
        await self._line.settle(self._extended(lease), wait=wait)

    async def __aenter__(self) -> "AsyncMessage":
        self._receiver.hold((self._lease, self._stored))
        self._receiver.watch()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._receiver.let_go(self._stored)
        if self._is_settled:
            return
        if error is None:
            await self.ack()
            return
        with contextlib.suppress(Unavailable):  # closed meanwhile: what ended the block goes on
            await self.nack(failure_text(error))


class AsyncReceiving:
    """Messages for one worker, one after the other: ``async for``."""

    def __init__(self, line: "AsyncLine", wish: Wish) -> None:
        self._line = line
        self._wish = wish
        self._receiver: Receiver | None = None
        self._event = asyncio.Event()
        self._current: Leased | None = None
        self._count = 0

    def __aiter__(self) -> "AsyncReceiving":
        return self

    async def __anext__(self) -> AsyncMessage:
        receiver = self._receiver
        if receiver is None:
            receiver = self._receiver = self._line.open_engine().receiver(self._wish)
            receiver.on_change = self._event.set
            receiver.start()
        elif receiver.wants_more:
            receiver.poll()
        if self._current is not None:
            receiver.let_go(self._current[1])
            self._current = None
        self._count += 1
        if not self._count % TURN_MESSAGES:
            await Turn()  # before a message is taken: whoever is cancelled here has none
        while True:
            leased = await self._take(receiver)
            if not receiver.is_lapsed(leased[0]):
                break
            receiver.lapsed_count += 1
        if self._wish.extend:
            self._current = leased
            receiver.hold(leased)
            receiver.watch()
        return AsyncMessage(self._line, receiver, leased)

    async def _take(self, receiver: Receiver) -> Leased:
        while not receiver.ready:
            if receiver.is_over:
                if receiver.error is not None:
                    raise receiver.error
                raise StopAsyncIteration
            self._event.clear()
            if receiver.wants_more:
                receiver.poll()
            await self._event.wait()
        return receiver.ready.popleft()

    def close(self) -> None:
        """End it; what was leased and not handed out is given back."""
        if self._receiver is not None:
            self._receiver.close()

    async def __aenter__(self) -> "AsyncReceiving":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._receiver is not None and self._current is not None:
            self._receiver.let_go(self._current[1])
        self.close()

    def __del__(self) -> None:
        receiver = getattr(self, "_receiver", None)
        if receiver is not None and self._current is not None:
            receiver.let_go(self._current[1])
        if receiver is not None and not receiver.is_closed:
            self._line.call_soon(receiver.close)
