"""The WAL by example: what comes back after a reopening, a crash, a flipped bit."""

import contextlib
import errno
import random

import pytest

from raftline.model.errors import NewerFormat, WrongCluster
from raftline.raft.rpc import Entry, HardState
from raftline.storage import wal_format
from raftline.storage.os_disk import OsDisk
from raftline.storage.wal import Wal, WalIdentity, WalRefused, WalSettings
from raftline.testing.sim_disk import PowerLoss, SimDisk, SimFile

ME = WalIdentity("", "dir-1")
SMALL = WalSettings(file_bytes=8192, bytes_max=1 << 20)


def make(disk, checkpoints=None, *, identity=ME, settings=SMALL, keep_unknown=True, lost=None):
    wal, recovered = Wal.open(
        disk, "wal", identity, settings, checkpoints or {}, keep_unknown=keep_unknown, lost=lost
    )
    wal.check()
    return wal, recovered


def flush(wal: Wal, *, sync: bool = True) -> None:
    group = wal.take_group()
    assert group is not None
    wal.write_group(group, sync=sync)
    wal.group_written(group)
    wal.check()


def entries(start: int, *datas: bytes, term: int = 1) -> list[Entry]:
    return [Entry(start + i, term, 0, data) for i, data in enumerate(datas)]


def pairs(shard) -> list[tuple[int, int, bytes]]:
    return [(e.index, e.term, e.data) for e in shard.entries]


@pytest.fixture
def disk():
    return SimDisk(random.Random(1))


def wal_files(disk) -> list[str]:
    return [f"wal/{name}" for name in disk.listdir("wal") if name.endswith(".wal")]


def find(disk, needle: bytes) -> tuple[str, int]:
    for path in reversed(wal_files(disk)):
        file = disk.open(path)
        at = file.read_at(0, file.size()).find(needle)
        if at >= 0:
            return path, at
    raise AssertionError(needle)


# ---- what comes back


@pytest.mark.parametrize("kind", ["os", "sim"])
def test_entries_and_hard_states_of_many_shards_come_back(kind, tmp_path):
    disk = OsDisk(str(tmp_path)) if kind == "os" else SimDisk(random.Random(2))
    wal, recovered = make(disk)
    assert recovered.shards == {}
    wal.add_hard_state(1, 3, 77, 0)
    wal.add_entries(1, entries(1, b"a", b"", b"c" * 5000))
    wal.add_entries(2, [Entry(1, 9, 2, b"conf")])
    flush(wal)
    wal.close()
    wal, recovered = make(disk)
    assert pairs(recovered.shards[1]) == [(1, 1, b"a"), (2, 1, b""), (3, 1, b"c" * 5000)]
    assert recovered.shards[1].hard_state == HardState(3, 77, 0)
    assert recovered.shards[2].entries[0].kind == 2
    assert recovered.shards[2].hard_state == HardState(0, 0, 0)
    assert all(e.crc >= 0 for s in recovered.shards.values() for e in s.entries)
    assert not recovered.torn
    assert not recovered.damages
    wal.close()
    _, again = make(disk)
    assert again.shards == recovered.shards


def test_nothing_pending_makes_no_group(disk):
    wal, _ = make(disk)
    assert wal.take_group() is None
    wal.add_entries(1, [])
    assert wal.take_group() is None
    assert wal.mark_group() is None


def test_a_crc_is_computed_once_and_reused(disk):
    wal, _ = make(disk)
    batch = entries(1, b"abc")
    wal.add_entries(1, batch)
    flush(wal)
    assert batch[0].crc >= 0
    wrong = Entry(2, 1, 0, b"abc", batch[0].crc ^ 1)
    wal.add_entries(1, [wrong])
    flush(wal)
    assert wrong.crc == batch[0].crc ^ 1


def test_large_payloads_are_not_copied(disk):
    wal, _ = make(disk)
    big = b"x" * wal_format.COPIED_BYTES_MAX
    wal.add_entries(1, entries(1, b"s", big, b"s"))
    assert wal.pending_bytes == 3 * wal_format.FRAME_HEADER_BYTES + len(big) + 2
    group = wal.take_group()
    assert group is not None
    assert sum(buffer is big for buffer in group.buffers) == 1
    assert wal.pending_bytes == 0


