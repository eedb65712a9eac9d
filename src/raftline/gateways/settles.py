"""From lease tokens to settles of ranges, and from their outcomes back to one verdict a token."""

from collections.abc import Callable, Sequence

from raftline.gateways.lease_tokens import LeaseToken
from raftline.machines.delivery.commands import Settle
from raftline.model.calls import Settled
from raftline.model.errors import LeaseLost, RaftlineError, TimedOut
from raftline.model.intervals import IntervalSet

Row = tuple[LeaseToken, int, int, str]  # token, verb, delay_ms, reason
Place = tuple[str, int]  # topic, partition
_Key = tuple[str, int, str, int, int, int, int, int, int, str]
"""all that the tokens of one settle share"""


def merge_ranges(ranges: Sequence[int]) -> list[int]:
    """Return flat ranges with neighbours joined, in the order they came."""
    merged: list[int] = []
    for at in range(0, len(ranges) - 1, 2):
        start, end = ranges[at], ranges[at + 1]
        if merged and merged[-1] == start:
            merged[-1] = end
        else:
            merged += (start, end)
    return merged


def settles_of(rows: Sequence[Row]) -> dict[Place, list[Settle]]:
    """Return one settle per lease, attempt and way of settling, by partition."""
    offsets: dict[_Key, list[int]] = {}
    for row in rows:
        offsets.setdefault(_key_of(row), []).append(row[0].offset)
    places: dict[Place, list[Settle]] = {}
    for key, found in offsets.items():
        topic, partition, group, verb, term, sequence, attempt, generation, delay_ms, reason = key
        once = sorted(set(found))  # a token that is named twice is settled once
        ranges = merge_ranges([edge for offset in once for edge in (offset, offset + 1)])
        settle = Settle(group, verb, term, sequence, attempt, generation, ranges, delay_ms, reason)
        places.setdefault((topic, partition), []).append(settle)
    return places


class Verdicts:
    """Gathers what became of every token of a request."""

    __slots__ = ("_done", "_failed", "_lost", "_missing", "_rows", "_untold")

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._lost: dict[_Key, IntervalSet] = {}
        self._failed: dict[Place, RaftlineError] = {}
        self._untold: dict[_Key, tuple[IntervalSet, RaftlineError]] = {}  # of calls done in part
        self._missing = 0
        self._done: Callable[[list[RaftlineError | None]], None]

    def expect(self, count: int, done: Callable[[list[RaftlineError | None]], None]) -> None:
        """Call ``done`` with one verdict a row after ``count`` partitions answered."""
        self._missing = count
        self._done = done

    def taker(
        self, topic: str, partition: int, settles: Sequence[Settle]
    ) -> Callable[[Settled | RaftlineError], None]:
        """Return who hears of one partition."""

        def take(answer: Settled | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                self._failed[topic, partition] = answer
            else:
                for settle, lost in zip(settles, answer.lost, strict=True):
                    if lost:
                        self._lost[_key_in(topic, partition, settle)] = _set_of(lost)
                for settle, failed in zip(settles, answer.failed, strict=False):
                    if failed and answer.error is not None:
                        error = RaftlineError.from_wire(answer.error)
                        key = _key_in(topic, partition, settle)
                        self._untold[key] = (_set_of(failed), error)
            self._missing -= 1
            if not self._missing:
                self._done([self._verdict(row) for row in self._rows])

        return take

    def _verdict(self, row: Row) -> RaftlineError | None:
        token = row[0]
        failed = self._failed.get((token.topic, token.partition))
        if failed is not None:
            return failed
        lost = self._lost.get(_key_of(row)) if self._lost else None
        if lost is not None and token.offset in lost:
            return LeaseLost(f"{token.topic}/{token.partition}@{token.offset}")
        untold = self._untold.get(_key_of(row)) if self._untold else None
        if untold is not None and token.offset in untold[0]:
            return untold[1]
        return None


def done_in_part(settled: Settled) -> RaftlineError | None:
    """Return the refusal of a call that ended in the midst, for who hears one word for all.

    Nobody can say then that nothing was done, whatever stopped it: the effect is unknown.
    """
    if settled.error is None:
        return None
    why = RaftlineError.from_wire(settled.error)
    count = sum(sum(ranges[1::2]) - sum(ranges[::2]) for ranges in settled.failed)
    message = f"a settle was done in part; {count} messages were left: {why.message}"
    hint = "send it again: lease_lost then means that it was done, or that the lease ended"
    return RaftlineError.from_wire((TimedOut.code, message, hint, {}))


def _key_in(topic: str, partition: int, settle: Settle) -> _Key:
    return (
        topic,
        partition,
        settle.group,
        settle.verb,
        settle.term,
        settle.sequence,
        settle.attempt,
        settle.generation,
        settle.delay_ms,
        settle.reason,
    )


def _set_of(flat: Sequence[int]) -> IntervalSet:
    return IntervalSet(zip(flat[::2], flat[1::2], strict=True))


def _key_of(row: Row) -> _Key:
    token, verb, delay_ms, reason = row
    return (
        token.topic,
        token.partition,
        token.group,
        verb,
        token.term,
        token.sequence,
        token.attempt,
        token.generation,
        delay_ms,
        reason,
    )
