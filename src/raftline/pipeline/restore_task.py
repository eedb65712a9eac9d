"""What one task of the restore job does on an executor: read archived messages, stage them."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from raftline.model.limits import BATCH_BYTES_MAX, BATCH_HEADER_BYTES
from raftline.model.message import Header, NewMessage
from raftline.model.names import place

RESTORED_HEADER = "raftline-restored"  # where the message was archived from: topic/partition@offset
CHUNK_BYTES = 1 << 20
CHUNK_MESSAGES = 10_000
MESSAGE_BYTES = 40  # what a message takes besides its bytes


class Piece(msgspec.Struct, frozen=True):
    """Archived messages to bring back: [start, end) of a partition, and where they go."""

    servers: str
    root: str
    source: str
    partition: int
    start: int
    end: int
    from_ms: int | None
    to_ms: int | None
    target: str
    query: str
    batch: int
    task: int


class Staged(msgspec.Struct, frozen=True):
    """What a task staged."""

    piece: Piece
    attempt: int
    chunks: int
    messages: int


def stage_piece(piece: Piece) -> Staged:
    """Stage the messages of a piece. A task that runs twice stages twice; one of both counts."""
    from raftline.client.fenced import Fenced

    attempt = secrets.randbits(62)
    chunks = messages = 0
    with Fenced(piece.servers) as fenced:
        settings: dict[str, Any] = fenced.topic(piece.target)["settings"]
        bytes_max = int(settings.get("batch_bytes_max", BATCH_BYTES_MAX))
        for rows in _chunks(_rows(piece), min(CHUNK_BYTES, bytes_max - BATCH_HEADER_BYTES)):
            payload, priorities = _seal(rows, bytes_max)
            fenced.stage(
                piece.target,
                piece.partition,
                piece.query,
                piece.batch,
                piece.task,
                attempt,
                chunks,
                payload,
                priorities=priorities,
            )
            chunks += 1
            messages += len(rows)
    return Staged(piece, attempt, chunks, messages)


Row = tuple[NewMessage, int]  # message, priority


def _rows(piece: Piece) -> Iterator[Row]:
    from raftline.archive.reader import Archive

    is_back = piece.source == piece.target
    for batch in Archive(Path(piece.root)).batches(
        piece.source,
        piece.partition,
        start=piece.start,
        end=piece.end,
        from_ms=piece.from_ms,
        to_ms=piece.to_ms,
    ):
        columns: dict[str, list[Any]] = {
            name: batch.column(name).to_pylist()
            for name in ("offset", "key", "value", "headers", "priority")
        }
        times_ms = _times_ms(batch)
        for at, offset in enumerate(columns["offset"]):
            headers = _headers(columns["headers"][at])
            if is_back:
                if any(_is_of(piece.source, header) for header in headers):
                    continue  # it came back before; it is not to come back as itself again
                where = place(piece.source, piece.partition, offset)
                headers.append((RESTORED_HEADER, where.encode()))
            message = (columns["key"][at], columns["value"][at], headers, times_ms[at])
            yield message, columns["priority"][at] or 0


def _times_ms(batch: Any) -> list[int]:
    from raftline.archive.writer import times_of

    return times_of(batch).tolist()


def _headers(found: list[dict[str, Any]] | None) -> list[Header]:
    from raftline.archive.unreadable import HEADER

    return [(one["key"], b"" if one["key"] == HEADER else one["value"]) for one in found or ()]


def _is_of(topic: str, header: Header) -> bool:
    """Say whether a header tells that its message came back to this topic, not to another."""
    name, where = header
    return name == RESTORED_HEADER and (where or b"").startswith(f"{topic}/".encode())


def _chunks(rows: Iterator[Row], bytes_max: int) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    size = 0
    for row in rows:
        key, value, headers, _ = row[0]
        own = MESSAGE_BYTES + len(key or b"") + len(value or b"")
        own += sum(len(name) + len(content or b"") + 4 for name, content in headers)
        if chunk and (size + own > bytes_max or len(chunk) == CHUNK_MESSAGES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += own
    if chunk:
        yield chunk


def _seal(rows: list[Row], bytes_max: int) -> tuple[bytes, list[tuple[int, int, int]]]:
    """Seal a chunk; compressed where it would not be taken otherwise, as it once was."""
    from raftline.model.records import seal_batch
    from raftline.spark.chunks import runs_of

    messages = [message for message, _ in rows]
    sealed = seal_batch(messages)
    if len(sealed) > bytes_max:
        sealed = seal_batch(messages, compression="zstd")
    return sealed, runs_of([priority for _, priority in rows])
