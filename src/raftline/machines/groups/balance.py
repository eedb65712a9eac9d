"""The sticky balance where members read different topics.

Partitions of one topic are alike, so the problem is how many of each topic every member has: a
flow from topics to members. Wanted is the flow that is most even (the least sum of squared loads)
and, of those, the one that moves the fewest. A flow is that exactly when no cycle of changes makes
it better, so cycles that do are looked for and carried out until there is none.

Costs
    A round of the search looks at every pair of topic and subscriber once. ``STEPS_MAX`` bounds
    the looks of one balance: far more than a group of dozens of members needs. When they are used
    up the flow stays as it is: complete, and even but for what was not found.
"""

import heapq
from collections.abc import Mapping, Sequence

STEPS_MAX = 100_000


class Flow:
    """How many partitions of each topic each member has, and had."""

    __slots__ = ("_big", "_had", "_has", "_load", "_readers", "_steps", "_topics")

    def __init__(
        self,
        members: Sequence[Sequence[int]],
        sizes: Sequence[int],
        had: Mapping[tuple[int, int], int],
    ) -> None:
        """Take the topics of each member, the partitions of each topic, and what was."""
        self._topics = [list(topics) for topics in members]
        self._readers: list[list[int]] = [[] for _ in sizes]
        for member, topics in enumerate(members):
            for topic in topics:
                self._readers[topic].append(member)
        self._had = had
        self._has: dict[tuple[int, int], int] = dict(had)
        self._load = [0] * len(members)
        for (_, member), count in sorted(had.items()):
            self._load[member] += count
        self._steps = STEPS_MAX
        self._big = sum(sizes) + len(sizes) + len(members) + 1  # one load outweighs all moves
        self._place_free(sizes)

    def solve(self) -> dict[tuple[int, int], int]:
        """Return the best count by (topic, member)."""
        self._level()
        while self._steps > 0:
            cycle = self._better()
            if not cycle:
                break
            self._turn(cycle)
        return {key: count for key, count in self._has.items() if count}

    def _place_free(self, sizes: Sequence[int]) -> None:
        """Give what nobody had to whoever has least."""
        for topic, size in enumerate(sizes):
            readers = self._readers[topic]
            if not readers:
                continue
            free = size - sum(self._has.get((topic, member), 0) for member in readers)
            order = [(self._load[member], member) for member in readers]
            heapq.heapify(order)
            for _ in range(free):
                load, member = order[0]
                heapq.heapreplace(order, (load + 1, member))
                self._shift(topic, member, 1)

    def _level(self) -> None:
        """Move between two members of one topic while that evens them out. Quick, not exact."""
        for topic, readers in enumerate(self._readers):
            while self._steps > 0:
                self._steps -= 2 * len(readers)
                holders = [m for m in readers if self._has.get((topic, m), 0)]
                if not holders:
                    break
                most = max(holders, key=lambda m: (self._load[m], m))
                least = min(readers, key=lambda m: (self._load[m], m))
                if self._load[most] - self._load[least] < 2:
                    break
                self._shift(topic, most, -1)
                self._shift(topic, least, 1)

    def _shift(self, topic: int, member: int, by: int) -> None:
        key = (topic, member)
        self._has[key] = self._has.get(key, 0) + by
        self._load[member] += by

    def _edges(self) -> list[tuple[int, int, int]]:
        """Return possible changes as (from, to, cost).

        Nodes are members, then topics, then the scale. Member to topic gives one partition up,
        topic to member takes one; scale to member and back is where the load changes.
        """
        members, scale = len(self._topics), len(self._topics) + len(self._readers)
        edges: list[tuple[int, int, int]] = []
        for member, load in enumerate(self._load):
            edges.append((scale, member, -(2 * load - 1) * self._big))
            edges.append((member, scale, (2 * load + 1) * self._big))
        for topic, readers in enumerate(self._readers):
            for member in readers:
                has, had = self._has.get((topic, member), 0), self._had.get((topic, member), 0)
                if has:
                    edges.append((member, members + topic, 1 if has <= had else 0))
                edges.append((members + topic, member, -1 if has < had else 0))
        return edges

    def _better(self) -> list[int]:
        """Return the nodes of a cycle that makes the flow better; empty if there is none."""
        edges = self._edges()
        count = len(self._topics) + len(self._readers) + 1
        cost, back = [0] * count, [-1] * count
        for _ in range(count):
            self._steps -= len(edges)
            changed = False
            for start, end, price in edges:
                if cost[start] + price < cost[end]:
                    cost[end] = cost[start] + price
                    back[end] = start
                    changed = True
            if not changed or self._steps <= 0:
                return []
            cycle = _cycle(back)
            if cycle:
                return cycle
        return []

    def _turn(self, cycle: list[int]) -> None:
        """Carry the changes of a cycle out."""
        members, scale = len(self._topics), len(self._topics) + len(self._readers)
        for start, end in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            if start < members and members <= end < scale:
                self._shift(end - members, start, -1)
            elif members <= start < scale:
                self._shift(start - members, end, 1)


def _cycle(back: list[int]) -> list[int]:
    """Return a cycle of the tree of predecessors, in the order of its edges."""
    seen = [0] * len(back)
    for first in range(len(back)):
        node, mark = first, first + 1
        while node >= 0 and not seen[node]:
            seen[node] = mark
            node = back[node]
        if node >= 0 and seen[node] == mark:
            cycle = [node]
            at = back[node]
            while at != node:
                cycle.append(at)
                at = back[at]
            return cycle[::-1]
    return []
