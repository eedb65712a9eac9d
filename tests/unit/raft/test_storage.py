"""The log in memory."""

import pytest

from raftline.raft.errors import RaftFault
from raftline.raft.rpc import ConfState, Entry, HardState, Snapshot
from raftline.raft.storage import Compacted, MemoryLog, SnapshotOutdated, Unavailable


def filled() -> MemoryLog:
    log = MemoryLog()
    log.append([Entry(index, index, 0, b"xxxx") for index in range(1, 6)])
    return log


def test_appending_replaces_the_rest() -> None:
    log = filled()
    log.append([Entry(3, 9), Entry(4, 9)])
    assert [entry.term for entry in log.entries(1, 5, 1 << 63)] == [1, 2, 9, 9]
    assert log.last_index() == 4


def test_appending_before_the_start_adds_only_what_is_kept() -> None:
    log = filled()
    log.compact(3)
    log.append([Entry(2, 2), Entry(3, 3)])
    assert log.last_index() == 5
    log.append([Entry(3, 7), Entry(4, 7)])
    assert (log.first_index(), log.last_index(), log.term(4)) == (4, 4, 7)


def test_a_gap_is_a_fault() -> None:
    with pytest.raises(RaftFault):
        filled().append([Entry(7, 1)])


def test_compaction_keeps_one_term() -> None:
    log = filled()
    log.compact(3)
    assert (log.first_index(), log.term(3), log.term(4)) == (4, 3, 4)
    for call, error in (
        (lambda: log.term(2), Compacted),
        (lambda: log.term(6), Unavailable),
        (lambda: log.entries(3, 5, 1), Compacted),
        (lambda: log.entries(4, 7, 1), Unavailable),
        (lambda: log.compact(3), Compacted),
        (lambda: log.compact(6), RaftFault),
    ):
        with pytest.raises(error):
            call()


def test_limits_let_one_entry_through() -> None:
    log = filled()
    assert [len(log.entries(1, 6, limit)) for limit in (0, 10, 19, 20, 50)] == [1, 1, 1, 2, 5]


def test_snapshots() -> None:
    log = filled()
    conf = ConfState((1, 2))
    assert log.create_snapshot(4, conf, b"s") == Snapshot(4, 4, conf, b"s")
    with pytest.raises(SnapshotOutdated):
        log.create_snapshot(4, conf, b"s")
    with pytest.raises(RaftFault):
        log.create_snapshot(6, conf, b"s")
    log.set_hard_state(HardState(5, 1, 5))
    log.apply_snapshot(Snapshot(9, 5, conf))
    assert (log.first_index(), log.last_index(), log.term(9)) == (10, 9, 5)
    assert log.initial_state() == (HardState(5, 1, 5), conf)
    with pytest.raises(SnapshotOutdated):
        log.apply_snapshot(Snapshot(9, 5, conf))
