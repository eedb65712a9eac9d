"""Record batches as Arrow columns, held against the plain decoder."""

import random
from typing import Any

import pyarrow as pa
import pytest

from raftline.archive.columns import GROUP_ROWS, to_arrow
from raftline.archive.schema import SCHEMA, SCHEMA_WITHOUT_VALUE
from raftline.model.batch import COMPRESSIONS
from raftline.model.errors import CorruptBatch
from raftline.model.message import Message, NewMessage
from raftline.model.records import open_plain, seal_batch

NOW_MS = 1_790_000_000_000
ALL = 1 << 60


def placed(batch: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + batch[8:]


def make_messages(rng: random.Random, count: int, *, alike: bool) -> list[NewMessage]:
    """Return messages of every kind, or runs of equally long ones."""
    found: list[NewMessage] = []
    for number in range(count):
        if alike:
            found.append((b"k%04d" % number, b"v" * 50, (), NOW_MS + number // 9))
            continue
        key = rng.choice((None, b"", b"k", rng.randbytes(rng.randrange(1, 300))))
        value = rng.choice((None, b"", rng.randbytes(rng.randrange(1, 20_000))))
        names = [(f"größe-{n}", rng.choice((None, b"", b"x" * n))) for n in range(rng.randrange(4))]
        if rng.random() < 0.3:
            names.insert(rng.randrange(len(names) + 1), ("raftline-priority", b"-7"))
        found.append((key, value, names, NOW_MS + rng.randrange(-(10**9), 10**9)))
    return found


def rows_of(found: list[Any]) -> list[dict[str, Any]]:
    return pa.Table.from_batches(found, SCHEMA).to_pylist() if found else []


def expected(message: Message) -> dict[str, Any]:
    priority = -7 if any(name == "raftline-priority" for name, _ in message.headers) else 0
    return {
        "topic": "orders",
        "partition": 3,
        "offset": message.offset,
        "ms": message.timestamp_ms,
        "key": message.key,
        "value": message.value,
        "headers": list(message.headers),
        "priority": priority,
    }


def seen(row: dict[str, Any]) -> dict[str, Any]:
    stamp = row.pop("timestamp")
    row["ms"] = round(stamp.timestamp() * 1000)
    row["headers"] = [(one["key"], one["value"]) for one in row["headers"]]
    return row


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("sizes", [(1,), (1, 1, 70, 1), (64, 65, 66), (900,), (3, 700, 2, 500, 4)])
def test_columns_hold_what_the_plain_decoder_finds(
    compression: str, alike: bool, sizes: tuple[int, ...]
):
    rng = random.Random(repr((compression, alike, sizes)))
    offset, data, wanted = 1_000_000, b"", []
    for size in sizes:
        plain = placed(seal_batch(messages := make_messages(rng, size, alike=alike)), offset)
        data += placed(seal_batch(messages, compression=compression), offset)
        wanted += open_plain(plain)
        offset += size
    found = to_arrow(data, "orders", 3, 0, ALL)
    assert all(batch.schema == SCHEMA for batch in found)
    assert [seen(row) for row in rows_of(found)] == [expected(message) for message in wanted]


def test_a_range_of_offsets_is_cut_out_within_batches():
    data = b"".join(
        placed(seal_batch(make_messages(random.Random(1), 100, alike=True)), base)
        for base in (0, 100, 200)
    )
    for start, end in ((0, 300), (50, 51), (99, 101), (150, 250), (299, 400), (300, 400), (7, 7)):
        found = rows_of(to_arrow(data, "orders", 0, start, end))
        assert [row["offset"] for row in found] == list(range(start, min(end, 300)))


def test_a_window_of_time_is_cut_out_whatever_the_order():
    rng = random.Random(2)
    messages = make_messages(rng, 500, alike=False)
    data = seal_batch(messages)
    found = rows_of(to_arrow(data, "t", 0, 0, ALL, from_ms=NOW_MS, to_ms=NOW_MS + 10**8))
    inside = [n for n, one in enumerate(messages) if NOW_MS <= one[3] < NOW_MS + 10**8]
    assert [row["offset"] for row in found] == inside
    assert to_arrow(data, "t", 0, 0, ALL, from_ms=NOW_MS + 10**10) == []


def test_values_may_be_left_out():
    data = seal_batch(make_messages(random.Random(3), 10, alike=False))
    (found,) = to_arrow(data, "t", 0, 0, ALL, include_value=False)
    assert found.schema == SCHEMA_WITHOUT_VALUE
    assert found.num_rows == 10


def test_one_call_gives_batches_of_bounded_size_in_order():
    messages = make_messages(random.Random(4), 50_000, alike=True)
    data = b"".join(placed(seal_batch(messages), base) for base in range(0, 500_000, 50_000))
    found = to_arrow(data, "t", 0, 0, ALL)
    assert len(found) > 1
    assert max(batch.num_rows for batch in found) < GROUP_ROWS + 50_000
    offsets = pa.Table.from_batches(found)["offset"].to_pylist()
    assert offsets == list(range(500_000))


def test_every_damaged_byte_is_noticed():
    data = seal_batch(make_messages(random.Random(5), 20, alike=True))
    for at in range(12, len(data)):
        if 12 <= at < 16:  # the leader's epoch: no checksum covers it, nothing here reads it
            continue
        broken = bytearray(data)
        broken[at] ^= 0x55
        with pytest.raises(CorruptBatch):
            to_arrow(bytes(broken), "t", 0, 0, ALL)


def test_a_batch_whose_messages_lie_is_refused_even_with_a_sound_checksum():
    import struct

    from crc32c import crc32c

    rng = random.Random(6)
    data = seal_batch(make_messages(rng, 20, alike=True))
    refused = 0
    for _ in range(500):
        broken = bytearray(data)
        broken[rng.randrange(61, len(data))] = rng.randrange(256)
        struct.pack_into(">I", broken, 17, crc32c(bytes(broken[21:])))
        try:
            found = to_arrow(bytes(broken), "t", 0, 0, ALL)
        except CorruptBatch:
            refused += 1
            continue
        for batch in found:
            batch.validate(full=True)
    assert refused > 20


@pytest.mark.parametrize("count", [1, 1 << 28, (1 << 31) - 1, 1 << 31, (1 << 32) + 5, 1 << 62])
def test_headers_that_are_not_there_cost_no_memory(count: int):
    """32 GiB were asked for, and no query or archive job got past such a batch."""
    import struct
    import tracemalloc

    from crc32c import crc32c

    def varint(number: int) -> bytes:
        found, rest = bytearray(), (number << 1) ^ (number >> 63)
        while rest > 0x7F:
            found.append(rest & 0x7F | 0x80)
            rest >>= 7
        return bytes([*found, rest])

    body = b"\x00\x00\x00\x01\x02x" + varint(count)  # no key, the value x, then the headers
    data = bytearray(seal_batch([(None, b"x", (), NOW_MS)])[:61] + varint(len(body)) + body)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            to_arrow(bytes(data), "t", 0, 0, ALL)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_nothing_gives_nothing():
    assert to_arrow(b"", "t", 0, 0, ALL) == []


def test_a_time_that_no_microseconds_can_hold_is_the_farthest_that_they_can():
    """Some producers send nanoseconds where milliseconds are meant."""
    times_ms = (NOW_MS * 1_000_000, 0, -NOW_MS * 1_000_000, -1)
    for time_ms in times_ms:
        (found,) = to_arrow(seal_batch([(None, b"x", (), time_ms)]), "orders", 3, 0, ALL)
        (told_us,) = found.column("timestamp").cast(pa.int64()).to_pylist()
        bound = (1 << 63) // 1000 - 1
        assert told_us == max(-bound, min(time_ms, bound)) * 1000
