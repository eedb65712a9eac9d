"""What a leader knows of a replica, and how much it may send."""

import pytest

from raftline.raft.progress import Inflights, Progress, ProgressState


def progress(next_index: int = 5, count_max: int = 3, bytes_max: int = 0) -> Progress:
    return Progress(next_index, Inflights(count_max, bytes_max), is_learner=False)


def test_a_probe_waits_for_its_answer() -> None:
    p = progress()
    p.sent_entries(0, 0)
    assert not p.is_paused()
    p.sent_entries(2, 20)
    assert p.is_paused()
    assert p.next == 5
    assert p.update(4)
    assert not p.is_paused()


def test_a_pipeline_is_bounded_by_count_and_by_bytes() -> None:
    by_count = progress(count_max=2)
    by_bytes = progress(count_max=9, bytes_max=100)
    for p in (by_count, by_bytes):
        p.update(4)
        p.become_replicate()
        p.sent_entries(1, 60)
        assert not p.is_paused()
        p.sent_entries(1, 60)
        assert p.is_paused()
        assert p.next == 7
        p.update(5)
        p.inflights.free_to(5)
        assert not p.inflights.is_full()
        assert p.inflights.bytes == 60


def test_a_rejection_that_is_old_changes_nothing() -> None:
    p = progress(next_index=10)
    p.update(3)
    p.become_replicate()
    assert not p.back_off(3, 2)
    p.become_probe()
    p.next = 8
    assert not p.back_off(9, 2)
    assert p.next == 8
    assert p.back_off(7, 5)
    assert p.next == 6
    assert p.back_off(5, 0)
    assert p.next == 4  # never below what matches


def test_a_probe_whose_match_is_denied_waits_for_the_next_heartbeat() -> None:
    """The answer is old, or the replica lost what it had: the same append again helps neither."""
    p = progress(next_index=10)
    p.update(6)
    p.become_probe()
    p.sent_entries(1, 100)
    assert not p.back_off(6, 5)
    assert p.next == 7
    assert p.is_paused()


def test_a_snapshot_moves_the_probe_behind_it() -> None:
    p = progress()
    p.become_snapshot(20)
    assert p.is_paused()
    assert p.state == ProgressState.SNAPSHOT
    p.become_probe()
    assert (p.next, p.pending_snapshot, p.sent_commit) == (21, 0, 20)
    p.become_snapshot(30)
    p.pending_snapshot = 0  # it failed
    p.become_probe()
    assert p.next == 1


@pytest.mark.parametrize(
    ("commit", "sent", "next_index", "can"), [(5, 3, 9, True), (5, 5, 9, False), (5, 3, 4, False)]
)
def test_the_commit_mark_is_sent_where_it_is_news(
    commit: int, sent: int, next_index: int, can: bool
) -> None:
    p = progress(next_index)
    p.sent_commit = sent
    assert p.can_bump_commit(commit) is can
