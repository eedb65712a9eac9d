"""The committed batches of one partition, contiguous: exactly the bytes a Kafka client gets.

Batches are appended at apply into a memory tail (no I/O), flushed lazily by the segment lane, made
durable by ``sync_job`` at checkpoints, and never truncated by Raft: all of them are committed.

Two kinds of method
    Loop: plain methods. They do no I/O (``read_cached`` reads the page cache without waiting).
    Lane: ``*_job`` methods run on the loop, note what "now" is, and return a callable for
    ``Lane.submit``; ``write_flush`` is itself the lane's part. Jobs must be submitted in the
    order they were made, to one lane.

Threads
    The loop owns every field of ``PartitionLog`` and the tail. The lane owns ``LogFiles`` below.
    They share: immutable items and structs handed over with jobs; ``files.segments``, a tuple the
    lane replaces; numbers of a segment that are set after their bytes are written.

Invariants
    P1  ``log_start <= log_end``; ``append`` continues at ``log_end`` without a gap.
    P2  A batch leaves memory only after the loop was told that it is in a segment.
    P3  One flush is in flight at most. Every job that needs bytes of the tail carries them along;
        the lane skips what it has (log_files.py, W2), so their order and repetition are harmless.
    P4  Bytes that do not match their sums are never returned: ``DamagedRange`` is raised.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from raftline.storage.batches import BadBatch, take_batches, whole_batches
from raftline.storage.file_pool import FilePool
from raftline.storage.files import Buffer, Disk
from raftline.storage.log_files import LogFiles
from raftline.storage.log_open import open_files
from raftline.storage.log_repair import repair, scrub
from raftline.storage.log_tail import LogTail
from raftline.storage.log_words import (
    CHUNK_BYTES,
    Damage,
    Exported,
    Flush,
    Item,
    LogFault,
    LogIdentity,
    LogMark,
    LogSettings,
    LogStopped,
    NotImported,
    ScrubResult,
    TimeHit,
)
from raftline.storage.segment import Segment
from raftline.storage.sums import chunk_count

DIGEST_STEP_BYTES = 1 << 20
ALL = 1 << 62


class PartitionLog:
    """One replica's copy of a partition's batches."""

    __slots__ = (
        "_durable_resets", "_files", "_flushing", "_generation", "_has_doomed", "_resets", "_tail",
        "_waiting_since_ms", "damage", "log_end", "log_start", "settings",
    )  # fmt: skip

    def __init__(self, files: LogFiles, log_start: int, damage: list[Damage]) -> None:
        self._files = files
        self._tail = LogTail(files.written_end)
        self._flushing: Flush | None = None
        self._generation = 0
        self._resets = self._durable_resets = files.resets
        self._has_doomed = False  # files of before a reset are still there
        self._waiting_since_ms: float | None = None
        self.damage = damage  # found at open; reads of these offsets raise DamagedRange
        self.log_start = log_start
        self.log_end = files.written_end
        self.settings = files.settings

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        identity: LogIdentity,
        settings: LogSettings,
        mark: LogMark | None,
        *,
        pool: FilePool | None = None,
    ) -> "PartitionLog":
        """Open the log as of ``mark``. Blocking, at start.

        Segments beyond the mark are cut; missing bytes below it are in ``damage``. Without a mark
        the log is empty and any segments found are moved aside. Logs on one lane share ``pool``.

        Raises:
            ForeignLog: the files are another log's, or of a newer format. Nothing was changed.
        """
        pool = pool or FilePool(disk)
        files, log_start, damage = open_files(pool, directory, identity, settings, mark)
        return cls(files, log_start, damage)

    @classmethod
    def fresh(
        cls,
        pool: FilePool,
        directory: str,
        identity: LogIdentity,
        settings: LogSettings,
        log_start: int,
    ) -> "PartitionLog":
        """Begin an empty log, without touching the disk: its first job makes the directory. Loop.

        For logs that few partitions need (side logs). What lies there was never in a checkpoint.
        """
        files = LogFiles(pool, directory, identity, settings)
        files.begin(log_start, 0, 0, 0)
        files.is_made = False
        return cls(files, log_start, [])

    @property
    def bytes(self) -> int:
        """Return the bytes of all kept segments and of the tail that is in none yet."""
        files = self._files
        (end, position), segments = files.written, files.segments
        first = segments[0].start_position if segments else position
        return position - first + self._tail.bytes_from(end)

    @property
    def tail_bytes(self) -> int:
        """Return the bytes held in memory."""
        return self._tail.size

    @property
    def unflushed_bytes(self) -> int:
        """Return the bytes not known to be in a segment yet."""
        return self._tail.unflushed_bytes

    @property
    def flushed_end(self) -> int:
        """Return the end of what is known to be in segments."""
        return self._tail.flushed_end

    @property
    def stopped(self) -> str:
        """Return why the log takes no more jobs; empty if it does."""
        return self._files.stopped

    def limit_segments(self, segment_bytes: int) -> None:
        """Close segments at another size from now on. Loop; the lane sees settings whole."""
        if segment_bytes != self.settings.segment_bytes:
            self.settings = msgspec.structs.replace(self.settings, segment_bytes=segment_bytes)
            self._files.settings = self.settings

    # ---- appending, on the loop

    def append(
        self, base_offset: int, term: int, at_ms: int, batches: Iterable[tuple[Buffer, int, int]]
    ) -> int:
        """Add the batches of one entry and return the new ``log_end``. P1.

        Each is (whole batch as the producer sent it, message count, max timestamp); it gets a
        fresh head with its base offset and ``term`` as leader epoch. The buffers are kept: they
        must never change.
        """
        assert base_offset == self.log_end, (base_offset, self.log_end)
        self.log_end = end = self._tail.append(base_offset, term, at_ms, batches)
        return end

    def import_batches(self, data: Buffer, at_ms: int) -> int:
        """Add committed batches from a peer, heads and all; return the new ``log_end``.

        Raises:
            NotImported: they do not continue this log, or are damaged. Nothing was added.
        """
        try:
            items, used = whole_batches(memoryview(data), self.log_end, at_ms)
        except BadBatch as error:
            raise NotImported(str(error)) from error
        if used != len(data):
            raise NotImported(f"{len(data) - used} bytes at the end are no whole batch")
        self._tail.extend(items, used)
        if items:
            self.log_end = items[-1][1]
        return self.log_end

    # ---- reading

    def read_tail(self, offset: int, bytes_max: int, end: int | None = None) -> list[Buffer] | None:
        """Return buffers of whole batches from the one that holds ``offset``, from memory.

        At least one batch, otherwise at most ``bytes_max``, none past ``end``. Empty at the end of
        the log; None if the batch is not in memory any more. Loop.
        """
        if offset >= self.log_end:
            return []
        return self._tail.read(offset, bytes_max, self.log_end if end is None else end)

    def read_cached(
        self, offset: int, bytes_max: int, end: int | None = None
    ) -> list[Buffer] | None:
        """Return the same from the page cache, if its sums match; None without waiting."""
        segments = self._files.segments
        row = bisect_right(segments, offset, key=_base_of) - 1
        if row < 0 or offset >= segments[row].end_offset:
            return None
        segment = segments[row]
        tables = segment.tables
        if tables is None or not tables.offsets.offsets:
            return None
        first, position = tables.offsets.find(offset)
        length = min(self.settings.index_bytes + bytes_max, segment.size - position)
        last = chunk_count(position + length)
        chunk = position // CHUNK_BYTES
        if tables.sums.verified.find(0, chunk, last) >= 0 or last * CHUNK_BYTES > segment.size:
            return None
        data = self._peek(segment, chunk * CHUNK_BYTES, (last - chunk) * CHUNK_BYTES)
        if data is None or not tables.sums.matches(chunk, data):
            return None  # the lane finds out what is wrong
        view = memoryview(data)[position - chunk * CHUNK_BYTES :]
        limit = self.log_end if end is None else end
        far = tables.offsets.within(position + bytes_max, limit, position)
        try:
            start, stop, _, _ = take_batches(view, first, offset, limit, bytes_max, far)
        except BadBatch:
            return None  # the lane is changing the segment
        return [view[start:stop]] if stop >= 0 else None

    def _peek(self, segment: Segment, position: int, length: int) -> Buffer | None:
        pool = self._files.pool
        if not pool.lock.acquire(blocking=False):
            return None
        try:
            file = pool.peek(segment.log_path)
            data = None if file is None else file.read_cached(position, length)
        except OSError:
            return None  # the lane meets it and says so
        finally:
            pool.lock.release()
        return data if data is not None and len(data) == length else None

    def read_job(
        self, offset: int, bytes_max: int, end: int | None = None
    ) -> Callable[[], list[Buffer]]:
        """Return a job that reads the same from memory, cache or disk.

        The job raises DamagedRange. P4.
        """
        found = self.read_tail(offset, bytes_max, end)
        if found is None:
            found = self.read_cached(offset, bytes_max, end)
        if found is not None:
            at_hand = found
            return lambda: at_hand
        files, generation = self._files, self._generation
        limit = self.log_end if end is None else end

        def job() -> list[Buffer]:
            files.check_running(generation)
            view, _, _ = files.read(offset, bytes_max, limit)
            return [view]

        return job

    def pick_job(self, offsets: Sequence[int], bytes_max: int) -> Callable[[], list[Buffer]]:
        """Return a job: the batches at ``offsets``, one each, in that order.

        Stops early once it has ``bytes_max`` bytes, but not before the first. What is in memory is
        taken now, the rest is read by the job, which raises DamagedRange.
        """
        found: list[Buffer | None] = []
        size, end = 0, self.log_end
        for offset in offsets:
            pieces = self._tail.read(offset, 1, end)
            batch = None if pieces is None else b"".join(pieces)
            found.append(batch)
            size += 0 if batch is None else len(batch)
            if size >= bytes_max:
                break
        if None not in found:
            at_hand = [batch for batch in found if batch is not None]
            return lambda: at_hand
        files, generation = self._files, self._generation

        def job() -> list[Buffer]:
            files.check_running(generation)
            return files.pick(offsets, found, bytes_max)

        return job

    # ---- flushing

    def needs_flush(self, now_ms: float) -> bool:
        """Say whether a flush is due: enough bytes, or bytes that waited long enough. Loop."""
        tail = self._tail
        if not tail.unflushed_bytes or self._flushing is not None:
            return False
        if tail.unflushed_bytes >= self.settings.flush_bytes:
            return True
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms
        return now_ms - self._waiting_since_ms >= self.settings.flush_ms

    def take_flush(self) -> Flush | None:
        """Return the oldest unflushed batches for the lane; None if a flush is in flight. P3."""
        if self._flushing is not None or not self._tail.unflushed_bytes:
            return None
        items, size = self._tail.unflushed(self.settings.flush_bytes_max)
        self._flushing = Flush(items[0][0], items[-1][1], size, self._generation, items)
        self._waiting_since_ms = None
        return self._flushing

    def write_flush(self, flush: Flush) -> None:
        """Write a flush. Lane. Raises OSError (ENOSPC, EIO): then call ``flush_failed``."""
        self._files.check_running(flush.generation)
        self._files.write(flush.items)

    def flushed(self, flush: Flush) -> None:
        """Note that the lane wrote ``flush``. Loop. P2."""
        if self._flushing is flush:
            self._flushing = None
        if flush.generation == self._generation:
            self._tail.confirm(flush.end, self.settings.tail_bytes)

    def flush_failed(self, flush: Flush) -> None:
        """Note that the lane could not write ``flush``: its batches will be taken again. Loop."""
        if self._flushing is flush:
            self._flushing = None

    def sync_job(self) -> Callable[[], LogMark]:
        """Return a job that makes everything appended until now durable.

        Its mark goes into the checkpoint, then to ``synced``. The job raises OSError where it may
        be tried again and SyncFailed where the log is stopped.
        """
        files, items, generation = self.carry()
        log_start = self.log_start

        def job() -> LogMark:
            files.check_running(generation)
            files.write(items)
            return files.sync(log_start)

        return job

    def synced(self, mark: LogMark) -> None:
        """Note that a sync job is done: its batches may leave memory. Loop. P2."""
        if mark.generation == self._generation:
            self._tail.confirm(mark.log_end, self.settings.tail_bytes)

    def checkpointed(self, mark: LogMark) -> None:
        """Note that a checkpoint with this mark is durable: older files may go. Loop."""
        self._durable_resets = max(self._durable_resets, mark.resets)

    def carry(self) -> tuple[LogFiles, tuple[Item, ...], int]:
        """Return what a lane job needs to see the log as it is now. P3."""
        return self._files, self._tail.unflushed(ALL)[0], self._generation

    # ---- looking up by time

    def find_time(self, time_ms: int) -> Callable[..., TimeHit | None]:
        """Return a job: the first batch, in offset order, with a message at ``time_ms`` or later.

        The caller looks inside the batch for the message. A trim may be inside it: where nothing
        late is left of it, the job is called again with the offset to go on from. It raises
        DamagedRange.
        """
        files, items, generation = self.carry()
        log_start = self.log_start

        def job(start: int = log_start) -> TimeHit | None:
            files.check_running(generation)
            files.write(items)
            return files.find_time(time_ms, start)

        return job

    def find_log_time(self, at_ms: int) -> Callable[[], int]:
        """Return a job: the greatest indexed offset below which all was logged before ``at_ms``."""
        files, items, generation = self.carry()
        log_start = self.log_start

        def job() -> int:
            files.check_running(generation)
            files.write(items)
            return files.find_log_time(at_ms, log_start)

        return job

    def logged_at(self, offset: int) -> int:
        """Return about when the message was logged, without looking at the disk. Loop.

        Exact for what is in memory; else between the times of its segment, by the offset.
        """
        found = self._tail.logged_at(offset)
        if found is not None:
            return found
        segments = self._files.segments
        row = bisect_right(segments, offset, key=_base_of) - 1
        if row < 0:
            return segments[0].first_at_ms if segments else 0
        segment = segments[row]
        count = max(1, segment.end_offset - segment.base_offset)
        span_ms = segment.last_at_ms - segment.first_at_ms
        return segment.first_at_ms + span_ms * (offset - segment.base_offset) // count

    # ---- retention

    def retention_start(self, at_ms_before: int | None, bytes_max: int | None) -> int:
        """Return where the log could start: whole closed segments, oldest first. Loop.

        A segment goes if all of it was logged before ``at_ms_before``, or if ``bytes_max`` bytes
        remain without it. Never the segment being written.
        """
        start = self.log_start
        segments = self._files.segments
        left = self.bytes
        for segment, following in pairwise(segments):
            left -= segment.size
            is_old = at_ms_before is not None and segment.last_at_ms < at_ms_before
            is_surplus = bytes_max is not None and left >= bytes_max
            if not (is_old or is_surplus):
                break
            start = max(start, following.base_offset)
        return start

    def trim(self, log_start: int) -> None:
        """Let the log start at ``log_start`` (never backwards). Files go by ``trim_job``. Loop."""
        assert log_start <= self.log_end, (log_start, self.log_end)
        self.log_start = max(self.log_start, log_start)

    def needs_trim(self) -> bool:
        """Say whether ``trim_job`` has files to remove. Loop."""
        segments = self._files.segments
        if self._has_doomed and self._durable_resets == self._resets:
            return True
        if not segments:
            return False
        first, last = segments[0], segments[-1]
        if first is not last:
            return first.end_offset <= self.log_start
        return last.size > 0 and last.end_offset == self.log_end == self.log_start

    def trim_job(self) -> Callable[[], None]:
        """Return a job that removes the files of segments wholly below ``log_start``."""
        files, generation = self._files, self._generation
        log_start, durable_resets = self.log_start, self._durable_resets
        self._has_doomed = self._has_doomed and durable_resets < self._resets

        def job() -> None:
            files.check_running(generation)
            files.trim(log_start, durable_resets)

        return job

    # ---- comparing replicas

    def chain_job(self, offset: int) -> Callable[[], int]:
        """Return a job: the chain at ``offset``; CHAIN_UNKNOWN if no batch begins there.

        Two logs whose chains agree at an offset agree in every byte before it. Reads at most one
        chunk (64 KiB). The job raises DamagedRange.
        """
        files, items, generation = self.carry()

        def job() -> int:
            files.check_running(generation)
            files.write(items)
            return files.chain_at(offset)

        return job

    # ---- catching up

    def export_job(
        self, start_offset: int, bytes_max: int, limit: int | None = None
    ) -> Callable[[], Exported]:
        """Return a job: verified batches from ``start_offset`` on, none past ``limit``, for a peer.

        The job raises DamagedRange.
        """
        files, items, generation = self.carry()

        def job() -> Exported:
            files.check_running(generation)
            files.write(items)
            return files.export(start_offset, bytes_max, limit)

        return job

    def cut_to(self, offset: int, floor: int) -> Callable[[], None]:
        """Drop everything from ``offset``, a batch boundary, on; return the job for the files.

        Undoes an abandoned catch-up. ``floor`` is the applied end: nothing below it is cut.

        Raises:
            LogFault: ``offset`` is below ``floor`` or no boundary. Nothing changed.
        """
        if not floor <= offset <= self.log_end:
            raise LogFault(f"cannot cut to {offset}: allowed is [{floor}, {self.log_end}]")
        if not self._tail.cut(offset):
            raise LogFault(f"cannot cut to {offset}: no batch begins there")
        self.log_end = offset
        files = self._files
        return self._change_job(lambda: files.cut(offset))

    def reset(self, log_start: int, chain: int) -> Callable[[], None]:
        """Drop everything and start empty at ``log_start`` with ``chain``; return the job."""
        self._tail = LogTail(log_start)
        self.log_start = self.log_end = log_start
        self._resets += 1
        self._has_doomed = True
        files = self._files
        return self._change_job(lambda: files.reset(log_start, chain))

    def _change_job(self, change: Callable[[], None]) -> Callable[[], None]:
        """Return a job that changes the files as the loop already changed the tail."""
        self._generation = generation = self._generation + 1
        self._flushing = None
        files = self._files

        def job() -> None:
            if files.stopped:
                raise LogStopped(files.stopped)
            try:
                change()
            except (LogFault, OSError) as error:
                files.stopped = f"the files could not follow a cut or reset: {error}"
                raise
            files.generation = generation

        return job

    # ---- scrubbing

    def scrub_job(self, bytes_max: int) -> Callable[[], ScrubResult]:
        """Return a job that verifies about ``bytes_max`` written bytes, going round and round."""
        files, generation = self._files, self._generation

        def job() -> ScrubResult:
            files.check_running(generation)
            return scrub(files, bytes_max)

        return job

    def repair_job(self, start: int, end: int, good: Buffer) -> Callable[[], tuple[Damage, ...]]:
        """Return a job that overwrites a damaged range with a peer's bytes.

        It returns what is still damaged in the range and raises NotRepaired if the bytes do not
        fit; then nothing was written.
        """
        files, generation = self._files, self._generation

        def job() -> tuple[Damage, ...]:
            files.check_running(generation)
            return repair(files, start, end, good)

        return job


class DigestRun:
    """A digest of the batches that hold a range, in steps so that the lane is never held for long.

    The end is a batch boundary; a trim may have put the start inside a batch. Every byte is read
    and verified. A step raises DamagedRange.
    """

    __slots__ = ("_carried", "_end", "_hash", "_next")

    def __init__(self, log: PartitionLog, start: int, end: int) -> None:
        self._carried = log.carry()
        self._hash = hashlib.blake2b(digest_size=16)
        self._next = start
        self._end = end

    def step(self) -> str | None:
        """Take in up to 1 MiB; return the digest when all is in. Lane.

        Raises:
            DamagedRange: bytes of the range cannot be trusted.
        """
        files, items, generation = self._carried
        files.check_running(generation)
        files.write(items)
        self._carried = (files, (), generation)
        if self._next < self._end:
            view, start, stop = files.read(self._next, DIGEST_STEP_BYTES, self._end)
            if start > self._next or not len(view):
                raise LogFault(f"[{self._next}, {self._end}) does not lie on batch boundaries")
            self._hash.update(view)
            self._next = stop
        return self._hash.hexdigest() if self._next >= self._end else None


def _base_of(segment: Segment) -> int:
    return segment.base_offset
