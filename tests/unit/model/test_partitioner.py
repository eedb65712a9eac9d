"""Partitioners: known answers, and what the ring promises."""

import zlib
from collections import Counter

import pytest

from raftline.model.errors import InvalidArgument
from raftline.model.partitioner import murmur2, partition_in_turn, partition_of

# Answers published with Kafka's own tests (signed 32-bit).
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "want"), MURMUR2.items())
def test_murmur2_known_answers(key, want):
    assert murmur2(key) == want & 0xFFFFFFFF
    assert partition_of("murmur2", key, 7) == (want & 0x7FFFFFFF) % 7


def test_murmur2_is_what_a_kafka_client_does():
    from aiokafka.partitioner import murmur2 as theirs

    for length in range(40):
        key = bytes(range(200, 200 + length))
        assert murmur2(key) == theirs(key) & 0xFFFFFFFF


def test_crc32_known_answer():
    assert zlib.crc32(b"123456789") == 0xCBF43926
    assert partition_of("crc32", b"123456789", 10) == 0xCBF43926 % 10


def test_the_ring_is_fixed_and_spread():
    got = [partition_of("consistent", b"key-%d" % i, 6) for i in range(12)]
    assert got == [5, 1, 4, 5, 0, 0, 5, 5, 1, 1, 5, 0], got  # ours, for ever
    counts = Counter(partition_of("consistent", b"%d" % i, 6) for i in range(6000))
    assert sorted(counts) == list(range(6))
    assert max(counts.values()) < 2 * 6000 / 6


def test_a_partition_more_moves_few_keys():
    keys = [b"%d" % i for i in range(2000)]
    before = [partition_of("consistent", key, 9) for key in keys]
    after = [partition_of("consistent", key, 10) for key in keys]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {9}
    assert 0 < len(moved) < 2 * len(keys) / 10


def test_in_turn_and_unknown():
    assert [partition_in_turn(i, 3) for i in range(5)] == [0, 1, 2, 0, 1]
    with pytest.raises(InvalidArgument, match="murmur2, crc32, consistent"):
        partition_of("md5", b"k", 3)


@pytest.mark.parametrize("name", ["murmur2", "crc32", "consistent"])
def test_one_partition_takes_all(name):
    assert partition_of(name, b"", 1) == partition_of(name, b"k", 1) == 0
