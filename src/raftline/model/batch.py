"""A sealed record batch (Kafka's v2 format), seen from outside: its head, never its messages.

Layout of the head, big-endian, 61 bytes::

    0  base_offset i64     12 leader_epoch i32   17 crc u32 (crc32c of everything from byte 21)
    8  length i32 (rest)   16 magic i8 = 2       21 attributes i16   23 last_offset_delta i32
    27 base_timestamp i64  35 max_timestamp i64  43 producer_id i64  51 producer_epoch i16
    53 base_sequence i32   57 count i32          61 messages

``base_offset`` and ``leader_epoch`` lie before byte 21, so giving a batch its place in the log
does not change its checksum.

Invariants of a batch that ``check_batch`` let through
    B1  Length, count and checksum agree with the bytes.
    B2  It takes exactly ``count`` >= 1 consecutive offsets: count == last_offset_delta + 1.
    B3  It is plain data: no control batch, no transaction, no log-append time.
    B4  ``producer_id`` is -1, or epoch and sequence are >= 0.

Costs: about 1 us for a small batch; the checksum runs at several GB/s.
"""

import struct

import msgspec
from crc32c import crc32c

from raftline.model.errors import BatchTooLarge, CorruptBatch
from raftline.model.limits import BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BATCH_MESSAGES_MAX

Buffer = bytes | bytearray | memoryview

MAGIC = 2
CRC_FROM = 21  # first byte the checksum covers
LENGTH_FROM = 12  # the length field counts the bytes after itself
PLACE = struct.Struct(">qii")  # base_offset, length, leader_epoch: the 16-byte head storage renews
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPRESSION_MASK = 0x07
NO_PRODUCER = -1
COPY_BYTES_MAX = 4096

_HEAD = struct.Struct(">8xi4xbIhiqqqhii")
_LENGTH = struct.Struct(">i")
_MESSAGE_BYTES_MIN = 7  # length, attributes, two deltas, key, value, header count: a byte each
_ATTRIBUTE_NAMES = {0x08: "log-append time", 0x10: "a transaction", 0x20: "a control batch"}

assert _HEAD.size == BATCH_HEADER_BYTES


class BatchInfo(msgspec.Struct, frozen=True, gc=False):
    """What the head of a sound batch says."""

    length: int  # bytes of the whole batch
    count: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = -1
    attributes: int = 0

    @property
    def compression(self) -> str:
        """Return the name of the compression of its messages."""
        return COMPRESSIONS[self.attributes & COMPRESSION_MASK]


def check_batch(batch: Buffer, where: str = "", *, bytes_max: int = BATCH_BYTES_MAX) -> BatchInfo:
    """Return the head of ``batch``, one whole batch, if it is sound (B1-B4).

    Raises:
        CorruptBatch: what is wrong, and at which byte.
        BatchTooLarge: it is longer than ``bytes_max``.
    """
    size = len(batch)
    if size < BATCH_HEADER_BYTES:
        raise CorruptBatch(f"{size} bytes are less than a head of {BATCH_HEADER_BYTES}", where)
    (
        length,
        magic,
        crc,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = _HEAD.unpack_from(batch)
    if size > bytes_max:
        raise BatchTooLarge(size, bytes_max, where)
    if (
        magic != MAGIC
        or length + LENGTH_FROM != size
        or not 0 < count <= BATCH_MESSAGES_MAX
        or last_delta + 1 != count
        or not 0 <= attributes < len(COMPRESSIONS)
        or (not attributes and count * _MESSAGE_BYTES_MIN > size - BATCH_HEADER_BYTES)
        or (producer_id != NO_PRODUCER and (producer_epoch | base_sequence | producer_id) < 0)
    ):
        raise CorruptBatch(_explain(batch), where)
    # A copy of a small batch costs less than a view on it.
    found = crc32c(batch[CRC_FROM:] if size < COPY_BYTES_MAX else memoryview(batch)[CRC_FROM:])
    if found != crc:
        raise CorruptBatch(f"byte 17: crc is {crc:#010x}, the bytes give {found:#010x}", where)
    return BatchInfo(
        size,
        count,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        attributes,
    )


def end_of_batch(batch: Buffer) -> int:
    """Return the offset behind a batch that has its place in a log. Its head is enough."""
    return int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1


def split_batches(buffer: Buffer, where: str = "") -> list[tuple[int, int]]:
    """Return (start, length) of each batch in ``buffer``, by their length fields alone.

    Raises:
        CorruptBatch: a length leads outside the buffer.
    """
    found: list[tuple[int, int]] = []
    start, size = 0, len(buffer)
    while start < size:
        if size - start < BATCH_HEADER_BYTES:
            raise CorruptBatch(f"byte {start}: {size - start} bytes are less than a head", where)
        length: int = _LENGTH.unpack_from(buffer, start + 8)[0] + LENGTH_FROM
        if not BATCH_HEADER_BYTES <= length <= size - start:
            text = f"byte {start + 8}: a batch of {length} bytes, {size - start} are there"
            raise CorruptBatch(text, where)
        found.append((start, length))
        start += length
    return found


def _explain(batch: Buffer) -> str:
    """Say what is wrong with a head that failed the quick test."""
    (length, magic, _, attributes, last_delta, _, _, producer, epoch, sequence, count) = (
        _HEAD.unpack_from(batch)
    )
    size = len(batch)
    if magic != MAGIC:
        return f"byte 16: magic is {magic}, only {MAGIC} is taken"
    if length + LENGTH_FROM != size:
        return f"byte 8: length says {length + LENGTH_FROM} bytes, {size} are there"
    if not 0 < count <= BATCH_MESSAGES_MAX:
        return f"byte 57: count is {count}, allowed is 1..{BATCH_MESSAGES_MAX}"
    if last_delta + 1 != count:
        return f"byte 23: last offset delta {last_delta} does not fit a count of {count}"
    if attributes & COMPRESSION_MASK >= len(COMPRESSIONS):
        return f"byte 21: compression {attributes & COMPRESSION_MASK} is not known"
    for bit, name in _ATTRIBUTE_NAMES.items():
        if attributes & bit:
            return f"byte 21: {name} is not taken from producers (attributes {attributes:#x})"
    if attributes not in range(len(COMPRESSIONS)):
        return f"byte 21: attributes {attributes:#x} are not known"
    if not attributes and count * _MESSAGE_BYTES_MIN > size - BATCH_HEADER_BYTES:
        return f"byte 57: {count} messages do not fit {size - BATCH_HEADER_BYTES} bytes"
    return f"byte 43: producer {producer} with epoch {epoch} and sequence {sequence}"
