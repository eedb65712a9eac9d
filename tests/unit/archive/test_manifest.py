"""The manifest: a version appears whole or not at all, and only one of two writers gets it."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from raftline.archive import manifest as manifests
from raftline.archive.layout import MANIFESTS, manifest_name, partition_folder
from raftline.archive.manifest import Gap, ManifestMoved, list_versions
from raftline.model.errors import Conflict, NewerFormat
from tests.unit.archive.rows import TOPIC, file, manifest

# A process that is gone in the middle of a commit: before or after its n-th call of the system.
CRASH = """
import os, sys
from pathlib import Path
from raftline.archive import manifest as manifests
from tests.unit.archive.rows import file, manifest

left = int(sys.argv[2])

def fatal(name):
    real = getattr(os, name)
    def call(*args, **kwargs):
        global left
        left -= 1
        if left == 0 and sys.argv[3] == "before":
            os._exit(3)
        result = real(*args, **kwargs)
        if left == 0:
            os._exit(3)
        return result
    setattr(os, name, call)

for name in ("fsync", "link", "unlink"):
    fatal(name)
manifests.commit(Path(sys.argv[1]), manifest(2, files=(file(0, 10), file(10, 20))))
os._exit(0)
"""
STEPS = 5  # fsync of the file, link, unlink of the name aside, fsync of the folder; then it is over


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_crash_at_any_step_leaves_the_old_version_or_the_new(
    tmp_path: Path, step: int, when: str
) -> None:
    manifests.commit(tmp_path, manifest(1, files=(file(0, 10),)))
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(tmp_path), str(step), when],
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == (3 if step < STEPS else 0)
    found = manifests.load(tmp_path, TOPIC, 0)
    assert found is not None
    is_new = step > 2 or (step == 2 and when == "after")
    assert (found.version, found.end) == ((2, 20) if is_new else (1, 10))
    after = manifest(found.version + 1, files=(*found.files, file(found.end, 30)))
    stored = manifests.commit(tmp_path, after)
    assert manifests.load(tmp_path, TOPIC, 0) == stored


def test_nothing_archived_is_no_manifest(tmp_path: Path) -> None:
    assert manifests.load(tmp_path, TOPIC, 0) is None


def test_of_two_writers_one_is_told_that_it_was_too_late(tmp_path: Path) -> None:
    manifests.commit(tmp_path, manifest(1, files=(file(0, 10),)))
    manifests.commit(tmp_path, manifest(2, files=(file(0, 10), file(10, 20))))
    with pytest.raises(ManifestMoved, match="orders/0"):
        manifests.commit(tmp_path, manifest(2, files=(file(0, 10), file(10, 99))))
    found = manifests.load(tmp_path, TOPIC, 0)
    assert found is not None
    assert found.end == 20
    assert [path.name for path in folder(tmp_path).iterdir() if path.name.startswith(".")] == []


def test_a_writer_that_slept_does_not_take_a_version_that_was_removed(tmp_path: Path) -> None:
    files = tuple(file(at, at + 1) for at in range(60))
    for version in range(1, 60):
        manifests.commit(tmp_path, manifest(version, files=files[:version]))
    assert list_versions(folder(tmp_path)) == list(range(44, 60))
    for version in (1, 2, 5, 43, 44, 59):
        with pytest.raises(ManifestMoved):
            manifests.commit(tmp_path, manifest(version, files=files[:version]))
    assert list_versions(folder(tmp_path)) == list(range(44, 60))


def test_a_version_that_others_built_on_meanwhile_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = manifests.commit(tmp_path, manifest(1, files=(file(0, 1),)))
    real = manifests._put_if_absent

    def put_and_be_followed(aside: Path, path: Path, where: str, version: int) -> None:
        real(aside, path, where, version)
        monkeypatch.undo()
        mine = manifests.load(tmp_path, TOPIC, 0)
        assert mine is not None
        fields = {"version": 3, "files": (*mine.files, file(2, 3))}
        manifests.commit(tmp_path, manifests.msgspec.structs.replace(mine, **fields))

    monkeypatch.setattr(manifests, "_put_if_absent", put_and_be_followed)
    fields = {"version": 2, "files": (*first.files, file(1, 2))}
    manifests.commit(tmp_path, manifests.msgspec.structs.replace(first, **fields))
    found = manifests.load(tmp_path, TOPIC, 0)
    assert found is not None
    assert (found.version, found.end) == (3, 3)


def test_readers_never_see_half_a_version(tmp_path: Path) -> None:
    files = tuple(file(at, at + 1) for at in range(120))
    manifests.commit(tmp_path, manifest(1, files=files[:1]))
    wrong: list[str] = []
    is_over = threading.Event()

    def read() -> None:
        seen = 0
        while not is_over.is_set():
            found = manifests.load(tmp_path, TOPIC, 0)
            if found is None or found.end < seen or found.end != found.version:
                wrong.append(str(found))
                return
            seen = found.end

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for version in range(2, 121):
        manifests.commit(tmp_path, manifest(version, files=files[:version]))
    is_over.set()
    for reader in readers:
        reader.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ((file(0, 10), file(5, 20)), "overlaps at orders/0@5"),
        ((file(0, 10), file(0, 10)), "overlaps at orders/0@0"),
        ((file(0, 10), file(11, 20)), "has a hole at orders/0@10"),
        ((file(0, 10), file(10, 10)), "empty range"),
    ],
)
def test_overlaps_and_holes_are_refused(tmp_path: Path, pieces: tuple, said: str) -> None:
    bad = manifest(1, files=pieces)
    with pytest.raises(Conflict, match=said):
        manifests.commit(tmp_path, bad)
    assert manifests.load(tmp_path, TOPIC, 0) is None
    write(tmp_path, 1, manifests.msgspec.json.encode(bad))
    with pytest.raises(Conflict, match=said):
        manifests.load(tmp_path, TOPIC, 0)


def test_a_gap_that_is_written_down_is_no_hole(tmp_path: Path) -> None:
    made = manifest(1, files=(file(0, 10), file(15, 20)), gaps=(Gap(10, 15, "trimmed"),))
    made = manifests.commit(tmp_path, made)
    assert manifests.load(tmp_path, TOPIC, 0) == made
    assert (made.start, made.end, made.count) == (0, 20, 15)


def test_a_newer_format_and_damage_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, 1, b'{"format": 2, "unheard_of": []}')
    with pytest.raises(NewerFormat, match="orders/0"):
        manifests.load(tmp_path, TOPIC, 0)
    write(tmp_path, 2, b'{"format": 1, "version": 2, "topic"')
    with pytest.raises(Conflict, match="damaged"):
        manifests.load(tmp_path, TOPIC, 0)


def folder(root: Path) -> Path:
    return partition_folder(root, TOPIC, 0) / MANIFESTS


def write(root: Path, version: int, data: bytes) -> None:
    folder(root).mkdir(parents=True, exist_ok=True)
    (folder(root) / manifest_name(version)).write_bytes(data)
