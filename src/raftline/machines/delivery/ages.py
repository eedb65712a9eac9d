"""Ages: at which log time a message of a partition was stored, roughly, in little memory.

State
    Samples (offset, log time): the message at ``offset`` was stored at that time, and those after
    it not before. Two samples are at least ``SAMPLE_MS`` apart; when there are too many, every
    second one of the older half goes.

Invariants
    A1  Offsets and times of the samples grow.
    A2  ``at`` is never later than the truth, and for the newest samples less than ``SAMPLE_MS``
        earlier. What is older than every sample is older than anything.

It is memory of a replica, not replicated state. Feed it on every replica at apply, and a new
leader knows the ages of what its predecessor took.
"""

from array import array
from bisect import bisect_right
from itertools import pairwise

SAMPLE_MS = 250
SAMPLES_MAX = 4096


class Ages:
    """From offset to log time, and back."""

    __slots__ = ("_next", "_offsets", "_times")

    def __init__(self, next_offset: int = 0) -> None:
        self._next = next_offset
        self._offsets = array("q")
        self._times = array("q")

    def note(self, next_offset: int, at_ms: int) -> None:
        """Messages up to ``next_offset`` that were not there before were stored at ``at_ms``."""
        if next_offset <= self._next:
            return
        if not self._times or at_ms - self._times[-1] >= SAMPLE_MS:
            if len(self._times) >= SAMPLES_MAX:
                self._thin()
            self._offsets.append(self._next)
            self._times.append(at_ms)
        self._next = next_offset

    def at(self, offset: int) -> int:
        """Return a log time at or before which the message was not stored later; 0 if unknown."""
        low = bisect_right(self._offsets, offset) - 1
        return self._times[low] if low >= 0 else 0

    def end_at(self, at_ms: int) -> int:
        """Return the first offset ``o`` with ``at(o) > at_ms``: all below are at least that old."""
        low = bisect_right(self._times, at_ms)
        return self._offsets[low] if low < len(self._offsets) else self._next

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert len(self._offsets) == len(self._times) <= SAMPLES_MAX
        assert all(a < b for a, b in pairwise(self._offsets))  # A1
        assert all(a < b for a, b in pairwise(self._times))

    def _thin(self) -> None:
        half = len(self._times) // 2
        self._offsets[:half] = self._offsets[:half:2]
        self._times[:half] = self._times[:half:2]
