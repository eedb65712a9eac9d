"""Where replicas go.

Rules
    W1  Replicas of a shard are on different nodes, and on different racks while racks suffice. A
        node without a rack is a rack of its own.
    W2  Then the node with the fewest replicas of the same topic, so that a topic is spread over all
        nodes and a new node takes part at once; then the fewest replicas in all, then the fewest
        leaders, then the lowest number.
    W3  The preferred leader is the chosen replica whose node leads the fewest partitions of the
        topic, then in all.
    W4  Only new replicas are placed. What is placed never moves unasked.

Spreading by topic before the total keeps a burst of partitions from all landing on the emptiest
node, which would then lead every one of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from raftline.model.ids import NodeId


class Seat(Protocol):
    """A node, as placement sees it."""

    @property
    def id(self) -> NodeId:
        """Return its number."""
        ...

    @property
    def rack(self) -> str:
        """Return its rack, or ""."""
        ...


class Loads:
    """Replicas and preferred leaders per node."""

    __slots__ = ("leaders", "replicas")

    def __init__(self) -> None:
        self.replicas: dict[NodeId, int] = {}
        self.leaders: dict[NodeId, int] = {}

    def add(self, nodes: Sequence[NodeId]) -> None:
        """Count a shard on ``nodes``, preferred leader first."""
        self._shift(nodes, 1)

    def remove(self, nodes: Sequence[NodeId]) -> None:
        """Uncount a shard."""
        self._shift(nodes, -1)

    def copy(self) -> "Loads":
        """Return an independent copy, to plan on."""
        other = Loads()
        other.replicas, other.leaders = self.replicas.copy(), self.leaders.copy()
        return other

    def counts(self) -> tuple[list[tuple[NodeId, int]], list[tuple[NodeId, int]]]:
        """Return what is not zero, in order. For comparison."""
        return _nonzero(self.replicas), _nonzero(self.leaders)

    def _shift(self, nodes: Sequence[NodeId], by: int) -> None:
        for node in nodes:
            self.replicas[node] = self.replicas.get(node, 0) + by
        if nodes:
            self.leaders[nodes[0]] = self.leaders.get(nodes[0], 0) + by


def place(seats: Sequence[Seat], count: int, topic: Loads, total: Loads) -> tuple[NodeId, ...]:
    """Choose nodes for the ``count`` replicas of a new partition, preferred leader first.

    Counts them in ``topic`` and ``total``.
    """
    assert 0 < count <= len(seats), (count, len(seats))
    chosen: list[Seat] = []
    for _ in range(count):
        chosen.append(choose(seats, chosen, topic, total))
    first = min(chosen, key=lambda s: (_of(topic.leaders, s), _of(total.leaders, s), s.id))  # W3
    nodes = (first.id, *(seat.id for seat in chosen if seat is not first))
    topic.add(nodes)
    total.add(nodes)
    return nodes


def choose(seats: Iterable[Seat], beside: Sequence[Seat], topic: Loads, total: Loads) -> Seat:
    """Choose a node for one more replica beside those on ``beside``. W1, W2."""
    taken = {seat.id for seat in beside}
    racks = [_rack(seat) for seat in beside]
    return min(
        (seat for seat in seats if seat.id not in taken),
        key=lambda seat: (
            racks.count(_rack(seat)),
            _of(topic.replicas, seat),
            _of(total.replicas, seat),
            _of(total.leaders, seat),
            seat.id,
        ),
    )


def catalog_voters(seats: Sequence[Seat], keep: Sequence[NodeId], count: int) -> list[NodeId]:
    """Choose the nodes whose catalog replicas vote: those of ``keep`` first, then spread."""
    by_id = {seat.id: seat for seat in seats}
    chosen: list[Seat] = [by_id[node] for node in keep if node in by_id][:count]
    nothing = Loads()
    while len(chosen) < min(count, len(seats)):
        chosen.append(choose(seats, chosen, nothing, nothing))
    return [seat.id for seat in chosen]


def _rack(seat: Seat) -> str:
    return f"r:{seat.rack}" if seat.rack else f"n:{seat.id}"


def _of(counts: Mapping[NodeId, int], seat: Seat) -> int:
    return counts.get(seat.id, 0)


def _nonzero(counts: Mapping[NodeId, int]) -> list[tuple[NodeId, int]]:
    return sorted((node, count) for node, count in counts.items() if count)
