"""The lane's half of a partition log: the segments and every operation that touches the disk.

State
    The segments in order (the last one is written to unless it is sealed), the end that was
    written, the chain there, and files waiting to be removed after a reset.

Threads
    Owned by the lane, which runs one job at a time. The loop reads ``segments`` and ``written``,
    tuples that are replaced, never changed, and ``stopped``.

Invariants
    W1  Segments are contiguous: each begins where the one before it ends, in offsets, bytes, chain.
    W2  Writing is idempotent by offset: batches below ``written_end`` are skipped, so a flush
        may be repeated and may overlap another job that carried the same batches.
    W3  After a failed fsync every further job is refused.
    W4  Before segments are removed a ``<offset>-<resets>.trim`` name is durable that says so; an
        older mark that still names them then finds them trimmed, not lost.
    W5  A log that is made at its first use has no directory until its first job; what an earlier
        life of it left there is removed then.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress

from crc32c import crc32c

from raftline.storage.batches import (
    BadBatch,
    check_batches,
    each_batch,
    first_as_late,
    take_batches,
)
from raftline.storage.file_pool import FilePool
from raftline.storage.files import Buffer
from raftline.storage.log_words import (
    CHAIN_UNKNOWN,
    CHUNK_BYTES,
    DamagedRange,
    Exported,
    Item,
    LogFault,
    LogIdentity,
    LogMark,
    LogSettings,
    LogStopped,
    StaleJob,
    SyncFailed,
    TimeHit,
)
from raftline.storage.segment import SUFFIXES, Segment

TRIM_SUFFIX = ".trim"
PICK_BYTES_MIN = 4 << 10  # read around one batch that is picked
PICK_BYTES_MAX = 256 << 10  # ... and ahead, once batches are picked in a row


class LogFiles:
    """The segments of one log."""

    __slots__ = (
        "_chain_cache", "_doomed", "_names_dirty", "chain_end", "directory", "generation",
        "identity", "is_made", "pool", "resets", "scrub_position", "segments", "settings",
        "stopped", "written",
    )  # fmt: skip

    def __init__(
        self, pool: FilePool, directory: str, identity: LogIdentity, settings: LogSettings
    ) -> None:
        self.pool = pool
        self.directory = directory
        self.identity = identity
        self.settings = settings
        self.segments: tuple[Segment, ...] = ()
        self.written = (0, 0)  # end offset, end position (bytes since the first segment at open)
        self.chain_end = 0
        self.generation = 0
        self.resets = 0
        self.stopped = ""
        self.scrub_position = 0
        self.is_made = True  # W5
        self._names_dirty = False
        self._doomed: list[tuple[int, list[str]]] = []  # (resets when it was dropped, paths)
        self._chain_cache = (-1, 0)  # offset, chain there

    def begin(self, offset: int, position: int, chain: int, resets: int) -> None:
        """Stand at ``offset``, ``position`` bytes in."""
        self.written = (offset, position)
        self.chain_end = chain
        self.resets = resets

    @property
    def written_end(self) -> int:
        """Return the end of what is in segments."""
        return self.written[0]

    def new_segment(self, base_offset: int, start_position: int, chain: int) -> Segment:
        """Return a segment of this log, not yet part of it."""
        return Segment(
            self.pool,
            self.directory,
            self.identity,
            self.settings,
            base_offset=base_offset,
            start_position=start_position,
            chain=chain,
        )

    def check_running(self, generation: int) -> None:
        """Refuse jobs of a stopped log, or made before the last cut or reset. W3."""
        if self.stopped:
            raise LogStopped(self.stopped)
        if generation != self.generation:
            raise StaleJob(f"{self.directory} was cut or reset after this job was made")
        if not self.is_made:
            self._make()

    def _make(self) -> None:
        """Begin with an empty directory. W5."""
        disk = self.pool.disk
        for name in disk.listdir(self.directory):
            self.pool.drop(f"{self.directory}/{name}")
        disk.remove_tree(self.directory)
        disk.mkdir(self.directory)
        self.is_made = True

    # ---- writing

    def write(self, items: Sequence[Item]) -> None:
        """Write the batches that are not written yet. W2. Raises OSError (ENOSPC, EIO)."""
        run: list[Item] = []
        size = room = 0
        for item in items:
            if item[1] <= self.written_end:
                continue
            if run and (size >= self.settings.flush_bytes or size + item[2] > room):
                self._write_run(run, size)
                run, size = [], 0
            if not run:
                room = self._room_for(item)
            run.append(item)
            size += item[2]
        if run:
            self._write_run(run, size)

    def _room_for(self, item: Item) -> int:
        """Return how many bytes fit the segment that ``item`` will go to."""
        active = self._active()
        if active is None or (active.size and self._is_closing(active, item)):
            return self.settings.segment_bytes
        return self.settings.segment_bytes - active.size

    def _is_closing(self, active: Segment, item: Item) -> bool:
        return (
            active.size + item[2] > self.settings.segment_bytes
            or item[3] - active.first_at_ms >= self.settings.segment_ms
        )

    def _active(self) -> Segment | None:
        """Return the segment that can be written to, if there is one."""
        if not self.segments or self.segments[-1].sealed:
            return None
        active = self.segments[-1]
        tables = active.load()
        if not tables.is_whole or (tables.sums.known and not tables.sums.known[-1]):
            active.seal()  # nothing is written behind damage
            return None
        return active

    def _write_run(self, run: Sequence[Item], size: int) -> None:
        assert run[0][0] == self.written_end, (run[0][0], self.written_end)
        active = self._active()
        if active is None or (active.size and self._is_closing(active, run[0])):
            active = self._roll()
        active.write(run, size)
        self.written = (active.end_offset, self.written[1] + size)
        self.chain_end = active.chain_end
        self._drop_cached()

    def _drop_cached(self) -> None:
        """Let go of pages far behind the end, so that new bytes get pages that are in use already.

        On a machine that gives free memory back to its host a new page costs many times the copy.
        """
        position = self.written[1] - self.settings.cache_bytes
        for segment in reversed(self.segments):
            end = min(position - segment.start_position, segment.size)
            if end > segment.uncached_end:
                segment.drop_cached(end)
            if segment.uncached_end >= segment.size:
                break  # and so are all before it

    def _roll(self) -> Segment:
        """Close the last segment and begin the next."""
        segment = self.new_segment(*self.written, self.chain_end)
        for path in segment.paths:  # a failed attempt may have left one
            self._remove(path)
        if self.segments:
            last = self.segments[-1]
            last.seal()
            if last.tables is not None:
                last.load()  # from now on its tables may go if nobody uses them
        self.segments = (*self.segments, segment)
        self._names_dirty = True
        return segment

    def sync(self, log_start: int) -> LogMark:
        """Make everything written durable and return the mark that says so.

        Raises:
            OSError: ENOSPC or EIO while writing side files; may be tried again.
            SyncFailed: the log is stopped. W3.
        """
        for segment in self.segments:
            try:
                segment.sync()
            except SyncFailed as error:
                self.stopped = str(error)
                raise
        if self._names_dirty or self.directory in self.pool.fresh:
            self._sync_names()
        return self.mark(log_start)

    def _sync_names(self) -> None:
        try:
            self.pool.disk.sync_dir(self.directory)
        except OSError as error:
            self.stopped = f"fsync of {self.directory} failed: {error}"
            raise SyncFailed(self.stopped) from error
        self._names_dirty = False
        self.pool.fresh.discard(self.directory)

    def mark(self, log_start: int) -> LogMark:
        """Return where the log stands; true on disk only right after ``sync``."""
        chunk_crc, chunk_chain = self.segments[-1].partial if self.segments else (0, 0)
        return LogMark(
            log_start=log_start,
            log_end=self.written_end,
            chain_start=self._chain_start(log_start),
            chain_end=self.chain_end,
            bytes=sum(segment.size for segment in self.segments),
            resets=self.resets,
            chunk_crc=chunk_crc,
            chunk_chain=chunk_chain,
            segments=tuple(segment.mark() for segment in self.segments),
            generation=self.generation,
        )

    def _chain_start(self, log_start: int) -> int:
        if self._chain_cache[0] != log_start:
            try:
                chain = self.chain_of(log_start)
            except DamagedRange:
                return CHAIN_UNKNOWN
            self._chain_cache = (log_start, chain)
        return self._chain_cache[1]

    # ---- reading

    def segment_of(self, offset: int) -> Segment:
        """Return the segment that holds ``offset``."""
        row = bisect_right(self.segments, offset, key=_base_of) - 1
        if row < 0 or offset >= self.written_end:
            raise LogFault(f"{self.directory} holds no offset {offset}")
        return self.segments[row]

    def read(self, offset: int, bytes_max: int, end: int) -> tuple[memoryview, int, int]:
        """Return whole verified batches from the one that holds ``offset``, and their offsets.

        At least one batch, otherwise at most ``bytes_max``, none past ``end``, one segment only.
        Damage further on only shortens the answer.

        Raises:
            DamagedRange: the batch that holds ``offset`` cannot be trusted.
        """
        segment = self.segment_of(offset)
        offsets = segment.load().offsets
        first, position = offsets.find(offset)
        far = offsets.within(position + bytes_max, end, position)
        want, limit = self.settings.index_bytes + bytes_max, segment.size
        while True:
            try:
                view = segment.read(position, min(want, limit - position))
            except DamagedRange as error:
                if error.start_offset <= offset:
                    raise
                end, limit = min(end, error.start_offset), offsets.find(error.start_offset)[1]
                far = offsets.within(position + bytes_max, end, position)
                continue
            try:
                start, stop, start_offset, stop_offset = take_batches(
                    view, first, offset, end, bytes_max, far
                )
            except BadBatch as error:
                raise segment.damaged(position, position + len(view), str(error)) from error
            if stop >= 0:
                return view[start:stop], start_offset, stop_offset
            if position + len(view) >= limit:
                reason = "the last batch reaches past the end"
                raise segment.damaged(position, segment.size, reason)
            want = start + CHUNK_BYTES

    def pick(
        self, offsets: Sequence[int], found: Sequence[Buffer | None], bytes_max: int
    ) -> list[Buffer]:
        """Return single batches by offset; those that are ``found`` already are taken from there.

        A batch that follows the one before it costs no read of its own.
        """
        picked: list[Buffer] = []
        ahead: dict[int, memoryview] = {}
        size, last = 0, -1
        for offset, batch in zip(offsets, found, strict=False):
            if batch is None and offset not in ahead:
                window = PICK_BYTES_MAX if offset == last + 1 else PICK_BYTES_MIN
                view, first, _ = self.read(offset, window, self.written_end)
                ahead = dict(each_batch(view, first))
            one = ahead[offset] if batch is None else batch
            picked.append(one)
            size += len(one)
            last = offset
            if size >= bytes_max:
                break
        return picked

    def chain_of(self, offset: int) -> int:
        """Return the chain at the start of the batch that holds ``offset``."""
        if offset >= self.written_end:
            return self.chain_end
        segment = self.segment_of(offset)
        if offset == segment.base_offset:
            return segment.chain
        _, position = segment.locate(offset)
        start = position - position % CHUNK_BYTES
        chain = segment.load().sums.chains[start // CHUNK_BYTES]
        view = segment.read(start, max(1, position - start))
        return crc32c(view[: position - start], chain)

    def chain_at(self, offset: int) -> int:
        """Return the chain at ``offset``; CHAIN_UNKNOWN if no batch of this log begins there."""
        if offset == self.written_end:
            return self.chain_end
        if not self.segments or not self.segments[0].base_offset <= offset < self.written_end:
            return CHAIN_UNKNOWN
        if self.segment_of(offset).locate(offset)[0] != offset:
            return CHAIN_UNKNOWN
        return self.chain_of(offset)

    def export(self, start: int, bytes_max: int, limit: int | None = None) -> Exported:
        """Return batches from ``start`` for a peer, none past ``limit``."""
        if start == self.written_end:
            return Exported(start, start, 0, self.chain_end, self.chain_end, b"")
        limit = self.written_end if limit is None else min(limit, self.written_end)
        view, first, end = self.read(start, bytes_max, limit)
        data = bytes(view)
        segment = self.segment_of(first)
        chain = self.chain_of(first)
        at_ms = segment.last_at_ms
        if end < segment.end_offset:
            position = segment.locate(end)[1]
            at_ms = segment.load().times.at_after(position) or at_ms
        return Exported(first, end, at_ms, chain, crc32c(data, chain), data)

    # ---- time

    def find_time(self, time_ms: int, log_start: int) -> TimeHit | None:
        """Return the first batch that holds a message of ``time_ms`` or later."""
        for segment in self.segments:
            if segment.end_offset <= log_start or segment.max_timestamp < time_ms:
                continue
            hit = self._find_time_in(segment, time_ms, log_start)
            if hit is not None:
                return hit
        return None

    def _find_time_in(self, segment: Segment, time_ms: int, log_start: int) -> TimeHit | None:
        offset, position = segment.load().times.find(time_ms)
        if offset < log_start:
            offset, position = segment.locate(log_start)
        while position < segment.size:
            view = segment.read(position, CHUNK_BYTES)
            try:
                at, size, offset = first_as_late(view, offset, time_ms)
                if size:
                    batch = segment.read(position + at, size)
                    check_batches(batch, offset)
                    return TimeHit(offset, bytes(batch))
            except BadBatch as error:
                raise segment.damaged(position, position + len(view), str(error)) from error
            position += at
        return None

    def find_log_time(self, at_ms: int, log_start: int) -> int:
        """Return an offset below which every batch was logged before ``at_ms``."""
        found = log_start
        for segment in self.segments:
            if segment.first_at_ms >= at_ms:
                break
            if segment.last_at_ms >= at_ms:
                found = segment.load().times.find_log_time(at_ms)
                break
            found = segment.end_offset
        return max(log_start, found)

    # ---- dropping

    def trim(self, log_start: int, durable_resets: int) -> None:
        """Remove the segments that lie wholly below ``log_start``. W4."""
        self._remove_doomed(durable_resets)
        if self.segments and self.written_end <= log_start and self.segments[-1].size:
            self._roll()
        kept = [s for s in self.segments if s.end_offset > log_start or s is self.segments[-1]]
        dropped = self.segments[: len(self.segments) - len(kept)]
        if not dropped:
            return
        first = kept[0].base_offset
        self.segments = tuple(kept)
        self._write_trim_name(first, dropped)
        for segment in dropped:
            for path in segment.paths:
                self._remove(path)
        self._names_dirty = True

    def _write_trim_name(self, first: int, dropped: Sequence[Segment]) -> None:
        """Say durably that everything below ``first`` was removed on purpose. Needs no space."""
        disk = self.pool.disk
        old = [n for n in disk.listdir(self.directory) if n.endswith(TRIM_SUFFIX)]
        name = f"{first:020d}-{self.resets}{TRIM_SUFFIX}"
        donor = dropped[0].log_path.removesuffix(".log") + ".time"
        self.pool.drop(donor)
        if disk.exists(donor):
            disk.rename(donor, f"{self.directory}/{name}")
        else:
            disk.open(f"{self.directory}/{name}", create=True).close()
        disk.sync_dir(self.directory)
        for stale in old:
            if stale != name:
                self._remove(f"{self.directory}/{stale}")

    def _remove_doomed(self, durable_resets: int) -> None:
        for resets, paths in self._doomed:
            if resets < durable_resets:
                for path in paths:
                    self._remove(path)
        self._doomed = [row for row in self._doomed if row[0] >= durable_resets]

    def _remove(self, path: str) -> None:
        self.pool.drop(path)
        with suppress(FileNotFoundError):
            self.pool.disk.remove(path)
            self._names_dirty = True

    def cut(self, offset: int) -> None:
        """Drop everything from ``offset``, a batch boundary, on."""
        if offset >= self.written_end:
            return
        segment = self.segment_of(offset)
        first, position = segment.locate(offset)
        if first != offset:
            raise LogFault(f"{self.directory}: no batch begins at offset {offset}")
        row = self.segments.index(segment)
        dropped = self.segments[row + 1 :] if position else self.segments[row:]
        if position:
            segment.cut(position, offset)
        self.segments = self.segments[: row + 1] if position else self.segments[:row]
        for late in reversed(dropped):
            for path in late.paths:
                self._remove(path)
        self.written = (offset, segment.start_position + position)
        self.chain_end = segment.chain_end if position else segment.chain

    def reset(self, offset: int, chain: int) -> None:
        """Drop everything and start empty at ``offset``.

        The old files stay until a mark taken after this is durable (``trim`` is told), so a crash
        in between finds the state of the old mark. Where new names could meet old ones (``offset``
        is not past the old end) they are removed now.
        """
        written = [segment for segment in self.segments if segment.size]
        paths = [path for segment in written for path in segment.paths]
        meets = offset < self.written_end
        self.segments = ()
        if meets:
            for path in [*(p for _, old in self._doomed for p in old), *paths]:
                self._remove(path)
            self._doomed = []
        else:
            for path in paths:
                self.pool.drop(path)
            self._doomed.append((self.resets, paths))
        self.begin(offset, 0, chain, self.resets + 1)
        self._chain_cache = (-1, 0)

    def close(self) -> None:
        """Close every file. What is not synced may be lost, as after a crash."""
        for segment in self.segments:
            for suffix in SUFFIXES:
                self.pool.drop(segment.log_path.removesuffix(".log") + suffix)


def _base_of(segment: Segment) -> int:
    return segment.base_offset
