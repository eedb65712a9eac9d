"""Logs that are made at their first use, and batches picked one by one. W5."""

import random

import msgspec
import pytest

from raftline.storage.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from raftline.storage.file_pool import FilePool
from raftline.storage.log import PartitionLog
from raftline.storage.log_words import DamagedRange, LogIdentity, LogSettings
from raftline.testing.batches import seal
from raftline.testing.sim_disk import SimDisk

FOLDER = "shards/7/waiting"
IDENTITY = LogIdentity("c1", "t1", 0)
SETTINGS = LogSettings(segment_bytes=20_000, flush_bytes=2_000, tail_bytes=2_000)


def fresh(disk: SimDisk) -> PartitionLog:
    return PartitionLog.fresh(FilePool(disk), FOLDER, IDENTITY, SETTINGS, 1)


def batch(number: int) -> bytes:
    return seal([b"%05d" % number * 20], [number])


def append(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        log.append(log.log_end, 1, log.log_end, [(batch(log.log_end), 1, log.log_end)])


def flush(log: PartitionLog) -> None:
    while (taken := log.take_flush()) is not None:
        log.write_flush(taken)
        log.flushed(taken)


def sealed(log: PartitionLog, offsets: list[int], bytes_max: int = 1 << 20) -> list[bytes]:
    return [bytes(found[16:]) for found in log.pick_job(offsets, bytes_max)()]


def want(offsets: list[int]) -> list[bytes]:
    return [batch(offset)[16:] for offset in offsets]


def test_nothing_is_on_the_disk_before_the_first_job() -> None:
    disk = SimDisk(random.Random(1))
    log = fresh(disk)
    append(log, 3)
    assert not disk.exists(FOLDER)
    assert sealed(log, [2, 1]) == want([2, 1])
    flush(log)
    assert disk.exists(FOLDER)


def test_what_an_earlier_life_left_is_removed() -> None:
    """A crash before the first checkpoint: its files are in no mark, so they are not ours."""
    disk = SimDisk(random.Random(1))
    old = fresh(disk)
    append(old, 300)
    flush(old)
    assert len([n for n in disk.listdir(FOLDER) if n.endswith(".log")]) > 1
    log = fresh(disk)
    append(log, 2)
    mark = log.sync_job()()
    assert [n for n in disk.listdir(FOLDER) if n.endswith(".log")] == [f"{1:020d}.log"]
    again = PartitionLog.open(disk, FOLDER, IDENTITY, SETTINGS, mark)
    assert (again.log_start, again.log_end) == (1, 3)
    assert sealed(again, [1, 2]) == want([1, 2])


def test_an_empty_one_is_in_a_mark_too() -> None:
    disk = SimDisk(random.Random(1))
    mark = fresh(disk).sync_job()()
    log = PartitionLog.open(disk, FOLDER, IDENTITY, SETTINGS, mark)
    assert (log.log_start, log.log_end) == (1, 1)
    append(log, 1)
    assert log.log_end == 2


@pytest.mark.parametrize("seed", range(4))
def test_picked_from_memory_and_disk_in_any_order(seed: int) -> None:
    disk = SimDisk(random.Random(1))
    log = fresh(disk)
    append(log, 500)
    flush(log)
    append(log, 20)
    rng = random.Random(seed)
    offsets = rng.sample(range(1, 521), 60)
    assert sealed(log, offsets) == want(offsets)
    run = list(range(100, 521))
    assert sealed(log, run) == want(run)
    size = len(batch(1))
    assert sealed(log, run, 3 * size) == want(run[:3])
    assert sealed(log, [7], 1) == want([7])


def test_damage_is_named_not_given() -> None:
    disk = SimDisk(random.Random(1))
    log = fresh(disk)
    append(log, 500)
    mark = log.sync_job()()
    disk.flip_bit(f"{FOLDER}/{1:020d}.log", 500)
    again = PartitionLog.open(disk, FOLDER, IDENTITY, SETTINGS, mark)
    with pytest.raises(DamagedRange):
        sealed(again, [2])


def test_checkpoints_without_side_logs_are_read() -> None:
    """As they were written before there were any."""
    disk = SimDisk(random.Random(1))
    log = fresh(disk)
    append(log, 2)
    mark = log.sync_job()()
    fields = {
        "cluster": "c1",
        "shard": 7,
        "replica": 1,
        "index": 5,
        "term": 2,
        "hard_state": {"term": 2, "vote": 0, "commit": 5},
        "conf_state": {},
        "term_runs": [[5, 2]],
        "log": None,
        "state": b"",
        "at_ms": 9,
        "feature_level": 1,
    }
    old = msgspec.convert(fields, Checkpoint)
    assert old.side == {}
    new = msgspec.structs.replace(old, side={"waiting": mark})
    assert decode_checkpoint(encode_checkpoint(new)) == new