def test_a_later_append_voids_what_it_overwrites(disk):
    wal, _ = make(disk)
    wal.add_entries(1, entries(1, b"a", b"b", b"c", b"d"))
    flush(wal)
    wal.add_entries(1, entries(3, b"C", term=2))
    flush(wal)
    _, recovered = make(disk)
    assert pairs(recovered.shards[1]) == [(1, 1, b"a"), (2, 1, b"b"), (3, 2, b"C")]


def test_entries_below_the_checkpoint_are_left_out(disk):
    wal, _ = make(disk)
    wal.add_entries(1, entries(1, b"a", b"b", b"c"))
    flush(wal)
    _, recovered = make(disk, {1: (2, 1)})
    assert pairs(recovered.shards[1]) == [(3, 1, b"c")]
    _, recovered = make(disk, {1: (2, 1)})
    assert pairs(recovered.shards[1]) == [(3, 1, b"c")]
    assert not recovered.shards[1].damage


def test_a_reset_voids_the_log_and_moves_its_start(disk):
    wal, _ = make(disk)
    wal.add_entries(1, entries(1, b"a", b"b", b"c"))
    wal.add_reset(1, 10, 4)
    wal.add_entries(1, entries(11, b"k", term=4))
    flush(wal)
    for checkpoints in ({}, {}, {1: (10, 4)}):
        _, recovered = make(disk, checkpoints)
        assert pairs(recovered.shards[1]) == [(11, 4, b"k")]
        assert recovered.shards[1].base == (10, 4)
        assert not recovered.shards[1].damage


def test_a_reset_without_its_checkpoint_is_damage(disk):
    wal, _ = make(disk)
    wal.add_reset(1, 10, 4)
    wal.add_entries(1, entries(11, b"k", term=4))
    flush(wal)
    _, recovered = make(disk, {1: (5, 1)})
    assert "entry 6" in recovered.shards[1].damage


def test_a_snapshot_whose_reset_was_not_synced_voids_the_log_it_parted_from(disk):
    wal, _ = make(disk)
    wal.add_entries(1, entries(1, b"a", b"b", b"c", b"d"))
    flush(wal)
    _, recovered = make(disk, {1: (3, 2)})  # the checkpoint says term 2, the WAL term 1
    assert recovered.shards[1].entries == []
    assert not recovered.shards[1].damage


def test_a_removed_shard_is_gone(disk):
    wal, _ = make(disk)
    wal.add_hard_state(1, 5, 6, 7)
    wal.add_entries(1, entries(1, b"a"))
    wal.add_hard_state(2, 5, 6, 7)
    wal.add_removed(1)
    wal.add_removed(2)
    wal.add_hard_state(2, 1, 1, 1)
    flush(wal)
    for _ in range(2):
        _, recovered = make(disk, {1: (0, 0)})
        assert recovered.shards[1].is_removed
        assert recovered.shards[1].hard_state == HardState(0, 0, 0)
        assert recovered.shards[1].entries == []
        assert recovered.shards[2].hard_state == HardState(1, 1, 1)
        assert not recovered.shards[2].is_removed


def test_unknown_shards_are_dropped_on_request(disk):
    wal, _ = make(disk)
    wal.add_hard_state(1, 5, 6, 7)
    wal.add_hard_state(2, 5, 6, 7)
    flush(wal)
    _, recovered = make(disk, {2: (0, 0)}, keep_unknown=False)
    assert list(recovered.shards) == [2]
    _, recovered = make(disk)
    assert list(recovered.shards) == [2]


def test_what_is_lost_stays_noted_until_it_is_removed(disk):
    wal, _ = make(disk)
    wal.add_hard_state(1, 5, 6, 7)
    wal.add_entries(1, entries(8, b"a"))
    wal.add_hard_state(2, 5, 6, 7)
    wal.add_hard_state(3, 5, 6, 7)
    wal.add_removed(3)
    flush(wal)
    for _ in range(2):
        wal, recovered = make(disk, keep_unknown=False, lost={1: "gone", 2: "", 3: "gone"}.get)
        assert list(recovered.shards) == [1]
        assert recovered.shards[1].damage == "gone"
        assert recovered.shards[1].hard_state == HardState(5, 6, 7)
        assert recovered.shards[1].entries == []
    wal.add_removed(1)
    assert not wal.is_settled(1)
    flush(wal)
    assert wal.is_settled(1)
    _, recovered = make(disk, keep_unknown=False, lost=lambda _: "gone")
    assert recovered.shards == {}


