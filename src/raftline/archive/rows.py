"""Messages in opened batches as Arrow columns, once it is known where everything of them is.

Keys, values and headers are copied by Arrow for all messages together (``columns.py``).
Anything that leads outside the bytes is a ``ValueError`` or ``IndexError``.
"""

# pyright: basic
# Arrow and numpy say too little of their types for more.

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raftline.archive.record_starts import varints
from raftline.archive.schema import HEADER_TYPE, SCHEMA, SCHEMA_WITHOUT_VALUE
from raftline.model.limits import PRIORITY_MAX, PRIORITY_MIN

PRIORITY_HEADER = "raftline-priority"
TIME_MS_MAX = (1 << 63) // 1000 - 1  # what microseconds can hold; producers may send anything

Array = Any  # numpy arrays and Arrow arrays: neither package has whole types


class Rows:
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
        times_us = np.clip(self.times_ms, -TIME_MS_MAX, TIME_MS_MAX) * 1000
        headers, priorities = self._headers()
        columns: list[Array] = [
            pa.repeat(topic, count),
            pa.array(np.full(count, partition, np.int32)),
            pa.array(self.offsets),
            pa.Array.from_buffers(
                SCHEMA.field("timestamp").type, count, [None, pa.py_buffer(times_us)]
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
