"""The mounted disk, through the kernel: synced bytes stay, others go, errors come when told to."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftline.chaos.fuse_wire import why_not
from raftline.chaos.lossy_disk import LossyDisk
from raftline.storage.os_disk import OsDisk

pytestmark = pytest.mark.skipif(
    bool(why_not()), reason="no file system of our own can be mounted here"
)
MB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[LossyDisk, Path]]:
    home = tmp_path / "home"
    home.mkdir()
    made = LossyDisk(home, tmp_path / "disks" / "home", seed=3, capacity_bytes=64 * MB)
    yield made, home
    made.close()


def test_synced_bytes_stay_and_others_are_lost(disk: tuple[LossyDisk, Path]):
    """The question the whole thing is about; asked of the storage port that nodes use."""
    power, home = disk
    lost = 0
    for number in range(20):
        ours = OsDisk(str(home))
        ours.mkdir(f"wal{number}")
        file = ours.open(f"wal{number}/1", create=True)
        file.allocate(MB)
        file.write_at(0, [b"synced" * 1000])
        file.fdatasync()
        ours.sync_dir(f"wal{number}")
        file.write_at(6000, [b"unsync" * 1000])
        assert file.read_at(6000, 6) == b"unsync"
        file.close()
        told = power.cut()
        assert told["bytes"] == 6000
        held = (home / f"wal{number}" / "1").read_bytes()
        assert len(held) == MB
        assert held[:6000] == b"synced" * 1000
        lost += held[6000:12000] != b"unsync" * 1000
    assert lost >= 10


def test_it_is_a_file_system_like_any_other(disk: tuple[LossyDisk, Path]):
    _, home = disk
    (home / "a" / "b").mkdir(parents=True)
    for number in range(300):
        (home / "a" / "b" / f"file with a long name, number {number}").write_text(str(number))
    assert len(list((home / "a" / "b").iterdir())) == 300
    big = os.urandom(3 * MB + 17)
    (home / "big").write_bytes(big)
    (home / "big").replace(home / "a" / "bigger")
    assert (home / "a" / "bigger").read_bytes() == big
    with (home / "a" / "bigger").open("r+b") as opened:
        opened.truncate(10)
    assert (home / "a" / "bigger").read_bytes() == big[:10]
    assert not (home / "big").exists()
    with pytest.raises(FileExistsError):
        (home / "a").mkdir()
    with pytest.raises(OSError, match="not empty"):
        (home / "a").rmdir()
    with (home / "a" / "bigger").open("rb") as opened:
        (home / "a" / "bigger").unlink()
        assert opened.read() == big[:10]  # an open file outlives its name
    shutil.rmtree(home / "a")
    assert not list(home.iterdir())


@pytest.mark.parametrize("what", ["read", "write", "sync"])
def test_calls_fail_with_eio_as_often_as_told(disk: tuple[LossyDisk, Path], what: str):
    power, home = disk
    (home / "wal").mkdir()
    calls = {"read": lambda f: os.pread(f, 1, 0), "write": lambda f: os.pwrite(f, b"x", 0)}
    for name in ("other", "wal/1"):
        (home / name).write_bytes(b"x")
    files = {name: os.open(home / name, os.O_RDWR) for name in ("other", "wal/1")}
    call = calls.get(what, os.fdatasync)
    power.fail(what, "wal/*", 2)
    try:
        for _ in range(2):
            call(files["other"])
            with pytest.raises(OSError, match="Input/output") as told:
                call(files["wal/1"])
            assert told.value.errno == errno.EIO
        call(files["wal/1"])
        power.fail(what, "*")
        with pytest.raises(OSError, match="Input/output"):
            call(files["other"])
        power.heal()
        call(files["other"])
        assert power.show()["failed"] == 3
    finally:
        for file in files.values():
            os.close(file)


def test_it_fills_up_and_is_freed(disk: tuple[LossyDisk, Path]):
    _, home = disk
    with (home / "filler").open("wb") as opened:
        os.posix_fallocate(opened.fileno(), 0, shutil.disk_usage(home).free)
        with pytest.raises(OSError, match="No space"):
            (home / "more").write_bytes(b"x" * 10)
        assert shutil.disk_usage(home).free == 0
    (home / "filler").unlink()
    (home / "more").write_bytes(b"x" * 10)


def test_what_is_left_lies_there_as_plain_files(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    power = LossyDisk(home, tmp_path / "disks" / "home", seed=3)
    (home / "a").mkdir()
    (home / "a" / "x").write_text("evidence")
    power.close()
    assert not os.path.ismount(home)
    assert (home / "a" / "x").read_text() == "evidence"
    with pytest.raises((OSError, ValueError)):
        power.show()
