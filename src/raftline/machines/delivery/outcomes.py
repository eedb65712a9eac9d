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


Outcome = SettledRanges | Granted | Opened | Done | Refused
