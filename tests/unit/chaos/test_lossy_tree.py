"""What a cut may take and what it must leave, over many seeds and without a mount."""

import random
from pathlib import Path

import pytest

from raftline.chaos.lossy_tree import ROOT, SECTOR_BYTES, Tree

SEEDS = range(60)


def new_tree(directory: Path, seed: int) -> Tree:
    backing = directory / str(seed)
    backing.mkdir()
    return Tree(backing, random.Random(seed))


def values(tmp_path: Path, change) -> set[bytes | None]:
    """Return what file ``f`` holds after a cut, over all seeds; None: it is not there."""
    found: set[bytes | None] = set()
    for seed in SEEDS:
        tree = new_tree(tmp_path, seed)
        change(tree)
        tree.cut()
        number = tree.entries(ROOT).get("f")
        found.add(None if number is None else tree.contents[number].read(0, 1 << 20))
    return found


def test_synced_bytes_and_names_survive_every_cut(tmp_path: Path):
    def change(tree: Tree) -> None:
        file = tree.make(ROOT, "f", 0o644, is_directory=False)
        file.write(0, b"kept")
        file.sync()
        tree.sync_names(ROOT)

    assert values(tmp_path, change) == {b"kept"}


def test_a_name_that_was_not_synced_may_be_gone(tmp_path: Path):
    def change(tree: Tree) -> None:
        file = tree.make(ROOT, "f", 0o644, is_directory=False)
        file.write(0, b"kept")
        file.sync()

    assert values(tmp_path, change) == {b"kept", None}


def test_unsynced_bytes_are_lost_torn_or_there(tmp_path: Path):
    new = b"n" * 3 * SECTOR_BYTES

    def change(tree: Tree) -> None:
        file = tree.make(ROOT, "f", 0o644, is_directory=False)
        file.write(0, b"o" * 3 * SECTOR_BYTES)
        file.sync()
        tree.sync_names(ROOT)
        file.write(0, new)

    found = values(tmp_path, change)
    assert {b"o" * 3 * SECTOR_BYTES, new} < found
    for value in found:  # sectors are whole: old or new
        assert value is not None
        for at in range(0, len(value), SECTOR_BYTES):
            assert len(set(value[at : at + SECTOR_BYTES])) == 1
    assert any(len(set(value or b"")) == 2 for value in found), "never torn"


def test_a_file_does_not_keep_a_length_that_was_not_synced_for_sure(tmp_path: Path):
    def change(tree: Tree) -> None:
        file = tree.make(ROOT, "f", 0o644, is_directory=False)
        file.write(0, b"123456")
        file.sync()
        tree.sync_names(ROOT)
        file.resize(3)
        file.resize(5)

    assert values(tmp_path, change) >= {b"123456", b"123\0\0"}


def test_a_rename_happens_whole_or_not_at_all(tmp_path: Path):
    for seed in SEEDS:
        tree = new_tree(tmp_path, seed)
        for name in ("f", "new"):
            file = tree.make(ROOT, name, 0o644, is_directory=False)
            file.write(0, name.encode())
            file.sync()
        tree.sync_names(ROOT)
        tree.rename(ROOT, "new", ROOT, "f")
        tree.cut()
        names = tree.entries(ROOT)
        held = {name: tree.contents[number].read(0, 10) for name, number in names.items()}
        assert held in ({"f": b"f", "new": b"new"}, {"f": b"new"})


def test_nothing_survives_that_builds_on_what_did_not(tmp_path: Path):
    for seed in SEEDS:
        tree = new_tree(tmp_path, seed)
        tree.make(ROOT, "a", 0o644, is_directory=False)
        tree.rename(ROOT, "a", ROOT, "b")
        tree.rename(ROOT, "b", ROOT, "c")
        tree.cut()
        assert len(tree.entries(ROOT)) <= 1
        assert set(tree.entries(ROOT).values()) <= set(tree.contents)


def test_a_failed_sync_loses_bytes_that_a_later_one_does_not_save(tmp_path: Path):
    lost = 0
    for seed in SEEDS:
        tree = new_tree(tmp_path, seed)
        file = tree.make(ROOT, "f", 0o644, is_directory=False)
        tree.sync_names(ROOT)
        file.write(0, b"first")
        file.fail_sync(random.Random(seed))
        file.write(5, b"second")
        file.sync()
        assert file.read(0, 20) == b"firstsecond"  # until the power fails
        tree.cut()
        assert file.read(5, 20) == b"second"
        lost += file.read(0, 5) != b"first"
    assert 10 < lost < 50


def test_a_removed_file_comes_back_unless_its_directory_was_synced(tmp_path: Path):
    back = 0
    for seed in SEEDS:
        tree = new_tree(tmp_path, seed)
        file = tree.make(ROOT, "f", 0o644, is_directory=False)
        file.write(0, b"x")
        file.sync()
        tree.sync_names(ROOT)
        tree.remove(ROOT, "f")
        if seed % 2:
            tree.sync_names(ROOT)
            assert file.number not in tree.contents
        tree.cut()
        if "f" in tree.entries(ROOT):
            assert seed % 2 == 0
            assert tree.contents[tree.entries(ROOT)["f"]].read(0, 1) == b"x"
            back += 1
    assert back


def test_a_removed_directory_takes_its_open_changes_with_it(tmp_path: Path):
    tree = new_tree(tmp_path, 1)
    shards = tree.make(ROOT, "shards", 0o755, is_directory=True)
    tree.sync_names(ROOT)
    tree.make(shards.number, "log", 0o644, is_directory=False)
    tree.remove(shards.number, "log")
    tree.remove(ROOT, "shards")
    tree.sync_names(ROOT)
    tree.cut()
    assert list(tree.contents) == [ROOT]


def test_a_full_directory_is_not_removed(tmp_path: Path):
    tree = new_tree(tmp_path, 1)
    shards = tree.make(ROOT, "shards", 0o755, is_directory=True)
    tree.make(shards.number, "log", 0o644, is_directory=False)
    with pytest.raises(OSError, match="not empty"):
        tree.remove(ROOT, "shards")
    with pytest.raises(FileNotFoundError):
        tree.remove(ROOT, "elsewhere")
    with pytest.raises(FileExistsError):
        tree.make(ROOT, "shards", 0o755, is_directory=True)
