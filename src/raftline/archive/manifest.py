"""The manifest of an archived partition: which files count, in which order.

State
    A folder of versions, each one whole JSON document; the highest counts. ``files`` and ``gaps``
    together cover ``[start, end)`` without a hole. ``retired`` are files that newer ones replaced:
    readers of older versions may still need them.

Commands
    ``load`` the newest version; ``commit`` the next one; ``forget_old`` versions.

Invariants
    M1  A version never changes. It appears whole or not at all: written aside, synced, and then
        linked under its name, which fails if somebody else took that version.
    M2  Files and gaps are in order; none overlaps, nothing lies between them unnamed.
    M3  Every file named is whole and durable before the version that names it appears.
    M4  Old versions are removed, so the name of one that was there may be free again. Who took a
        version therefore looks whether there are higher ones; unless the next follows it by its
        token, it came too late.
    M5  ``end`` never goes down from one version to the next, so what was archived stays so.

Costs: a commit writes about 200 bytes a file. ``optimize`` keeps their number small.
"""

import os
import secrets
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

from raftline.archive.layout import (
    MANIFESTS,
    UNFINISHED,
    manifest_name,
    partition_folder,
    version_of,
)
from raftline.model.errors import Conflict, InvalidArgument, NewerFormat
from raftline.model.names import place

FORMAT = 1
VERSIONS_KEPT = 16
LOOKS_MAX = 100  # a version was removed between looking and opening


class ArchiveFile(msgspec.Struct, frozen=True):
    """One data file: the messages of [start, end)."""

    path: str  # in the folder of the partition
    start: int
    end: int
    count: int
    bytes: int
    time_min_ms: int
    time_max_ms: int  # inclusive


class Gap(msgspec.Struct, frozen=True):
    """Offsets that the log no longer held when they were to be archived."""

    start: int
    end: int
    reason: str


