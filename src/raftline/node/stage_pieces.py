"""Pieces of a published batch, put together of staged chunks. In the segment lane.

Rules
    G1  A piece has the bytes of the next chunks as they were staged, about ``PUBLISH_BYTES_MAX``.
    G2  A chunk whose messages have dedup keys, or are to wait, is a piece of its own: it is taken
        or refused as a whole. Messages whose keys are remembered are left out.
    G3  Such a chunk is opened and its messages are sealed anew. What does not go through that is
        refused when it is staged: once its batch is decided nothing could be done about it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.partition.commands import BatchItem, encode_append
from raftline.machines.partition.side_car import (
    RUN_WEIGHT,
    PriorityRun,
    SideCar,
    encode_extension,
    stamped,
)
from raftline.machines.partition.stage_extras import NO_EXTRAS, Extras, open_extras
from raftline.machines.partition.staging_commands import (
    APPENDS,
    NOTHING,
    SCHEDULES,
    encode_piece,
)
from raftline.machines.partition.staging_words import Chunk
from raftline.machines.partition.waiting_commands import NewWaiting, encode_schedule
from raftline.model.batch import Buffer, check_batch
from raftline.model.limits import ENTRY_BATCHES_MAX, PUBLISH_BYTES_MAX
from raftline.model.records import open_batch, seal_batch

if TYPE_CHECKING:
    from raftline.model.message import NewMessage

DELAY_MS_MAX = 1 << 51  # any: a delay over the topic's limit was refused when it was staged
SIDES_WEIGHT_MAX = 512 << 10  # of one piece

Gone = frozenset[int]  # places in the batch of messages that are left out
NONE_GONE: Gone = frozenset()


class Built(msgspec.Struct, frozen=True):
    """A piece to be proposed."""

    count: int  # of chunks it holds
    data: bytes
    keys: tuple[bytes, ...] = ()  # hashes of dedup keys of messages that wait: see publishing.py


class PieceHead(msgspec.Struct, frozen=True):
    """Of which batch a piece is, from where on, and what the leader stamps."""

    at_ms: int
    query: str
    batch: int
    first: int
    dedup_ms: int


def next_chunks(chunks: Sequence[Chunk], at: int) -> list[Chunk]:
    """Return the chunks that may go into the next piece; one at least. G1."""
    found: list[Chunk] = []
    size = 0
    for chunk in chunks[at : at + ENTRY_BATCHES_MAX]:
        size += chunk[3]
        if found and size > PUBLISH_BYTES_MAX:
            break
        found.append(chunk)
    return found


def numbers_of(chunks: Sequence[Chunk]) -> list[int]:
    """Return the numbers of the stage log to read: extras and batch of each chunk."""
    return [n for chunk in chunks for n in range(chunk[0], chunk[0] + chunk[2] + 1)]


def check_parts(batch: Buffer, extras: Extras) -> None:
    """Refuse a chunk that could not be taken apart where its extras ask for it. G3.

    Raises:
        RaftlineError: its messages cannot be read, or not be sealed anew.
    """
    if extras.dues_ms:
        _waiting_piece(PieceHead(0, "", 0, 0, 0), batch, extras)
    elif extras.dedup:
        _left_of(batch, extras, NONE_GONE)


def build_piece(
    head: PieceHead, chunks: Sequence[Chunk], read: Sequence[Buffer], gone: Gone = NONE_GONE
) -> Built:
    """Put a piece together. ``gone``: of the first chunk."""
    items: list[BatchItem] = []
    sides: list[tuple[int, SideCar]] = []
    weight, place = 0, iter(read)
    for chunk in chunks:
        extras = open_extras(next(place)) if chunk[2] else NO_EXTRAS
        batch = next(place)
        if extras.dues_ms or extras.dedup:  # G2
            if items:
                break
            if not extras.dues_ms:
                return Built(1, _sided_piece(head, batch, extras, gone))
            keys = tuple(key for _, key in extras.dedup) if head.dedup_ms > 0 else ()
            return Built(1, _waiting_piece(head, batch, extras), keys)
        weight += len(extras.priorities) * RUN_WEIGHT
        if items and weight > SIDES_WEIGHT_MAX:
            break
        if extras.priorities:
            sides.append((len(items), SideCar(extras.priorities)))
        items.append((batch, check_batch(batch)))
    data = encode_append(head.at_ms, items, *encode_extension(sides))
    return Built(len(items), _piece(head, len(items), APPENDS, data))


def _piece(head: PieceHead, count: int, kind: int, data: bytes, dropped: int = 0) -> bytes:
    span = (head.first, head.first + count)
    return encode_piece(head.at_ms, head.query, head.batch, span, kind, data, dropped)


def _sided_piece(head: PieceHead, batch: Buffer, extras: Extras, gone: Gone) -> bytes:
    """Return a piece of one batch with dedup keys."""
    if gone:
        left = _left_of(batch, extras, gone)
        if left is None:
            return _piece(head, 1, NOTHING, b"", len(gone))
        batch, extras = left
    side = stamped(extras.side, head.dedup_ms)
    sides = [] if side is None else [(0, side)]
    data = encode_append(head.at_ms, [(batch, check_batch(batch))], *encode_extension(sides))
    return _piece(head, 1, APPENDS, data, len(gone))


def _left_of(batch: Buffer, extras: Extras, gone: Gone) -> tuple[bytes, Extras] | None:
    """Return batch and extras without the messages that are gone; None if nothing is left."""
    info, messages = check_batch(batch), open_batch(batch)
    kept = [at for at in range(len(messages)) if at not in gone]
    if not kept:
        return None
    places = {at: place for place, at in enumerate(kept)}
    rows: list[NewMessage] = [
        (m.key, m.value, m.headers, m.timestamp_ms) for m in (messages[at] for at in kept)
    ]
    runs: list[PriorityRun] = []
    for start, end, priority in extras.priorities:
        inside = [places[at] for at in range(start, end) if at in places]
        if inside:
            runs.append((inside[0], inside[-1] + 1, priority))
    dedup = tuple((places[at], key) for at, key in extras.dedup if at in places)
    return seal_batch(rows, compression=info.compression), Extras(tuple(runs), dedup)


def _waiting_piece(head: PieceHead, batch: Buffer, extras: Extras) -> bytes:
    """Return a piece of messages that wait; each has its own verdict when it is applied."""
    priorities = {at: p for start, end, p in extras.priorities for at in range(start, end)}
    keys = dict(extras.dedup)
    items: list[NewWaiting] = []
    sides: list[tuple[int, SideCar]] = []
    for at, message in enumerate(open_batch(batch)):
        one = seal_batch([(message.key, message.value, message.headers, message.timestamp_ms)])
        items.append((one, priorities.get(at, 0), extras.dues_ms[at], message.timestamp_ms))
        if at in keys and head.dedup_ms > 0:
            sides.append((at, SideCar((), ((0, keys[at]),), head.dedup_ms)))
    data = encode_schedule(head.at_ms, DELAY_MS_MAX, items, *encode_extension(sides))
    return _piece(head, 1, SCHEDULES, data)
