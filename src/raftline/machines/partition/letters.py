"""Letters: which messages of a dead-letter topic are done with, and how.

A dead letter stays in the log of its topic until retention takes it. What people did with it is
remembered here, so that a list shows what is still to be done.

State
    Two sets of offsets of this partition: redriven and purged.

Commands
    MarkLetters (commands.py).

Invariants
    X1  An offset is in one of the sets at most; the last word holds.
    X2  Only offsets of the log are kept: a trim forgets those below it.
    X3  At most ``LETTER_RANGES_MAX`` ranges; a mark that would need more is refused and changes
        nothing (trim the topic, or mark what lies between).
"""

import msgspec

from raftline.machines.partition.commands import LETTERS_PURGED, LETTERS_REDRIVEN, MarkLetters
from raftline.machines.partition.parts import Freeze
from raftline.model.errors import InvalidArgument, OverLimit, RaftlineError
from raftline.model.intervals import IntervalSet
from raftline.model.limits import LETTER_MARKS_MAX, LETTER_RANGES_MAX

LETTER_STATES = {0: "dead", LETTERS_REDRIVEN: "redriven", LETTERS_PURGED: "purged"}


class Letters:
    """What is done with in one partition of a dead-letter topic."""

    __slots__ = ("_ranges_max", "purged", "redriven")

    def __init__(self, ranges_max: int = LETTER_RANGES_MAX) -> None:
        self.redriven = IntervalSet()
        self.purged = IntervalSet()
        self._ranges_max = ranges_max

    def mark(self, command: MarkLetters, log_start: int, next_offset: int) -> int | RaftlineError:
        """Note what was done; return how many offsets were marked anew, or a refusal."""
        pairs = _pairs(command.ranges)
        if isinstance(pairs, RaftlineError):
            return pairs
        if command.state not in (LETTERS_REDRIVEN, LETTERS_PURGED):
            return InvalidArgument(f"{command.state} is no state of a dead letter")
        ranges = len(self.redriven) + len(self.purged) + 2 * len(pairs)
        if ranges > self._ranges_max:  # X3
            return OverLimit("ranges of dead letters done with", ranges, self._ranges_max)
        to, other = self.redriven, self.purged
        if command.state == LETTERS_PURGED:
            to, other = other, to
        marked = 0
        for start, end in pairs:
            start, end = max(start, log_start), min(end, next_offset)  # noqa: PLW2901
            marked += to.add(start, end)
            other.remove(start, end)  # X1
        return marked

    def state(self, offset: int) -> int:
        """Return 0 (dead as far as is known here), LETTERS_REDRIVEN or LETTERS_PURGED."""
        if offset in self.purged:
            return LETTERS_PURGED
        return LETTERS_REDRIVEN if offset in self.redriven else 0

    def trim(self, log_start: int) -> None:
        """Forget what is below ``log_start``. X2."""
        self.redriven.remove(0, log_start)
        self.purged.remove(0, log_start)

    def freeze(self) -> Freeze:
        """Hold the state; the callable returns its bytes."""
        if not self.redriven and not self.purged:
            return lambda: b""
        redriven, purged = self.redriven.copy(), self.purged.copy()
        return lambda: msgspec.msgpack.encode((list(redriven), list(purged)))

    def restore(self, data: bytes) -> None:
        """Take over what ``freeze`` returned elsewhere."""
        redriven, purged = _decode_sets(data) if data else ([], [])
        self.redriven, self.purged = IntervalSet(redriven), IntervalSet(purged)

    def check(self) -> None:
        """Raise if an invariant is broken."""
        self.redriven.check()
        self.purged.check()
        assert not any(self.purged.overlaps(start, end) for start, end in self.redriven)  # X1
        assert len(self.redriven) + len(self.purged) <= self._ranges_max  # X3


def _pairs(ranges: list[int]) -> list[tuple[int, int]] | RaftlineError:
    if len(ranges) % 2 or len(ranges) > 2 * LETTER_MARKS_MAX:
        return InvalidArgument(f"{len(ranges)} ends of ranges of dead letters")
    return list(zip(ranges[::2], ranges[1::2], strict=True))


_decode_sets = msgspec.msgpack.Decoder(tuple[list[tuple[int, int]], list[tuple[int, int]]]).decode
