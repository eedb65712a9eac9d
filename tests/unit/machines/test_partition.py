"""The partition machine: entries in, outcomes out."""

import struct
from collections.abc import Iterator

import pytest

from raftline.machines.machine import FEATURE_LEVEL, Refused
from raftline.machines.partition import commands as c
from raftline.machines.partition.machine import (
    AppendedEntry,
    Duplicate,
    PartitionMachine,
    StoredBatch,
)
from raftline.machines.partition.producers import Producers
from raftline.model.batch import BatchInfo, check_batch
from raftline.model.errors import FencedProducer, NewerFormat, OutOfOrder, UnknownProducer
from raftline.model.limits import PRODUCER_EXPIRE_MS, PRODUCER_EXPIRE_PER_APPLY
from raftline.model.records import seal_batch


@pytest.fixture
def machine() -> Iterator[PartitionMachine]:
    machine = PartitionMachine()
    yield machine
    machine.check()
    again = PartitionMachine()
    again.restore(machine.snapshot())
    again.check()
    assert again.snapshot() == machine.snapshot()
    assert again.digest() == machine.digest()


def item(count: int = 1, producer: int = -1, epoch: int = -1, sequence: int = -1):
    data = b"x" * (10 + count)
    return data, BatchInfo(len(data), count, count - 1, 0, 50 + count, producer, epoch, sequence)


def append(machine: PartitionMachine, *items, at_ms: int = 0, index: int = 1) -> AppendedEntry:
    (event,) = machine.apply(index, 3, c.encode_append(at_ms, items))
    assert isinstance(event, AppendedEntry)
    return event


def test_stored_batches_point_into_the_entry(machine: PartitionMachine):
    first, second = (seal_batch([(b"k", b"v" * n, (), 9)] * n) for n in (2, 3))
    data = c.encode_append(40, [(first, check_batch(first)), (second, check_batch(second))])
    (event,) = machine.apply(7, 3, data)
    assert isinstance(event, AppendedEntry)
    assert (event.index, event.term, event.at_ms) == (7, 3, 40)
    assert event.outcomes == [0, 2]
    assert event.stored[1] == StoredBatch(event.stored[1].start, len(second), 2, 3, 9)
    assert [data[b.start : b.start + b.length] for b in event.stored] == [first, second]
    assert machine.next_offset == 5


def test_refusals_and_repeats_store_nothing_and_leave_neighbours_alone(machine: PartitionMachine):
    append(machine, item(3, 7, 1, 0))
    event = append(
        machine,
        item(2),
        item(1, 7, 1, 9),
        item(3, 7, 1, 0),
        item(1, 7, 0, 3),
        item(1, 8, 0, 4),
        item(2, 7, 1, 3),
    )
    assert event.outcomes == [
        3,
        OutOfOrder(7, 1, 9, 3),
        Duplicate(0),
        FencedProducer(7, 0, 1),
        UnknownProducer(8, 4),
        5,
    ]
    assert [(b.base_offset, b.count) for b in event.stored] == [(3, 2), (5, 2)]
    data = c.encode_append(0, [item(2), item(1, 7, 1, 9)])
    assert event.stored[0].start == len(data) - 23 + 4 * c.ROW_BYTES


def test_an_empty_entry_is_a_noop(machine: PartitionMachine):
    before = machine.snapshot()
    assert machine.apply(1, 1, b"") == ()
    assert machine.snapshot() == before


