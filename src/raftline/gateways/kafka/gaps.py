"""Gaps in the numbers of idempotent producers: told as such only when they last.

A producer has up to five batches on their way. When one of them is refused (another node leads, too
much waits) those behind it find a gap, although the producer is about to repeat them all, in order.
librdkafka, told of a gap (error 45), begins a new epoch for all its partitions at once; messages of
another partition that are stored, and whose acknowledgement was lost with its leader, are then sent
under new numbers and stored again. So the batch behind a gap is at first refused with a code that
means no more than "again" (19).

State
    Gaps found lately, and since when. One that is filled is forgotten when it is the oldest.

Invariants
    G1  A gap is told once it has lasted ``GAP_MS``, if its producer still asks then.
    G2  At most ``GAPS_MAX`` are kept; the oldest goes, and would begin anew.
"""

from raftline.model.errors import OutOfOrder, RaftlineError, UnknownProducer
from raftline.model.limits import SEQUENCE_MODULUS
from raftline.node.ports import Clock

GAP_MS = 30_000  # no leader change takes that long; clients give batches up after minutes
GAPS_MAX = 1_000
NOTHING_YET = -1

Gap = tuple[str, int, int, int]  # topic, partition, producer, the number that is missing


class Gaps:
    """The gaps that producers of one node's partitions ran into."""

    __slots__ = ("_clock", "_since")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Gap, float] = {}

    def is_passing(self, topic: str, partition: int, error: RaftlineError) -> bool:
        """Say whether a batch is refused for a gap that its producer may be about to fill. G1."""
        if isinstance(error, OutOfOrder):
            missing, sequence = int(error.extras["expected"]), int(error.extras["sequence"])
            if (sequence - missing) % SEQUENCE_MODULUS >= SEQUENCE_MODULUS // 2:
                return False  # it is behind: a repeat that nobody remembers
        elif isinstance(error, UnknownProducer):
            missing = NOTHING_YET
        else:
            return False
        gap = (topic, partition, int(error.extras["producer"]), missing)
        now_ms = self._clock.mono_ms()
        since_ms = self._since.setdefault(gap, now_ms)
        if len(self._since) > GAPS_MAX:
            del self._since[next(iter(self._since))]  # G2
        return now_ms - since_ms < GAP_MS
