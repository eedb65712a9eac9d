"""Loading, rebuilding and saving what a segment's side files hold.

A lost or damaged index is rebuilt from the .log, whose bytes are verified against the sums as they
are walked. A lost .sum entry is restored if the bytes lead from the last chain known before it to
the first known after it; otherwise its chunk stays unknown, which reads as damage.
"""

from typing import Protocol

from crc32c import crc32c

from raftline.model.limits import BATCH_HEADER_BYTES
from raftline.storage.batches import BadBatch, head_at
from raftline.storage.file_pool import FilePool
from raftline.storage.log_words import CHUNK_BYTES, TIMESTAMP_MIN, DamagedRange, LogIdentity
from raftline.storage.offset_index import ENTRY as OFFSET_ENTRY
from raftline.storage.offset_index import OffsetIndex, decode_offsets
from raftline.storage.side_file import (
    HEADER_BYTES,
    MAGIC_INDEX,
    MAGIC_SUM,
    MAGIC_TIME,
    SideHead,
    decode_head,
    encode_head,
)
from raftline.storage.sums import ENTRY as SUM_ENTRY
from raftline.storage.sums import SumTable, chunk_count, decode_sums
from raftline.storage.time_index import ENTRY as TIME_ENTRY
from raftline.storage.time_index import TimeIndex, decode_times

SEED_MASK = 0xFFFFFFFF


class SegmentPlace:
    """Where a segment's files are and what their heads say."""

    __slots__ = ("head", "index_bytes", "path", "seed")

    def __init__(
        self, path: str, identity: LogIdentity, base_offset: int, chain: int, index_bytes: int
    ) -> None:
        self.path = path
        self.index_bytes = index_bytes
        self.head = SideHead(identity, base_offset, chain)
        self.seed = base_offset & SEED_MASK


class Tables:
    """What is known of a segment's bytes."""

    __slots__ = ("is_whole", "offsets", "sums", "times")

    def __init__(self, sums: SumTable, offsets: OffsetIndex, times: TimeIndex) -> None:
        self.sums = sums
        self.offsets = offsets
        self.times = times
        self.is_whole = True  # False: rebuilt up to damage only

    @property
    def bytes(self) -> int:
        """Return about how much memory they take."""
        return 1_000 + 10 * len(self.sums.crcs) + 48 * len(self.offsets.offsets)


class Source(Protocol):
    """The segment, as far as loading needs it."""

    base_offset: int
    end_offset: int
    size: int
    chain: int
    chain_end: int
    max_timestamp: int
    last_at_ms: int
    index_count: int
    index_saved: int
    sums_saved: int
    tables: Tables | None

    def read(self, position: int, length: int) -> memoryview:
        """Return verified bytes."""
        ...

    def read_chunk(self, chunk: int) -> memoryview | None:
        """Return a chunk's bytes as they are."""
        ...


def load_tables(
    pool: FilePool, place: SegmentPlace, segment: Source, partial: tuple[int, int] | None
) -> tuple[Tables, bool]:
    """Return the tables of a segment, and whether any part had to be rebuilt."""
    if not segment.size:
        return Tables(SumTable(segment.chain), OffsetIndex(), TimeIndex()), False
    sums, is_restored = _load_sums(pool, place, segment, partial)
    count = segment.index_count
    body = _side_body(pool, place, ".index", MAGIC_INDEX, count * OFFSET_ENTRY.size)
    offsets = decode_offsets(body, count, place.seed)
    body = _side_body(pool, place, ".time", MAGIC_TIME, count * TIME_ENTRY.size)
    times = decode_times(body, count, place.seed)
    if offsets is not None and times is not None and offsets.offsets:
        return Tables(sums, offsets, times), is_restored
    if times is not None and times.offsets:
        return Tables(sums, _offsets_of(times), times), True
    survivor = offsets if offsets is not None and offsets.offsets else None
    return _rebuild_index(place, segment, sums, survivor), True


def save_tables(pool: FilePool, place: SegmentPlace, segment: Source, tables: Tables) -> list[str]:
    """Write the side entries the files do not hold yet; return the paths to sync."""
    paths: list[str] = []
    bodies = [
        (".sum", MAGIC_SUM, segment.sums_saved, SUM_ENTRY.size,
         tables.sums.encode(segment.sums_saved, place.seed)),
    ]  # fmt: skip
    if tables.is_whole:
        first = segment.index_saved
        bodies += [
            (".index", MAGIC_INDEX, first, OFFSET_ENTRY.size,
             tables.offsets.encode(first, place.seed)),
            (".time", MAGIC_TIME, first, TIME_ENTRY.size, tables.times.encode(first, place.seed)),
        ]  # fmt: skip
    for suffix, magic, first, size, body in bodies:
        path = place.path + suffix
        file = pool.get(path, create=True)
        if not first:
            file.write_at(0, [encode_head(magic, place.head)])
        if body:
            file.write_at(HEADER_BYTES + first * size, [body])
        paths.append(path)
    return paths


def _side_body(
    pool: FilePool, place: SegmentPlace, suffix: str, magic: bytes, length: int
) -> bytes:
    """Return the entries of a side file; nothing if the file is missing or its head damaged."""
    path = place.path + suffix
    try:
        data = pool.get(path).read_at(0, HEADER_BYTES + length)
    except OSError:
        return b""
    head = decode_head(data[:HEADER_BYTES], magic, place.head.identity, path)
    return data[HEADER_BYTES:] if head == place.head else b""


