"""Side cars: what is taken, what is refused, and what the machine does with them."""

import pytest

from raftline.machines.partition.commands import (
    Malformed,
    Noop,
    encode_append,
    encode_command,
    extension_room,
)
from raftline.machines.partition.dedup import Dedup
from raftline.machines.partition.machine import AppendedEntry, PartitionMachine
from raftline.machines.partition.side_car import (
    SideCar,
    decode_extension,
    decode_side,
    encode_extension,
    encode_side,
    hash_key,
    problem,
    stamped,
)
from raftline.model.batch import BatchInfo
from raftline.model.errors import CorruptBatch, DuplicateKey, OutOfOrder, OverLimit

A, B, C = (hash_key(key) for key in (b"a", b"b", b"c"))
HOUR = 3_600_000


def item(count: int, producer: tuple[int, int, int] = (-1, -1, -1)):
    return b"x" * count, BatchInfo(count, count, count - 1, 0, 0, *producer)


def append(machine: PartitionMachine, *batches, at_ms: int = 0) -> AppendedEntry:
    items = [item(*batch[:-1]) for batch in batches]
    sides = [(at, batch[-1]) for at, batch in enumerate(batches) if batch[-1] is not None]
    (event,) = machine.apply(1, 1, encode_append(at_ms, items, *encode_extension(sides)))
    assert isinstance(event, AppendedEntry)
    machine.check()
    return event


def keys(*pairs: tuple[int, bytes], window_ms: int = HOUR) -> SideCar:
    return SideCar((), pairs, window_ms)


def test_an_entry_has_room_for_as_many_side_cars_as_its_head_says() -> None:
    flags, extension = encode_extension([(0, keys((0, A), (2, B)))])
    assert extension_room(encode_append(0, [item(3)], flags, extension)) == len(extension)
    assert extension_room(encode_append(0, [item(3)])) == 0, "plain batches bring no keys"
    command = encode_command(Noop(0))
    assert extension_room(command) == len(command)


@pytest.mark.parametrize(
    "side",
    [
        SideCar(((0, 4, 5),)),
        SideCar(((2, 2, 5),)),
        SideCar(((1, 2, 5), (0, 1, 5))),
        SideCar(((0, 2, 5), (1, 3, 6))),
        SideCar(((0, 1, 0),)),
        SideCar(((0, 1, 128),)),
        SideCar(((0, 1, -129),)),
        keys((3, A)),
        keys((-1, A)),
        keys((1, A), (1, B)),
        keys((1, A), (0, B)),
        keys((0, A), (2, A)),
        keys((0, A[:15])),
        keys((0, A), window_ms=-2),
        keys((0, A), window_ms=1 << 50),
        SideCar(((0, 1, 1),) * 10_001),
        keys(*[(0, A)] * 10_001),
    ],
)
def test_what_does_not_fit_the_batch_is_told_and_refused_whole(side: SideCar):
    assert problem(side, 3)
    machine = PartitionMachine()
    event = append(machine, (1, None), (3, side))
    assert [type(outcome) for outcome in event.outcomes] == [CorruptBatch] * 2
    assert machine.next_offset == len(machine.dedup) == 0


def test_flags_must_say_what_is_inside():
    flags, extension = encode_extension([(0, SideCar(((0, 1, 5),), ((0, A),), HOUR))])
    assert flags == 3
    assert decode_extension(3, extension, [1])[0].dedup == ((0, A),)
    for wrong in (1, 2):
        with pytest.raises(Malformed, match="flags"):
            decode_extension(wrong, extension, [1])


@pytest.mark.parametrize(
    "rows",
    [[(1, keys((0, A)))], [(0, keys((0, A))), (0, keys((0, B)))], [(0, SideCar((), ((0, A),)))]],
)
def test_side_cars_of_other_batches_or_without_a_window_are_refused(rows):
    with pytest.raises(Malformed):
        decode_extension(2, encode_extension(rows)[1], [1])


def test_one_side_car_travels_to_the_leader():
    side = SideCar(((0, 1, -5),), ((0, A),))
    assert decode_side(encode_side(side)) == side
    with pytest.raises(Malformed):
        decode_side(b"\xc1")


def test_the_leader_stamps_the_window_or_takes_the_keys_off():
    both = SideCar(((0, 1, 5),), ((0, A),))
    assert stamped(both, HOUR) == SideCar(((0, 1, 5),), ((0, A),), HOUR)
    assert stamped(both, 0) == SideCar(((0, 1, 5),))
    assert stamped(keys((0, A)), 0) is None


def test_priorities_of_stored_batches_are_in_their_lanes():
    machine = PartitionMachine()
    append(machine, (2, None), (4, SideCar(((0, 1, 10), (2, 4, -10)))))
    assert [machine.lanes.lane_of(offset) for offset in range(6)] == [0, 0, 10, 0, -10, -10]


def test_a_remembered_key_refuses_its_whole_batch_and_no_other():
    machine = PartitionMachine()
    assert append(machine, (3, keys((1, A), (2, B)))).outcomes == [0]
    side = SideCar(((0, 4, 7),), ((0, C), (1, B), (3, A)), HOUR)
    event = append(machine, (1, None), (4, side), (1, None))
    assert event.outcomes == [3, DuplicateKey([(1, 2), (3, 1)]), 4]
    assert machine.lanes.lanes() == (0,)
    assert append(machine, (1, keys((0, C)))).outcomes == [5]  # C was not remembered


def test_a_key_holds_for_its_window_of_log_time():
    machine = PartitionMachine()
    append(machine, (1, keys((0, A), window_ms=100)), at_ms=1000)
    assert isinstance(append(machine, (1, keys((0, A))), at_ms=1099).outcomes[0], DuplicateKey)
    assert isinstance(append(machine, (1, keys((0, A))), at_ms=5).outcomes[0], DuplicateKey)
    assert append(machine, (1, keys((0, A))), at_ms=1100).outcomes == [1]


def test_a_refused_batch_does_not_use_up_its_producers_sequence():
    machine = PartitionMachine()
    append(machine, (1, keys((0, A))))
    refused, later = append(machine, (2, (7, 0, 0), keys((0, A))), (1, (7, 0, 2), None)).outcomes
    assert isinstance(refused, DuplicateKey)
    assert not isinstance(later, int)
    assert append(machine, (1, (7, 0, 0), None)).outcomes == [1]
    assert isinstance(append(machine, (1, (7, 0, 5), None)).outcomes[0], OutOfOrder)


def test_past_the_bound_keys_are_refused_and_none_is_forgotten():
    dedup = Dedup(keys_max=2)
    dedup.stored([(0, A), (1, B)], 0, 100)
    assert dedup.admit([(0, C)], 99) == OverLimit("dedup keys of this partition", 3, 2)
    assert dedup.find(A, 99) == 0
    assert dedup.admit([(0, C)], 100) is None
    dedup.check()


def test_a_waiting_message_is_remembered_by_its_number():
    dedup = Dedup()
    dedup.add(A, -7, 100)
    assert dedup.find(A, 99) == -7
    assert dedup.admit([(0, A)], 99) == DuplicateKey([(0, -7)])
    assert DuplicateKey([(0, -7)]).firsts == [(0, -7)]
