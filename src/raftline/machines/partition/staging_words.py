"""Words of staged writes: what is known of queries and their chunks, and what happens to them.

See staging.py for what they mean together.
"""

from collections.abc import Sequence

import msgspec

from raftline.machines.partition.staging_commands import ChunkKey

NO_BATCH = -1

Chunk = tuple[int, int, int, int, int, int]
"""number in the stage log, messages, has extras (0 or 1), bytes, bytes staged before it, crc"""


class Staged(msgspec.Struct, frozen=True, gc=False):
    """A chunk is kept (``number`` > 0), was kept before (0), or comes too late (-1)."""

    number: int


class Result(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What came of a published batch."""

    offset: int = -1  # of its first message; -1: none went into the log
    count: int = 0  # messages put into the log
    waiting: int = 0  # messages that wait for their time
    duplicates: int = 0  # dropped: their dedup key is remembered


class PublishBegun(msgspec.Struct, frozen=True):
    """A batch is published: ``result``; or will be, piece by piece: None."""

    batch: int
    is_repeat: bool
    result: Result | None


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """So many chunks are gone."""

    count: int


StagingEvent = Staged | PublishBegun | Dropped


class Publishing(msgspec.Struct, array_like=True):
    """A batch on its way: its chunks in order, and how many are moved."""

    batch: int
    chunks: list[Chunk]
    at: int = 0
    offset: int = -1
    count: int = 0
    waiting: int = 0
    duplicates: int = 0

    def result(self) -> Result:
        """Return what came of it so far."""
        return Result(self.offset, self.count, self.waiting, self.duplicates)


class QueryState(msgspec.Struct, array_like=True):
    """One query."""

    fence: int
    used_ms: int
    keep_ms: int
    bytes: int
    result: Result
    chunks: dict[ChunkKey, Chunk]
    publishing: Publishing | None = None


QueryRow = tuple[str, int, int, int, int, Result, list[tuple[ChunkKey, Chunk]], Publishing | None]


class StagingState(msgspec.Struct, array_like=True):
    """The canonical snapshot."""

    format: int
    next_number: int
    staged_bytes: int
    looked_ms: int
    queries: list[QueryRow]


def chunks_of(query: QueryState) -> Sequence[Chunk]:
    """Return the chunks of a query whose bytes are needed."""
    chunks = list(query.chunks.values())
    if query.publishing is not None:
        chunks += query.publishing.chunks[query.publishing.at :]
    return chunks