@pytest.mark.parametrize(
    "data",
    [
        b"\x01",
        b"\x03abc",
        b"\x02",
        b"\x02\xff",
        b"\x02\x81\xa4type\xa4none",
        c.encode_append(0, [item()])[:-1],
        c.encode_append(0, [item()]) + b"x",
        struct.pack("<BBHIqI", 1, 0, 0, 0, 0, 0),
        struct.pack("<BBHIqI", 1, 0, 0, 5000, 0, 0),
        struct.pack("<BBHIqI", 1, 0, 0, 1, 0, 0) + bytes(32),
        struct.pack("<BBHIqI", 1, 0, 7, 1, 0, 0) + c.encode_append(0, [item()])[20:],
        struct.pack("<BBHIqI", 1, 0, 0, 1, 0, 1 << 31) + c.encode_append(0, [item()])[20:],
    ],
)
def test_garbage_is_refused_and_changes_nothing(machine: PartitionMachine, data: bytes):
    append(machine, item(3))
    before = machine.snapshot()
    (event,) = machine.apply(9, 1, data)
    assert isinstance(event, Refused)
    assert event.code == "corrupt_batch"
    assert "entry 9" in event.error().message
    assert machine.snapshot() == before


def test_flags_of_a_later_level_are_refused_whole(machine: PartitionMachine):
    data = c.encode_append(5, [item(), item(1, 7, 0, 0)], flags=4, extension=b"later")
    (event,) = machine.apply(1, 1, data)
    assert isinstance(event, AppendedEntry)
    assert event.stored == []
    assert [error.code for error in event.outcomes] == ["newer_format"] * 2  # type: ignore[union-attr]
    (event,) = machine.apply(1, 1, c.encode_append(5, [item()], extension=b"stray"))
    assert [error.code for error in event.outcomes] == ["invalid_argument"]  # type: ignore[union-attr]
    assert machine.next_offset == 0
    assert len(machine.producers) == 0


def test_log_time_is_monotone(machine: PartitionMachine):
    assert append(machine, item(), at_ms=50).at_ms == 50
    assert append(machine, item(), at_ms=40).at_ms == 50
    machine.apply(3, 1, c.encode_command(c.Noop(60)))
    assert machine.at_ms == 60


def test_feature_level_rises_and_an_old_build_stops(machine: PartitionMachine):
    machine.apply(1, 1, c.encode_command(c.SetFeatureLevel(1, 0)))
    assert machine.feature_level == 1
    with pytest.raises(NewerFormat):
        machine.apply(2, 1, c.encode_command(c.SetFeatureLevel(FEATURE_LEVEL + 1, 0)))


def test_a_snapshot_of_a_newer_build_is_refused(machine: PartitionMachine):
    import msgspec

    state = msgspec.msgpack.decode(machine.snapshot())
    for at, value in ((0, 99), (4, FEATURE_LEVEL + 1)):
        newer = [*state[:at], value, *state[at + 1 :]]
        with pytest.raises(NewerFormat):
            PartitionMachine().restore(msgspec.msgpack.encode(newer))


def test_the_longest_silent_producer_is_forgotten_first():
    producers = Producers(producers_max=3)
    for producer in (10, 11, 12):
        producers.stored(producer, 0, 0, 1, producer, 1)
    producers.stored(10, 0, 1, 1, 20, 2)
    producers.stored(13, 0, 0, 1, 21, 3)
    producers.check()
    assert list(producers) == [12, 10, 13]
    assert producers.admit(11, 0, 1, 1) == -1  # forgotten: may go on
    assert producers.admit(14, 0, 1, 1) == UnknownProducer(14, 1)  # never was here


def test_expiry_is_bounded_per_entry(machine: PartitionMachine):
    for producer in range(40):
        append(machine, item(1, producer, 0, 0))
    append(machine, item(), at_ms=PRODUCER_EXPIRE_MS - 1)
    assert len(machine.producers) == 40
    append(machine, item(), at_ms=PRODUCER_EXPIRE_MS)
    assert len(machine.producers) == 40 - PRODUCER_EXPIRE_PER_APPLY
    append(machine, item(), at_ms=PRODUCER_EXPIRE_MS + 1)
    append(machine, item(), at_ms=PRODUCER_EXPIRE_MS + 2)
    assert len(machine.producers) == 0


def test_an_append_holds_views_without_a_copy_of_its_own(machine: PartitionMachine):
    data, info = item(2)
    assert c.encode_append(0, [(memoryview(data), info)]) == c.encode_append(0, [(data, info)])
