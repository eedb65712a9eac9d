"""Gaps in the numbers of producers: passing at first, told when they last."""

from raftline.gateways.kafka.gaps import GAP_MS, GAPS_MAX, Gaps
from raftline.model.errors import NotLeader, OutOfOrder, RaftlineError, UnknownProducer
from raftline.model.limits import SEQUENCE_MODULUS


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_ms = 5.0

    def mono_ms(self) -> float:
        return self.now_ms


def passing(gaps: Gaps, error: RaftlineError, partition: int = 0) -> bool:
    return gaps.is_passing("t", partition, error)


def ahead(sequence: int = 20, expected: int = 10, producer: int = 7) -> OutOfOrder:
    return OutOfOrder(producer, 0, sequence, expected)


def made() -> tuple[Gaps, Clock]:
    clock = Clock()
    return Gaps(clock), clock  # type: ignore[arg-type]


def test_a_gap_passes_until_it_lasts():
    gaps, clock = made()
    assert passing(gaps, ahead())
    clock.now_ms += GAP_MS - 1
    assert passing(gaps, ahead(sequence=30)), "the same number is missing"
    clock.now_ms += 1
    assert not passing(gaps, ahead())
    assert passing(gaps, ahead(), partition=1)
    assert passing(gaps, ahead(producer=8))


def test_a_gap_that_was_filled_is_not_the_next_one():
    gaps, clock = made()
    assert passing(gaps, ahead())
    clock.now_ms += 2 * GAP_MS
    assert passing(gaps, ahead(sequence=40, expected=30))


def test_who_is_not_known_yet_may_have_been_refused():
    gaps, clock = made()
    assert passing(gaps, UnknownProducer(7, 10))
    clock.now_ms += GAP_MS
    assert not passing(gaps, UnknownProducer(7, 20))


def test_numbers_wrap():
    gaps, _ = made()
    assert passing(gaps, ahead(sequence=3, expected=SEQUENCE_MODULUS - 5))
    assert not passing(gaps, ahead(sequence=SEQUENCE_MODULUS - 5, expected=3))


def test_a_number_from_before_is_no_gap():
    gaps, _ = made()
    assert not passing(gaps, ahead(sequence=5, expected=60))
    assert not passing(gaps, NotLeader("t/0", 2))


def test_few_are_kept():
    gaps, clock = made()
    for producer in range(GAPS_MAX + 1):
        assert passing(gaps, ahead(producer=producer))
    clock.now_ms += GAP_MS
    assert passing(gaps, ahead(producer=0)), "forgotten"
    assert not passing(gaps, ahead(producer=GAPS_MAX))
