"""RangeSet against an IntervalSet, which has a naive twin of its own."""

from hypothesis import given
from hypothesis import strategies as st

from raftline.model.intervals import IntervalSet
from raftline.model.range_set import RangeSet

edge = st.integers(0, 30)
step = st.tuples(st.sampled_from(["add", "remove"]), edge, edge)


@given(st.lists(step, max_size=40), edge, edge)
def test_the_same_as_an_interval_set(steps, start, end):
    chunked, plain = RangeSet(), IntervalSet()
    for verb, low, high in steps:
        getattr(chunked, verb)(low, high)
        getattr(plain, verb)(low, high)
        chunked.check()
        assert list(chunked) == list(plain)
    assert (chunked.count(), len(chunked)) == (plain.count(), len(plain))
    assert chunked.overlaps(start, end) == plain.overlaps(start, end)
    assert chunked.covers(start, end) == plain.covers(start, end)
    assert chunked.first_gap(start) == plain.first_gap(start)
    held = list(plain.within(start, end)) if start < end else []
    assert list(chunked.within(start, end)) == held
    assert list(chunked.gaps(start, end)) == list(plain.gaps(start, end))
    assert [n in chunked for n in range(32)] == [n in plain for n in range(32)]
    assert chunked.first() == next(iter(plain), None)
    assert chunked.next_from(start) == next((r for r in plain if r[1] > start), None)
    again = RangeSet([(3, 5)])
    again.restore(b"".join(chunked.freeze()()))
    assert list(again) == list(plain) == list(RangeSet(plain))
