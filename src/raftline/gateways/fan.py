"""Many calls: all at once or a window of them, one answer when the last is in; or in a chain."""

from collections.abc import Callable
from typing import Any

WINDOW = 32

Call = Callable[[Callable[[Any], None]], None]


class Gather:
    """Waits for several answers and passes them on in the order of the questions."""

    __slots__ = ("_answers", "_done", "_missing")

    def __init__(self, count: int, done: Callable[[list[Any]], None]) -> None:
        self._answers: list[Any] = [None] * count
        self._missing = count
        self._done = done

    def taker(self, slot: int) -> Callable[[Any], None]:
        """Return the ``done`` of the question in ``slot``."""

        def take(answer: Any) -> None:
            self._answers[slot] = answer
            self._missing -= 1
            if not self._missing:
                self._done(self._answers)

        return take


class Fan:
    """Makes calls, at most ``WINDOW`` at a time, and hands their answers over in order."""

    __slots__ = ("_answers", "_calls", "_done", "_is_starting", "_left", "_next", "_running")

    def __init__(self, calls: list[Call], done: Callable[[list[Any]], None]) -> None:
        self._calls = calls
        self._done = done
        self._answers: list[Any] = [None] * len(calls)
        self._left = len(calls)
        self._next = self._running = 0
        self._is_starting = False

    def start(self) -> None:
        """Begin."""
        if not self._calls:
            self._done([])
            return
        self._more()

    def _more(self) -> None:
        if self._is_starting:
            return  # an answer that came at once: the loop below goes on
        self._is_starting = True
        while self._running < WINDOW and self._next < len(self._calls):
            at = self._next
            self._next += 1
            self._running += 1
            self._calls[at](self._taker(at))
        self._is_starting = False

    def _taker(self, at: int) -> Callable[[Any], None]:
        def take(answer: Any) -> None:
            self._answers[at] = answer
            self._running -= 1
            self._left -= 1
            if self._left == 0:
                self._done(self._answers)
            else:
                self._more()

        return take


class Chain:
    """Takes a step again and again, each when the one before was answered.

    An answer may be there before its call returns. A step that was taken from within it would lie
    deeper on the stack each time, and the stack has an end.
    """

    __slots__ = ("_is_due", "_is_in_step", "_step")

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._is_in_step = self._is_due = False

    def next(self) -> None:
        """Take the next step: now, or as soon as the one that is being taken has returned."""
        self._is_due = True
        if self._is_in_step:
            return
        self._is_in_step = True
        try:
            while self._is_due:
                self._is_due = False
                self._step()
        finally:
            self._is_in_step = False
