"""One segment: a .log file of whole batches and the three side files that describe it.

State
    Where the segment begins (offset, byte of the whole log, chain), how far it was written, and,
    once something needed them, its tables: offset index, time index, sums. Side entries wait in
    memory until ``sync``: after a crash nothing above the last mark counts anyway.

Threads
    The lane owns everything. The loop reads ``base_offset``, ``end_offset``, ``size``,
    ``start_position``, the log times and, for cached reads, ``tables``; each is set after the
    bytes it speaks of are written.

Invariants
    G1  ``size`` moves only after the write returned; a failed write leaves it where it was.
    G2  No byte leaves ``read`` whose chunk did not match its sum since the tables were loaded.
    G3  Damage is told in offsets without reading the damaged bytes: from the index alone.
"""

from collections.abc import Sequence
from contextlib import suppress

from raftline.model.limits import BATCH_HEADER_BYTES
from raftline.storage.batches import BadBatch, head_at
from raftline.storage.file_pool import FilePool
from raftline.storage.files import Buffer, File
from raftline.storage.log_words import (
    CHUNK_BYTES,
    TIMESTAMP_MIN,
    Damage,
    DamagedRange,
    Item,
    LogIdentity,
    LogSettings,
    SegmentMark,
    SyncFailed,
)
from raftline.storage.segment_tables import SegmentPlace, Tables, load_tables, save_tables
from raftline.storage.sums import chunk_count

JOIN_BYTES = 16 * 1024  # smaller batches are joined into one buffer before a write
SUFFIXES = (".log", ".sum", ".index", ".time")


