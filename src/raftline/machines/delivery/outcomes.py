"""What became of delivery commands: one outcome each, in their order."""

import msgspec

from raftline.machines.machine import Refused


class Opened(msgspec.Struct, frozen=True):
    """The group is there; ``floor``: everything below is settled."""

    group: str
    floor: int


class Granted(msgspec.Struct, frozen=True):
    """What was leased, and the ranges that were not free."""

    sequence: int
    spans: list[int]
    lost: list[int]


class SettledRanges(msgspec.Struct, frozen=True):
    """A settle was applied; the flat ranges whose lease had moved on. Empty: all is done."""

    lost: list[int]


class Done(msgspec.Struct, frozen=True):
    """So many messages were changed; ``stopped``: where a bound was met, -1 if nowhere."""

    count: int
    stopped: int = -1


class Leased(msgspec.Struct, frozen=True):
    """What a query holds under number n, what of that is lost, and what changed.

    ``ranges`` and ``lost`` are flat pairs in order; ``granted`` and ``acked`` flat fours (start,
    end, attempt, generation); ``before``: the sequence of the lease that was acked, if one was.
    """

    n: int
    ranges: list[int]
    lost: list[int]
    granted: list[int]
    acked: list[int]
    before: list[int]


class QuerySettled(msgspec.Struct, frozen=True):
    """Messages that a query acked or rejected, as flat fours, and the sequence of their lease."""

    sequence: int
    spans: list[int]

    @property
    def count(self) -> int:
        """Return how many messages that are."""
        return sum(self.spans[1::4]) - sum(self.spans[::4])


Outcome = SettledRanges | Granted | Opened | Done | Leased | QuerySettled | Refused
