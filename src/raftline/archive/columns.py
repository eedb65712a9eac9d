"""Record batches as Arrow columns: what Spark reads and what the archive keeps.

The messages of many batches are opened at once. Where each one begins is found by stepping over
lengths (``record_starts.py``). Everything else (the varints, the bytes of keys and values, the
headers) is done by numpy and Arrow for all messages together, so that nothing runs once per message
in Python but that step.

Invariants
    A1  Every batch's checksum is verified, and every message ends where its length says.
    A2  Offsets are counted from the batch's head: a batch takes consecutive ones (B2 of batch.py).
    A3  The rows of one call are in the order of the log.

Costs, 100 B values, CPU of one core of a busy machine: 0.4 us a message where all are equally long,
0.6 where not, 0.8 in batches of ten; three headers cost 0.5 more.
"""

# pyright: basic
# Arrow and numpy say too little of their types for more.

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from crc32c import crc32c

from raftline.archive.record_starts import all_starts, skip_varints, varints
from raftline.archive.rows import Rows
from raftline.model.batch import (
    COMPRESSION_MASK,
    COMPRESSIONS,
    CRC_FROM,
    MAGIC,
    Buffer,
    split_batches,
)
from raftline.model.compression import decompress
from raftline.model.errors import CorruptBatch
from raftline.model.limits import BATCH_HEADER_BYTES, MIB

GROUP_BYTES = 4 * MIB  # opened bytes that become one Arrow batch (at least one batch does)
GROUP_ROWS = 200_000

_HEAD = struct.Struct(">q8xbIhiqq14xi")  # base_offset, magic, crc, attributes, last, times, count
_CONTROL = 0x20

Array = Any  # numpy arrays and Arrow arrays: neither package has whole types


class _Batch:
    """One batch to open: its head, and where its messages are in the group's bytes."""

    __slots__ = ("base_ms", "base_offset", "count", "end", "start")

    def __init__(self, base_offset: int, base_ms: int, count: int, start: int, end: int) -> None:
        self.base_offset = base_offset
        self.base_ms = base_ms
        self.count = count
        self.start = start
        self.end = end


def to_arrow(
    batches: Buffer,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    include_value: bool = True,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> list[Any]:
    """Return the messages of ``batches`` with offsets in ``[start, end)``, in order.

    ``from_ms`` and ``to_ms`` keep only messages with timestamps in ``[from_ms, to_ms)``; batches
    that are all older are not even unpacked. Every ``pyarrow.RecordBatch`` returned has rows; their
    schema is ``SCHEMA``, or ``SCHEMA_WITHOUT_VALUE``.

    Raises:
        CorruptBatch: bytes that are no sound batches.
        InvalidArgument: a compression that is not available here.
    """
    where = f"{topic}/{partition}@{start}"
    data = batches if isinstance(batches, bytes) else bytes(batches)
    times = (from_ms, to_ms)
    found: list[Any] = []
    for body, group in _groups(data, start, end, from_ms, where):
        try:
            rows = _open(body, group, start, end, times)
            if rows.count:
                found.append(rows.build(topic, partition, include_value=include_value))
        except (IndexError, ValueError) as error:
            raise CorruptBatch(f"its messages do not fit its head: {error}", where) from error
    return found


def _groups(
    data: bytes, start: int, end: int, from_ms: int | None, where: str
) -> Iterator[tuple[bytes, list[_Batch]]]:
    """Yield bytes with the batches in them, each group small enough for one Arrow batch."""
    view = memoryview(data)
    pieces: list[bytes] = []  # of unpacked batches
    group: list[_Batch] = []
    is_packed, size, rows = False, 0, 0
    for at, length in split_batches(data, where):
        base, magic, crc, attributes, last, base_ms, max_ms, count = _HEAD.unpack_from(data, at)
        if base + last < start or (from_ms is not None and max_ms < from_ms):
            continue
        if base >= end:
            break
        if magic != MAGIC or crc32c(view[at + CRC_FROM : at + length]) != crc:
            raise CorruptBatch(f"the batch at {base} does not match its checksum", where)
        if attributes & _CONTROL:
            continue
        packed = attributes & COMPRESSION_MASK
        if group and (bool(packed) != is_packed or size >= GROUP_BYTES or rows >= GROUP_ROWS):
            yield (b"".join(pieces) if is_packed else data), group
            pieces, group, size, rows = [], [], 0, 0
        is_packed = bool(packed)
        if packed:
            piece = decompress(COMPRESSIONS[packed], view[at + BATCH_HEADER_BYTES : at + length])
            pieces.append(piece)
            one = _Batch(base, base_ms, count, size, size + len(piece))
        else:
            one = _Batch(base, base_ms, count, at + BATCH_HEADER_BYTES, at + length)
        group.append(one)
        size += one.end - one.start
        rows += count
    if group:
        yield (b"".join(pieces) if is_packed else data), group


def _open(
    body: bytes, group: list[_Batch], start: int, end: int, times: tuple[int | None, int | None]
) -> Rows:
    raw = np.frombuffer(body, np.uint8)
    at = all_starts(body, raw, [(one.start, one.end, one.count) for one in group])
    counts = [batch.count for batch in group]
    base_ms = np.repeat(np.array([batch.base_ms for batch in group], np.int64), counts)
    offsets = _offsets(group, counts)
    record_end = _ends(at, group, counts)
    low, high = np.searchsorted(offsets, (start, end))
    if high - low < len(offsets):
        at, base_ms, offsets = at[low:high], base_ms[low:high], offsets[low:high]
        record_end = record_end[low:high]
    rows = Rows(body)
    delta_ms, at = varints(raw, skip_varints(raw, at) + 1)
    times_ms = base_ms + delta_ms
    keep = _within(times_ms, times)
    if keep is not None:
        at, times_ms, offsets, record_end = (
            at[keep],
            times_ms[keep],
            offsets[keep],
            record_end[keep],
        )
    at = skip_varints(raw, at)
    rows.count = len(offsets)
    rows.offsets, rows.times_ms, rows.record_end = offsets, times_ms, record_end
    rows.key_size, rows.key_from = varints(raw, at)
    rows.value_size, rows.value_from = varints(raw, rows.key_from + np.maximum(rows.key_size, 0))
    at = rows.value_from + np.maximum(rows.value_size, 0)
    rows.header_counts, rows.header_at = varints(raw, at)
    # A header takes two bytes at least: a count that lies is found before memory is taken for it.
    room = record_end - rows.header_at
    if (rows.header_counts < 0).any() or (rows.header_counts > room // 2).any():
        raise ValueError("a message does not end where its length says")
    return rows


def _ends(starts: Array, group: list[_Batch], counts: list[int]) -> Array:
    """Return where each message ends: where the next begins, or its batch ends."""
    found = np.empty_like(starts)
    found[:-1] = starts[1:]
    found[np.cumsum(counts) - 1] = [batch.end for batch in group]
    return found


def _within(times_ms: Array, times: tuple[int | None, int | None]) -> Array | None:
    """Return which messages have a time within; None where all have."""
    from_ms, to_ms = times
    keep: Array | None = None
    if from_ms is not None:
        keep = times_ms >= from_ms
    if to_ms is not None:
        below = times_ms < to_ms
        keep = below if keep is None else keep & below
    return None if keep is None or keep.all() else keep


def _offsets(group: list[_Batch], counts: list[int]) -> Array:
    before = np.cumsum([0, *counts[:-1]])
    bases = np.array([batch.base_offset for batch in group], np.int64) - before
    return np.repeat(bases, counts) + np.arange(sum(counts))
