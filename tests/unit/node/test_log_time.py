"""Log time: stamps that never go back, jump or stop. T1-T5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftline.node.log_time import BEATS, CLOCK_OFFSET_MS_MAX, ClusterTime, LogTime
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
    behind.observe(cluster.now_ms() - 5_000)
    behind.lead()
    assert behind.stamp() == cluster.now_ms()


def test_who_was_not_told_yet_that_it_leads_does_not_go_on_from_the_last_entry() -> None:
    """T5: after an hour without a leader a delay of half an hour was over at once."""
    clock, cluster, time = leading()
    restarted = LogTime(clock, cluster)
    for follower in (restarted, time):
        follower.follow()
        follower.observe(cluster.now_ms() - 3_600_000)
        assert follower.stamp() == cluster.now_ms()
        follower.lead()
        assert follower.stamp() == cluster.now_ms()


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


def beats(clock: HandClock, cluster: ClusterTime, count: int, *, late_ms: float = 0) -> None:
    """Hear heartbeats of node 2, whose monotonic clock is its own and whose wall clock is ours."""
    for _ in range(count):
        clock.advance(100)
        cluster.heard(2, int(clock.wall_ms() - late_ms), clock.mono_ms() + 7_000 - late_ms)


def test_late_heartbeats_do_not_look_like_a_clock_that_is_behind() -> None:
    """T4: they waited behind a busy turn or a lost packet."""
    clock = HandClock()
    cluster = ClusterTime(clock)
    beats(clock, cluster, 5)
    assert cluster.offset_ms() == 0
    for late_ms in (3_700, 900, 30):
        beats(clock, cluster, 1, late_ms=late_ms)
        assert abs(cluster.offset_ms()) <= 1
    beats(clock, cluster, BEATS, late_ms=300)  # a slow link: half of its delay, as for any pair
    assert cluster.offset_ms() == -150


def test_what_waited_in_a_socket_while_both_began_says_nothing() -> None:
    """T4: a leader that took it for the peer's clock stamped 1.8 s too low; the next one leapt."""
    clock = HandClock()
    cluster = ClusterTime(clock)
    for late_ms in (3_900, 3_800, 3_700):
        cluster.heard(2, int(clock.wall_ms() - late_ms), clock.mono_ms() + 7_000 - late_ms)
        assert cluster.offset_ms() == 0
    beats(clock, cluster, 1)
    assert cluster.offset_ms() == 0


def test_a_peers_clock_that_jumps_and_comes_back_is_believed_at_once() -> None:
    """T4 is about monotonic clocks: a wall clock is as the last heartbeat says."""
    clock = HandClock()
    cluster = ClusterTime(clock)
    beats(clock, cluster, 5)
    cluster.heard(2, clock.wall_ms() + 120_000, clock.mono_ms() + 7_000)
    assert cluster.offset_ms() == 60_000
    beats(clock, cluster, 1)
    assert cluster.offset_ms() == 0


def test_another_process_of_a_peer_begins_anew() -> None:
    clock = HandClock()
    cluster = ClusterTime(clock)
    beats(clock, cluster, 5)
    cluster.forget(2)
    for _ in range(3):  # another machine: its monotonic clock is another one, and behind
        clock.advance(100)
        cluster.heard(2, clock.wall_ms() + 40, clock.mono_ms() - 90_000)
    assert cluster.offset_ms() == 20


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
