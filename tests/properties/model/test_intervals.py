"""IntervalSet against a plain set of integers."""

from hypothesis import given
from hypothesis import strategies as st

from raftline.model.intervals import IntervalSet

edge = st.integers(-3, 30)
step = st.tuples(st.sampled_from(["add", "remove"]), edge, edge)


@given(st.lists(step, max_size=40), edge, edge)
def test_the_same_as_a_set(steps, start, end):
    fast, naive = IntervalSet(), set[int]()
    for verb, low, high in steps:
        asked = set(range(low, high))
        if verb == "add":
            assert fast.add(low, high) == len(asked - naive)
            naive |= asked
        else:
            assert fast.remove(low, high) == len(asked & naive)
            naive -= asked
        fast.check()
        assert [n for low_, high_ in fast for n in range(low_, high_)] == sorted(naive)
    asked = set(range(start, end))
    assert fast.count() == len(naive)
    assert [n in fast for n in range(-5, 35)] == [n in naive for n in range(-5, 35)]
    assert fast.overlaps(start, end) == bool(asked & naive)
    assert fast.covers(start, end) == (asked <= naive)
    assert fast.first_gap(start) == next(n for n in range(start, 100) if n not in naive)
    assert spread(fast.within(start, end)) == sorted(asked & naive)
    assert spread(fast.gaps(start, end)) == sorted(asked - naive)
    assert IntervalSet(fast) == fast == fast.copy()


def spread(ranges) -> list[int]:
    return [n for low, high in ranges for n in range(low, high)]


def test_a_copy_is_independent():
    first = IntervalSet([(0, 5)])
    second = first.copy()
    second.add(5, 6)
    assert list(first) == [(0, 5)]
    assert list(second) == [(0, 6)]
    assert len(second) == 1
