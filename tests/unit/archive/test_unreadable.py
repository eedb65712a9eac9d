"""A batch that nobody can open is kept whole, and the messages around it come as ever."""

import struct

import pytest
from crc32c import crc32c

from raftline.archive.unreadable import HEADER, to_arrow_anyhow
from raftline.model.batch import PLACE
from raftline.model.errors import CorruptBatch
from raftline.model.records import seal_batch


def sealed(start: int, *, is_broken: bool = False) -> bytes:
    batch = bytearray(seal_batch([(b"k", b"v%d" % at, (), 1000 + at) for at in range(3)]))
    if is_broken:
        batch[61:] = b"\xff" * (len(batch) - 61)
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    _, length, term = PLACE.unpack_from(batch, 0)
    PLACE.pack_into(batch, 0, start, length, term)
    return bytes(batch)


def test_it_is_kept_between_the_others() -> None:
    bad = sealed(3, is_broken=True)
    batches = sealed(0) + bad + sealed(6)
    rows = [row for one in to_arrow_anyhow(batches, "t", 0, 1, 8) for row in one.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(1, 8))
    assert [row["value"] for row in rows] == [b"v1", b"v2", None, None, None, b"v0", b"v1"]
    assert rows[2]["headers"] == [{"key": HEADER, "value": bad}]
    assert rows[3]["headers"] == []


def test_times_are_those_of_its_head() -> None:
    bad = sealed(0, is_broken=True)
    assert list(to_arrow_anyhow(bad, "t", 0, 0, 3, from_ms=1001)) == []
    assert [one.num_rows for one in to_arrow_anyhow(bad, "t", 0, 0, 3, to_ms=1001)] == [3]


def test_bytes_that_broke_on_the_way_are_an_error() -> None:
    batch = bytearray(sealed(0))
    batch[70] ^= 1
    with pytest.raises(CorruptBatch):
        list(to_arrow_anyhow(bytes(batch), "t", 0, 0, 3))
