"""Merging and removing: the same messages in fewer files, while others read and archive."""

import os
from pathlib import Path

import pytest

from raftline.archive import compaction
from raftline.archive import manifest as manifests
from raftline.archive.compaction import Merged, commit_merges, merge_files, plan_merges
from raftline.archive.manifest import Manifest
from raftline.archive.reader import Archive
from raftline.archive.writer import RangeWriter, write_range
from raftline.client import clock
from tests.unit.archive.rows import HOUR_MS, NOON_MS, TOPIC, file, manifest, offsets, put, rows

MANY = 1 << 30


def small(root: Path, count: int = 6) -> Manifest:
    return put(root, *[(at * 10, [NOON_MS] * 10) for at in range(count)])


def merge_all(root: Path, made: Manifest) -> list[Merged]:
    return [merge_files(merge) for merge in plan_merges(root, made, MANY)]


def test_small_files_become_one_and_old_ones_stay_for_their_readers(tmp_path: Path) -> None:
    before = small(tmp_path)
    archive = Archive(tmp_path)
    old = archive.slices(TOPIC, 0)
    after = commit_merges(tmp_path, merge_all(tmp_path, before), 1000)
    assert after is not None
    assert [(one.start, one.end, one.count) for one in after.files] == [(0, 60, 60)]
    assert offsets(archive.batches(TOPIC, 0)) == list(range(60))
    assert all(Path(one.path).exists() for one in old)

    assert compaction.remove_retired(tmp_path, TOPIC, 0, 1099, 100).files == 0
    assert compaction.remove_retired(tmp_path, TOPIC, 0, 1100, 100).files == 6
    assert not any(Path(one.path).exists() for one in old)
    assert offsets(archive.batches(TOPIC, 0)) == list(range(60))
    assert compaction.remove_retired(tmp_path, TOPIC, 0, 9999, 100).files == 0


def test_what_was_merged_is_not_merged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that compress well: large in memory, small on disk."""
    for made in (RangeWriter.__init__, write_range):
        monkeypatch.setitem(made.__kwdefaults__, "file_bytes", 100)
    before = small(tmp_path)
    after = commit_merges(tmp_path, merge_all(tmp_path, before), 1000)
    assert after is not None
    assert [(one.start, one.end, one.count) for one in after.files] == [(0, 60, 60)]
    assert list(plan_merges(tmp_path, after, MANY)) == []


def test_what_is_archived_meanwhile_is_kept(tmp_path: Path) -> None:
    before = small(tmp_path)
    merged = merge_all(tmp_path, before)
    new = write_range(tmp_path, TOPIC, 0, 60, 70, rows(60, [NOON_MS] * 10))
    fields = {"version": 2, "files": (*before.files, *new)}
    manifests.commit(tmp_path, manifests.msgspec.structs.replace(before, **fields))
    after = commit_merges(tmp_path, merged, 1000)
    assert after is not None
    assert [(one.start, one.end) for one in after.files] == [(0, 60), (60, 70)]
    assert offsets(Archive(tmp_path).batches(TOPIC, 0)) == list(range(70))


def test_of_two_who_merge_the_same_one_changes_nothing(tmp_path: Path) -> None:
    before = small(tmp_path)
    first, second = merge_all(tmp_path, before), merge_all(tmp_path, before)
    assert commit_merges(tmp_path, first, 1000) is not None
    assert commit_merges(tmp_path, second, 1000) is None
    assert offsets(Archive(tmp_path).batches(TOPIC, 0)) == list(range(60))


def test_runs_end_at_hours_gaps_and_large_files(tmp_path: Path) -> None:
    def sized(start: int, size: int, hour: int = 0) -> manifests.ArchiveFile:
        fields = {"bytes": size, "path": f"date=d/hour={hour}/{start}"}
        return manifests.msgspec.structs.replace(file(start, start + 10), **fields)

    def runs(*files: manifests.ArchiveFile) -> list[list[int]]:
        made = manifest(files=files)
        return [[one.start for one in run.files] for run in plan_merges(tmp_path, made, 100)]

    assert runs(sized(0, 10), sized(10, 10), sized(20, 10, 1), sized(30, 10, 1)) == [
        [0, 10], [20, 30],
    ]  # fmt: skip
    assert runs(sized(0, 10), sized(20, 10), sized(30, 10)) == [[20, 30]]
    assert runs(sized(0, 10), sized(10, 10), sized(20, 70), sized(30, 10)) == [[0, 10]]
    assert runs(sized(0, 40), sized(10, 40), sized(20, 40), sized(30, 40)) == [[0, 10], [20, 30]]
    assert runs(sized(0, 10)) == runs() == []


def test_files_that_nobody_named_go_after_a_day_and_others_never(tmp_path: Path) -> None:
    made = put(tmp_path, (0, [NOON_MS] * 10), (10, [NOON_MS + HOUR_MS] * 10))
    left = write_range(tmp_path, TOPIC, 0, 20, 30, rows(20, [NOON_MS + 9 * HOUR_MS] * 10))
    folder = tmp_path / "topic=orders" / "partition=0"
    unfinished = folder / made.files[0].path.replace("/0", "/.0").replace("quet", "quet.tmp")
    unfinished.write_bytes(b"half")
    now_ms = clock.wall_ms()
    assert compaction.remove_orphans(tmp_path, TOPIC, 0, now_ms).files == 0
    later_ms = now_ms + compaction.ORPHAN_MS + 60_000
    assert compaction.remove_orphans(tmp_path, TOPIC, 0, later_ms).files == 2
    assert not unfinished.exists()
    assert not (folder / left[0].path).parent.exists()
    assert offsets(Archive(tmp_path).batches(TOPIC, 0)) == list(range(20))


def test_retired_files_are_no_orphans(tmp_path: Path) -> None:
    before = small(tmp_path, 2)
    commit_merges(tmp_path, merge_all(tmp_path, before), 1000)
    for path in tmp_path.rglob("*.parquet"):
        os.utime(path, (0, 0))
    assert compaction.remove_orphans(tmp_path, TOPIC, 0, clock.wall_ms()).files == 0
