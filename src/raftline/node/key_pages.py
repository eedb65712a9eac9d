"""Keys of messages for ordered groups: pages of hashes, read from batches.

A batch may hold a million messages, and opening it takes a second: what is more than a few is
opened in the segment lane. What was read is fed from its page, a little a turn (desk.py).

Costs: opening takes 5 to 20 us a message, the more the fewer are in a batch.

Invariants
    Y1  A page belongs to the log and not to a group: whatever becomes of groups meanwhile, a
        message keeps its key and its lane. What is trimmed is asked for no more.
"""

from array import array

import msgspec

from raftline.machines.delivery.lanes import Lanes
from raftline.model.batch import COMPRESSION_MASK, CRC_FROM, split_batches
from raftline.model.key_hash import key_hash
from raftline.model.limits import BATCH_HEADER_BYTES
from raftline.model.records import open_or_count

COUNT_FROM = 57  # in the head of a batch
LITTLE_BYTES = 1 << 20  # of what is opened on the loop
PAGE_MESSAGES = 100_000  # then no further batch is opened: small ones may hold millions, too


class KeyPage(msgspec.Struct, frozen=True, gc=False):
    """The hashes of the keys of messages that lie together."""

    start: int
    hashes: "array[int]"


def is_little(batches: bytes, count_max: int) -> bool:
    """Say whether batches may be opened on the loop: their heads tell.

    Compressed ones may not: 2 KB may unpack to 60 MiB, and many of those lie in one piece.
    """
    if len(batches) > LITTLE_BYTES:
        return False
    count = 0
    for start, _ in split_batches(batches):
        count += int.from_bytes(batches[start + COUNT_FROM : start + BATCH_HEADER_BYTES], "big")
        is_packed = batches[start + CRC_FROM + 1] & COMPRESSION_MASK
        if is_packed or count > count_max:
            return False
    return True


def read_page(batches: bytes, lanes: Lanes) -> KeyPage:
    """Open batches, one after the other. In the lane with lanes that are held."""
    hashes, view = array("q"), memoryview(batches)
    base = offset = int.from_bytes(batches[:8], "big")
    for start, length in split_batches(batches):
        for message in open_or_count(view[start : start + length]):
            hashes.append(key_hash(message.key, lanes.lane_of(offset)))
            offset += 1
        if len(hashes) >= PAGE_MESSAGES:
            break
    return KeyPage(base, hashes)
