"""Lanes and ages against plain dictionaries."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from raftline.machines.delivery import lanes as lanes_module
from raftline.machines.delivery.ages import SAMPLE_MS, Ages
from raftline.machines.delivery.lanes import Lanes

priorities = st.sampled_from([0, 0, 10, -10, 127, -128])
arrival = st.tuples(st.just("add"), st.integers(1, 5), priorities)
trim = st.tuples(st.just("trim"), st.integers(0, 12), st.just(0))
freeze = st.tuples(st.just("freeze"), st.just(0), st.just(0))


@settings(deadline=None)
@given(st.lists(arrival | arrival | trim | freeze, max_size=60), st.integers(0, 80), st.data())
def test_the_same_as_a_dictionary(steps, start, data):
    fast, naive, end, log_start = Lanes(), dict[int, int](), 0, 0
    held = []
    for verb, number, priority in steps:
        if verb == "add":
            fast.add(end, end + number, priority)
            naive.update(dict.fromkeys(range(end, end + number), priority))
            end += number
        elif verb == "trim":
            log_start = min(end, log_start + number)
            fast.trim(log_start)
            naive = {offset: lane for offset, lane in naive.items() if offset >= log_start}
        else:
            held.append((fast.freeze(), fast.freeze()()))
        fast.check()
    stop = data.draw(st.integers(start, 90))
    start = max(start, log_start)
    stop = max(start, min(stop, end))
    assert fast.lanes() == tuple(sorted({0, *naive.values()}, reverse=True))
    assert [fast.lane_of(o) for o in naive] == list(naive.values())
    for lane in {*fast.lanes(), 5}:
        want = [o for o in range(start, stop) if naive[o] == lane]
        got = list(fast.within(lane, start, stop))
        assert [o for low, high in got for o in range(low, high)] == want
        assert all(one[1] < other[0] for one, other in pairwise(got))
    assert all(join() == at_once for join, at_once in held)  # what is frozen stays as it was
    again = Lanes()
    again.restore(fast.freeze()())
    again.check()
    assert again.freeze()() == fast.freeze()()
    assert again.lanes() == fast.lanes()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), priorities), max_size=60))
def test_the_same_in_small_chunks(rows):
    kept, lanes_module.CHUNK_ROWS = lanes_module.CHUNK_ROWS, 3
    try:
        chunked, end = Lanes(), 0
        for count, priority in rows:
            chunked.add(end, end + count, priority)
            end += count
        chunked.check()
        small = chunked.freeze()()
    finally:
        lanes_module.CHUNK_ROWS = kept
    whole = Lanes()
    whole.restore(small)
    assert whole.freeze()() == small
    for lane in whole.lanes():
        assert list(whole.within(lane, 0, end)) == list(chunked.within(lane, 0, end))
    for below in range(0, end + 2, 5):
        chunked.trim(below)
        whole.trim(below)
        chunked.check()
        assert chunked.freeze()() == whole.freeze()()


def test_a_topic_without_priorities_freezes_to_nothing():
    lanes = Lanes()
    lanes.add(0, 1000, 0)
    assert lanes.freeze()() == b""
    assert lanes.lanes() == (0,)
    lanes.add(1000, 1001, 7)
    lanes.trim(1001)
    assert lanes.freeze()() == b""
    lanes.restore(b"")
    lanes.check()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400)), max_size=200), st.integers(0, 5))
def test_ages_are_never_too_young(arrivals, before):
    ages, truth, at_ms = Ages(before), dict[int, int](), 1000
    end = before
    for count, pause_ms in arrivals:
        at_ms += pause_ms
        truth.update(dict.fromkeys(range(end, end + count), at_ms))
        end += count
        ages.note(end, at_ms)
        ages.check()
    for offset, stored_ms in truth.items():
        assert stored_ms - SAMPLE_MS < ages.at(offset) <= stored_ms
    assert all(ages.at(offset) == 0 for offset in range(before))
    for asked_ms in range(0, at_ms + 500, 333):
        edge = ages.end_at(asked_ms)
        assert all((ages.at(o) <= asked_ms) == (o < edge) for o in range(end))


def test_ages_are_bounded_and_thinned_where_they_are_old():
    ages = Ages()
    for second in range(20_000):
        ages.note(second + 1, second * 1000)
    ages.check()
    assert all(ages.at(o) == o * 1000 for o in range(19_000, 20_000))
    assert all(ages.at(o) <= o * 1000 for o in range(0, 20_000, 97))
    assert ages.at(0) == 0
