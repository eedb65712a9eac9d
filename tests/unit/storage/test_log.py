"""The log as its users see it: append, flush, read, sync, and a disk that refuses."""

import errno
import random
import time

import pytest

from raftline.storage.log import PartitionLog
from raftline.storage.log_words import LogSettings, LogStopped, StaleJob, SyncFailed
from raftline.storage.os_disk import OsDisk
from raftline.testing.sim_disk import SimDisk
from tests.unit.storage.log_twin import IDENTITY, SMALL, Twin, make_batch, placed


@pytest.fixture(params=["sim", "os"])
def disk(request, tmp_path):
    return SimDisk(random.Random(7)) if request.param == "sim" else OsDisk(str(tmp_path / "data"))


def fill(twin: Twin, rounds: int = 60) -> None:
    for i in range(rounds):
        twin.append(200 + i * 300, 100)
        if i % 7 == 0:
            twin.flush()


def test_reads_give_back_what_was_appended(disk) -> None:
    twin = Twin(disk)
    fill(twin)
    twin.check_reads()
    twin.flush_all()
    twin.check_reads()
    assert twin.log.tail_bytes <= SMALL.tail_bytes
    assert twin.log.bytes == sum(len(row.data) for row in twin.rows)
    assert len(twin.log._files.segments) > 1


def test_a_batch_gets_a_fresh_head_and_keeps_its_bytes() -> None:
    twin = Twin()
    batch = make_batch(4, 500, 77)
    assert twin.log.append(0, 9, 1, [(batch, 4, 77), (memoryview(batch), 4, 77)]) == 8
    want = placed(batch, 0, 9) + placed(batch, 4, 9)
    assert b"".join(twin.log.read_tail(3, 1 << 20)) == want
    assert b"".join(twin.log.read_tail(3, 0)) == placed(batch, 0, 9)
    assert b"".join(twin.log.read_tail(0, 1 << 20, 4)) == placed(batch, 0, 9)
    assert twin.log.read_tail(8, 100) == []


def test_a_gap_is_refused() -> None:
    twin = Twin()
    with pytest.raises(AssertionError):
        twin.log.append(1, 1, 1, [(make_batch(1, 100, 0), 1, 0)])


def test_cached_reads_wait_for_verification() -> None:
    twin = Twin()
    fill(twin)
    twin.flush_all()
    assert twin.log.read_tail(0, 5000) is None
    assert twin.log.read_cached(0, 5000) is None  # never verified
    assert twin.read(0, 5000)
    assert twin.log.read_cached(0, 5000) is not None


def test_a_batch_larger_than_any_bound() -> None:
    twin = Twin()
    twin.append(100, 900_000, 100)
    twin.append(700_000)
    twin.flush_all()
    twin.append(40_000)
    twin.flush_all()
    twin.check_reads(bytes_max=10)
    assert twin.read(3, 10) == twin.rows[1].data


def test_a_flush_is_due_by_bytes_or_by_time() -> None:
    twin = Twin()
    assert not twin.log.needs_flush(0)
    twin.append(100)
    assert not twin.log.needs_flush(1000)
    assert not twin.log.needs_flush(1019)
    assert twin.log.needs_flush(1020)
    twin.append(60_000)
    assert twin.log.needs_flush(0)
    flush = twin.log.take_flush()
    assert flush is not None
    assert twin.log.take_flush() is None
    assert not twin.log.needs_flush(99999)
    twin.log.write_flush(flush)
    twin.log.flushed(flush)
    assert twin.log.take_flush() is None


def test_a_sync_carries_what_a_flush_in_flight_holds() -> None:
    twin = Twin()
    twin.append(5000, 5000)
    flush = twin.log.take_flush()
    twin.append(3000)
    job = twin.log.sync_job()
    twin.append(2000)  # not part of the sync
    mark = job()  # the lane ran it before the flush: the flush then finds nothing to do
    assert mark.log_end == 9
    twin.log.write_flush(flush)
    twin.log.flushed(flush)
    twin.log.synced(mark)
    assert twin.log.flushed_end == 9
    twin.mark = mark
    twin.reopen()
    twin.check_reads()


def test_no_space_leaves_the_log_as_it_was() -> None:
    disk = SimDisk(random.Random(3))
    twin = Twin(disk)
    twin.append(30_000)
    twin.flush_all()
    for _ in range(10):
        twin.append(20_000)
    disk.capacity_bytes = disk.used_bytes + 70_000
    flush = twin.log.take_flush()
    with pytest.raises(OSError, match="space") as refused:
        twin.log.write_flush(flush)
    assert refused.value.errno == errno.ENOSPC
    twin.log.flush_failed(flush)
    with pytest.raises(OSError, match="space"):
        twin.log.sync_job()()
    assert not twin.log.stopped
    twin.check_reads()
    disk.capacity_bytes += 10_000_000
    twin.flush_all()
    twin.sync()
    twin.reopen()
    twin.check_reads()


