"""Producers: who sent what last, so that a repeated batch is stored once.

State
    For each producer id: its epoch, the log time of its last stored batch, and up to five batches
    as (first sequence, last sequence, base offset). Kept in the order of their last stored batch.

Invariants
    Q1  Sequences of one producer and epoch are stored without gap and without repeat.
    Q2  A repeat of one of the last five batches (same first and last sequence) gets the offset of
        the first time and stores nothing.
    Q3  An epoch never goes back; a new epoch starts at sequence 0.
    Q4  At most ``PRODUCERS_MAX`` are kept. The longest silent go first: past the bound at once,
        after ``PRODUCER_EXPIRE_MS`` of log time a few per entry.

A sequence other than 0 from a producer that is not known
    Kafka accepts it always, because its broker may have forgotten the producer. That also accepts
    the second batch of a new producer whose first one was refused, and so reorders. We accept it
    only if this partition has forgotten a producer with that id or a higher one (ids are given in
    rising order), so it may indeed have been known; else ``unknown_producer``, on which clients
    start a new epoch at 0.

Sequences wrap: 2^31 - 1 is followed by 0.
"""

from collections.abc import Iterator

from raftline.model.errors import FencedProducer, OutOfOrder, RaftlineError, UnknownProducer
from raftline.model.limits import (
    PRODUCER_BATCHES,
    PRODUCER_EXPIRE_MS,
    PRODUCER_EXPIRE_PER_APPLY,
    PRODUCERS_MAX,
    SEQUENCE_MODULUS,
)

SentBatch = tuple[int, int, int]  # first sequence, last sequence, base offset
ProducerState = tuple[int, int, int, list[SentBatch]]  # id, epoch, last_ms, batches oldest first

_SEQUENCE_MASK = SEQUENCE_MODULUS - 1


class Producer:
    """One producer's last batches."""

    __slots__ = ("batches", "epoch", "last_ms", "next_sequence")

    def __init__(self, epoch: int, next_sequence: int) -> None:
        self.epoch = epoch
        self.next_sequence = next_sequence
        self.last_ms = 0
        self.batches: list[SentBatch] = []


class Producers:
    """The producers one partition knows."""

    __slots__ = ("_by_id", "_forgotten_id_max", "_producers_max")

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._by_id: dict[int, Producer] = {}
        self._forgotten_id_max = -1
        self._producers_max = producers_max

    def admit(self, producer: int, epoch: int, sequence: int, count: int) -> int | RaftlineError:
        """Decide on a batch: -1 to store it, the first offset of a repeat, or a refusal.

        Changes nothing. ``stored`` follows if the batch is stored.
        """
        known = self._by_id.get(producer)
        if known is None:
            if sequence and producer > self._forgotten_id_max:
                return UnknownProducer(producer, sequence)
            return -1
        if epoch != known.epoch:
            if epoch < known.epoch:
                return FencedProducer(producer, epoch, known.epoch)  # Q3
            return OutOfOrder(producer, epoch, sequence, 0) if sequence else -1
        if sequence == known.next_sequence:
            return -1
        last = (sequence + count - 1) & _SEQUENCE_MASK
        for first_sequence, last_sequence, base_offset in known.batches:
            if first_sequence == sequence and last_sequence == last:
                return base_offset  # Q2
        return OutOfOrder(producer, epoch, sequence, known.next_sequence)  # Q1

    def stored(
        self, producer: int, epoch: int, sequence: int, count: int, base_offset: int, at_ms: int
    ) -> None:
        """Remember a batch that ``admit`` let through."""
        known = self._by_id.pop(producer, None)
        if known is None or known.epoch != epoch:
            known = Producer(epoch, sequence)
        last = (sequence + count - 1) & _SEQUENCE_MASK
        batches = known.batches
        if len(batches) == PRODUCER_BATCHES:
            del batches[0]
        batches.append((sequence, last, base_offset))
        known.next_sequence = (last + 1) & _SEQUENCE_MASK
        known.last_ms = at_ms
        self._by_id[producer] = known  # last in order: the last to be forgotten
        if len(self._by_id) > self._producers_max:
            self._forget_first()

    def expire(self, at_ms: int) -> None:
        """Forget a few of those that are silent for too long. Q4."""
        oldest_ms = at_ms - PRODUCER_EXPIRE_MS
        for _ in range(PRODUCER_EXPIRE_PER_APPLY):
            first = next(iter(self._by_id.values()), None)
            if first is None or first.last_ms > oldest_ms:
                return
            self._forget_first()

    def state(self) -> tuple[int, list[ProducerState]]:
        """Return all there is to know, in order."""
        rows = [(i, p.epoch, p.last_ms, p.batches.copy()) for i, p in self._by_id.items()]
        return self._forgotten_id_max, rows

    def restore(self, state: tuple[int, list[ProducerState]]) -> None:
        """Take over what ``state`` returned elsewhere."""
        self._forgotten_id_max, rows = state
        self._by_id = {}
        for producer, epoch, last_ms, batches in rows:
            known = Producer(epoch, (batches[-1][1] + 1) & _SEQUENCE_MASK)
            known.last_ms = last_ms
            known.batches = [(first, last, offset) for first, last, offset in batches]
            self._by_id[producer] = known

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert len(self._by_id) <= self._producers_max  # Q4
        last_ms = 0
        for known in self._by_id.values():
            assert last_ms <= known.last_ms, "order of last use"
            last_ms = known.last_ms
            assert 0 < len(known.batches) <= PRODUCER_BATCHES
            expected, offset = known.batches[0][0], -1
            for first, last, base_offset in known.batches:
                assert first == expected, known.batches  # Q1
                assert base_offset >= offset, known.batches  # equal: a parcel without offsets
                expected, offset = (last + 1) & _SEQUENCE_MASK, base_offset
            assert expected == known.next_sequence

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_id)

    def _forget_first(self) -> None:
        producer = next(iter(self._by_id))
        del self._by_id[producer]
        self._forgotten_id_max = max(self._forgotten_id_max, producer)
