"""The agenda of a partition's work groups: who moved, and whose lease or backoff ends next.

An entry moves one group or a few. What follows an entry looks at those and at nobody else, so
that a partition with a thousand groups costs an entry no more than a partition with one.

State
    The groups the last entry moved, and a heap of (time, name).

Invariants
    A1  A group in which something waits for a time is noted, at that time or earlier.
    A2  A note is a promise to look, not a fact: what it spoke of may be settled by then. Whoever
        finds such a note first in order notes the group anew.

It is not part of a snapshot, and nothing replicated follows from its order: replicas may hold
different notes of the same groups.
"""

import heapq

from raftline.machines.delivery.group import WorkGroup

_NEVER = 1 << 63
_SLACK = 64


class Agenda:
    """Which groups to look at."""

    __slots__ = ("_noted", "_order", "moved")

    def __init__(self) -> None:
        self.moved: dict[str, WorkGroup] = {}
        self._noted: dict[str, int] = {}
        self._order: list[tuple[int, str]] = []  # a heap; may hold notes that were replaced

    def note(self, group: WorkGroup) -> None:
        """See to it that a group is looked at when it is due. A1."""
        due_ms = group.due_ms_least()
        if due_ms is None or due_ms >= self._noted.get(group.name, _NEVER):
            return
        self._noted[group.name] = due_ms
        heapq.heappush(self._order, (due_ms, group.name))
        if len(self._order) > 2 * len(self._noted) + _SLACK:
            self._order = sorted((time_ms, name) for name, time_ms in self._noted.items())

    def first(self) -> tuple[int, str] | None:
        """Return time and name of the first note in order. A2."""
        order = self._order
        while order:
            time_ms, name = order[0]
            if self._noted.get(name) == time_ms:
                return order[0]
            heapq.heappop(order)
        return None

    def take_due(self, at_ms: int) -> list[str]:
        """Return whose notes are due, and drop these: note them again once they were looked at."""
        due: list[str] = []
        while (first := self.first()) is not None and first[0] <= at_ms:
            self.forget(first[1])
            due.append(first[1])
        return due

    def forget(self, name: str) -> None:
        """Drop the note of a group, if there is one."""
        self._noted.pop(name, None)

    def check(self, groups: dict[str, WorkGroup]) -> None:
        """Raise if an invariant is broken."""
        for name, group in groups.items():
            due_ms = group.due_ms_least()
            assert due_ms is None or self._noted.get(name, _NEVER) <= due_ms, name  # A1
        assert {(time_ms, name) for name, time_ms in self._noted.items()} <= set(self._order)
