"""Messages as the sync client hands them out: one by one, leased, to be settled."""

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from raftline.client.clock import mono_ms
from raftline.client.core.receives import Leased, Receiver, Wish
from raftline.client.leased import Duration, LeasedMessage, failure_text
from raftline.model.errors import RaftlineError

if TYPE_CHECKING:
    from raftline.client.line import Line

WAIT_S = 1.0  # a receiver looks this often whether the client is still there


class Message(LeasedMessage):
    """A message leased to this worker.

    Settle it with ``ack``, ``nack``, ``reject`` or ``release``; they queue and return at once
    unless ``wait=True``. As a context manager it is extended while the block runs, acked at its
    end, and nacked if the block raises.
    """

    __slots__ = ("_line",)

    def __init__(self, line: "Line", receiver: Receiver, leased: Leased) -> None:
        super().__init__(receiver, leased)
        self._line = line

    def ack(self, *, wait: bool = False) -> None:
        """Say that the work is done."""
        self._line.settle(self.acked(), wait=wait)

    def nack(self, reason: str = "", delay: Duration | None = None, *, wait: bool = False) -> None:
        """Give it back: it comes again after ``delay``, or the topic's backoff."""
        self._line.settle(self._nacked(reason, delay), wait=wait)

    def reject(self, reason: str = "", *, wait: bool = False) -> None:
        """Give up on it: it goes to the dead letters at once."""
        self._line.settle(self._rejected(reason), wait=wait)

    def release(self, *, wait: bool = False) -> None:
        """Give it back unbegun: others can have it at once, and this delivery is not counted."""
        self._line.settle(self._released(), wait=wait)

    def extend(self, lease: Duration | None = None, *, wait: bool = True) -> None:
        """Have the message for that long from now on (default: as long as at first)."""
        self._line.settle(self._extended(lease), wait=wait)

    def __enter__(self) -> "Message":
        self._receiver.hold((self._lease, self._stored))
        self._line.background.call(self._receiver.watch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._receiver.let_go(self._stored)
        if self._is_settled:
            return
        if error is None:
            self.ack()
        else:
            self.nack(failure_text(error))


class Receiving(Iterator[Message]):
    """Messages for one worker, one after the other. Ends as ``wait`` and ``close`` say."""

    def __init__(self, line: "Line", wish: Wish) -> None:
        self._line = line
        self._receiver = line.background.engine.receiver(wish)
        self._event = threading.Event()
        self._receiver.on_change = self._event.set
        self._is_started = False
        self._current: Leased | None = None

    def __iter__(self) -> "Receiving":
        return self

    def __next__(self) -> Message:
        receiver = self._receiver
        ready = receiver.ready
        if self._current is not None:
            self._let_go()
        if not self._is_started:
            self._is_started = True
            self._line.background.call(receiver.start)
        elif len(ready) * 2 <= receiver.last_count and receiver.wants_more:
            self._line.background.call(receiver.poll)
        while True:
            leased = ready.popleft() if ready else self._take()
            if mono_ms() < leased[0].expires_ms:
                break
            receiver.lapsed_count += 1
        if receiver.wish.extend:
            self._current = leased
            receiver.hold(leased)
            self._line.background.call(receiver.watch)
        return Message(self._line, receiver, leased)

    def _take(self) -> Leased:
        receiver = self._receiver
        while True:
            self._event.clear()
            is_over = receiver.is_over  # looked at first: what came with the end is taken
            try:
                return receiver.ready.popleft()
            except IndexError:
                pass
            if is_over or self._line.background.is_closed:
                if receiver.error is not None:
                    raise receiver.error
                raise StopIteration
            if receiver.wants_more:
                self._line.background.call(receiver.poll)
            self._event.wait(WAIT_S)

    def _let_go(self) -> None:
        if self._current is not None:
            self._receiver.let_go(self._current[1])
            self._current = None

    def close(self) -> None:
        """End it; what was leased and not handed out is given back.

        The message in work is extended on, where it was: it has a handler.
        """
        if not self._receiver.is_closed and not self._line.background.is_closed:
            self._line.background.call(self._receiver.close)

    def __enter__(self) -> "Receiving":
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()
        self.close()

    def __del__(self) -> None:
        try:
            self._let_go()
            self.close()
        except (RaftlineError, AttributeError):
            return