# ---- files


def fill(wal: Wal, shard: int, start: int, groups: int, size: int = 1500) -> int:
    for index in range(start, start + groups):
        wal.add_entries(shard, entries(index, bytes([index % 256]) * size))
        flush(wal)
    return start + groups


def test_a_full_file_rolls_to_the_next_and_all_of_it_comes_back(disk):
    wal, _ = make(disk)
    end = fill(wal, 1, 1, 30)
    assert wal.file_count == 10
    assert wal.bytes_used == 10 * 8192
    _, recovered = make(disk)
    assert [e.index for e in recovered.shards[1].entries] == list(range(1, end))


def test_a_group_larger_than_a_file_gets_a_larger_file(disk):
    wal, _ = make(disk)
    wal.add_entries(1, entries(1, b"x" * 50_000, b"y"))
    flush(wal)
    wal.add_entries(1, entries(3, b"z"))
    flush(wal)
    assert wal.bytes_used > 50_000
    wal.checkpointed(1, 3)
    job = wal.release_job()
    assert job is not None
    job()
    wal.prepare_spare()
    _, recovered = make(disk, {1: (0, 0)})
    assert recovered.shards[1].damage  # let go at checkpoint 3, so nobody may come back below it
    assert all(disk.open(path).size() == 8192 for path in wal_files(disk))


def test_files_are_let_go_oldest_first_and_used_again(disk):
    wal, _ = make(disk)
    wal.add_hard_state(1, 1, 1, 0)
    end = fill(wal, 1, 1, 20)
    assert wal.release_job() is None
    wal.checkpointed(1, end - 3)
    assert wal.release_job() is None  # the hard state pins the first file
    assert wal.pins() == [1]
    wal.add_hard_state(1, 1, 1, 5)
    flush(wal)
    job = wal.release_job()
    assert job is not None
    job()
    assert wal.release_job() is None
    assert wal.file_count == 1
    assert len([n for n in disk.listdir("wal") if n.endswith(".free")]) == 2
    assert wal.needs_spare
    wal.prepare_spare()
    wal.prepare_spare()
    assert not wal.needs_spare
    assert len([n for n in disk.listdir("wal") if n.endswith(".free")]) == 1
    end = fill(wal, 1, end, 12)
    _, recovered = make(disk, {1: (18, 1)})
    assert not recovered.shards[1].damage
    assert [e.index for e in recovered.shards[1].entries] == list(range(19, end))


class FailingNames(SimDisk):
    """A disk on which the next renames, removals or syncs of names fail."""

    failing = ""

    def rename(self, old: str, new: str) -> None:
        self._fail("rename")
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._fail("remove")
        super().remove(path)

    def sync_dir(self, path: str) -> None:
        self._fail("sync_dir")
        super().sync_dir(path)

    def _fail(self, call: str) -> None:
        if self.failing == call:
            raise OSError(errno.EIO, "input/output error")


@pytest.mark.parametrize("call", ["rename", "remove", "sync_dir"])
def test_a_file_that_could_not_be_let_go_leaves_no_gap_behind_it(call):
    """F4: recovery takes a gap for lost groups and trusts no shard any more."""
    disk = FailingNames(random.Random(1))
    wal, _ = make(disk)
    end = 1
    for failing in ("", call, ""):
        end = fill(wal, 1, end, 12)
        wal.checkpointed(1, end - 1)
        job = wal.release_job()
        assert job is not None
        disk.failing = failing
        with contextlib.suppress(OSError):
            job()
        disk.failing = ""
    wal.add_hard_state(2, 1, 1, 0)
    flush(wal)
    assert len(disk.listdir("wal")) <= 3
    _, recovered = make(disk, {1: (end - 1, 1)})
    assert recovered.damages == []
    assert recovered.shards[2].hard_state == HardState(1, 1, 0)


