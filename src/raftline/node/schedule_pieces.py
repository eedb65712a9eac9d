"""One call to let messages wait, piece by piece: a bounded turn for any call, and the call's order.

State
    The pieces of the call, how far it got, and the outcomes so far.

Invariants
    P1  A piece is sent when the one before it was answered: whatever has to look for its leader
        again, what is stored is stored in the order of the call.
    P2  The call is answered once, within its time: every message has its number or its refusal.
    P3  A message that can never wait refuses its own piece only. Any other refusal ends the call:
        nothing behind it is stored.

Costs: a round of the log for each ``PIECE_ITEMS`` messages, so that no turn is about more of them.
"""

from collections.abc import Callable, Sequence

from raftline.model.calls import NewWaiting, Scheduled
from raftline.model.errors import (
    ErrorWire,
    InvalidArgument,
    RaftlineError,
    TimedOut,
    TooLarge,
)
from raftline.node.ports import Clock
from raftline.node.schedules import ScheduleDone

PIECE_ITEMS = 250  # messages of one call that travel and are proposed together
PIECE_BYTES = 1 << 20

Send = Callable[[list[NewWaiting], int, ScheduleDone], None]
"""Have a piece stored: (messages, timeout_ms, done)."""


class PiecewiseSchedule:
    """One call on its way."""

    __slots__ = (
        "_at_ms",
        "_clock",
        "_deadline",
        "_done",
        "_first_error",
        "_name",
        "_next",
        "_numbers",
        "_partition",
        "_pieces",
        "_refusals",
        "_send",
        "_stored",
        "_timeout_ms",
    )

    def __init__(
        self,
        clock: Clock,
        name: str,
        partition: int,
        items: Sequence[NewWaiting],
        timeout_ms: int,
        send: Send,
        done: ScheduleDone,
    ) -> None:
        self._clock = clock
        self._name = name
        self._partition = partition
        self._pieces = cut(items)
        self._timeout_ms = timeout_ms
        self._deadline = clock.mono_ms() + timeout_ms
        self._send = send
        self._done = done
        self._next = 0
        self._numbers: list[int] = []
        self._refusals: dict[int, ErrorWire] = {}
        self._first_error: RaftlineError | None = None
        self._stored = False  # a piece was taken, in whole or in part
        self._at_ms = 0

    def start(self) -> None:
        """Send the first piece."""
        if len(self._pieces) == 1:
            self._send(self._pieces[0], self._timeout_ms, self._done)
        else:
            self._send(self._pieces[0], self._timeout_ms, self._take)

    def _take(self, answer: Scheduled | RaftlineError) -> None:
        """Take a piece's answer; send the next one. P1."""
        if isinstance(answer, Scheduled):
            start = len(self._numbers)
            self._stored = True
            self._at_ms = max(self._at_ms, answer.at_ms)
            self._refusals |= {start + at: wire for at, wire in answer.refusals.items()}
            self._numbers += answer.numbers
            self._next += 1
        else:
            is_last = not isinstance(answer, InvalidArgument | TooLarge)  # P3
            self._refuse(answer, len(self._pieces) if is_last else self._next + 1)
        left_ms = int(self._deadline - self._clock.mono_ms())
        if self._next < len(self._pieces) and left_ms <= 0:
            late = TimedOut(f"messages to wait in {self._name}", self._timeout_ms)
            self._refuse(late, len(self._pieces))
        if self._next < len(self._pieces):
            self._send(self._pieces[self._next], left_ms, self._take)
        else:
            self._end()

    def _refuse(self, error: RaftlineError, end: int) -> None:
        """Refuse every message of the pieces from the next one to ``end``."""
        self._first_error = self._first_error or error
        start, count = len(self._numbers), sum(map(len, self._pieces[self._next : end]))
        self._refusals |= dict.fromkeys(range(start, start + count), error.to_wire())
        self._numbers += [0] * count
        self._next = end

    def _end(self) -> None:
        """Answer. P2."""
        if not self._stored and self._first_error is not None:
            self._done(self._first_error)
        else:
            self._done(Scheduled(self._numbers, self._partition, self._at_ms, self._refusals))


def cut(items: Sequence[NewWaiting]) -> list[list[NewWaiting]]:
    """Return the messages of a call in pieces, in their order."""
    pieces: list[list[NewWaiting]] = [[]]
    size = 0
    for item in items:
        if pieces[-1] and (len(pieces[-1]) >= PIECE_ITEMS or size + len(item.batch) > PIECE_BYTES):
            pieces.append([])
            size = 0
        pieces[-1].append(item)
        size += len(item.batch)
    return pieces
