"""Which partition a row goes to, for many rows at once: the same as every gateway chooses.

A row's own ``partition`` counts first, then its key, then its dedup key. A row without any goes by
the checksum of its value, not in turn: a micro-batch that is run again must send every row where
it went before, in whatever order its rows come.
"""

# pyright: basic
# numpy says too little of its types for more.

import zlib
from typing import Any

import numpy as np

from raftline.model.partitioner import partition_of

VECTOR_BYTES_MAX = 64  # longer keys are hashed one by one
_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)

Array = Any


def partitions_of(partitioner: str, keys: list[bytes], count: int) -> Array:
    """Return the partition of each key."""
    if partitioner != "murmur2":
        known: dict[bytes, int] = {}
        for key in keys:
            if key not in known:
                known[key] = partition_of(partitioner, key, count)
        return np.array([known[key] for key in keys], np.int32)
    hashes = murmur2_all(keys)
    return ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)


def partitions_by_value(values: list[bytes | None], count: int) -> Array:
    """Return a partition for each row without a key."""
    crc = zlib.crc32
    return np.array([crc(value or b"") % count for value in values], np.int32)


def murmur2_all(keys: list[bytes]) -> Array:
    """Return Kafka's murmur2 of each key, keys of one length together."""
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    found = np.empty(len(keys), np.uint32)
    for length in np.unique(lengths):
        which = np.flatnonzero(lengths == length)
        if length > VECTOR_BYTES_MAX:
            found[which] = [_murmur2_one(keys[at]) for at in which]
            continue
        joined = b"".join([keys[at] for at in which])
        found[which] = _murmur2_equal(joined, len(which), int(length))
    return found


def _murmur2_equal(joined: bytes, count: int, length: int) -> Array:
    """Hash ``count`` keys of the same length, which stand one after the other."""
    rows = np.frombuffer(joined, np.uint8).reshape(count, length)
    whole = length & ~3
    words = np.ascontiguousarray(rows[:, :whole]).view("<u4").reshape(count, whole // 4)
    h = np.full(count, _SEED ^ np.uint32(length), np.uint32)
    for at in range(whole // 4):
        k = words[:, at] * _M
        k ^= k >> np.uint32(24)
        h = h * _M ^ k * _M
    if whole < length:
        rest = np.zeros(count, np.uint32)
        for at in range(whole, length):
            rest |= rows[:, at].astype(np.uint32) << np.uint32(8 * (at - whole))
        h = (h ^ rest) * _M
    h = (h ^ h >> np.uint32(13)) * _M
    return h ^ h >> np.uint32(15)


def _murmur2_one(key: bytes) -> int:
    from raftline.model.partitioner import murmur2

    return murmur2(key)
