"""Timers: which rows of a group end by themselves, and when. An index over its rows.

State
    Buckets of 64 ms. A bucket counts the messages that wait for a time in it, and has a note
    (time, start) for each row; it is put in order when it is the first. When nobody waits in it
    any more it goes whole: leases settled in time cost nothing later.

Invariants
    N1  Every row that waits has a note. A note without such a row is stale: whoever finds it first
        in order drops it.
    N2  Notes come in the order of (time, start), however they were taken.

It is not part of a snapshot: it follows from the rows.
"""

import heapq
from array import array

BUCKET_BITS = 6  # 64 ms
_OFFSET_MAX = 1 << 57  # notes are packed: start << BUCKET_BITS | time within the bucket
_IN_BUCKET = (1 << BUCKET_BITS) - 1
_SLACK = 64

Note = tuple[int, int]  # time, start


class Bucket:
    """What waits for one span of time."""

    __slots__ = ("count", "notes", "ordered")

    def __init__(self) -> None:
        self.count = 0
        self.notes = array("q")
        self.ordered: list[Note] | None = None  # a heap


class Timers:
    """Times and starts of the rows that wait."""

    __slots__ = ("_buckets", "_order")

    def __init__(self) -> None:
        self._buckets: dict[int, Bucket] = {}
        self._order: list[int] = []  # a heap of bucket numbers; may name some that are gone

    def arm(self, time_ms: int, start: int, count: int) -> None:
        """Let ``count`` more messages wait for ``time_ms``, in a row that begins at ``start``."""
        number = time_ms >> BUCKET_BITS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._add(number)
        bucket.count += count
        if bucket.ordered is None:
            assert start < _OFFSET_MAX, start
            bucket.notes.append(start << BUCKET_BITS | time_ms & _IN_BUCKET)
        else:
            heapq.heappush(bucket.ordered, (time_ms, start))

    def disarm(self, time_ms: int, count: int, rest_start: int = -1) -> None:
        """Let ``count`` messages wait for ``time_ms`` no longer. Notes stay behind.

        Where the rest of their row now begins at ``rest_start`` it gets a note of its own. N1.
        """
        number = time_ms >> BUCKET_BITS
        bucket = self._buckets[number]
        bucket.count -= count
        if not bucket.count:
            del self._buckets[number]
        elif rest_start < 0:
            return
        elif bucket.ordered is None:
            bucket.notes.append(rest_start << BUCKET_BITS | time_ms & _IN_BUCKET)
        else:
            heapq.heappush(bucket.ordered, (time_ms, rest_start))

    def first(self) -> Note | None:
        """Return the first note in order; it may be stale."""
        bucket = self._first_bucket()
        return bucket and _ordered(bucket, self._order[0])[0]

    def pop(self) -> None:
        """Drop the first note."""
        bucket = self._first_bucket()
        assert bucket is not None
        heapq.heappop(_ordered(bucket, self._order[0]))

    def clear(self) -> None:
        """Let nobody wait."""
        self._buckets.clear()
        self._order.clear()

    def notes(self) -> set[Note]:
        """Return all notes, for checks."""
        found: set[Note] = set()
        for number, bucket in self._buckets.items():
            found.update(bucket.ordered or _unpacked(bucket, number))
        return found

    def counts(self) -> dict[int, int]:
        """Return how many messages wait in each bucket, for checks."""
        return {number: bucket.count for number, bucket in self._buckets.items()}

    def _add(self, number: int) -> Bucket:
        bucket = self._buckets[number] = Bucket()
        heapq.heappush(self._order, number)
        if len(self._order) > 2 * len(self._buckets) + _SLACK:
            self._order = sorted(self._buckets)  # a sorted list is a heap
        return bucket

    def _first_bucket(self) -> Bucket | None:
        order = self._order
        while order:
            bucket = self._buckets.get(order[0])
            if bucket is not None:
                return bucket
            heapq.heappop(order)
        return None


def _unpacked(bucket: Bucket, number: int) -> list[Note]:
    base_ms = number << BUCKET_BITS
    return [(base_ms | note & _IN_BUCKET, note >> BUCKET_BITS) for note in bucket.notes]


def _ordered(bucket: Bucket, number: int) -> list[Note]:
    if bucket.ordered is None:
        bucket.ordered = _unpacked(bucket, number)
        heapq.heapify(bucket.ordered)
        bucket.notes = array("q")
    return bucket.ordered