def _load_sums(
    pool: FilePool, place: SegmentPlace, segment: Source, partial: tuple[int, int] | None
) -> tuple[SumTable, bool]:
    length = chunk_count(segment.size) * SUM_ENTRY.size
    body = _side_body(pool, place, ".sum", MAGIC_SUM, length)
    table = decode_sums(body, segment.size, segment.chain, segment.chain_end, place.seed)
    if partial is not None and segment.size % CHUNK_BYTES:
        table.crcs[-1], table.chains[-1] = partial
        table.known[-1] = 1
    lost = table.known.count(0)
    if lost:
        _restore_sums(table, segment)
    return table, lost > 0


def _restore_sums(table: SumTable, segment: Source) -> None:
    """Restore lost entries where the chains on both sides prove the bytes right."""
    running: int | None = segment.chain
    lost: list[tuple[int, int, int]] = []
    for chunk in range(len(table.crcs)):
        data = segment.read_chunk(chunk)
        if table.known[chunk]:
            _accept(table, lost, running, table.chains[chunk])
            lost = []
            is_right = data is not None and crc32c(data) == table.crcs[chunk]
            running = crc32c(data, table.chains[chunk]) if is_right and data is not None else None
        elif running is not None and data is not None:
            lost.append((chunk, crc32c(data), running))
            running = crc32c(data, running)
        else:
            running = None
    _accept(table, lost, running, table.chain)


def _accept(
    table: SumTable, lost: list[tuple[int, int, int]], running: int | None, chain: int
) -> None:
    if running != chain:
        return
    for chunk, crc, chunk_chain in lost:
        table.crcs[chunk] = crc
        table.chains[chunk] = chunk_chain
        table.known[chunk] = 1


def _offsets_of(times: TimeIndex) -> OffsetIndex:
    """Return the offset index a time index contains."""
    index = OffsetIndex()
    for offset, position in zip(times.offsets, times.positions, strict=True):
        index.add(offset, position)
    return index


def _rebuild_index(
    place: SegmentPlace, segment: Source, sums: SumTable, survivor: OffsetIndex | None
) -> Tables:
    """Walk the .log and index it again, as far as it is sound.

    Where the offset index survived, the time index gets the same entries; past damage they carry
    the segment's greatest timestamp, so that searches begin too early rather than too late. The
    log time of single batches is not in the .log: entries get the segment's last one, so that
    retention keeps them too long rather than too short.
    """
    tables = Tables(sums, survivor or OffsetIndex(), TimeIndex())
    segment.tables = tables  # reads below go through it
    walk = _IndexWalk(segment, tables, place.index_bytes, survivor)
    try:
        walk.run()
    except (DamagedRange, BadBatch):
        tables.is_whole = survivor is not None
    if survivor is not None:
        walk.fill_up(survivor)
    elif not tables.offsets.offsets:
        walk.enter(segment.base_offset, 0)
    return tables


class _IndexWalk:
    """One pass over a .log file that writes index entries."""

    __slots__ = ("_due", "_index_bytes", "_known", "_maximum", "_segment", "_tables")

    def __init__(
        self, segment: Source, tables: Tables, index_bytes: int, survivor: OffsetIndex | None
    ) -> None:
        self._segment = segment
        self._tables = tables
        self._index_bytes = index_bytes
        self._known = None if survivor is None else frozenset(survivor.positions)
        self._maximum = TIMESTAMP_MIN
        self._due = 0

    def run(self) -> None:
        """Walk to the end of the segment. Raises DamagedRange or BadBatch where it is unsound."""
        segment = self._segment
        position, offset = 0, segment.base_offset
        while position < segment.size:
            view = segment.read(position, 1 << 20)
            if len(view) < BATCH_HEADER_BYTES:
                raise BadBatch(f"offset {offset} has less than a head")
            at = 0
            while at + BATCH_HEADER_BYTES <= len(view):
                after, size, _, max_timestamp = head_at(view, at, offset)
                self._visit(offset, position + at)
                self._maximum = max(self._maximum, max_timestamp)
                offset = after
                at += size
            position += at
        if offset != segment.end_offset or position != segment.size:
            raise BadBatch(f"the batches end at offset {offset}, not {segment.end_offset}")

    def _visit(self, offset: int, position: int) -> None:
        if self._known is None:
            if position >= self._due:
                self.enter(offset, position)
                self._due = position + self._index_bytes
        elif position in self._known:
            self._tables.times.add(self._maximum, self._segment.last_at_ms, offset, position)

    def enter(self, offset: int, position: int) -> None:
        """Add an entry to both indexes."""
        self._tables.offsets.add(offset, position)
        self._tables.times.add(self._maximum, self._segment.last_at_ms, offset, position)

    def fill_up(self, survivor: OffsetIndex) -> None:
        """Give the time index the entries the walk did not reach."""
        times, segment = self._tables.times, self._segment
        for row in range(len(times.offsets), len(survivor.offsets)):
            maximum = segment.max_timestamp if row else TIMESTAMP_MIN
            times.add(maximum, segment.last_at_ms, survivor.offsets[row], survivor.positions[row])