def test_pins_are_rewritten_at_the_head(disk):
    wal, _ = make(disk)
    logs = {1: entries(1, b"idle"), 2: entries(1, b"x" * 3000), 3: []}
    for shard, log in logs.items():
        wal.add_hard_state(shard, 4, shard, 0)
        wal.add_entries(shard, log)
    flush(wal)
    end = fill(wal, 9, 1, 12)
    wal.checkpointed(9, end - 1)
    assert wal.pins() == [2, 1, 3]

    def entries_of(shard: int, start: int, stop: int) -> list[Entry]:
        return [e for e in logs[shard] if start <= e.index < stop]

    assert wal.rewrite_pins(1000, entries_of) > 0
    assert wal.rewrite_pins(1000, entries_of) == 0  # under way
    flush(wal)
    assert wal.pins() == [2]  # too large: for a checkpoint
    assert wal.release_job() is None
    assert wal.rewrite_pins(10_000, entries_of) > 3000
    flush(wal)
    job = wal.release_job()
    assert job is not None
    job()
    assert wal.file_count <= 2
    _, recovered = make(disk, {9: (end - 1, 1)})
    for shard, log in logs.items():
        assert recovered.shards[shard].hard_state == HardState(4, shard, 0)
        assert recovered.shards[shard].entries == log
        assert not recovered.shards[shard].damage


def test_what_no_checkpoint_will_free_is_rewritten_in_pieces(disk):
    wal, _ = make(disk)
    log = entries(1, *[b"%d" % number * 700 for number in range(5)])
    wal.add_hard_state(1, 1, 1, 0)
    wal.add_entries(1, log)
    flush(wal)
    end = fill(wal, 9, 1, 12)
    wal.checkpointed(9, end - 1)
    added = []
    while wal.pins() == [1]:
        added.append(
            wal.rewrite_pins(1000, lambda _, start, stop: log[start - 1 : stop - 1], stuck=[1])
        )
        flush(wal)
    assert len(added) == 5
    assert all(700 <= size <= 1000 for size in added)
    job = wal.release_job()
    assert job is not None
    job()
    _, recovered = make(disk, {9: (end - 1, 1)})
    assert recovered.shards[1].entries == log
    assert not recovered.shards[1].damage


def test_what_nobody_has_in_memory_is_read_back_and_rewritten(disk):
    wal, _ = make(disk)
    wal.add_hard_state(1, 4, 1, 0)
    wal.add_entries(1, entries(1, b"a", b"old", b"older" * 100))
    flush(wal)
    wal.add_entries(1, entries(2, b"b", b"c" * 1000, term=2))
    flush(wal)
    assert wal.read_back_job(lambda _: False) is None  # the oldest file is being written
    end = fill(wal, 9, 1, 12)
    assert wal.read_back_job(lambda _: True) is None  # they have checkpoints
    job = wal.read_back_job(lambda shard: shard == 9)
    assert job is not None
    entries_of = job()
    assert wal.rewrite_pins(1 << 20, entries_of) > 1000
    flush(wal)
    wal.checkpointed(9, end - 1)
    release = wal.release_job()
    assert release is not None
    release()
    assert wal.file_count <= 2
    assert entries_of(1, 1, 4) == []  # another file is the oldest now
    _, recovered = make(disk, {9: (end - 1, 1)})
    assert recovered.shards[1].hard_state == HardState(4, 1, 0)
    assert pairs(recovered.shards[1]) == [(1, 1, b"a"), (2, 2, b"b"), (3, 2, b"c" * 1000)]
    assert not recovered.damages


def test_a_rewritten_entry_does_not_void_later_ones(disk):
    wal, _ = make(disk)
    log = entries(1, b"a")
    wal.add_entries(1, log)
    flush(wal)
    end = fill(wal, 2, 1, 6)
    wal.checkpointed(2, end - 1)
    log += entries(2, b"b", b"c")
    wal.add_entries(1, log[1:])
    flush(wal)
    wal.rewrite_pins(1000, lambda _, start, stop: log[start - 1 : stop - 1])
    flush(wal)
    job = wal.release_job()
    assert job is not None
    job()
    _, recovered = make(disk, {2: (end - 1, 1)})
    assert recovered.shards[1].entries == log


