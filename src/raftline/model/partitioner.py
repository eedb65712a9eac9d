"""Which partition a key belongs to. The same key goes to the same partition through every gateway.

============  ==================================================================================
murmur2       Kafka's default: (murmur2(key) & 0x7fffffff) % count
crc32         zlib.crc32(key) % count
consistent    a hash ring with 20 points per partition: few keys move when partitions are added
============  ==================================================================================

A message without a key takes the next partition in turn; the caller holds the counter.
"""

import zlib
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache

from raftline.model.errors import InvalidArgument

POINTS_PER_PARTITION = 20
RINGS_KEPT = 64

_SEED = 0x9747B28C
_M = 0x5BD1E995
_WORD = 0xFFFFFFFF


def partition_of(partitioner: str, key: bytes, count: int) -> int:
    """Return the partition of ``key`` in a topic with ``count`` partitions."""
    choose = PARTITIONERS.get(partitioner)
    if choose is None:
        known = ", ".join(PARTITIONERS)
        raise InvalidArgument(f"partitioner {partitioner!r} is not one of {known}")
    return choose(key, count)


def partition_in_turn(counter: int, count: int) -> int:
    """Return the partition for the ``counter``-th message without a key."""
    return counter % count


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _WORD
        k = (k ^ k >> 24) * _M & _WORD
        h = h * _M & _WORD ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _WORD
    h = (h ^ h >> 13) * _M & _WORD
    return h ^ h >> 15


def by_murmur2(key: bytes, count: int) -> int:
    """Choose as Kafka's clients do."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def by_crc32(key: bytes, count: int) -> int:
    """Choose by the IEEE CRC-32 of the key."""
    return zlib.crc32(key) % count


def by_ring(key: bytes, count: int) -> int:
    """Choose the partition whose point follows the key's on the ring."""
    points, owners = _ring(count)
    return owners[bisect_left(points, murmur2(key)) % len(points)]


@lru_cache(maxsize=RINGS_KEPT)
def _ring(count: int) -> tuple[list[int], list[int]]:
    pairs = sorted(
        (murmur2(b"%d/%d" % (partition, point)), partition)
        for partition in range(count)
        for point in range(POINTS_PER_PARTITION)
    )
    return [point for point, _ in pairs], [partition for _, partition in pairs]


PARTITIONERS: dict[str, Callable[[bytes, int], int]] = {
    "murmur2": by_murmur2,
    "crc32": by_crc32,
    "consistent": by_ring,
}
