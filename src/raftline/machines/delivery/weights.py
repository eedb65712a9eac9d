"""Weights of lanes, and whose turn it is by weight (stride scheduling).

State
    Per lane its *pass*: how far it has come in virtual time. Taking a message moves a lane on by
    its stride, which is the smaller the heavier the lane; who is least far is next.

Invariants
    S1  While the same lanes have something, their shares follow their weights, within one piece.
    S2  A lane that had nothing does not save up: it starts again at the pass of now.
    S3  A lane that has something is served: between two of its turns the others take at most
        what their weights allow.

It is memory of a leader. The partitions of one topic and group on a node may share one.
"""

from collections.abc import Sequence
from itertools import pairwise

from raftline.model.limits import PRIORITY_MAX, PRIORITY_MIN

# The five names have the weights that people know; what lies between lies between.
ANCHORS = ((PRIORITY_MIN, 1), (-20, 3), (-10, 7), (0, 15), (10, 25), (20, 50), (PRIORITY_MAX, 100))
_PARTS = 1000  # weights are counted in thousandths, so that neighbours differ
_TRACK = 1 << 40  # stride of weight 1/1000


def weight_of(priority: int) -> int:
    """Return the weight of a lane in thousandths."""
    for (low, light), (high, heavy) in pairwise(ANCHORS):
        if priority <= high:
            return _PARTS * light + _PARTS * (heavy - light) * (priority - low) // (high - low)
    raise AssertionError(priority)


_STRIDES = {lane: _TRACK // weight_of(lane) for lane in range(PRIORITY_MIN, PRIORITY_MAX + 1)}


class Stride:
    """Turns by weight."""

    __slots__ = ("_now", "_passes")

    def __init__(self) -> None:
        self._now = 0
        self._passes: dict[int, int] = {}

    def order(self, lane: int) -> int:
        """Return how far a lane has come: the least is next. S2."""
        return max(self._passes.get(lane, 0), self._now)

    def next(self, lanes: Sequence[int]) -> int:
        """Return which of ``lanes`` is next; of equals the highest."""
        return min(lanes, key=lambda lane: (self.order(lane), -lane))

    def used(self, lane: int, count: int) -> None:
        """Note that ``count`` messages of a lane went out."""
        self._now = self.order(lane)
        self._passes[lane] = self._now + count * _STRIDES[lane]
