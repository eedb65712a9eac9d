"""One suite both disks pass, then what only the simulated one does."""

import errno
import random

import pytest

from raftline.storage.files import Disk
from raftline.storage.os_disk import IOV_MAX, DirectoryInUse, OsDisk
from raftline.testing.sim_disk import SECTOR_BYTES, DiskOdds, PowerLoss, SimDisk


@pytest.fixture(params=["os", "sim"])
def disk(request, tmp_path) -> Disk:
    if request.param == "os":
        return OsDisk(str(tmp_path / "data"))
    return SimDisk(random.Random(7))


def write(disk: Disk, path: str, data: bytes, *, sync: bool = False) -> None:
    file = disk.open(path, create=True)
    file.write_at(0, [data])
    if sync:
        file.fdatasync()
    file.close()


def read(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    data = file.read_at(0, file.size())
    file.close()
    return data


# ---- both


def test_reads_what_was_written_across_buffers_of_all_kinds(disk):
    file = disk.open("f", create=True)
    assert file.write_at(3, [b"ab", bytearray(b"cd"), memoryview(b"ef"), b""]) == 6
    assert file.size() == 9
    assert file.read_at(0, 100) == b"\0\0\0abcdef"
    assert file.read_at(4, 2) == b"bc"
    assert file.read_at(9, 5) == b""
    assert file.read_at(50, 5) == b""
    assert file.path == "f"


def test_more_buffers_than_one_call_takes(disk):
    buffers = [bytes([i % 251]) * (i % 7) for i in range(IOV_MAX * 2 + 100)]
    file = disk.open("f", create=True)
    assert file.write_at(11, buffers) == sum(map(len, buffers))
    assert file.read_at(11, 1 << 20) == b"".join(buffers)


def test_a_buffer_handed_over_and_changed_afterwards_is_not_changed_on_disk(disk):
    buffer = bytearray(b"before")
    file = disk.open("f", create=True)
    file.write_at(0, [buffer])
    buffer[:] = b"after!"
    file.fdatasync()
    assert file.read_at(0, 6) == b"before"


def test_allocated_bytes_are_zero_and_written_ones_stay(disk):
    file = disk.open("f", create=True)
    file.write_at(0, [b"keep"])
    file.allocate(10_000)
    assert file.size() == 10_000
    assert file.read_at(0, 10_000) == b"keep" + bytes(9_996)
    file.allocate(10)
    assert file.size() == 10_000


def test_truncate_cuts_and_lengthens_with_zeros(disk):
    file = disk.open("f", create=True)
    file.write_at(0, [b"abcdef"])
    file.truncate(2)
    file.truncate(4)
    assert file.read_at(0, 10) == b"ab\0\0"
    file.write_at(6, [b"x"])
    assert file.read_at(0, 10) == b"ab\0\0\0\0x"


def test_cached_reads_are_right_or_none(disk):
    write(disk, "f", b"0123456789", sync=True)
    file = disk.open("f")
    file.start_writeback(0, 10)
    assert file.read_cached(2, 3) in (b"234", None)
    assert file.read_cached(8, 5) in (b"89", None)
    assert file.read_cached(0, 0) == b""
    file.drop_cached(10)
    file.drop_cached(0)
    assert file.read_cached(2, 3) in (b"234", None)
    assert file.read_at(0, 20) == b"0123456789"


def test_open_without_create_needs_the_file(disk):
    with pytest.raises(FileNotFoundError):
        disk.open("f")
    with pytest.raises(FileNotFoundError):
        disk.open("no/f", create=True)
    disk.mkdir("d")
    with pytest.raises(IsADirectoryError):
        disk.open("d")


def test_open_with_create_keeps_the_bytes(disk):
    write(disk, "f", b"abc")
    assert disk.open("f", create=True).read_at(0, 9) == b"abc"


def test_directories(disk):
    disk.mkdir("a/b/c")
    disk.mkdir("a/b/c")
    assert disk.exists("a/b")
    assert not disk.exists("a/x")
    assert not disk.exists("a/x/y")
    write(disk, "a/b/z", b"")
    write(disk, "a/b/d", b"")
    assert disk.listdir("a/b") == ["c", "d", "z"]
    assert disk.listdir("nothing") == []
    assert disk.listdir("a/b/z") == []
    assert disk.listdir("") == ["a"]
    disk.sync_dir("a/b")
    disk.sync_dir("")
    with pytest.raises(FileNotFoundError):
        disk.sync_dir("nothing")
    with pytest.raises((NotADirectoryError, FileExistsError)):
        disk.mkdir("a/b/z")


def test_remove_and_remove_tree(disk):
    disk.mkdir("a/b")
    write(disk, "a/f", b"1")
    write(disk, "a/b/g", b"2")
    disk.remove("a/f")
    with pytest.raises(FileNotFoundError):
        disk.remove("a/f")
    with pytest.raises((IsADirectoryError, PermissionError)):
        disk.remove("a/b")
    disk.remove_tree("a")
    disk.remove_tree("a")
    assert disk.listdir("") == []


def test_rename_replaces_and_moves(disk):
    disk.mkdir("d")
    disk.mkdir("e")
    write(disk, "new", b"1")
    write(disk, "old", b"2")
    disk.rename("new", "old")
    assert read(disk, "old") == b"1"
    assert not disk.exists("new")
    disk.rename("old", "d/f")
    disk.rename("d", "e")
    assert read(disk, "e/f") == b"1"
    with pytest.raises(FileNotFoundError):
        disk.rename("d", "x")
    disk.mkdir("d")
    with pytest.raises(OSError, match=r"not empty|ENOTEMPTY"):
        disk.rename("d", "e")


def test_an_open_file_survives_its_name(disk):
    file = disk.open("f", create=True)
    disk.remove("f")
    file.write_at(0, [b"x"])
    file.fdatasync()
    assert file.read_at(0, 1) == b"x"
    write(disk, "f", b"other")
    assert file.read_at(0, 9) == b"x"


def test_two_handles_see_one_file(disk):
    one = disk.open("f", create=True)
    two = disk.open("f")
    one.write_at(0, [b"x"])
    assert two.read_at(0, 1) == b"x"
    disk.rename("f", "g")
    two.write_at(1, [b"y"])
    assert read(disk, "g") == b"xy"


def test_a_closed_handle_is_useless(disk):
    file = disk.open("f", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError, match=r"closed|Bad file"):
        file.read_at(0, 1)


def test_space(disk):
    free, total = disk.space()
    assert 0 < free <= total


# ---- the real one


def test_one_process_owns_a_directory(tmp_path):
    first, second = OsDisk(str(tmp_path)), OsDisk(str(tmp_path))
    first.lock()
    with pytest.raises(DirectoryInUse, match="in use by process"):
        second.lock()
    first.unlock()
    first.unlock()
    second.lock()
    second.unlock()


# ---- the simulated one


def crashed(seed: int, act) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    act(disk)
    disk.crash()
    return disk


def test_synced_bytes_and_names_survive_every_crash():
    def act(disk: SimDisk) -> None:
        write(disk, "f", b"x" * 2000, sync=True)
        disk.sync_dir("")
        disk.open("f").write_at(3000, [b"y" * 2000])

    for seed in range(50):
        disk = crashed(seed, act)
        data = read(disk, "f")
        assert data[:2000] == b"x" * 2000
        assert set(data[2000:3000]) <= {0}
        assert set(data[3000:]) <= {0, ord("y")}


def test_unsynced_sectors_are_lost_kept_and_torn():
    def act(disk: SimDisk) -> None:
        write(disk, "f", b"a" * SECTOR_BYTES * 8, sync=True)
        disk.sync_dir("")
        disk.open("f").write_at(0, [b"b" * SECTOR_BYTES * 8])

    seen = set()
    for seed in range(60):
        data = read(crashed(seed, act), "f")
        sectors = [data[i : i + SECTOR_BYTES] for i in range(0, len(data), SECTOR_BYTES)]
        assert all(s in (b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES) for s in sectors)
        seen.add(bytes(s[0] for s in sectors))
    assert b"a" * 8 in seen
    assert b"b" * 8 in seen
    assert len(seen) > 10


def test_writes_of_one_sector_arrive_in_order():
    def act(disk: SimDisk) -> None:
        file = disk.open("f", create=True)
        disk.sync_dir("")
        for i in range(4):
            file.write_at(i, [bytes([i + 1])])

    seen = {read(crashed(seed, act), "f") for seed in range(80)}
    assert seen == {b"", b"\1", b"\1\2", b"\1\2\3", b"\1\2\3\4"}


def test_unsynced_names_are_lost_or_kept_consistently():
    def act(disk: SimDisk) -> None:
        write(disk, "old", b"1", sync=True)
        disk.sync_dir("")
        write(disk, "tmp", b"2", sync=True)
        disk.rename("tmp", "old")

    seen = set()
    for seed in range(60):
        disk = crashed(seed, act)
        seen.add((tuple(disk.listdir("")), read(disk, "old")))
    assert seen == {(("old",), b"1"), (("old", "tmp"), b"1"), (("old",), b"2")}


def test_a_removed_name_may_come_back_until_the_directory_is_synced():
    def act(disk: SimDisk) -> None:
        write(disk, "f", b"1", sync=True)
        disk.sync_dir("")
        disk.remove("f")

    assert {crashed(seed, act).exists("f") for seed in range(30)} == {False, True}
    gone = SimDisk(random.Random(1))
    act(gone)
    gone.sync_dir("")
    gone.crash()
    assert not gone.exists("f")


def test_syncing_a_directory_brings_along_what_a_move_depends_on():
    disk = SimDisk(random.Random(3))
    disk.mkdir("a")
    disk.mkdir("b")
    write(disk, "a/f", b"1", sync=True)
    disk.rename("a/f", "b/f")
    disk.sync_dir("b")
    disk.crash()
    assert disk.listdir("a") == []
    assert read(disk, "b/f") == b"1"


def test_a_crash_ends_handles_and_equal_seeds_are_equal():
    def act(disk: SimDisk) -> None:
        write(disk, "f", random.Random(5).randbytes(9000))
        write(disk, "g", b"z" * 700)

    one, two = crashed(9, act), crashed(9, act)
    assert one.listdir("") == two.listdir("")
    assert [read(one, p) for p in one.listdir("")] == [read(two, p) for p in two.listdir("")]
    file = one.open("h", create=True)
    one.crash()
    with pytest.raises(OSError, match="crashed"):
        file.write_at(0, [b"x"])


def test_a_failed_sync_loses_bytes_that_a_later_sync_does_not_bring_back():
    lost = 0
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        disk.mkdir("wal")
        file = disk.open("wal/f", create=True)
        disk.sync_dir("wal")
        file.write_at(0, [b"x" * 4096])
        disk.fail_fdatasync("wal/")
        with pytest.raises(OSError, match="input/output") as caught:
            file.fdatasync()
        assert caught.value.errno == errno.EIO
        file.fdatasync()
        assert file.read_at(0, 4096) == b"x" * 4096
        disk.crash()
        lost += read(disk, "wal/f") != b"x" * 4096
    assert lost


def test_a_lying_disk_loses_synced_bytes():
    disk = SimDisk(random.Random(0))
    disk.lies = True
    lost = 0
    for _ in range(20):
        write(disk, "f", b"x" * 600, sync=True)
        disk.sync_dir("")
        disk.crash()
        lost += not disk.exists("f") or read(disk, "f") != b"x" * 600
        disk.wipe()
    assert lost


def test_scripted_read_and_write_errors():
    disk = SimDisk(random.Random(0))
    write(disk, "f", b"abc", sync=True)
    disk.fail_reads("f", times=2)
    for _ in range(2):
        with pytest.raises(OSError, match="input/output"):
            read(disk, "f")
    assert read(disk, "f") == b"abc"
    disk.fail_writes("f")
    with pytest.raises(OSError, match="input/output"):
        disk.open("f").write_at(0, [b"xyz"])


def test_random_errors_come_with_the_odds():
    disk = SimDisk(random.Random(0), odds=DiskOdds(read_eio=500_000, cold_read=500_000))
    write(disk, "f", b"abc", sync=True)
    file = disk.open("f")
    failed = cold = 0
    for _ in range(100):
        try:
            file.read_at(0, 3)
        except OSError:
            failed += 1
        cold += file.read_cached(0, 3) is None
    assert 20 < failed < 80
    assert 20 < cold < 80


def test_a_full_disk_refuses_and_frees():
    disk = SimDisk(random.Random(0), capacity_bytes=1000)
    write(disk, "f", b"x" * 900, sync=True)
    assert disk.space() == (100, 1000)
    with pytest.raises(OSError, match="no space") as caught:
        write(disk, "g", b"y" * 101)
    assert caught.value.errno == errno.ENOSPC
    assert disk.space() == (0, 1000)
    with pytest.raises(OSError, match="no space"):
        disk.open("f").allocate(901)
    disk.open("f").write_at(0, [b"z" * 900])  # no new bytes: fits
    disk.remove("g")
    disk.sync_dir("")
    assert disk.space() == (100, 1000)
    disk.crash()
    assert disk.space() == (100, 1000)


def test_a_flipped_bit_is_seen_and_survives():
    disk = SimDisk(random.Random(0))
    write(disk, "f", b"\0" * 10, sync=True)
    disk.sync_dir("")
    disk.flip_bit("f", 4, 3)
    assert read(disk, "f")[4] == 8
    disk.crash()
    assert read(disk, "f")[4] == 8


def test_power_goes_off_at_a_chosen_operation():
    disk = SimDisk(random.Random(0))
    disk.power_off_after(2)
    file = disk.open("f", create=True)
    file.write_at(0, [b"abc"])
    with pytest.raises(PowerLoss):
        file.fdatasync()
    with pytest.raises(PowerLoss):
        file.fdatasync()
    disk.crash()
    write(disk, "f", b"1", sync=True)


def test_allocation_takes_no_memory_and_crash_keeps_or_loses_it_whole():
    def act(disk: SimDisk) -> None:
        file = disk.open("f", create=True)
        disk.sync_dir("")
        file.allocate(1 << 30)

    assert {crashed(seed, act).open("f").size() for seed in range(20)} == {0, 1 << 30}
