"""Messages as Arrow rows, made the way they are read: through sealed batches."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raftline.archive import manifest as manifests
from raftline.archive.columns import to_arrow
from raftline.archive.manifest import ArchiveFile, Gap, Manifest
from raftline.archive.writer import write_range
from raftline.model.batch import PLACE
from raftline.model.records import seal_batch

HOUR_MS = 3_600_000
NOON_MS = 1_790_000_000_000 // HOUR_MS * HOUR_MS
TOPIC = "orders"


def rows(start: int, times_ms: Sequence[int], size: int = 10) -> list[Any]:
    """Return messages from an offset on, one for each time."""
    messages = [
        (b"k%d" % (start + at), b"%d" % (start + at) + b"." * size, (("h", b"1"),), time_ms)
        for at, time_ms in enumerate(times_ms)
    ]
    sealed = bytearray(seal_batch(messages))
    _, length, term = PLACE.unpack_from(sealed, 0)
    PLACE.pack_into(sealed, 0, start, length, term)
    return to_arrow(bytes(sealed), TOPIC, 0, start, start + len(messages))


def put(root: Path, *pieces: tuple[int, Sequence[int]], gaps: Sequence[Gap] = ()) -> Manifest:
    """Archive messages: (first offset, times) for each file, all in one commit."""
    files: list[ArchiveFile] = []
    for start, times_ms in pieces:
        end = start + len(times_ms)
        files += write_range(root, TOPIC, 0, start, end, rows(start, times_ms))
    made = manifest(files=tuple(files), gaps=tuple(gaps))
    return manifests.commit(root, made)


def manifest(version: int = 1, **fields: Any) -> Manifest:
    return Manifest(version=version, topic=TOPIC, topic_id="t", partition=0, **fields)


def file(start: int, end: int) -> ArchiveFile:
    return ArchiveFile(f"f{start}", start, end, end - start, 1, NOON_MS, NOON_MS)


def offsets(batches: Any) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]
