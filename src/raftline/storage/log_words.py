"""The words of the partition log: identity, settings, marks, results and faults.

A ``LogMark`` is all a checkpoint remembers of a log. Bytes below the mark are durable; bytes above
it are cut at the next start and come back from the WAL.

The *chain* at an offset is the CRC32C of every batch byte before it since the log began, so it is
the same on every replica whatever the segments and flushes were.
"""

import msgspec

from raftline.model.limits import KIB, MIB
from raftline.storage.files import Buffer

CHUNK_BYTES = 64 * KIB  # one checksum of a .sum file covers this much of a .log file
CHAIN_UNKNOWN = -1
TIMESTAMP_MIN = -(1 << 63)
WEEK_MS = 7 * 24 * 3600 * 1000

# base_offset, end_offset, bytes, at_ms, max_timestamp, head (16 bytes), the rest of the batch
Item = tuple[int, int, int, int, int, Buffer, Buffer]


class LogIdentity(msgspec.Struct, frozen=True):
    """Whose log this is; written into every side file."""

    cluster: str
    topic_uuid: str
    partition: int


class LogSettings(msgspec.Struct, frozen=True):
    """How a log lays itself out. None of it changes what a reader gets."""

    segment_bytes: int = 128 * MIB  # a segment is closed before it would pass this
    segment_ms: int = WEEK_MS  # ... or when its first batch is this much older (log time)
    index_bytes: int = 16 * KIB  # one index entry per this many bytes
    flush_bytes: int = 1 * MIB  # a flush is due from here, and this is one write
    flush_bytes_max: int = 8 * MIB  # most bytes of one flush
    flush_ms: int = 1000  # ... or when bytes have waited this long
    tail_bytes: int = 4 * MIB  # recent batches kept in memory after they were flushed
    cache_bytes: int = 64 * MIB  # recent bytes left in the page cache


class SegmentMark(msgspec.Struct, frozen=True, array_like=True):
    """One segment as of a mark."""

    base_offset: int
    bytes: int
    chain: int  # at base_offset
    max_timestamp: int
    first_at_ms: int
    last_at_ms: int
    index_count: int


class LogMark(msgspec.Struct, frozen=True):
    """The durable state of a log, for the checkpoint."""

    log_start: int
    log_end: int
    chain_start: int  # at log_start; CHAIN_UNKNOWN if the bytes there are damaged
    chain_end: int  # at log_end
    bytes: int
    resets: int  # how often the log was dropped and begun anew
    chunk_crc: int  # of the unfinished chunk at the end of the last segment; -1: not known
    chunk_chain: int  # at the start of that chunk
    segments: tuple[SegmentMark, ...]
    generation: int = 0  # cuts and resets in the process that took it; not used after a restart


class Damage(msgspec.Struct, frozen=True):
    """Offsets whose bytes cannot be trusted, on index boundaries of one segment."""

    start_offset: int
    end_offset: int
    reason: str


class Flush(msgspec.Struct, frozen=True):
    """Batches on their way to the segment lane."""

    start: int
    end: int
    bytes: int
    generation: int
    items: tuple[Item, ...]


class TimeHit(msgspec.Struct, frozen=True):
    """The first batch that holds a message as late as was asked."""

    base_offset: int
    batch: bytes


class Exported(msgspec.Struct, frozen=True):
    """Verified batches for a peer: ``[start, end)``, with the chains at both ends."""

    start: int
    end: int
    at_ms: int  # log time of the newest of them, at index precision
    chain_start: int
    chain_end: int
    data: bytes


class ScrubResult(msgspec.Struct, frozen=True):
    """What one step of the scrubber saw."""

    bytes: int
    damaged: tuple[Damage, ...]
    wrapped: bool  # the end was reached: the next step starts over


class LogFault(Exception):
    """The log cannot do what was asked."""


class DamagedRange(LogFault):
    """Bytes do not match their checksums, or are gone. Nothing of the range is returned."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(f"[{damage.start_offset}, {damage.end_offset}): {damage.reason}")
        self.damage = damage
        self.start_offset = damage.start_offset
        self.end_offset = damage.end_offset
        self.reason = damage.reason


class ForeignLog(LogFault):
    """The files belong to another cluster, topic or partition, or to a newer format."""


class LogStopped(LogFault):
    """An fsync failed earlier: this log takes no more jobs until it is opened again."""


class SyncFailed(LogFault):
    """An fsync failed; the log is stopped. The cause is the OSError."""


class StaleJob(LogFault):
    """The log was cut or reset after this job was made."""


class NotImported(LogFault):
    """The bytes a peer sent do not continue this log, or do not match their checksums."""


class NotRepaired(LogFault):
    """The bytes offered do not fit the damaged range. Nothing was written."""
