"""Walking over stored batches by their heads.

Stored batches are contiguous: each begins at the offset where the one before it ended. A walk that
meets anything else stops with ``BadBatch``; the caller knows which bytes that concerns.
"""

import struct
from collections.abc import Iterator

from crc32c import crc32c

from raftline.model.batch import CRC_FROM, LENGTH_FROM, MAGIC
from raftline.model.limits import BATCH_HEADER_BYTES
from raftline.storage.files import Buffer
from raftline.storage.log_words import Item

HEAD = struct.Struct(">qi4xbI2xi8xq")  # base, length, magic, crc, last delta, max timestamp


class BadBatch(Exception):
    """The bytes at a batch boundary are no batch, or not the next one."""


def head_at(buffer: Buffer, at: int, expected: int) -> tuple[int, int, int, int]:
    """Return (end offset, bytes, crc, max timestamp) of the batch at ``at``.

    Raises:
        BadBatch: it does not begin at offset ``expected``, or is no batch.
    """
    base, length, magic, crc, last_delta, max_timestamp = HEAD.unpack_from(buffer, at)
    size = length + LENGTH_FROM
    if base != expected or magic != MAGIC or size < BATCH_HEADER_BYTES or last_delta < 0:
        raise BadBatch(f"offset {expected} is not where a batch begins")
    return base + last_delta + 1, size, crc, max_timestamp


def whole_batches(view: memoryview, offset: int, at_ms: int) -> tuple[list[Item], int]:
    """Return the whole batches at the head of ``view`` with checked CRCs, and the bytes they take.

    Raises:
        BadBatch: a batch does not continue the one before it, or its CRC is wrong.
    """
    items: list[Item] = []
    at, total = 0, len(view)
    while at + BATCH_HEADER_BYTES <= total:
        end, size, crc, max_timestamp = head_at(view, at, offset)
        if at + size > total:
            break
        if crc32c(view[at + CRC_FROM : at + size]) != crc:
            raise BadBatch(f"the batch at offset {offset} does not match its crc")
        head, rest = view[at : at + 16], view[at + 16 : at + size]
        items.append((offset, end, size, at_ms, max_timestamp, head, rest))
        offset = end
        at += size
    return items, at


def check_batches(view: memoryview, offset: int) -> None:
    """Check that ``view`` is whole batches from ``offset`` on that match their CRCs.

    Raises:
        BadBatch: it is not.
    """
    at, total = 0, len(view)
    while at < total:
        end, size, crc, _ = head_at(view, at, offset)
        stop = at + size
        if stop > total or crc32c(view[at + CRC_FROM : stop]) != crc:
            raise BadBatch(f"the batch at offset {offset} does not match its crc")
        offset = end
        at = stop


def each_batch(view: memoryview, offset: int) -> Iterator[tuple[int, memoryview]]:
    """Go through the whole batches of ``view``, the first at ``offset``: (offset, batch).

    Raises:
        BadBatch: the bytes are not contiguous batches.
    """
    at, total = 0, len(view)
    while at < total:
        end, size, _, _ = head_at(view, at, offset)
        yield offset, view[at : at + size]
        offset = end
        at += size


def end_of(view: memoryview, offset: int) -> int:
    """Return the offset after the last of the batches in ``view``, the first at ``offset``.

    Raises:
        BadBatch: the bytes are not contiguous batches.
    """
    at, total = 0, len(view)
    while at < total:
        if at + BATCH_HEADER_BYTES > total:
            raise BadBatch(f"offset {offset} has less than a head")
        offset, size, _, _ = head_at(view, at, offset)
        at += size
    return offset


def take_batches(
    view: memoryview, first: int, offset: int, end: int, bytes_max: int, far: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Find the batches to answer a read with; ``view`` begins with the batch of offset ``first``.

    Returns (start, stop, start offset, stop offset) of whole batches from the one that holds
    ``offset``: at least one, no more than ``bytes_max`` otherwise, none past ``end``. Where
    ``view`` is too short for one batch, stop is -1 and start is the length needed to go on.
    ``far`` is an (offset, byte of ``view``) known to be a boundary within these limits: what lies
    before it is not walked, so the cost does not grow with the number of batches.

    Raises:
        BadBatch: the bytes are not contiguous batches.
    """
    at, total = 0, len(view)
    while True:
        if at + BATCH_HEADER_BYTES > total:
            return at + BATCH_HEADER_BYTES, -1, first, first
        after, size, _, _ = head_at(view, at, first)
        if after > offset:
            break
        at += size
        first = after
    start, start_offset = at, first
    if far[1] > start:
        first, at = far
    while at + BATCH_HEADER_BYTES <= total and first < end:
        after, size, _, _ = head_at(view, at, first)
        is_over = at + size - start > bytes_max and at > start
        if after > end or at + size > total or is_over:
            break
        at += size
        first = after
    if at == start and after <= end:
        return start + size, -1, start_offset, start_offset
    return start, at, start_offset, first


def first_as_late(view: memoryview, first: int, time_ms: int) -> tuple[int, int, int]:
    """Find the first batch with a message at ``time_ms`` or later.

    Returns (at, bytes, offset); bytes is 0 if there is none among the heads in ``view``, and then
    ``at`` and ``offset`` say where to go on.
    """
    at, total = 0, len(view)
    while at + BATCH_HEADER_BYTES <= total:
        after, size, _, max_timestamp = head_at(view, at, first)
        if max_timestamp >= time_ms:
            return at, size, first
        at += size
        first = after
    return at, 0, first