class Segment:
    """A run of batches in one file."""

    __slots__ = (
        "_partial", "_place", "_pool", "_settings", "base_offset", "chain", "chain_end",
        "dirty", "end_offset", "first_at_ms", "index_count", "index_saved", "last_at_ms",
        "max_timestamp", "sealed", "size", "start_position", "sums_saved", "tables",
        "uncached_end",
    )  # fmt: skip

    def __init__(
        self,
        pool: FilePool,
        directory: str,
        identity: LogIdentity,
        settings: LogSettings,
        *,
        base_offset: int,
        start_position: int,
        chain: int,
    ) -> None:
        self._pool = pool
        self._settings = settings
        path = f"{directory}/{base_offset:020d}"
        self._place = SegmentPlace(path, identity, base_offset, chain, settings.index_bytes)
        self._partial: tuple[int, int] | None = None  # crc and chain of the last chunk, by a mark
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.start_position = start_position
        self.chain = chain
        self.chain_end = chain
        self.size = 0
        self.max_timestamp = TIMESTAMP_MIN
        self.first_at_ms = 0
        self.last_at_ms = 0
        self.index_count = 0
        self.index_saved = 0
        self.sums_saved = 0  # finished chunks whose entries are in the file
        self.dirty = False
        self.sealed = False
        self.uncached_end = 0  # bytes before it are not kept in the page cache
        self.tables: Tables | None = None

    def restore(self, mark: SegmentMark, end_offset: int, chain_end: int) -> None:
        """Take over what a mark says of this segment, which is closed."""
        self.end_offset = end_offset
        self.chain_end = chain_end
        self.size = mark.bytes
        self.max_timestamp = mark.max_timestamp
        self.first_at_ms = mark.first_at_ms
        self.last_at_ms = mark.last_at_ms
        self.index_count = self.index_saved = mark.index_count
        self.sums_saved = mark.bytes // CHUNK_BYTES
        self.uncached_end = mark.bytes
        self.sealed = True

    def restore_end(self, chunk_crc: int, chunk_chain: int) -> None:
        """Take over what a mark says of the last chunk: this segment may be written on."""
        self._partial = (chunk_crc, chunk_chain) if chunk_crc >= 0 else None
        self.sealed = False

    def seal(self) -> None:
        """Write no more to this segment.

        The entry of its last chunk may be known by the mark alone: what the .sum file says of it
        may be from a later write that was cut. Closed segments rely on the file, so save it.
        """
        self.sealed = True
        if self._partial is not None:
            self.dirty = True

    def mark(self) -> SegmentMark:
        """Return what a mark remembers of this segment."""
        return SegmentMark(
            self.base_offset,
            self.size,
            self.chain,
            self.max_timestamp,
            self.first_at_ms,
            self.last_at_ms,
            self.index_count,
        )

    @property
    def partial(self) -> tuple[int, int]:
        """Return crc and starting chain of the unfinished last chunk; crc -1 if not known."""
        if not self.size % CHUNK_BYTES:
            return 0, 0
        if self.tables is None or not self.tables.sums.known[-1]:
            return self._partial or (-1, 0)
        sums = self.tables.sums
        return sums.crcs[-1], sums.chains[-1]

    @property
    def log_path(self) -> str:
        """Return the path of the .log file."""
        return self._place.path + ".log"

    @property
    def paths(self) -> list[str]:
        """Return the paths of all four files."""
        return [self._place.path + suffix for suffix in SUFFIXES]

    # ---- tables

    def load(self) -> Tables:
        """Return the tables, from memory, from the side files, or rebuilt from the .log."""
        if self.tables is None:
            tables, rebuilt = load_tables(self._pool, self._place, self, self._partial)
            self.tables = tables
            if rebuilt:
                self.dirty = True
                self.sums_saved = self.index_saved = 0
                if tables.is_whole:
                    self.index_count = len(tables.offsets.offsets)
        if self.sealed:
            self._pool.use_tables(self.log_path, self, self.tables.bytes)
        return self.tables

    def unload(self) -> bool:
        """Forget the tables if the files hold them; say whether they did."""
        if self.dirty:
            return False
        if self.tables is not None:
            self.forget_tables()
        return True

    def forget_tables(self) -> None:
        """Forget tables that were rebuilt around damage, so that they are rebuilt again."""
        crc, chain = self.partial
        self._partial = (crc, chain) if crc >= 0 else None
        self.tables = None

    # ---- writing

    def write(self, items: Sequence[Item], size: int) -> None:
        """Write batches at the end. G1."""
        tables = self.load()
        file = self._writable()
        buffers = _joined(items)
        start = self.size
        try:
            file.write_at(start, buffers)
        except OSError:
            with suppress(OSError):
                file.truncate(start)
            raise
        self.dirty = True
        file.start_writeback(start, size)
        for buffer in buffers:
            tables.sums.add(buffer)
        self._index(tables, items)
        self.chain_end = tables.sums.chain
        self.index_count = len(tables.offsets.offsets)
        self.size = start + size
        self.end_offset = items[-1][1]

    def drop_cached(self, end: int) -> None:
        """Leave the bytes before ``end`` to the disk: readers are past them."""
        self.uncached_end = end
        with suppress(OSError):  # a hint
            self._pool.get(self.log_path).drop_cached(end)

    def _writable(self) -> File:
        path = self.log_path
        file = self._pool.get(path, create=True)
        self._pool.pin(path)
        return file

    def _index(self, tables: Tables, items: Sequence[Item]) -> None:
        """Add index entries for batches that were written at ``self.size``."""
        position = self.size
        offsets, times = tables.offsets, tables.times
        due = offsets.positions[-1] + self._settings.index_bytes if offsets.positions else 0
        maximum, at_ms = self.max_timestamp, self.last_at_ms
        if not position:
            self.first_at_ms = at_ms = items[0][3]
        for base, _, size, logged_ms, max_timestamp, _, _ in items:
            if logged_ms > at_ms:
                at_ms = logged_ms
            if position >= due:
                offsets.add(base, position)
                times.add(maximum, at_ms, base, position)
                due = position + self._settings.index_bytes
            if max_timestamp > maximum:
                maximum = max_timestamp
            position += size
        self.max_timestamp = maximum
        self.last_at_ms = at_ms

    def sync(self) -> None:
        """Write the waiting side entries and make all four files durable.

        Raises:
            OSError: a write failed; it may be tried again.
            SyncFailed: an fsync failed; it may not.
        """
        if not self.dirty:
            return
        tables = self.load()
        paths = save_tables(self._pool, self._place, self, tables)
        if self._pool.disk.exists(self.log_path):
            paths.insert(0, self.log_path)
        for path in paths:
            file = self._pool.get(path)
            try:
                file.fdatasync()
            except OSError as error:
                raise SyncFailed(f"fsync of {path} failed: {error}") from error
            self._pool.unpin(path)
        self.sums_saved = self.size // CHUNK_BYTES
        if tables.is_whole:
            self.index_saved = self.index_count
        self.dirty = False

    def cut(self, position: int, end_offset: int) -> None:
        """Drop everything from byte ``position``, where the batch of ``end_offset`` begins."""
        tables = self.load()
        chunk_start = max(0, chunk_count(position) - 1) * CHUNK_BYTES
        kept = self.read(chunk_start, position - chunk_start)
        maximum, at_ms = TIMESTAMP_MIN, self.first_at_ms
        if position:
            maximum, at_ms = self._times_before(tables, position)
        tables.sums.cut(position, kept)
        tables.offsets.cut(position)
        tables.times.cut(position)
        if not position:
            tables.sums.chain = self.chain
        self.max_timestamp, self.last_at_ms = maximum, at_ms
        self.size, self.end_offset = position, end_offset
        self.chain_end = tables.sums.chain
        self.index_count = len(tables.offsets.offsets)
        self.index_saved = min(self.index_saved, self.index_count)
        self.sums_saved = min(self.sums_saved, position // CHUNK_BYTES)
        self.dirty = True
        self.sealed = False
        self._writable().truncate(position)

    def _times_before(self, tables: Tables, position: int) -> tuple[int, int]:
        """Return (greatest record timestamp, latest log time) of the batches before ``position``.

        The log time is that of the next indexed batch: late rather than early.
        """
        maximum = tables.times.maximum_at(position - 1)
        at_ms = tables.times.at_after(position)
        offset, start = tables.offsets.before(position - 1)
        view = self.read(start, position - start)
        at = 0
        while at < len(view):
            offset, size, _, max_timestamp = head_at(view, at, offset)
            maximum = max(maximum, max_timestamp)
            at += size
        return maximum, self.last_at_ms if at_ms is None else at_ms

    # ---- reading

    def read(self, position: int, length: int) -> memoryview:
        """Return bytes from ``position``, their chunks verified against the sums. G2.

        Raises:
            DamagedRange: the bytes are not those that were written, or cannot be read.
        """
        sums = self.load().sums
        stop = min(position + length, self.size)
        if stop <= position:
            return memoryview(b"")
        first, last = position // CHUNK_BYTES, chunk_count(stop)
        start = first * CHUNK_BYTES
        view = memoryview(self._read_raw(start, min(last * CHUNK_BYTES, self.size) - start))
        bad = [
            chunk
            for chunk in range(first, last)
            if not sums.check(chunk, view[chunk * CHUNK_BYTES - start :][:CHUNK_BYTES])
        ]
        if bad:
            raise self.damaged(
                bad[0] * CHUNK_BYTES, (bad[-1] + 1) * CHUNK_BYTES, "the bytes do not match the sum"
            )
        return view[position - start : stop - start]

    def _read_raw(self, position: int, length: int) -> bytes:
        try:
            return self._pool.get(self.log_path).read_at(position, length)
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}"
            raise self.damaged(position, position + length, reason) from error

    def read_chunk(self, chunk: int) -> memoryview | None:
        """Return a chunk's bytes as they are on disk, or None if they cannot be read."""
        with suppress(OSError):
            start = chunk * CHUNK_BYTES
            length = min(CHUNK_BYTES, self.size - start)
            data = self._pool.get(self.log_path).read_at(start, length)
            return memoryview(data) if len(data) == length else None
        return None

    def overwrite(self, position: int, data: Buffer) -> None:
        """Put repaired bytes in place and make them durable."""
        path = self.log_path
        file = self._pool.get(path, create=True)
        file.write_at(position, [data])
        file.fdatasync()

    def locate(self, offset: int) -> tuple[int, int]:
        """Return (base offset, position) of the batch that holds ``offset``.

        Raises:
            DamagedRange: the way to it is damaged.
        """
        first, position = self.load().offsets.find(offset)
        want = self._settings.index_bytes + CHUNK_BYTES
        while first < offset:
            view = self.read(position, want)
            if len(view) < BATCH_HEADER_BYTES:
                raise self.damaged(position, self.size, "less than a head is left")
            at = 0
            while at + BATCH_HEADER_BYTES <= len(view):
                after, size = self._head(view, at, first, position)
                if after > offset:
                    return first, position + at
                at += size
                first = after
            position += at
        return first, position

    def _head(self, view: memoryview, at: int, offset: int, position: int) -> tuple[int, int]:
        try:
            after, size, _, _ = head_at(view, at, offset)
        except BadBatch as error:
            raise self.damaged(position + at, position + at + 1, str(error)) from error
        return after, size

    def damaged(self, position: int, stop: int, reason: str) -> DamagedRange:
        """Return the fault that tells of damage in bytes ``[position, stop)``. G3."""
        start, end = self.base_offset, self.end_offset
        if self.tables is not None and self.tables.offsets.offsets:
            start = self.tables.offsets.before(position)[0]
            after = self.tables.offsets.after(min(stop, self.size))
            end = after[0] if after else end
        text = f"{self.log_path} bytes [{position}, {min(stop, self.size)}): {reason}"
        return DamagedRange(Damage(start, end, text))


def _joined(items: Sequence[Item]) -> list[Buffer]:
    """Return the buffers of a write: small batches joined, large ones as they are."""
    buffers: list[Buffer] = []
    small: list[Buffer] = []
    for item in items:
        small.append(item[5])
        if item[2] < JOIN_BYTES:
            small.append(item[6])
            continue
        buffers.append(b"".join(small))
        buffers.append(item[6])
        small = []
    if small:
        buffers.append(b"".join(small))
    return buffers
