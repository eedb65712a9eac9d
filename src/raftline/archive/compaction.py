"""Making few large files of many small ones, and removing what nobody needs any more.

Files that are replaced are *retired*: the next manifest no longer counts them, and they stay until
the grace period is over, for readers of an older one. Files that no manifest ever named (a task was
given up on, a job ended) go when they are a day old: by then no job is about to name them.

Invariants
    O1  A merged file holds the messages of the files it replaces, in order, and no others.
    O2  Files go away only after a durable manifest neither counts nor retires them.
    O3  Jobs that archive meanwhile are not disturbed: what they appended is kept.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from raftline.archive import manifest as manifests
from raftline.archive.layout import SUFFIX, UNFINISHED, partition_folder
from raftline.archive.manifest import ArchiveFile, Manifest, ManifestMoved, Retired
from raftline.model.errors import Conflict
from raftline.model.limits import MIB
from raftline.model.names import place

FILE_BYTES = 256 * MIB  # of a merged file, about
UNBOUNDED = 1 << 62
ORPHAN_MS = 24 * 3_600_000
TRIES_MAX = 20


class Merge(msgspec.Struct, frozen=True):
    """Neighbouring files that become one; plain data, for executors."""

    root: str
    topic: str
    partition: int
    files: tuple[ArchiveFile, ...]


class Merged(msgspec.Struct, frozen=True):
    """What a merge made."""

    merge: Merge
    files: list[ArchiveFile]


class Removed(msgspec.Struct, frozen=True):
    """How much was removed."""

    files: int = 0
    bytes: int = 0


def plan_merges(root: Path, manifest: Manifest, file_bytes: int = FILE_BYTES) -> Iterator[Merge]:
    """Yield runs of neighbouring small files of the same hour."""
    run: list[ArchiveFile] = []

    def made() -> Iterator[Merge]:
        if len(run) > 1:
            yield Merge(str(root), manifest.topic, manifest.partition, tuple(run))
        run.clear()

    for file in manifest.files:
        is_next = bool(run) and run[-1].end == file.start and _hour(run[-1]) == _hour(file)
        if not is_next or sum(one.bytes for one in run) + file.bytes > file_bytes:
            yield from made()
        if file.bytes < file_bytes // 2:
            run.append(file)
        else:
            yield from made()
    yield from made()


def merge_files(merge: Merge) -> Merged:
    """Write the messages of some files into new ones. O1. Raises Conflict on damage."""
    from raftline.archive.reader import read_slice, slice_of
    from raftline.archive.writer import write_range

    root, first, last = Path(merge.root), merge.files[0], merge.files[-1]
    folder = partition_folder(root, merge.topic, merge.partition)
    pieces = [slice_of(folder, merge.topic, merge.partition, file) for file in merge.files]
    batches = (batch for piece in pieces for batch in read_slice(piece))
    # How large the file may be was planned, by what the messages take on disk.
    place_of = (root, merge.topic, merge.partition, first.start, last.end)
    files = write_range(*place_of, batches, file_bytes=UNBOUNDED)
    before, after = sum(f.count for f in merge.files), sum(f.count for f in files)
    if before != after:
        raise Conflict(
            f"merging {place(merge.topic, merge.partition, first.start)} made {after} messages of"
            f" {before}; nothing was changed"
        )
    return Merged(merge, files)


def commit_merges(root: Path, merged: Sequence[Merged], now_ms: int) -> Manifest | None:
    """Let the merged files of one partition count instead of the small ones. O3.

    Returns None, and changes nothing, where the small ones do not count any more.
    """
    topic, partition = merged[0].merge.topic, merged[0].merge.partition
    for _ in range(TRIES_MAX):
        current = manifests.load(root, topic, partition)
        after = None if current is None else _swap(current, merged, now_ms)
        if after is None:
            return None
        try:
            return manifests.commit(root, after)
        except ManifestMoved:
            continue  # somebody archived meanwhile
    raise Conflict(
        f"the archive of {place(topic, partition)} changes all the time; it was not optimized",
        "archive with longer pauses, or optimize later",
    )


def remove_retired(root: Path, topic: str, partition: int, now_ms: int, grace_ms: int) -> Removed:
    """Remove files that were replaced longer ago than the grace period. O2."""
    for _ in range(TRIES_MAX):
        current = manifests.load(root, topic, partition)
        if current is None:
            return Removed()
        gone = [one for one in current.retired if one.at_ms + grace_ms <= now_ms]
        if not gone:
            return Removed()
        left = tuple(one for one in current.retired if one not in gone)
        after = msgspec.structs.replace(
            current, version=current.version + 1, written_ms=now_ms, retired=left
        )
        try:
            manifests.commit(root, after)
        except ManifestMoved:
            continue
        return _remove(partition_folder(root, topic, partition), [one.path for one in gone])
    return Removed()


def remove_orphans(
    root: Path, topic: str, partition: int, now_ms: int, orphan_ms: int = ORPHAN_MS
) -> Removed:
    """Remove old files that no manifest names. O2."""
    folder = partition_folder(root, topic, partition)
    found = [
        str(path.relative_to(folder))
        for path in folder.glob("date=*/hour=*/*")
        if path.name.endswith((SUFFIX, SUFFIX + UNFINISHED)) and _age_ms(path, now_ms) >= orphan_ms
    ]
    # Looked up after the files were listed: what is named since then is not among them.
    current = manifests.load(root, topic, partition)
    if current is None:
        return Removed()
    named = {file.path for file in current.files} | {one.path for one in current.retired}
    return _remove(folder, [path for path in found if path not in named])


def _swap(current: Manifest, merged: Sequence[Merged], now_ms: int) -> Manifest | None:
    """Return the manifest with the merged files in the places of the small ones."""
    replaced = {file.path for one in merged for file in one.merge.files}
    files = [file for file in current.files if file.path not in replaced]
    if len(files) + len(replaced) != len(current.files):
        return None
    files += [file for one in merged for file in one.files]
    retired = [Retired(path, now_ms) for path in sorted(replaced)]
    return msgspec.structs.replace(
        current,
        version=current.version + 1,
        written_ms=now_ms,
        files=tuple(sorted(files, key=lambda file: file.start)),
        retired=(*current.retired, *retired),
    )


def _remove(folder: Path, paths: Sequence[str]) -> Removed:
    count = size = 0
    for path in paths:
        try:
            size += (folder / path).stat().st_size
            (folder / path).unlink()
        except FileNotFoundError:
            continue
        count += 1
        for parent in (folder / path).parents[:2]:  # hour, date
            try:
                parent.rmdir()
            except OSError:
                break  # it holds something
    return Removed(count, size)


def _age_ms(path: Path, now_ms: int) -> int:
    try:
        return now_ms - path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0


def _hour(file: ArchiveFile) -> str:
    return file.path.rpartition("/")[0]
