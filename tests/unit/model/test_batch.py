"""The head of a batch: what is let through and what is refused, with the byte that is wrong."""

import struct

import pytest
from crc32c import crc32c

from raftline.model.batch import check_batch, split_batches
from raftline.model.errors import BatchTooLarge, CorruptBatch
from raftline.model.records import seal_batch

BATCH = seal_batch(
    [(b"k", b"v" * 100, (), 1000), (None, b"w", (), 1005)],
    producer_id=7,
    producer_epoch=1,
    base_sequence=3,
)


def patched(at: int, form: str, value: int) -> bytes:
    """Change a field and make the checksum right again."""
    batch = bytearray(BATCH)
    struct.pack_into(form, batch, at, value)
    if at >= 21:
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_sound_batch(kind):
    info = check_batch(kind(BATCH))
    assert (info.length, info.count, info.last_offset_delta) == (len(BATCH), 2, 1)
    assert (info.base_timestamp, info.max_timestamp) == (1000, 1005)
    assert (info.producer_id, info.producer_epoch, info.base_sequence) == (7, 1, 3)
    assert info.compression == "none"


@pytest.mark.parametrize(
    ("at", "form", "value", "reason"),
    [
        (16, ">b", 1, "byte 16: magic"),
        (8, ">i", 5, "byte 8: length"),
        (57, ">i", 0, "byte 57: count"),
        (57, ">i", -1, "byte 57: count"),
        (57, ">i", 1_000_001, "byte 57: count"),
        (57, ">i", 3, "byte 23: last offset delta"),
        (23, ">i", 5, "byte 23: last offset delta"),
        (21, ">h", 5, "byte 21: compression 5"),
        (21, ">h", 0x08, "log-append time"),
        (21, ">h", 0x10, "a transaction"),
        (21, ">h", 0x20, "a control batch"),
        (21, ">h", 0x40, "attributes 0x40"),
        (21, ">h", -1, "byte 21"),
        (43, ">q", -2, "byte 43: producer -2"),
        (51, ">h", -1, "byte 43: producer 7"),
        (53, ">i", -1, "byte 43: producer 7"),
    ],
)
def test_a_wrong_field_is_named(at, form, value, reason):
    with pytest.raises(CorruptBatch, match=reason):
        check_batch(patched(at, form, value), "orders/2")


def test_more_messages_than_bytes_are_refused():
    batch = bytearray(BATCH)
    struct.pack_into(">i", batch, 57, 1000)
    struct.pack_into(">i", batch, 23, 999)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    with pytest.raises(CorruptBatch, match="1000 messages do not fit"):
        check_batch(batch)


@pytest.mark.parametrize("at", [17, 20, 21, 30, 60, 61, len(BATCH) - 1])
def test_any_flipped_bit_under_the_checksum_is_seen(at):
    batch = bytearray(BATCH)
    batch[at] ^= 0x04
    with pytest.raises(CorruptBatch):
        check_batch(batch)


def test_place_in_the_log_does_not_change_the_checksum():
    batch = bytearray(BATCH)
    struct.pack_into(">q", batch, 0, 1 << 40)
    struct.pack_into(">i", batch, 12, 77)
    assert check_batch(batch) == check_batch(BATCH)


def test_too_short_and_too_long():
    with pytest.raises(CorruptBatch, match="less than a head"):
        check_batch(BATCH[:60])
    with pytest.raises(CorruptBatch, match="byte 8"):
        check_batch(BATCH + b"x")
    with pytest.raises(BatchTooLarge, match="orders/2"):
        check_batch(BATCH, "orders/2", bytes_max=len(BATCH) - 1)


def test_splitting():
    assert split_batches(b"") == []
    assert split_batches(BATCH * 2) == [(0, len(BATCH)), (len(BATCH), len(BATCH))]
    with pytest.raises(CorruptBatch, match="less than a head"):
        split_batches(BATCH + b"x" * 60)
    with pytest.raises(CorruptBatch, match="are there"):
        split_batches(BATCH + BATCH[:-1])
    with pytest.raises(CorruptBatch, match="byte 8"):
        split_batches(patched(8, ">i", -12))