def test_a_failed_write_can_be_tried_again() -> None:
    disk = SimDisk(random.Random(4))
    twin = Twin(disk)
    for _ in range(20):
        twin.append(9_000)
        disk.fail_writes()
        flush = twin.log.take_flush()
        with pytest.raises(OSError, match="input/output"):
            twin.log.write_flush(flush)
        twin.log.flush_failed(flush)
        twin.append(9_000)
        twin.flush_all()
    twin.sync()
    twin.reopen()
    twin.check_reads()


@pytest.mark.parametrize("suffix", [".log", ".sum", ".index", ".time"])
def test_a_failed_sync_stops_the_log(suffix: str) -> None:
    disk = SimDisk(random.Random(5))
    twin = Twin(disk)
    fill(twin, 20)
    twin.sync()
    fill(twin, 20)
    base = twin.log._files.segments[-1].log_path.removesuffix(".log")
    disk.fail_fdatasync(base + suffix)
    with pytest.raises(SyncFailed):
        twin.log.sync_job()()
    assert twin.log.stopped
    with pytest.raises(LogStopped):
        twin.log.sync_job()()
    twin.reopen()
    twin.check_reads()


def test_the_open_files_are_bounded() -> None:
    from raftline.storage.file_pool import FilePool

    disk = SimDisk(random.Random(6))
    pool = FilePool(disk, open_max=3)
    twin = Twin(disk)
    twin.log = PartitionLog.open(disk, "topics/u/0", IDENTITY, SMALL, None, pool=pool)
    fill(twin, 100)
    twin.sync()
    twin.check_reads()
    assert len(twin.log._files.segments) > 4
    assert len(pool._files) <= 3


@pytest.mark.parametrize("kept", [2, 1_000])
def test_tables_of_closed_segments_are_kept_by_last_use(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raftline.storage.file_pool import FilePool

    disk = SimDisk(random.Random(6))
    twin = Twin(disk)
    twin.log = PartitionLog.open(disk, "topics/u/0", IDENTITY, SMALL, None)
    fill(twin, 200)
    twin.mark = twin.sync()
    size = max(segment.load().bytes for segment in twin.log._files.segments)
    pool = FilePool(disk, tables_bytes_max=kept * size)
    twin.log = PartitionLog.open(disk, "topics/u/0", IDENTITY, SMALL, twin.mark, pool=pool)
    closed = twin.log._files.segments[:-1]
    assert len(closed) > 6
    opened: list[str] = []
    open_file = SimDisk.open

    def noted(own: SimDisk, path: str, *, create: bool = False) -> object:
        opened.append(path)
        return open_file(own, path, create=create)

    monkeypatch.setattr(SimDisk, "open", noted)
    for _ in range(3):
        for segment in closed:
            twin.log._files.read(segment.base_offset, 1, twin.log.log_end)
    held = [segment for segment in closed if segment.tables is not None]
    assert 0 < pool.tables_bytes <= pool.tables_bytes_max
    assert pool.tables_bytes == sum(segment.tables.bytes for segment in held)
    sums = sum(path.endswith(".sum") for path in opened)
    if kept == 2:
        assert held == list(closed[-len(held) :])  # the last that were used
        assert len(held) < len(closed)
    else:
        assert held == list(closed)
        assert sums <= len(closed)  # read once each
    twin.check_reads()
    twin.log._files.close()
    assert pool.tables_bytes == 0


def test_jobs_made_before_a_cut_are_refused_after_it() -> None:
    twin = Twin()
    twin.append(100, 100)
    twin.sync()
    twin.append(100)
    stale = twin.log.sync_job()
    twin.log.cut_to(6, 6)()
    with pytest.raises(StaleJob):
        stale()


def test_append_costs_little(capsys) -> None:
    twin = Twin(settings=LogSettings())
    batch = memoryview(make_batch(10, 1000, 5))
    rows = [(batch, 10, 5)] * 16
    best = 1e9
    for _ in range(300):
        start = time.perf_counter()
        twin.log.append(twin.log.log_end, 1, 1, rows)
        best = min(best, time.perf_counter() - start)
    with capsys.disabled():
        print(f" append: {best / 16 * 1e6:.2f} us per batch")
    assert best / 16 < 20e-6  # a wide bound: the machine is shared