def test_a_forgotten_shard_pins_nothing(disk):
    wal, _ = make(disk)
    wal.add_hard_state(1, 1, 1, 1)
    end = fill(wal, 1, 1, 10)
    wal.forget(1)
    assert wal.release_job() is not None
    assert end == 11


# ---- torn or damaged


def test_a_torn_last_group_is_cut_whole():
    cut = kept = 0
    for seed in range(40):
        disk = SimDisk(random.Random(seed))
        wal, _ = make(disk)
        wal.add_entries(1, entries(1, b"a" * 600))
        flush(wal)
        wal.add_entries(1, entries(2, b"b" * 600, b"c" * 600))
        wal.add_entries(2, entries(1, b"d" * 600))
        flush(wal, sync=False)
        disk.crash()
        _, recovered = make(disk, {1: (0, 0), 2: (0, 0)})
        found = [e.index for e in recovered.shards[1].entries]
        assert found in ([1], [1, 2, 3])
        assert len(recovered.shards[2].entries) == (len(found) == 3)
        assert not recovered.shards[1].damage
        assert not recovered.damages
        cut += found == [1]
        kept += found == [1, 2, 3]
    assert cut
    assert kept


def test_a_group_after_an_unsynced_torn_one_is_cut_too(disk):
    wal, _ = make(disk)
    for index in (1, 2, 3):
        wal.add_entries(1, entries(index, b"%d" % index * 600))
        flush(wal, sync=index == 1)
    path, at = find(disk, b"2" * 600)
    file = disk.open(path)
    file.write_at(at // 512 * 512, [bytes(512)])
    _, recovered = make(disk, {1: (0, 0)})
    assert [e.index for e in recovered.shards[1].entries] == [1]
    assert "never synced" in recovered.torn
    assert not recovered.damages


def damaged_disk(*, later: bool) -> SimDisk:
    disk = SimDisk(random.Random(0))
    wal, _ = make(disk)
    for shard in (1, 2):
        wal.add_hard_state(shard, 1, shard, 0)
        wal.add_entries(shard, entries(1, b"entry-%d" % shard))
    flush(wal)
    if later:
        mark = wal.mark_group()
        assert mark is not None
        wal.write_group(mark)
        wal.group_written(mark)
        assert wal.mark_group() is None
    return disk


def test_a_damaged_payload_quarantines_its_shard_only():
    disk = damaged_disk(later=True)
    path, at = find(disk, b"entry-1")
    disk.flip_bit(path, at + 3)
    for _ in range(3):  # the note survives further openings
        _, recovered = make(disk, {1: (0, 0), 2: (0, 0)})
        assert f"{path} at {at}" in recovered.shards[1].damage
        assert not recovered.shards[2].damage
        assert pairs(recovered.shards[2]) == [(1, 1, b"entry-2")]
        assert recovered.shards[1].entries == []


def test_damage_of_the_last_group_is_told_from_a_torn_one_after_a_mark():
    for later in (False, True):
        disk = damaged_disk(later=later)
        path, at = find(disk, b"entry-1")
        disk.flip_bit(path, at + 3)
        _, recovered = make(disk, {1: (0, 0), 2: (0, 0)})
        assert bool(recovered.torn) is not later
        assert bool(recovered.damages) is later


def test_a_damaged_vote_quarantines_unless_a_later_one_follows():
    for later in (False, True):
        disk = SimDisk(random.Random(0))
        wal, _ = make(disk)
        wal.add_hard_state(1, 1, 0x515151, 0)
        flush(wal)
        wal.add_hard_state(1 if later else 2, 2, 7, 0)
        flush(wal)
        path, at = find(disk, b"QQQ\0")
        disk.flip_bit(path, at)
        _, recovered = make(disk, {1: (0, 0), 2: (0, 0)})
        assert bool(recovered.shards[1].damage) is not later
        assert not recovered.shards[2].damage


def test_a_lost_frame_header_puts_every_shard_in_doubt():
    disk = damaged_disk(later=True)
    path, at = find(disk, b"entry-1")
    disk.flip_bit(path, at - 20)
    _, recovered = make(disk, {1: (0, 0), 2: (0, 0), 3: (0, 0)})
    assert all(shard.damage for shard in recovered.shards.values())


def test_later_frames_take_a_shard_out_of_doubt():
    disk = SimDisk(random.Random(0))
    wal, _ = make(disk)
    wal.add_entries(1, entries(1, b"one"))
    wal.add_entries(2, entries(1, b"one"))
    flush(wal)
    wal.add_entries(3, entries(1, b"three"))
    flush(wal)
    wal.add_hard_state(1, 1, 1, 1)
    wal.add_entries(1, entries(2, b"two"))  # same term as the entry before: nothing missing
    wal.add_hard_state(2, 2, 1, 1)
    wal.add_entries(2, entries(2, b"two", term=2))  # entry 1 may have been replaced
    flush(wal)
    path, at = find(disk, b"three")
    disk.flip_bit(path, at - 20)
    _, recovered = make(disk, {1: (0, 0), 2: (0, 0), 3: (0, 0)})
    assert not recovered.shards[1].damage
    assert recovered.shards[2].damage
    assert recovered.shards[3].damage


def test_an_entry_written_after_the_loss_vouches_for_nothing_before_it():
    disk = SimDisk(random.Random(0))
    wal, _ = make(disk)
    wal.add_entries(1, entries(1, b"one", b"old"))
    flush(wal)
    wal.add_entries(1, entries(2, b"lost overwrite", term=2))
    flush(wal)
    wal.add_hard_state(1, 3, 1, 1)
    wal.add_entries(1, entries(3, b"three", b"four", term=3))
    flush(wal)
    path, at = find(disk, b"lost overwrite")
    disk.flip_bit(path, at - 20)
    _, recovered = make(disk, {1: (0, 0)})
    assert recovered.shards[1].damage


def test_a_lost_group_header_alone_costs_nothing():
    disk = damaged_disk(later=True)
    path, at = find(disk, b"entry-1")
    disk.flip_bit(path, at // 512 * 512 + 30)
    _, recovered = make(disk, {1: (0, 0), 2: (0, 0)})
    assert not any(shard.damage for shard in recovered.shards.values())
    assert pairs(recovered.shards[1]) == [(1, 1, b"entry-1")]
    assert "header" in recovered.damages[0]


def test_damage_below_the_checkpoint_harms_nobody():
    disk = damaged_disk(later=True)
    path, at = find(disk, b"entry-1")
    disk.flip_bit(path, at + 3)
    _, recovered = make(disk, {1: (1, 1), 2: (0, 0)})
    assert not recovered.shards[1].damage


def test_a_damaged_file_header_costs_nothing(disk):
    wal, _ = make(disk)
    fill(wal, 1, 1, 10)
    for path in wal_files(disk):
        disk.flip_bit(path, 9)
    _, recovered = make(disk, {1: (0, 0)})
    assert len(recovered.shards[1].entries) == 10
    assert not recovered.shards[1].damage


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_file_is_noticed(disk, which):
    wal, _ = make(disk)
    fill(wal, 1, 1, 12)
    path = wal_files(disk)[which]
    if which:
        disk.remove(path)
    else:
        disk.open(path).write_at(0, [bytes(8192)])
    _, recovered = make(disk, {1: (0, 0)})
    assert recovered.shards[1].damage


def test_a_missing_wal_is_damage_where_there_are_checkpoints(disk):
    wal, _ = make(disk)
    wal.add_entries(1, entries(1, b"a"))
    flush(wal)
    disk.remove_tree("wal")
    _, recovered = make(disk, {1: (0, 0)})
    assert "missing" in recovered.shards[1].damage


def test_unreadable_sectors_are_damage_and_passing_errors_are_not(disk):
    wal, _ = make(disk)
    fill(wal, 1, 1, 5)
    disk.fail_reads("wal/", times=3)
    _, recovered = make(disk, {1: (0, 0)})
    assert len(recovered.shards[1].entries) == 5 or recovered.shards[1].damage


def lose(disk, monkeypatch, path: str, start: int, end: int) -> None:
    """Let every read of ``path`` that touches ``[start, end)`` fail."""
    read_at = SimFile.read_at

    def failing(file: SimFile, position: int, length: int) -> bytes:
        if file.path == path and position < end and start < position + length:
            raise OSError(errno.EIO, "input/output error", path)
        return read_at(file, position, length)

    monkeypatch.setattr(SimFile, "read_at", failing)


def two_shards(disk, groups: int, size: int) -> None:
    """Write a group of shard 2, then ``groups`` of shard 1, each synced before the next."""
    wal, _ = make(disk)
    wal.add_entries(2, entries(1, b"two"))
    flush(wal)
    fill(wal, 1, 1, groups, size)


def test_synced_groups_at_the_end_that_cannot_be_read_are_damage_and_not_torn(disk, monkeypatch):
    """With them the headers are lost that say they were synced: seed 1588."""
    two_shards(disk, 9, 400)
    path, at = find(disk, b"\x04" * 400)
    assert at - at % wal_format.SECTOR_BYTES == 4096  # where that group begins
    lose(disk, monkeypatch, path, 4096, 8192)
    _, recovered = make(disk, {1: (0, 0), 2: (0, 0)})
    assert not recovered.torn
    assert "cannot be read" in recovered.shards[1].damage
    assert "cannot be read" in recovered.shards[2].damage  # it may have had something there too


def test_a_last_group_that_is_read_in_part_is_damage_and_not_torn(disk, monkeypatch):
    two_shards(disk, 1, 5000)
    path, at = find(disk, b"\x01" * 5000)
    assert at < 4096 < at + 5000
    lose(disk, monkeypatch, path, 4096, 8192)
    _, recovered = make(disk, {1: (0, 0), 2: (0, 0)})
    assert not recovered.torn
    assert recovered.shards[1].damage
    assert recovered.shards[2].damage


def test_a_last_file_that_begins_where_nothing_can_be_read_is_damage(disk, monkeypatch):
    two_shards(disk, 4, 2500)
    path, at = find(disk, b"\x04" * 2500)
    assert find(disk, b"\x03" * 2500)[0] != path
    assert at < 1024
    lose(disk, monkeypatch, path, 0, 8192)
    _, recovered = make(disk, {1: (0, 0), 2: (0, 0)})
    assert not recovered.torn
    assert recovered.shards[1].damage
    assert recovered.shards[2].damage


def test_what_cannot_be_read_beyond_the_place_of_the_next_group_harms_nobody(disk, monkeypatch):
    two_shards(disk, 2, 400)
    path, at = find(disk, b"\x02" * 400)
    assert at + 512 < 4096
    lose(disk, monkeypatch, path, 4096, 8192)
    _, recovered = make(disk, {1: (0, 0), 2: (0, 0)})
    assert [len(recovered.shards[shard].entries) for shard in (1, 2)] == [2, 1]
    assert not any(shard.damage for shard in recovered.shards.values())
    assert not recovered.damages


# ---- refusals


def contents(disk) -> dict[str, bytes]:
    return {name: disk.open(f"wal/{name}").read_at(0, 1 << 20) for name in disk.listdir("wal")}


def test_a_foreign_wal_is_refused_and_left_alone(disk):
    wal, _ = make(disk, identity=WalIdentity("blue", "dir-1"))
    wal.add_entries(1, entries(1, b"a"))
    flush(wal)
    before = contents(disk)
    with pytest.raises(WalRefused, match="dir-2"):
        make(disk, identity=WalIdentity("blue", "dir-2"))
    with pytest.raises(WrongCluster):
        make(disk, identity=WalIdentity("red", "dir-1"))
    assert contents(disk) == before
    make(disk, identity=WalIdentity("", "dir-1"))


def test_a_newer_format_is_refused_and_left_alone(disk, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(wal_format, "FORMAT_VERSION", 2)
        make(disk)
    before = contents(disk)
    with pytest.raises(NewerFormat, match="wal/"):
        make(disk)
    assert contents(disk) == before


def test_a_renamed_file_is_refused(disk):
    make(disk)
    disk.rename(wal_files(disk)[0], "wal/00000000000000ff.wal")
    with pytest.raises(WalRefused, match="renamed"):
        make(disk)


def test_a_node_becomes_a_member(disk):
    wal, _ = make(disk)
    wal.set_cluster("blue")
    fill(wal, 1, 1, 10)
    with pytest.raises(WrongCluster):
        make(disk, identity=WalIdentity("red", "dir-1"))
    _, recovered = make(disk, identity=WalIdentity("blue", "dir-1"))
    assert len(recovered.shards[1].entries) == 10


def test_foreign_files_in_the_directory_are_left_alone(disk):
    disk.mkdir("wal")
    for name in ("notes.txt", "notes.tmp"):
        disk.open(f"wal/{name}", create=True).write_at(0, [b"mine"])
    make(disk)
    make(disk)
    for name in ("notes.txt", "notes.tmp"):
        assert disk.open(f"wal/{name}").read_at(0, 9) == b"mine"


# ---- errors and crashes


def test_a_failed_write_or_sync_is_handed_on(disk):
    wal, _ = make(disk)
    wal.add_entries(1, entries(1, b"a"))
    group = wal.take_group()
    assert group is not None
    disk.fail_fdatasync("wal/")
    with pytest.raises(OSError, match="input/output"):
        wal.write_group(group)


def test_the_power_may_fail_at_any_point_of_an_opening():
    """W3: crash at every disk operation of an opening; nothing changes what is recovered."""
    operation = finished = 0
    while not finished:
        disk = SimDisk(random.Random(operation))
        wal, _ = make(disk)
        wal.add_hard_state(1, 3, 4, 5)
        end = fill(wal, 1, 1, 12)
        wal.add_entries(2, entries(1, b"old", b"old"))
        flush(wal)
        wal.add_entries(2, entries(2, b"new", term=2))
        flush(wal)
        wal.add_entries(3, entries(1, b"lost" * 300))
        flush(wal, sync=False)
        disk.crash()
        _, wanted = make(_clone(disk), {1: (4, 1)})
        disk.power_off_after(operation)
        try:
            make(disk, {1: (4, 1)})
            finished = 1
        except PowerLoss:
            pass
        disk.crash()
        for _ in range(2):
            _, got = make(disk, {1: (4, 1)})
            assert got.shards == wanted.shards, operation
            assert not got.damages
        assert [e.index for e in got.shards[1].entries] == list(range(5, end))
        assert got.shards[1].hard_state == HardState(3, 4, 5)
        assert pairs(got.shards[2]) == [(1, 1, b"old"), (2, 2, b"new")]
        operation += 1
    assert operation > 20


def test_openings_that_find_no_room_do_not_fill_the_disk(disk):
    wal, _ = make(disk)
    end = fill(wal, 1, 1, 40)
    used = disk.used_bytes
    for files in (2, 4, 6):
        disk.capacity_bytes = used + files * SMALL.file_bytes
        with pytest.raises(OSError, match="space"):
            make(disk)
    disk.capacity_bytes = used + 10 * SMALL.file_bytes
    _, recovered = make(disk)
    assert [e.index for e in recovered.shards[1].entries] == list(range(1, end))
    assert not recovered.damages


def test_openings_that_crash_do_not_fill_the_disk():
    disk = SimDisk(random.Random(1))
    wal, _ = make(disk)
    end = fill(wal, 1, 1, 12)
    most = 0
    for operations in (*range(1, 40, 3), *range(1, 40, 3)):
        disk.power_off_after(operations)
        with contextlib.suppress(PowerLoss):
            make(disk)
        disk.crash()
        most = max(most, len(disk.listdir("wal")))
    assert most <= 12
    _, recovered = make(disk)
    assert [e.index for e in recovered.shards[1].entries] == list(range(1, end))


def _clone(disk: SimDisk) -> SimDisk:
    copy = SimDisk(random.Random(0))
    copy.mkdir("wal")
    for name, data in contents(disk).items():
        file = copy.open(f"wal/{name}", create=True)
        file.write_at(0, [data])
    return copy
