"""Parcels: one batch of a producer that was taken apart, whole in one entry.

Messages that wait or that have a dedup key cannot stay in the batch they came in: some get no
offset now, some none at all. The sequence numbers of the producer count all of them. So what
became of the batch travels in one entry with its numbers, and is stored once, or not at all::

    B 0x07  B 0  h epoch  I count  q at_ms  q producer  i sequence  I schedule bytes     32 bytes
    a Schedule (waiting_commands.py) of the messages that wait, or nothing; then an Append
    (commands.py) of the others, or nothing; tags and all

``count`` is how many messages the batch had. A message with a dedup key is a batch of its own, so
that it alone is left out where its key is remembered. Batches inside name no producer.

Invariants
    K1  A parcel whose sequence numbers are not the producer's next changes nothing; a repeat gets
        the offset of the first time.
    K2  Nothing of a parcel is stored, and its numbers are not used up, if one of its messages would
        be refused for anything but its dedup key.

The layout and the tag are permanent: golden bytes in tests/unit/machines/golden.
"""

import struct

import msgspec

from raftline.machines.partition.commands import AppendView, Malformed, decode_append
from raftline.machines.partition.waiting_commands import Schedule, decode_waiting
from raftline.model.batch import NO_PRODUCER
from raftline.model.limits import ENTRY_BYTES_MAX

PARCEL_TAG = 0x07

_HEAD = struct.Struct("<BBhIqqiI")


class Parcel(msgspec.Struct, frozen=True):
    """What became of one batch. Messages stay where they are in the entry's data."""

    at_ms: int
    producer: int
    epoch: int
    sequence: int
    count: int
    append: AppendView | None = None
    schedule: Schedule | None = None


class ParcelTaken(msgspec.Struct, frozen=True, gc=False):
    """A parcel is stored: where its first message with an offset is, or was the first time."""

    base_offset: int
    is_repeat: bool = False


def encode_parcel(
    at_ms: int,
    producer: tuple[int, int, int],
    count: int,
    schedule: bytes = b"",
    append: bytes = b"",
) -> bytes:
    """Return the entry data; ``producer``: its id, epoch, and the first sequence number."""
    number, epoch, sequence = producer
    head = _HEAD.pack(PARCEL_TAG, 0, epoch, count, at_ms, number, sequence, len(schedule))
    return b"".join((head, schedule, append))


def decode_parcel(data: bytes) -> Parcel:
    """Read a parcel.

    Raises:
        Malformed: the parts do not add up to ``data``, or a value is out of bounds.
    """
    if not _HEAD.size < len(data) <= ENTRY_BYTES_MAX:
        raise Malformed(f"a parcel of {len(data)} bytes")
    _, zero, epoch, count, at_ms, producer, sequence, size = _HEAD.unpack_from(data)
    body = _HEAD.size + size
    if zero or not count or producer < 0 or epoch < 0 or sequence < 0 or body > len(data):
        raise Malformed(f"a parcel of producer {producer} with {count} messages from {sequence}")
    schedule = append = None
    if size:
        found = decode_waiting(data[_HEAD.size : body])
        if not isinstance(found, Schedule):
            raise Malformed("a parcel with a command that schedules nothing")
        schedule = msgspec.structs.replace(found, body=found.body + _HEAD.size)
    if body < len(data):
        append = decode_append(data, body)
        if any(row[3] != NO_PRODUCER for row in append.rows):
            raise Malformed("a parcel whose batches have producers of their own")
    return Parcel(at_ms, producer, epoch, sequence, count, append, schedule)


assert _HEAD.size == 32
