"""Batches that nobody can open, kept all the same.

Gateways take sealed batches by their head and checksum; what is inside may be anything. One such
batch must not end an archive: its messages become rows without key and value, and the first of
them carries the whole batch, as it was stored, in the header ``raftline-unreadable``.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from raftline.archive.columns import to_arrow
from raftline.archive.schema import SCHEMA
from raftline.model.batch import check_batch, split_batches
from raftline.model.errors import CorruptBatch, InvalidArgument

HEADER = "raftline-unreadable"

_HEAD = struct.Struct(">q19xq22xi")  # base_offset, base_timestamp, count
_TIME_US_MAX = (1 << 63) // 1000 - 1


def to_arrow_anyhow(
    batches: bytes,
    topic: str,
    partition: int,
    start: int,
    end: int,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> Iterator[Any]:
    """Yield the messages of [start, end) as Arrow record batches, whatever is inside.

    Raises:
        CorruptBatch: bytes that do not match their checksum.
    """
    try:
        yield from to_arrow(batches, topic, partition, start, end, from_ms=from_ms, to_ms=to_ms)
    except (CorruptBatch, InvalidArgument):
        for at, length in split_batches(batches):
            one = batches[at : at + length]
            try:
                yield from to_arrow(one, topic, partition, start, end, from_ms=from_ms, to_ms=to_ms)
            except (CorruptBatch, InvalidArgument):
                check_batch(one, f"{topic}/{partition}")  # broken on its way here: no such batch
                yield from _empty_rows(one, topic, partition, start, end, from_ms, to_ms)


def _empty_rows(
    batch: bytes,
    topic: str,
    partition: int,
    start: int,
    end: int,
    from_ms: int | None,
    to_ms: int | None,
) -> Iterator[Any]:
    base, time_ms, count = _HEAD.unpack_from(batch)
    offsets = range(max(start, base), min(end, base + count))
    is_meant = (from_ms is None or time_ms >= from_ms) and (to_ms is None or time_ms < to_ms)
    if not offsets or not is_meant:
        return
    time_us = max(0, min(time_ms, _TIME_US_MAX)) * 1000
    size = len(offsets)
    whole = [{"key": HEADER, "value": batch}] if offsets[0] == base else []
    yield pa.record_batch(
        [
            pa.array([topic] * size, pa.string()),
            pa.array([partition] * size, pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array([time_us] * size, pa.int64()).cast(SCHEMA.field("timestamp").type),
            pa.nulls(size, pa.binary()),
            pa.nulls(size, pa.binary()),
            pa.array([whole] + [[]] * (size - 1), SCHEMA.field("headers").type),
            pa.array([0] * size, pa.int32()),
        ],
        schema=SCHEMA,
    )
