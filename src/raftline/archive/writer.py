"""Arrow batches of one offset range in, finished data files out.

A range becomes one file or a few: a file ends where the hour of the messages changes, or where it
is large. Each is written aside, synced and renamed; what a crash leaves behind is never named by a
manifest and has a name of its own, so nothing waits for it to be removed.

Invariants
    F1  A file's rows are in offset order, and their offsets lie in the file's range.
    F2  The files of a range cover it without a hole, in order. Offsets without a message (control
        batches) belong to the file before them, the first ones to the first file.
    F3  When ``finish`` returns, the files and their names are durable.

Costs: rows wait in memory for their row group, at most ``GROUP_BYTES``.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raftline.archive.layout import (
    HOUR_MS,
    UNFINISHED,
    file_name,
    hour_folder,
    partition_folder,
)
from raftline.archive.manifest import ArchiveFile, make_folder, sync_folder
from raftline.archive.schema import SCHEMA
from raftline.model.errors import Conflict
from raftline.model.limits import MIB
from raftline.model.names import place

GROUP_ROWS = 128 * 1024
GROUP_BYTES = 64 * MIB
FILE_BYTES = 512 * MIB  # of Arrow data, before compression
HOURS_MAX = 48  # files that a range is cut into because its hours change; senders' clocks differ
COMPRESSION = "zstd"
COMPRESSION_LEVEL = 1

Table = Any


class _Open(msgspec.Struct):
    """The file being written."""

    start: int
    hour: int
    aside: Path
    path: str
    writer: Any
    count: int = 0
    size: int = 0
    time_min_ms: int = 1 << 62
    time_max_ms: int = -(1 << 62)


class RangeWriter:
    """Writes the messages of ``[start, end)`` of a partition."""

    __slots__ = (
        "_cuts", "_end", "_files", "_folder", "_made", "_next", "_open", "_place", "_rows",
        "_rows_bytes", "_rows_count", "_run", "_start", "file_bytes",
    )  # fmt: skip

    def __init__(
        self,
        root: Path,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._folder = partition_folder(root, topic, partition)
        self._place = (topic, partition)
        self._start, self._end = start, end
        self._next = start  # the least offset that may come
        self._run = secrets.token_hex(5)
        self._open: _Open | None = None
        self._files: list[ArchiveFile] = []
        self._rows: list[Table] = []
        self._rows_bytes = self._rows_count = 0
        self._cuts = 0
        self._made: set[Path] = set()  # folders that have new names
        self.file_bytes = file_bytes

    def write(self, batch: Table) -> None:
        """Add rows (a record batch of SCHEMA), in offset order. Raises Conflict."""
        if batch.num_rows == 0:
            return
        self._check(batch)
        times_ms = times_of(batch)
        hours = times_ms // HOUR_MS
        at = 0
        for cut in (np.flatnonzero(hours[1:] != hours[:-1]) + 1).tolist():
            if self._cuts >= HOURS_MAX:
                break
            self._take(batch, times_ms, at, cut)
            at = cut
        self._take(batch, times_ms, at, batch.num_rows)

    def finish(self) -> list[ArchiveFile]:
        """Finish the last file and return all. F2, F3. A range without rows has no file."""
        self._close(self._end)
        for folder in sorted(self._made):
            sync_folder(folder)
        return self._files

    def abandon(self) -> None:
        """Remove what was written."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.writer.close()
            opened.aside.unlink(missing_ok=True)
        for file in self._files:
            (self._folder / file.path).unlink(missing_ok=True)
        self._files = []

    def _check(self, batch: Table) -> None:
        offsets = batch.column("offset").to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        if first < self._next or last >= self._end or (np.diff(offsets) <= 0).any():
            raise Conflict(
                f"messages out of order at {place(*self._place, first)}: expected offsets in"
                f" [{self._next}, {self._end}), these go from {first} to {last}"
            )
        self._next = last + 1

    def _take(self, batch: Table, times_ms: Any, at: int, cut: int) -> None:
        """Add the rows of one hour, to a file of that hour."""
        opened = self._open
        if opened is not None and self._cuts < HOURS_MAX and opened.hour != times_ms[at] // HOUR_MS:
            self._close(int(batch.column("offset")[at].as_py()))
            self._cuts += 1
        self._add(batch.slice(at, cut - at), times_ms[at:cut])

    def _add(self, rows: Table, times_ms: Any) -> None:
        if self._open is not None and self._open.size >= self.file_bytes:
            self._close(int(rows.column("offset")[0].as_py()))
        opened = self._open or self._begin(int(times_ms[0]))
        opened.time_min_ms = min(opened.time_min_ms, int(times_ms.min()))
        opened.time_max_ms = max(opened.time_max_ms, int(times_ms.max()))
        opened.count += rows.num_rows
        opened.size += rows.nbytes
        self._rows.append(rows)
        self._rows_count += rows.num_rows
        self._rows_bytes += rows.nbytes
        if self._rows_count >= GROUP_ROWS or self._rows_bytes >= GROUP_BYTES:
            self._flush(opened)

    def _begin(self, time_ms: int) -> _Open:
        start = self._files[-1].end if self._files else self._start
        folder = hour_folder(time_ms)
        make_folder(self._folder / folder)
        name = file_name(start, self._run)
        aside = self._folder / folder / f".{name}{UNFINISHED}"
        self._open = _Open(
            start, time_ms // HOUR_MS, aside, f"{folder}/{name}", open_parquet(aside)
        )
        return self._open

    def _flush(self, opened: _Open) -> None:
        if self._rows:
            table = pa.Table.from_batches(self._rows, SCHEMA)
            opened.writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._rows, self._rows_count, self._rows_bytes = [], 0, 0

    def _close(self, end: int) -> None:
        """Finish the open file; it reaches up to ``end``."""
        opened = self._open
        if opened is None:
            return
        self._flush(opened)
        opened.writer.close()
        self._open = None
        with opened.aside.open("rb") as file:
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        path = self._folder / opened.path
        opened.aside.rename(path)
        self._made.add(path.parent)
        self._files.append(
            ArchiveFile(
                path=opened.path,
                start=opened.start,
                end=end,
                count=opened.count,
                bytes=size,
                time_min_ms=opened.time_min_ms,
                time_max_ms=opened.time_max_ms,
            )
        )


def write_range(
    root: Path,
    topic: str,
    partition: int,
    start: int,
    end: int,
    batches: Iterable[Table],
    *,
    file_bytes: int = FILE_BYTES,
) -> list[ArchiveFile]:
    """Write the messages of ``[start, end)``; whatever goes wrong, nothing unfinished is left."""
    writer = RangeWriter(root, topic, partition, start, end, file_bytes=file_bytes)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def open_parquet(path: Path) -> Any:
    """Return a Parquet writer of SCHEMA, as data files are written."""
    writer: Any = pq.ParquetWriter
    return writer(
        path,
        SCHEMA,
        compression=COMPRESSION,
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=["topic", "headers.list.element.key"],
        column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        write_statistics=["offset", "timestamp", "partition", "topic"],
    )


def times_of(batch: Table) -> Any:
    """Return the timestamps of rows in Unix milliseconds, as numpy has them."""
    return batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
