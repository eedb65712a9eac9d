"""Parcels: a producer's batch that was taken apart is stored whole, once, or not at all."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftline.machines.machine import Refused
from raftline.machines.partition.commands import Malformed, encode_append
from raftline.machines.partition.machine import AppendedEntry, Duplicate, PartitionMachine
from raftline.machines.partition.parcels import (
    ParcelTaken,
    decode_parcel,
    encode_parcel,
)
from raftline.machines.partition.side_car import SideCar, encode_extension, hash_key
from raftline.machines.partition.waiting import Scheduled
from raftline.machines.partition.waiting_commands import encode_cancel, encode_schedule
from raftline.model.batch import BatchInfo
from raftline.model.errors import DuplicateKey, RaftlineError

GOLDEN = Path(__file__).parent / "golden"
AT_MS = 1_000
WINDOW_MS = 60_000
NOW = ("", "key")  # wishes of messages that do not wait


def plain(count: int, *keys: str, producer: int = -1) -> tuple[bytes, SideCar | None, Any]:
    info = BatchInfo(count, count, count - 1, 0, 0, producer, 0, 0)
    side = SideCar((), tuple((0, hash_key(key.encode())) for key in keys), WINDOW_MS)
    return b"x" * count, side if keys else None, info


def append_of(*batches: tuple[bytes, SideCar | None, Any]) -> bytes:
    sides = [(at, side) for at, (_, side, _) in enumerate(batches) if side is not None]
    items = [(batch, info) for batch, _, info in batches]
    return encode_append(AT_MS, items, *encode_extension(sides))


def schedule_of(*delays: int, keys: tuple[str, ...] = (), delay_ms_max: int = 10_000) -> bytes:
    sides = [
        (at, SideCar((), ((0, hash_key(key.encode())),), WINDOW_MS)) for at, key in enumerate(keys)
    ]
    items: Any = [(b"wait", 0, AT_MS + delay, 900) for delay in delays]
    return encode_schedule(AT_MS, delay_ms_max, items, *encode_extension(sides))


def parcel(
    sequence: int, count: int, schedule: bytes = b"", append: bytes = b"", epoch: int = 0
) -> bytes:
    return encode_parcel(AT_MS, (7, epoch, sequence), count, schedule, append)


def batch(sequence: int, count: int) -> bytes:
    info = BatchInfo(count, count, count - 1, 0, 0, 7, 0, sequence)
    return encode_append(AT_MS, [(b"x" * count, info)])


def apply(machine: PartitionMachine, data: bytes) -> list[Any]:
    events = list(machine.apply(1, 1, data))
    machine.check()
    return events


def refusal(events: list[Any]) -> RaftlineError:
    assert len(events) == 1
    assert isinstance(events[0], Refused), events
    return events[0].error()


def test_a_parcel_between_batches_of_its_producer():
    machine = PartitionMachine()
    apply(machine, batch(0, 4))
    appended, scheduled, taken = apply(
        machine, parcel(4, 6, schedule_of(100, 200), append_of(plain(3), plain(1, "k")))
    )
    assert isinstance(appended, AppendedEntry)
    assert isinstance(scheduled, Scheduled)
    assert appended.outcomes == [4, 7]
    assert scheduled.outcomes == [1, 2]
    assert taken == ParcelTaken(4)
    (after,) = apply(machine, batch(10, 2))
    assert after.outcomes == [8], "the numbers of what waits count too"
    assert machine.next_offset == 10


def test_a_repeat_stores_nothing():
    machine = PartitionMachine()
    first = parcel(0, 3, schedule_of(100), append_of(plain(2)))
    apply(machine, first)
    assert apply(machine, first) == [ParcelTaken(0, is_repeat=True)]
    waits = parcel(3, 1, schedule_of(100))
    assert apply(machine, waits)[-1] == ParcelTaken(-1)
    assert apply(machine, waits) == [ParcelTaken(2, is_repeat=True)]
    assert (machine.next_offset, machine.waiting.count) == (2, 2)


def test_a_repeat_is_known_after_a_restart():
    machine, other = PartitionMachine(), PartitionMachine()
    first = parcel(0, 3, schedule_of(100), append_of(plain(2)))
    apply(machine, first)
    other.restore(machine.snapshot())
    assert apply(other, first) == [ParcelTaken(0, is_repeat=True)]
    assert other.digest() == machine.digest()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (parcel(5, 1, append=append_of(plain(1))), "sequence 5"),
        (parcel(0, 1, append=append_of(plain(1)), epoch=-1), ""),
    ],
)
def test_a_gap_changes_nothing(data: bytes, words: str):
    machine = PartitionMachine()
    apply(machine, batch(0, 2))
    before = machine.digest()
    assert words in str(refusal(apply(machine, data)))
    assert machine.digest() == before


def test_an_older_epoch_changes_nothing():
    machine = PartitionMachine()
    apply(machine, parcel(0, 1, append=append_of(plain(1)), epoch=2))
    before = machine.digest()
    assert refusal(apply(machine, parcel(1, 1, schedule_of(5), epoch=1))).code == "fenced_producer"
    assert machine.digest() == before


def test_a_delay_over_the_limit_refuses_all_of_it():
    machine = PartitionMachine()
    before = machine.digest()
    late = parcel(0, 3, schedule_of(100, 20_000), append_of(plain(1, "k")))
    assert "over the limit" in str(refusal(apply(machine, late)))
    assert machine.next_offset == 0
    assert (machine.waiting.count, len(machine.dedup)) == (0, 0)
    good = parcel(0, 3, schedule_of(100, 200), append_of(plain(1, "k")))
    assert apply(machine, good)[-1] == ParcelTaken(0), "its numbers were not used up"
    assert machine.digest() != before


def test_what_a_key_knows_is_left_out_and_counts():
    machine = PartitionMachine()
    apply(machine, parcel(0, 2, schedule_of(100, keys=("w",)), append_of(plain(1, "a"))))
    again = parcel(2, 4, schedule_of(5, 6, keys=("a", "new")), append_of(plain(1, "w"), plain(1)))
    appended, scheduled, taken = apply(machine, again)
    assert isinstance(appended.outcomes[0], DuplicateKey)
    assert appended.outcomes[1] == 1
    assert isinstance(scheduled.outcomes[0], DuplicateKey)
    assert scheduled.outcomes[1] == 2
    assert taken == ParcelTaken(1)
    (after,) = apply(machine, batch(6, 1))
    assert after.outcomes == [2]


def test_the_same_key_twice_in_a_parcel_is_one_message():
    machine = PartitionMachine()
    appended, _ = apply(machine, parcel(0, 2, append=append_of(plain(1, "a"), plain(1, "a"))))
    assert appended.outcomes[0] == 0
    assert isinstance(appended.outcomes[1], DuplicateKey)


def test_full_dedup_refuses_all_of_it():
    machine = PartitionMachine()
    machine.dedup._keys_max = 1
    both = parcel(0, 2, schedule_of(5, keys=("w",)), append_of(plain(1, "a")))
    assert refusal(apply(machine, both)).code == "over_limit"
    assert (machine.next_offset, machine.waiting.count) == (0, 0)


@pytest.mark.parametrize(
    "data",
    [
        parcel(0, 1),
        parcel(0, 0, append=append_of(plain(1))),
        parcel(0, 1, append=append_of(plain(1, producer=3))),
        parcel(0, 1, encode_cancel(AT_MS, [1])),
        parcel(0, 1, schedule_of(5))[:-1],
        parcel(-1, 1, schedule_of(5)),
    ],
)
def test_what_is_no_parcel(data: bytes):
    with pytest.raises(Malformed):
        decode_parcel(data)
    machine = PartitionMachine()
    assert refusal(apply(machine, data)).code == "corrupt_batch"


def test_a_batch_of_many_has_no_dedup_key():
    machine = PartitionMachine()
    assert refusal(apply(machine, parcel(0, 2, append=append_of(plain(2, "a"))))).code
    assert machine.next_offset == 0


def test_golden(rewrite: bool):
    data = parcel(9, 5, schedule_of(100, 200, keys=("w",)), append_of(plain(2), plain(1, "k")))
    path = GOLDEN / "partition-parcel.hex"
    text = "\n".join(data.hex()[at : at + 96] for at in range(0, len(data.hex()), 96)) + "\n"
    if rewrite:
        path.write_text(text)
    assert path.read_text() == text, "entries on disk are read differently now"
    read = decode_parcel(data)
    assert (read.producer, read.epoch, read.sequence, read.count) == (7, 0, 9, 5)
    assert read.append is not None
    assert read.schedule is not None
    assert data[read.append.body :] == b"xxx"
    assert data[read.schedule.body :][:8] == b"waitwait"


def test_batches_and_parcels_of_one_producer_repeat_alike():
    machine = PartitionMachine()
    apply(machine, parcel(0, 2, append=append_of(plain(2))))
    (again,) = apply(machine, batch(0, 2))
    assert again.outcomes == [Duplicate(0)]


def test_nothing_is_stored_of_a_parcel_whose_schedule_cannot_be_read():
    machine = PartitionMachine()
    unnamed = encode_schedule(AT_MS, 10_000, [(b"wait", 0, AT_MS, 900)], 0, b"\x90")
    before = machine.digest()
    refusal(apply(machine, parcel(0, 3, unnamed, append_of(plain(2)))))
    assert machine.next_offset == 0
    machine.at_ms = type(machine.at_ms)(0)
    assert machine.digest() == before


WISHES = st.sampled_from(["", "key", "wait", "both"])
BATCHES = st.lists(st.lists(WISHES, min_size=1, max_size=4), min_size=1, max_size=12)


@given(BATCHES, st.data())
def test_every_message_is_stored_once_however_often_it_is_sent(batches: Any, data: Any):
    machine, first, sent = PartitionMachine(), 0, list[tuple[bytes, int, int]]()
    offsets = numbers = 0
    for at, wishes in enumerate(batches):
        entry = _entry(first, wishes, at)
        sent.append((entry, first, offsets))
        if data.draw(st.booleans()):  # a repeat of one of the last five, before and after
            again, _, where = data.draw(st.sampled_from(sent[-6:-1] or sent))
            if again is not entry:
                _is_known(machine, again, where)
        apply(machine, entry)
        now = sum(1 for wish in wishes if wish in NOW)
        offsets, numbers, first = offsets + now, numbers + len(wishes) - now, first + len(wishes)
        assert (machine.next_offset, machine.waiting.count) == (offsets, numbers)
        _is_known(machine, entry, sent[-1][2])
        if data.draw(st.booleans()):
            machine = _started_again(machine)


def _entry(first: int, wishes: list[str], at: int) -> bytes:
    """A batch as it came if nobody wishes anything, else a parcel; keys are new ones."""
    if not any(wishes):
        return batch(first, len(wishes))
    appended = [plain(1, f"{at}.{n}") if w else plain(1) for n, w in enumerate(wishes) if w in NOW]
    keys = [f"{at}-{n}" for n, wish in enumerate(wishes) if wish == "both"]
    delays = [5] * sum(1 for wish in wishes if wish in ("wait", "both"))
    schedule = schedule_of(*delays, keys=tuple(keys)) if delays else b""
    return parcel(first, len(wishes), schedule, append_of(*appended) if appended else b"")


def _is_known(machine: PartitionMachine, entry: bytes, where: int) -> None:
    before = machine.digest()
    (event,) = apply(machine, entry)
    if isinstance(event, ParcelTaken):
        assert event == ParcelTaken(where, is_repeat=True)
    else:
        assert event.outcomes == [Duplicate(where)]
    assert machine.digest() == before


def _started_again(machine: PartitionMachine) -> PartitionMachine:
    other = PartitionMachine()
    other.restore(machine.snapshot())
    assert other.digest() == machine.digest()
    return other
