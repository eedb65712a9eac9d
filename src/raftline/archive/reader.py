"""Reading an archive: which files hold what, and their rows in offset order. Needs no JVM.

A reader takes the newest manifest of a partition and keeps to it: files that it names stay for the
grace period of ``optimize`` after they were replaced. Files are never looked for in folders.

Invariants
    R1  Rows come in offset order, none twice.
    R2  A file that holds other rows than the manifest says is an error, with its place.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from raftline.archive import manifest as manifests
from raftline.archive.layout import local_root, partition_folder, partitions_in, topics_in
from raftline.archive.manifest import ArchiveFile, Manifest
from raftline.model.errors import Conflict, NotFound
from raftline.model.names import place

ROWS_MAX = 65_536
_TIME = pa.timestamp("us", tz="UTC")
_compute: Any = pyarrow.compute  # its functions are made when it is loaded


class FileSlice(msgspec.Struct, frozen=True):
    """One data file, and which of its offsets are meant: ``[start, end)``."""

    path: str
    topic: str
    partition: int
    start: int
    end: int
    count: int  # of the whole file, like what follows
    bytes: int
    time_min_ms: int
    time_max_ms: int


class Archive:
    """The archive in a directory."""

    __slots__ = ("root",)

    def __init__(self, root: str | Path) -> None:
        self.root = local_root(root)
        if not self.root.is_dir():
            raise NotFound(
                f"there is no archive at {self.root}",
                "raftline pipeline archive makes one; every reader must reach this directory",
            )

    def topics(self) -> list[str]:
        """Return the topics that are archived here."""
        return [topic for topic in topics_in(self.root) if self.partitions(topic)]

    def partitions(self, topic: str) -> list[int]:
        """Return the archived partitions of a topic."""
        found = partitions_in(self.root, topic)
        return [one for one in found if self.manifest(topic, one) is not None]

    def manifest(self, topic: str, partition: int) -> Manifest | None:
        """Return the newest manifest. Raises Conflict if it is damaged."""
        return manifests.load(self.root, topic, partition)

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the offsets that are archived; (0, 0) if none are."""
        found = self.manifest(topic, partition)
        return (found.start, found.end) if found is not None else (0, 0)

    def slices(
        self,
        topic: str,
        partition: int,
        *,
        start: int = 0,
        end: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
    ) -> list[FileSlice]:
        """Return the files that may hold what is asked for, in offset order."""
        found = self.manifest(topic, partition)
        if found is None:
            return []
        folder = partition_folder(self.root, topic, partition)
        return [
            slice_of(folder, topic, partition, file, start, end)
            for file in found.files
            if file.end > start
            and (end is None or file.start < end)
            and (from_ms is None or file.time_max_ms >= from_ms)
            and (to_ms is None or file.time_min_ms < to_ms)
        ]

    def batches(
        self,
        topic: str,
        partition: int,
        *,
        start: int = 0,
        end: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        columns: Sequence[str] | None = None,
        rows_max: int = ROWS_MAX,
    ) -> Iterator[Any]:
        """Yield Arrow record batches in offset order, exact in offsets and times. R1."""
        window = {"from_ms": from_ms, "to_ms": to_ms}
        for piece in self.slices(topic, partition, start=start, end=end, **window):
            yield from read_slice(piece, columns=columns, rows_max=rows_max, **window)


def slice_of(
    folder: Path,
    topic: str,
    partition: int,
    file: ArchiveFile,
    start: int = 0,
    end: int | None = None,
) -> FileSlice:
    """Return a file in the folder of its partition, cut to [start, end)."""
    return FileSlice(
        path=str(folder / file.path),
        topic=topic,
        partition=partition,
        start=max(start, file.start),
        end=file.end if end is None else min(end, file.end),
        count=file.count,
        bytes=file.bytes,
        time_min_ms=file.time_min_ms,
        time_max_ms=file.time_max_ms,
    )


def read_slice(
    piece: FileSlice,
    *,
    columns: Sequence[str] | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    rows_max: int = ROWS_MAX,
) -> Iterator[Any]:
    """Yield the rows of a slice as Arrow record batches, in offset order.

    Raises:
        Conflict: the file is gone or damaged, or holds other rows than the manifest says (R2).
    """
    where = place(piece.topic, piece.partition, piece.start)
    try:
        file: Any = pq.ParquetFile(piece.path, memory_map=True)
    except FileNotFoundError:
        raise Conflict(
            f"{where}: {piece.path} is gone",
            "it was replaced more than the grace period ago, or removed by hand: read again",
        ) from None
    except (OSError, pa.ArrowException) as error:
        raise _damaged(where, piece.path, error) from error
    with file:
        if file.metadata.num_rows != piece.count:
            raise _damaged(where, piece.path, f"{file.metadata.num_rows} rows, not {piece.count}")
        groups = _groups(file, piece)
        read = None if columns is None else list(dict.fromkeys([*columns, "offset", "timestamp"]))
        try:
            for batch in file.iter_batches(rows_max, row_groups=groups, columns=read):
                rows = _meant(batch, piece, from_ms, to_ms)
                if rows.num_rows:
                    yield rows if columns is None else rows.select(list(columns))
        except (OSError, pa.ArrowException) as error:
            raise _damaged(where, piece.path, error) from error


def _groups(file: Any, piece: FileSlice) -> list[int]:
    """Return the row groups whose offsets meet the slice."""
    at = file.schema_arrow.get_field_index("offset")
    found: list[int] = []
    for number in range(file.metadata.num_row_groups):
        known = file.metadata.row_group(number).column(at).statistics
        if known is None or (known.max >= piece.start and known.min < piece.end):
            found.append(number)
    return found


def _meant(batch: Any, piece: FileSlice, from_ms: int | None, to_ms: int | None) -> Any:
    """Return the rows that are in the slice and in the window."""
    offsets = batch.column("offset").to_numpy()
    first, last = offsets.searchsorted([piece.start, piece.end])
    rows = batch.slice(int(first), int(last - first))
    wanted: Any = None
    for bound, compare in ((from_ms, _compute.greater_equal), (to_ms, _compute.less)):
        if bound is not None:
            found = compare(rows.column("timestamp"), pa.scalar(bound * 1000, _TIME))
            wanted = found if wanted is None else _compute.and_(wanted, found)
    return rows if wanted is None else rows.filter(wanted)


def _damaged(where: str, path: str, reason: object) -> Conflict:
    return Conflict(
        f"the archive is damaged at {where}: {path}: {reason}",
        "restore the file from a copy of the archive",
    )
