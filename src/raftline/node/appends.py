"""Appends on their way: what was collected of them, and who hears what became of each.

Invariants
    A2  Every append is answered once: by its outcome at apply, by a refusal before it was
        proposed, or by ``TimedOut``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.machines.partition.side_car import SideCar
from raftline.model.batch import BatchInfo
from raftline.model.calls import Appended
from raftline.model.errors import RaftlineError, TimedOut

if TYPE_CHECKING:
    from raftline.node.partition import PartitionHost

AppendDone = Callable[[Appended | RaftlineError], None]
Append = tuple[bytes, BatchInfo, AppendDone, float, int, "Refuse | None", SideCar | None]
"""batch, head, done, deadline, timeout, who hears that nothing was stored (None: done does), side
car"""
Refuse = Callable[[Append, RaftlineError], None]


class Pressure:
    """Who waits on this node: the bytes of appends without an outcome, hosts with readers."""

    __slots__ = ("bytes", "parked")

    def __init__(self) -> None:
        self.bytes = 0
        self.parked: dict[PartitionHost, None] = {}


class AppendProposal:
    """The callers of one Append entry."""

    __slots__ = ("_pressure", "_size", "appends", "deadline", "name")

    def __init__(self, name: str, appends: list[Append], pressure: Pressure, size: int) -> None:
        self.name = name
        self.appends: list[Append | None] = appends  # type: ignore[assignment]
        self.deadline = min([append[3] for append in appends])
        self._pressure = pressure
        self._size = size

    def settle(self) -> None:
        """The outcome is known: its bytes weigh no more."""
        self._pressure.bytes -= self._size
        self._size = 0

    def refuse(self, error: RaftlineError) -> None:
        """Nothing of it was stored."""
        self.settle()
        for append in self.appends:
            if append is not None:
                refuse_append(append, error)

    def expire(self, now_ms: float) -> bool:
        """Answer the overdue; say whether nobody waits any more. A2."""
        if now_ms < self.deadline:
            return False
        left = False
        for at, append in enumerate(self.appends):
            if append is None:
                continue
            if append[3] <= now_ms:
                self.appends[at] = None
                append[2](TimedOut(f"an append to {self.name}", append[4]))
            else:
                left = True
        if not left:
            self.settle()
        return not left


def append_size(append: Append) -> int:
    """Return what an append counts in an entry, and in what waits."""
    side = append[6]
    return append[1].length if side is None else append[1].length + side.weight


def refuse_append(append: Append, error: RaftlineError) -> None:
    """Tell the caller that nothing was stored; another node may do better."""
    refuse = append[5]
    if refuse is None:
        append[2](error)
    else:
        refuse(append, error)
