"""Words for tests of the partition log: batches, a lane, a disk of either kind."""

import random
import struct

from crc32c import crc32c

from raftline.storage.file_pool import FilePool
from raftline.storage.log import DigestRun, PartitionLog
from raftline.storage.log_words import LogIdentity, LogMark, LogSettings
from raftline.testing.sim_disk import SimDisk

IDENTITY = LogIdentity("cluster-a", "0b5ad5c2-4f3c-4c02-9d2d-8c6f1f9d1e11", 3)
SMALL = LogSettings(
    segment_bytes=300_000, index_bytes=4096, flush_bytes=50_000, flush_bytes_max=200_000,
    flush_ms=20, tail_bytes=30_000,
)  # fmt: skip
HEAD = struct.Struct(">qiibIhiqqqhii")


def make_batch(count: int, size: int, max_timestamp: int, seed: int = 0) -> bytes:
    """Return a sealed batch as a producer sends it: base offset 0, leader epoch -1."""
    body = random.Random(f"{seed} {count} {size}").randbytes(max(0, size - 61))
    total = 61 + len(body)
    tail = struct.pack(">hiqqqhii", 0, count - 1, 0, max_timestamp, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, total - 12, -1, 2, crc32c(tail)) + tail


def placed(batch: bytes, offset: int, term: int) -> bytes:
    """Return the batch as the log must give it back."""
    return struct.pack(">qii", offset, len(batch) - 12, term) + batch[16:]


def digest_of(log: PartitionLog, start: int, end: int) -> str:
    """Take a digest in one go."""
    run = DigestRun(log, start, end)
    while (found := run.step()) is None:
        pass
    return found


class Row:
    """One batch of the naive twin."""

    def __init__(self, base: int, end: int, data: bytes, at_ms: int, max_timestamp: int) -> None:
        self.base = base
        self.end = end
        self.data = data
        self.at_ms = at_ms
        self.max_timestamp = max_timestamp


class Twin:
    """A log, and the list it must equal."""

    def __init__(self, disk=None, settings=SMALL, directory="topics/t/3") -> None:
        self.disk = disk or SimDisk(random.Random(1))
        self.settings = settings
        self.directory = directory
        self.rows: list[Row] = []
        self.mark: LogMark | None = None
        self.at_ms = 1000
        self.seed = 0
        self.log = self.open()

    def open(self, mark: LogMark | None = None) -> PartitionLog:
        pool = FilePool(self.disk, tables_bytes_max=1)  # those used last, and no others
        return PartitionLog.open(
            self.disk, self.directory, IDENTITY, self.settings, mark, pool=pool
        )

    def append(self, *sizes: int, count: int = 3, max_timestamp: int | None = None) -> None:
        base = self.log.log_end
        self.at_ms += 7
        batches = []
        for size in sizes:
            self.seed += 1
            stamp = self.at_ms if max_timestamp is None else max_timestamp
            batch = make_batch(count, size, stamp, self.seed)
            batches.append((memoryview(batch), count, stamp))
            end = base + count
            self.rows.append(Row(base, end, placed(batch, base, 5), self.at_ms, stamp))
            base = end
        assert self.log.append(self.log.log_end, 5, self.at_ms, batches) == base

    def flush(self) -> None:
        flush = self.log.take_flush()
        if flush is not None:
            self.log.write_flush(flush)
            self.log.flushed(flush)

    def flush_all(self) -> None:
        while self.log.unflushed_bytes:
            self.flush()

    def sync(self) -> LogMark:
        self.mark = self.log.sync_job()()
        self.log.synced(self.mark)
        return self.mark

    def reopen(self) -> None:
        """Crash, open at the mark and apply again what the WAL would bring."""
        self.disk.crash()
        mark = self.mark
        self.log = self.open(mark)
        end = mark.log_end if mark else 0
        assert self.log.log_end == end
        self.replay()

    def replay(self) -> None:
        for row in self.rows:
            if row.base >= self.log.log_end:
                batch = (row.data, row.end - row.base, row.max_timestamp)
                self.log.append(row.base, 5, row.at_ms, [batch])

    def read(self, offset: int, bytes_max: int = 1 << 20) -> bytes:
        found = self.log.read_tail(offset, bytes_max)
        if found is None:
            cached = self.log.read_cached(offset, bytes_max)
            found = self.log.read_job(offset, bytes_max)()
            if cached is not None:
                assert b"".join(cached) == b"".join(found)
        return b"".join(found)

    def expected(self, offset: int, bytes_max: int) -> bytes:
        """Return what a read may give at most, from the list."""
        found = b""
        for row in self.rows:
            if row.end > offset:
                if found and len(found) + len(row.data) > bytes_max:
                    break
                found += row.data
        return found

    def check_reads(self, bytes_max: int = 20_000) -> None:
        """Read from every batch's first and last offset and compare."""
        for row in self.rows:
            if row.end <= self.log.log_start:
                continue
            for offset in (row.base, row.end - 1):
                got = self.read(offset, bytes_max)
                want = self.expected(offset, bytes_max)
                assert got, offset
                assert want.startswith(got), (offset, len(got), len(want))
        assert self.read(self.log.log_end) == b""

    def digest(self, start: int | None = None, end: int | None = None) -> str:
        start = self.log.log_start if start is None else start
        return digest_of(self.log, start, self.log.log_end if end is None else end)
