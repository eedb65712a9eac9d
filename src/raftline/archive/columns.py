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
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from raftline.archive.record_starts import all_starts, skip_varints, varints
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
from raftline.model.limits import BATCH_HEADER_BYTES, MIB, PRIORITY_MAX, PRIORITY_MIN

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.field("element", HEADER_TYPE))),
        ("priority", pa.int32()),
    ]
)
NAMES: list[str] = SCHEMA.names
SCHEMA_WITHOUT_VALUE = SCHEMA.remove(SCHEMA.get_field_index("value"))
PRIORITY_HEADER = "raftline-priority"
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
    found: list[pa.RecordBatch] = []
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


class _Rows:
    """Where everything of the chosen messages is, as numpy arrays over ``body``."""

    __slots__ = (
        "body",
        "count",
        "header_at",
        "header_counts",
        "key_from",
        "key_size",
        "offsets",
        "record_end",
        "times_ms",
        "value_from",
        "value_size",
    )

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.count = 0
        self.offsets: Array = None
        self.times_ms: Array = None
        self.key_from: Array = None
        self.key_size: Array = None
        self.value_from: Array = None
        self.value_size: Array = None
        self.header_counts: Array = None
        self.header_at: Array = None
        self.record_end: Array = None

    def build(self, topic: str, partition: int, *, include_value: bool) -> pa.RecordBatch:
        """Return the columns."""
        count = self.count
        places = np.empty(4 * count, np.int32)
        places[0::4] = self.key_from
        places[1::4] = self.key_from + np.maximum(self.key_size, 0)
        places[2::4] = self.value_from
        places[3::4] = self.value_from + np.maximum(self.value_size, 0)
        both = _slices(self.body, places, pa.binary())
        headers, priorities = self._headers()
        columns: list[Array] = [
            pa.repeat(topic, count),
            pa.array(np.full(count, partition, np.int32)),
            pa.array(self.offsets),
            pa.Array.from_buffers(
                SCHEMA.field("timestamp").type, count, [None, pa.py_buffer(self.times_ms * 1000)]
            ),
            _take(both, 0, 4, self.key_size),
        ]
        if include_value:
            columns.append(_take(both, 2, 4, self.value_size))
        columns += [headers, priorities]
        schema = SCHEMA if include_value else SCHEMA_WITHOUT_VALUE
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _headers(self) -> tuple[Array, Array]:
        counts = self.header_counts
        list_type = SCHEMA.field("headers").type
        ends = np.zeros(self.count + 1, np.int32)
        np.cumsum(counts, out=ends[1:])
        total = int(ends[-1])
        places, sizes = self._header_places(ends, total)
        if total == 0:
            nothing = pa.array([], HEADER_TYPE)
            lists = pa.ListArray.from_arrays(pa.array(ends), nothing, type=list_type)
            return lists, pa.array(np.zeros(self.count, np.int32))
        names = _take(_slices(self.body, places, pa.string()), 0, 4, sizes[0])
        contents = _take(_slices(self.body, places, pa.binary()), 2, 4, sizes[1])
        names.validate(full=True)  # the bytes of names are UTF-8
        pairs = pa.StructArray.from_arrays([names, contents], fields=list(HEADER_TYPE))
        lists = pa.ListArray.from_arrays(pa.array(ends), pairs, type=list_type)
        return lists, self._priorities(names, contents, ends)

    def _header_places(self, ends: Array, total: int) -> tuple[Array, tuple[Array, Array]]:
        """Step through the first header of every message that has one, then the second, ..."""
        raw = np.frombuffer(self.body, np.uint8)
        places = np.zeros(4 * total, np.int32)
        name_sizes, content_sizes = np.zeros(total, np.int64), np.zeros(total, np.int64)
        at = self.header_at.copy()
        which = np.flatnonzero(self.header_counts)
        number = 0
        while which.size:
            slots = ends[which] + number
            name_size, name_from = varints(raw, at[which])
            if (name_size < 0).any():
                raise ValueError("a header without a name")
            content_size, content_from = varints(raw, name_from + name_size)
            places[4 * slots] = name_from
            places[4 * slots + 1] = name_from + name_size
            places[4 * slots + 2] = content_from
            places[4 * slots + 3] = content_from + np.maximum(content_size, 0)
            name_sizes[slots], content_sizes[slots] = name_size, content_size
            at[which] = content_from + np.maximum(content_size, 0)
            number += 1
            which = which[self.header_counts[which] > number]
        if (at != self.record_end).any():
            raise ValueError("a message does not end where its length says")
        return places, (name_sizes, content_sizes)

    def _priorities(self, names: Array, contents: Array, ends: Array) -> Array:
        """Return the priority that a message's header names; 0 where none does."""
        found = np.zeros(self.count, np.int32)
        named = pc.call_function("equal", [names, pa.scalar(PRIORITY_HEADER)])
        at = np.flatnonzero(named.to_numpy(zero_copy_only=False))
        if at.size:
            owners = np.searchsorted(ends, at, side="right") - 1
            texts = contents.take(pa.array(at)).to_pylist()
            found[owners] = [_priority(text) for text in texts]
        return pa.array(found)


def _priority(text: bytes | None) -> int:
    """Read a priority as gateways write it; what is none counts as normal."""
    try:
        number = int(text or b"0")
    except ValueError:
        return 0
    return number if PRIORITY_MIN <= number <= PRIORITY_MAX else 0


def _open(
    body: bytes, group: list[_Batch], start: int, end: int, times: tuple[int | None, int | None]
) -> _Rows:
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
    rows = _Rows(body)
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
    if (rows.header_counts < 0).any() or (rows.header_at > record_end).any():
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


def _slices(body: bytes, places: Array, kind: Any) -> Array:
    """Return an Arrow array over ``body`` whose items lie between neighbouring places."""
    if len(places) == 0:
        return pa.array([], kind)
    if (np.diff(places) < 0).any() or places[-1] > len(body):
        raise ValueError("keys and values do not lie in order")
    buffers = [None, pa.py_buffer(places), pa.py_buffer(body)]
    return pa.Array.from_buffers(kind, len(places) - 1, buffers)


def _take(slices: Array, first: int, step: int, sizes: Array) -> Array:
    """Copy every ``step``-th slice into an array of its own; a negative size is null."""
    indices = np.arange(first, first + step * len(sizes), step, dtype=np.int32)
    missing = sizes < 0
    if missing.any():
        if missing.all():
            return pa.nulls(len(sizes), slices.type)
        return slices.take(pa.array(indices, mask=missing))
    return slices.take(pa.array(indices))
