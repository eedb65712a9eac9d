"""The log: its unstable tail, its marks, and its guesses."""

import pytest

from raftline.raft.errors import RaftFault
from raftline.raft.log import NO_TERM, RaftLog
from raftline.raft.rpc import ConfState, Entry, Snapshot
from raftline.raft.storage import Compacted, MemoryLog


def entries(start: int, *terms: int) -> list[Entry]:
    return [Entry(start + at, term, 0, b"x" * 10) for at, term in enumerate(terms)]


def log_of(*terms: int, **options: int) -> RaftLog:
    """Return a log whose entries 1, 2, ... have ``terms`` and are durable."""
    storage = MemoryLog()
    storage.append(entries(1, *terms))
    return RaftLog(storage, **options)


def test_a_write_of_a_replaced_tail_does_not_count() -> None:
    log = log_of(1)
    log.append(entries(2, 2))
    assert log.take_unwritten() == entries(2, 2)
    log.append(entries(2, 3, 3))
    log.stable_to(2, 2)
    assert (log.offset, log.unstable) == (2, entries(2, 3, 3))
    assert log.take_unwritten() == entries(2, 3, 3)
    log.stable_to(3, 3)
    assert (log.offset, log.unstable, log.last_index, log.last_term) == (4, [], 3, 3)


def test_a_tail_is_handed_out_once() -> None:
    log = log_of()
    log.append(entries(1, 1, 1))
    assert log.take_unwritten() == entries(1, 1, 1)
    assert log.take_unwritten() == []
    log.append(entries(3, 1))
    assert log.take_unwritten() == entries(3, 1)
    log.append(entries(2, 2))
    assert log.take_unwritten() == entries(2, 2)
    assert log.last_index == 2


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (entries(2, 1, 1), [1, 1, 1, 2]),
        (entries(3, 1, 2, 2), [1, 1, 1, 2, 2]),
        (entries(3, 3), [1, 1, 3]),
        (entries(5, 5), [1, 1, 1, 2, 5]),
    ],
)
def test_merging_keeps_what_agrees(given: list[Entry], kept: list[int]) -> None:
    log = log_of(1, 1, 1, 2)
    log.merge(given)
    assert [log.term_at(index) for index in range(1, log.last_index + 1)] == kept


def test_terms_outside_the_log_are_unknown() -> None:
    log = log_of(1, 2, 2)
    assert isinstance(log.storage, MemoryLog)
    log.storage.compact(2)
    assert [log.term_at(index) for index in range(6)] == [
        NO_TERM, NO_TERM, 2, 2, NO_TERM, NO_TERM,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("index", "term", "guess"),
    [(9, 5, (9, 0)), (6, 9, (6, 5)), (6, 4, (4, 3)), (6, 2, (1, 1)), (6, 0, (0, 0))],
)
def test_guesses_skip_terms(index: int, term: int, guess: tuple[int, int]) -> None:
    assert log_of(1, 3, 3, 3, 5, 5).guess_match(index, term) == guess


def test_slices_cross_from_storage_into_the_tail_within_limits() -> None:
    log = log_of(1, 1)
    log.append(entries(3, 1, 1))
    assert len(log.slice(1, 5, 1 << 63)) == 4
    assert len(log.slice(1, 5, 16)) == 1
    assert len(log.slice(1, 5, 33)) == 2
    assert len(log.slice(1, 5, 50)) == 3
    assert len(log.slice(1, 5, 1)) == 1
    with pytest.raises(RaftFault):
        log.slice(1, 6, 1)


def test_applying_waits_for_durability_and_for_room() -> None:
    log = log_of(1, 1, applying_bytes_max=20)
    log.append(entries(3, 1))
    log.commit_to(3)
    assert len(log.take_committed(unstable_too=False)) == 1
    assert not log.has_committed(unstable_too=False)
    log.applied_to(1, 16)
    assert [entry.index for entry in log.take_committed(unstable_too=False)] == [2]
    log.applied_to(2, 16)
    assert not log.has_committed(unstable_too=False)
    assert log.has_committed(unstable_too=True)


def test_marks_never_pass_the_end() -> None:
    log = log_of(1, 1)
    with pytest.raises(RaftFault):
        log.commit_to(3)
    log.commit_to(1)
    with pytest.raises(RaftFault):
        log.applied_to(2, 0)
    assert (log.commit, log.applied) == (1, 0)


def test_a_snapshot_replaces_everything() -> None:
    log = log_of(1, 1)
    snapshot = Snapshot(9, 4, ConfState((1,)))
    log.restore(snapshot)
    assert (log.commit, log.last_index, log.last_term, log.first_index()) == (9, 9, 4, 10)
    assert (log.term_at(9), log.term_at(2)) == (4, NO_TERM)
    assert not log.has_committed(unstable_too=True)
    with pytest.raises(Compacted):
        log.slice(2, 3, 1)
    assert log.unwritten_snapshot() is snapshot
    log.stable_snapshot_to(8)
    assert log.snapshot is snapshot
    log.stable_snapshot_to(9)
    assert log.snapshot is None
