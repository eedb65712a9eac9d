"""Opening: cut to the mark, damage reported, foreign files refused, unknown pasts moved aside."""

import random

import pytest

from raftline.storage import side_file
from raftline.storage.log import PartitionLog
from raftline.storage.log_words import DamagedRange, ForeignLog, LogIdentity
from raftline.testing.sim_disk import SimDisk
from tests.unit.storage.log_twin import IDENTITY, SMALL, Twin


@pytest.fixture
def twin() -> Twin:
    """A synced log of several segments, and more flushed after the mark."""
    twin = Twin(SimDisk(random.Random(11)))
    for i in range(80):
        twin.append(1000 + i * 200, 70)
    twin.sync()
    return twin


def snapshot(disk: SimDisk, directory: str) -> dict[str, bytes]:
    found = {}
    for name in disk.listdir(directory):
        file = disk.open(f"{directory}/{name}")
        found[name] = file.read_at(0, file.size())
    return found


def test_bytes_above_the_mark_are_cut_and_applied_again(twin: Twin) -> None:
    for i in range(60):
        twin.append(7000 + i)
    twin.flush_all()
    twin.reopen()
    assert not twin.log.damage
    twin.check_reads()
    twin.flush_all()
    twin.check_reads()
    twin.sync()
    twin.reopen()
    twin.check_reads()


def test_a_segment_closed_after_a_cut_keeps_the_sum_of_its_last_chunk() -> None:
    twin = Twin(SimDisk(random.Random(12)))
    twin.append(20_000)
    twin.sync()
    twin.append(10_000)
    twin.log.sync_job()()  # the .sum entry is durable, the checkpoint was never written
    twin.rows.pop()  # and what comes back is something else
    twin.reopen()
    twin.append(290_000)  # does not fit: closes the first segment at the old mark
    twin.sync()
    assert len(twin.log._files.segments) == 2
    twin.reopen()
    twin.check_reads()


def test_without_a_mark_the_files_are_moved_aside(twin: Twin) -> None:
    before = snapshot(twin.disk, twin.directory)
    log = twin.open(None)
    assert (log.log_start, log.log_end, log.bytes) == (0, 0, 0)
    assert snapshot(twin.disk, f"{twin.directory}/aside-0001") == before
    twin.log = log
    twin.rows.clear()
    twin.append(100)
    twin.sync()
    twin.open(None)
    assert twin.disk.exists(f"{twin.directory}/aside-0002")


@pytest.mark.parametrize("with_mark", [True, False])
@pytest.mark.parametrize(
    "other",
    [
        LogIdentity("cluster-b", IDENTITY.topic_uuid, 3),
        LogIdentity("cluster-a", "other", 3),
        LogIdentity("cluster-a", IDENTITY.topic_uuid, 4),
    ],
)
def test_another_logs_files_are_refused(twin: Twin, other: LogIdentity, with_mark: bool) -> None:
    before = snapshot(twin.disk, twin.directory)
    with pytest.raises(ForeignLog, match="belongs to"):
        PartitionLog.open(twin.disk, twin.directory, other, SMALL, twin.mark if with_mark else None)
    assert snapshot(twin.disk, twin.directory) == before


def test_a_newer_format_is_refused(twin: Twin, monkeypatch) -> None:
    monkeypatch.setattr(side_file, "FORMAT", 2)
    newer = Twin(twin.disk, directory="topics/new/0")
    newer.append(100)
    mark = newer.sync()
    monkeypatch.undo()
    before = snapshot(twin.disk, "topics/new/0")
    with pytest.raises(ForeignLog, match="upgrade"):
        newer.open(mark)
    assert snapshot(twin.disk, "topics/new/0") == before


def test_a_short_file_is_damage_and_the_log_goes_on_behind_it(twin: Twin) -> None:
    last = twin.log._files.segments[-1]
    twin.disk.open(last.log_path).truncate(last.size - 5000)
    log = twin.log = twin.open(twin.mark)
    assert log.log_end == twin.mark.log_end
    (damage,) = log.damage
    assert damage.end_offset == twin.mark.log_end
    assert damage.start_offset > last.base_offset
    assert "durable by the checkpoint" in damage.reason
    with pytest.raises(DamagedRange):
        log.read_job(damage.start_offset, 100)()
    good = b"".join(row.data for row in twin.rows if row.base >= damage.start_offset)
    twin.append(500, 600)
    twin.flush_all()
    first_new = twin.rows[-2]
    assert twin.read(first_new.base, 10) == first_new.data
    assert log.repair_job(damage.start_offset, damage.end_offset, good)() == ()
    twin.check_reads()
    twin.sync()
    twin.reopen()
    assert not twin.log.damage
    twin.check_reads()


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_missing_file_is_damage(twin: Twin, which: int) -> None:
    segment = twin.log._files.segments[which]
    twin.disk.remove(segment.log_path)
    log = twin.log = twin.open(twin.mark)
    (damage,) = log.damage
    assert (damage.start_offset, damage.end_offset) == (segment.base_offset, segment.end_offset)
    with pytest.raises(DamagedRange):
        log.read_job(damage.start_offset, 100)()
    inside = [r for r in twin.rows if damage.start_offset <= r.base < damage.end_offset]
    middle = inside[len(inside) // 2]
    first = b"".join(row.data for row in inside if row.base < middle.base)
    second = b"".join(row.data for row in inside if row.base >= middle.base)
    left = log.repair_job(damage.start_offset, middle.base, first)()
    start = left[0].start_offset if left else middle.base
    rest = b"".join(row.data for row in inside if row.base >= start) if left else second
    assert log.repair_job(start, damage.end_offset, rest)() == ()
    twin.check_reads()


@pytest.mark.parametrize("suffix", [".sum", ".index", ".time"])
@pytest.mark.parametrize("how", ["missing", "empty", "head", "body"])
@pytest.mark.parametrize("which", [0, -1])
def test_a_lost_side_file_is_rebuilt(twin: Twin, suffix: str, how: str, which: int) -> None:
    digest = twin.digest()
    path = twin.log._files.segments[which].log_path.replace(".log", suffix)
    if how == "missing":
        twin.disk.remove(path)
    elif how == "empty":
        twin.disk.open(path).truncate(0)
    else:
        twin.disk.flip_bit(path, 20 if how == "head" else 256 + 4, 3)
    twin.log = twin.open(twin.mark)
    assert not twin.log.damage
    twin.check_reads()
    assert twin.digest() == digest
    twin.append(300)
    twin.sync()
    twin.reopen()
    twin.check_reads()
    scrubbed = twin.log.scrub_job(1 << 30)()
    assert scrubbed.wrapped
    assert not scrubbed.damaged


def test_the_mark_survives_a_trip_through_a_checkpoint(twin: Twin) -> None:
    import msgspec

    from raftline.storage.log_words import LogMark

    data = msgspec.msgpack.encode(twin.mark)
    assert msgspec.msgpack.decode(data, type=LogMark) == twin.mark