class Retired(msgspec.Struct, frozen=True):
    """A file that was replaced, and when."""

    path: str
    at_ms: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One version."""

    format: int = FORMAT
    version: int = 0
    topic: str
    topic_id: str
    partition: int
    written_ms: int = 0
    token: str = ""  # of this version; made by ``commit``
    parent: str = ""  # token of the version before
    files: tuple[ArchiveFile, ...] = ()
    gaps: tuple[Gap, ...] = ()
    retired: tuple[Retired, ...] = ()

    @property
    def start(self) -> int:
        """Return the first offset that is covered."""
        return min((piece.start for piece in (*self.files[:1], *self.gaps[:1])), default=0)

    @property
    def end(self) -> int:
        """Return the first offset that is not archived yet."""
        return max((piece.end for piece in (*self.files[-1:], *self.gaps[-1:])), default=0)

    @property
    def count(self) -> int:
        """Return how many messages it holds."""
        return sum(file.count for file in self.files)

    @property
    def bytes(self) -> int:
        """Return the size of its files."""
        return sum(file.bytes for file in self.files)


class ManifestMoved(Conflict):
    """Another job committed first. What this one wrote does not count; run it again."""

    def __init__(self, where: str, version: int) -> None:
        super().__init__(
            f"another job changed the archive of {where}: version {version} is taken",
            "let one job at a time archive or optimize a topic; this one can be run again",
        )


def load(root: Path, topic: str, partition: int) -> Manifest | None:
    """Return the newest version, or None where nothing was archived.

    Raises:
        Conflict: it is damaged (M2) or of a newer format.
    """
    folder = partition_folder(root, topic, partition) / MANIFESTS
    for _ in range(LOOKS_MAX):
        versions = list_versions(folder)
        if not versions:
            return None
        try:
            data = (folder / manifest_name(versions[-1])).read_bytes()
        except FileNotFoundError:
            continue  # a newer one is there
        return _decode(data, folder / manifest_name(versions[-1]), place(topic, partition))
    raise Conflict(f"the archive of {place(topic, partition)} changes all the time", "try again")


def commit(root: Path, new: Manifest) -> Manifest:
    """Make ``new`` the manifest and return it as it is stored.

    It is the one it follows with other contents and the next version; its token is still that of
    the one it follows.

    Raises:
        ManifestMoved: somebody else was faster; this version does not count.
        Conflict: it would have holes or overlaps (a bug, or a damaged archive).
    """
    where = place(new.topic, new.partition)
    check(new)
    stored = msgspec.structs.replace(new, parent=new.token, token=secrets.token_hex(8))
    folder = partition_folder(root, new.topic, new.partition) / MANIFESTS
    make_folder(folder)
    aside = folder / f".{manifest_name(new.version)}-{stored.token}{UNFINISHED}"
    try:
        write_durably(aside, msgspec.json.format(msgspec.json.encode(stored), indent=1))
        _put_if_absent(aside, folder / manifest_name(new.version), where, new.version)
    finally:
        aside.unlink(missing_ok=True)
    if not _is_in_line(folder, stored):
        (folder / manifest_name(new.version)).unlink(missing_ok=True)
        raise ManifestMoved(where, new.version)
    sync_folder(folder)
    forget_old(folder)
    return stored


def check(manifest: Manifest) -> None:
    """Check M2. Raises Conflict that says where."""
    for before, after in pairwise(_pieces(manifest)):
        if before.end != after.start:
            where = place(manifest.topic, manifest.partition, min(before.end, after.start))
            wrong = "overlaps" if before.end > after.start else "has a hole"
            raise Conflict(
                f"the archive {wrong} at {where}: [{before.start}, {before.end}) is followed by"
                f" [{after.start}, {after.end})",
                "do not edit manifests; an older version is beside it in _manifest",
            )
    for piece in _pieces(manifest):
        if not 0 <= piece.start < piece.end:
            raise Conflict(
                f"the archive of {place(manifest.topic, manifest.partition)} names the empty"
                f" range [{piece.start}, {piece.end})"
            )


def list_versions(folder: Path) -> list[int]:
    """Return the versions that are there, the newest last."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(version for version in map(version_of, names) if version is not None)


def forget_old(folder: Path, kept: int = VERSIONS_KEPT) -> None:
    """Remove old versions, from the oldest on."""
    for version in list_versions(folder)[:-kept]:
        (folder / manifest_name(version)).unlink(missing_ok=True)


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file and sync it; its name is durable when its folder is."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _put_if_absent(aside: Path, path: Path, where: str, version: int) -> None:
    try:
        os.link(aside, path)
    except FileExistsError:
        raise ManifestMoved(where, version) from None
    except PermissionError as error:
        raise InvalidArgument(
            f"{path.parent} cannot hold an archive: {error.strerror}",
            "use a file system with hard links (ext4, xfs, btrfs, NFS) that this user may write to",
        ) from error


def _is_in_line(folder: Path, stored: Manifest) -> bool:
    """Say whether a version that was just put in its place is the newest, or followed. M4."""
    if list_versions(folder)[-1:] == [stored.version]:
        return True
    try:
        data = (folder / manifest_name(stored.version + 1)).read_bytes()
    except FileNotFoundError:
        return False
    return msgspec.json.decode(data, type=_Head).parent == stored.token


def _decode(data: bytes, path: Path, where: str) -> Manifest:
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.format > FORMAT:
            raise NewerFormat(f"the archive of {where}", head.format, FORMAT)
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise Conflict(
            f"the manifest of {where} is damaged: {path}: {error}",
            "remove it: the version before it is beside it; then run the job again",
        ) from error
    check(manifest)
    return manifest


def _pieces(manifest: Manifest) -> Iterator[ArchiveFile | Gap]:
    yield from sorted((*manifest.files, *manifest.gaps), key=lambda piece: piece.start)


class _Head(msgspec.Struct):
    format: int
    parent: str = ""
