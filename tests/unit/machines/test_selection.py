"""Choosers: weights, walks that are cut short, lanes in snapshots."""

from itertools import pairwise

import msgspec
import pytest

from raftline.machines.delivery.ages import Ages
from raftline.machines.delivery.commands import Policy
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.lanes import Lanes, LanesState
from raftline.machines.delivery.rows import LEASED, mark_of
from raftline.machines.delivery.selection import AGED, OVERDUE, STEPS_MAX, Choice, Chooser
from raftline.machines.delivery.weights import Stride, weight_of
from raftline.model.errors import NewerFormat
from raftline.model.intervals import IntervalSet
from raftline.model.limits import PRIORITY_MAX, PRIORITY_MIN

NONE = IntervalSet()


def test_the_five_names_have_the_known_weights():
    assert [weight_of(lane) for lane in (20, 10, 0, -10, -20)] == [
        50_000,
        25_000,
        15_000,
        7000,
        3000,
    ]


def test_a_higher_priority_weighs_more():
    weights = [weight_of(lane) for lane in range(PRIORITY_MIN, PRIORITY_MAX + 1)]
    assert all(light < heavy for light, heavy in pairwise(weights))
    assert (weights[0], weights[-1]) == (1000, 100_000)


def test_turns_follow_weights():
    stride, taken = Stride(), {20: 0, 10: 0, 0: 0, -10: 0, -20: 0}
    for _ in range(10_000):
        lane = stride.next(list(taken))
        stride.used(lane, 1)
        taken[lane] += 1
    assert list(taken.values()) == pytest.approx([5000, 2500, 1500, 700, 300], abs=2)


def test_a_walk_over_leases_is_cut_short_and_goes_on():
    """A new leader meets leases of somebody else, each a row of its own."""
    leased = 2 * STEPS_MAX + 100
    group = WorkGroup("g", Policy(), 0, 0)
    for offset in range(leased):
        row = (mark_of(LEASED, 1, 0), offset + 1, 100, 1, 0, 0)
        group.change((offset, offset + 1, None, offset + 1), row)
    chooser, view = Chooser(AGED, 30_000), (group, Lanes(), Ages(), NONE, leased + 5)
    assert chooser.waiting_lane(*view, 1) == PRIORITY_MIN  # perhaps: ask
    assert chooser.choose(*view, 10, 1) == Choice([], [], 0, is_more=True)
    assert chooser.choose(*view, 10, 1) == Choice([leased, leased + 5, 1, 0], [], 5)
    assert chooser.choose(*view, 10, 1) == Choice([], [])
    assert chooser.waiting_lane(*view, 1) is None


def test_the_older_of_two_partitions_is_more_urgent():
    found: list[int | None] = []
    for stored_ms in (1_000, 2_000, 31_500):
        ages = Ages()
        ages.note(1, stored_ms)
        group = WorkGroup("g", Policy(), 0, 0)
        found.append(Chooser(AGED, 30_000).waiting_lane(group, Lanes(), ages, NONE, 1, 33_000))
    assert found == [OVERDUE + 2_000, OVERDUE + 1_000, 0]


def test_lanes_of_a_newer_build_are_refused():
    data = msgspec.msgpack.encode(LanesState(2, []))
    with pytest.raises(NewerFormat):
        Lanes().restore(data)


def test_the_bytes_of_lanes_are_fixed():
    lanes = Lanes()
    lanes.add(0, 2, 10)
    lanes.add(2, 3, -10)
    lanes.add(5, 6, 10)
    number = lambda *values: b"".join(v.to_bytes(8, "little") for v in values)  # noqa: E731
    assert msgspec.msgpack.decode(lanes.freeze()()) == [
        1,
        [
            [0, number(0, 5), number(3, 6)],
            [-10, number(2), number(3)],
            [10, number(0, 5), number(2, 6)],
        ],
    ]


def test_first_and_again_are_told_in_the_order_they_were_chosen_in():
    choice = Choice([], [])
    runs = [(0, 2, 1, 0, False), (2, 3, 2, 0, True), (3, 4, 2, 0, True), (4, 5, 1, 0, False)]
    for run in (*runs, (5, 7, 1, 0, False), (9, 10, 3, 0, True)):
        choice.add(run)
    assert (choice.first, choice.again) == ([0, 2, 1, 0, 4, 7, 1, 0], [2, 4, 2, 0, 9, 10, 3, 0])
    assert choice.spans() == [0, 2, 1, 0, 2, 4, 2, 0, 4, 7, 1, 0, 9, 10, 3, 0]
    assert choice.count == 8
