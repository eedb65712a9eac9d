"""Log time: stamps that never go back, jump or stop. T1-T5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftline.node.log_time import (
    BEATS,
    CLOCK_OFFSET_MS_MAX,
    LEAP_MS,
    ClusterTime,
    LogTime,
)
from tests.unit.node.little_ports import HandClock


def leading() -> tuple[HandClock, ClusterTime, LogTime]:
    clock = HandClock()
    cluster = ClusterTime(clock)
    time = LogTime(clock, cluster)
    time.lead()
    return clock, cluster, time


def test_in_step_it_runs_with_cluster_time() -> None:
    clock, cluster, time = leading()
    for _ in range(10):
        clock.advance(37)
        assert time.stamp() == cluster.now_ms()


@pytest.mark.parametrize(
    ("jump_ms", "expected_ms"), [(60_000, 1_100), (-60_000, 500), (30, 1_030), (-300, 700)]
)
def test_a_jump_of_cluster_time_is_met_by_running_faster_or_slower(
    jump_ms: int, expected_ms: int
) -> None:
    """T2: at most 10 % fast when behind, half speed when ahead, until they meet."""
    clock, _, time = leading()
    before = time.stamp()
    clock.wall_ahead_ms += jump_ms
    clock.advance(1_000)
    assert time.stamp() - before == pytest.approx(expected_ms, abs=1)


def test_a_new_leader_begins_at_cluster_time_unless_the_log_is_ahead() -> None:
    clock, cluster, time = leading()
    ahead = cluster.now_ms() + 5_000
    time.observe(ahead)
    time.lead()
    assert time.stamp() == ahead
    behind = LogTime(clock, cluster)
    behind.recall(cluster.now_ms() - 3_000)
    behind.lead()
    assert behind.stamp() == cluster.now_ms()


def test_a_new_leader_goes_on_where_its_predecessor_was_behind() -> None:
    """T5: what was to wait for two seconds is not due at once because somebody else leads."""
    clock, cluster, _ = leading()
    time = LogTime(clock, cluster)
    time.recall(cluster.now_ms() - 60_000)
    stamped = cluster.now_ms() - 1_845  # its cluster time was wrong
    time.observe(stamped)
    clock.advance(400)
    time.lead()
    assert time.stamp() == stamped + 400
    clock.advance(1_000)
    assert time.stamp() == pytest.approx(stamped + 400 + 1_100, abs=1)


def test_a_new_leader_that_is_far_behind_starts_at_cluster_time() -> None:
    """T5: it caught up with old entries, and nobody counted the time since."""
    clock, cluster, _ = leading()
    time = LogTime(clock, cluster)
    time.observe(cluster.now_ms() - LEAP_MS - 1)
    time.lead()
    assert time.stamp() == cluster.now_ms()


def test_heartbeats_that_come_late_do_not_turn_cluster_time_back() -> None:
    """T4: they queued behind a busy turn or a lost packet, and come in one go."""
    clock = HandClock()
    cluster = ClusterTime(clock)
    cluster.heard(2, clock.wall_ms() - 3_700)
    assert cluster.offset_ms() == -1_850, "one alone cannot be told from a clock that is behind"
    for late_ms in (2_000, 400, 30, 900):
        cluster.heard(2, clock.wall_ms() - late_ms)
    assert cluster.offset_ms() == -15
    for _ in range(BEATS):
        cluster.heard(2, clock.wall_ms() - 2_000)
    assert cluster.offset_ms() == -1_000, "its clock went back"


def test_what_the_log_says_is_never_undercut_by_an_old_entry() -> None:
    _, cluster, time = leading()
    now = time.stamp()
    time.observe(now - 10_000)
    assert time.stamp() >= now
    assert cluster.now_ms() == now


@given(
    st.lists(
        st.tuples(st.floats(0, 5_000), st.floats(-100_000, 100_000), st.booleans()), max_size=40
    )
)
def test_stamps_never_go_back_nor_run_wild(steps: list[tuple[float, float, bool]]) -> None:
    """T1 and T2, whatever the wall clock does; a stamp may be one rounding off."""
    clock, _, time = leading()
    last = time.stamp()
    for elapsed_ms, jump_ms, again in steps:
        clock.wall_ahead_ms += jump_ms
        clock.advance(elapsed_ms)
        stamp = time.stamp()
        assert last + elapsed_ms * 0.5 - 1 <= stamp <= last + elapsed_ms * 1.1 + 1
        assert not again or time.stamp() == stamp
        last = stamp


@pytest.mark.parametrize(
    ("peers_ahead_ms", "median_ms"),
    [([], 0), ([40], 20), ([40, 60], 40), ([900_000, 10], 10), ([-900_000, -800_000, 5, 7], 0)],
)
def test_cluster_time_is_the_median(peers_ahead_ms: list[int], median_ms: int) -> None:
    """T3: one wrong clock moves nothing."""
    clock = HandClock()
    cluster = ClusterTime(clock)
    for node, ahead in enumerate(peers_ahead_ms, start=2):
        cluster.heard(node, clock.wall_ms() + ahead)
    assert cluster.offset_ms() == median_ms
    assert cluster.now_ms() == clock.wall_ms() + median_ms
    for node, ahead in enumerate(peers_ahead_ms, start=2):
        assert cluster.offset_of(node) == ahead - median_ms


def test_our_own_jump_between_two_heartbeats_moves_nothing() -> None:
    """T3: a leader elected right then would else stamp the jump into the log for ever."""
    clock = HandClock()
    cluster = ClusterTime(clock)
    before = clock.wall_ms()
    cluster.heard(2, before)
    cluster.heard(3, before)
    clock.wall_ahead_ms = 3_600_000
    clock.advance(50)
    assert cluster.now_ms() == before + 50
    time = LogTime(clock, cluster)
    time.lead()
    assert time.stamp() == before + 50
    assert not cluster.healthy()


def test_a_clock_that_is_off_makes_a_node_unhealthy_if_two_others_say_so() -> None:
    clock = HandClock()
    cluster = ClusterTime(clock)
    off = CLOCK_OFFSET_MS_MAX + 1
    cluster.heard(2, clock.wall_ms() + off)
    assert cluster.healthy(), "one other clock proves nothing"
    cluster.heard(3, clock.wall_ms() + off)
    assert not cluster.healthy()
    cluster.forget(3)
    assert cluster.healthy()
