"""The fence of a stream: what is sent again is stored once; what is done with is remembered."""

import pytest

from raftline.machines.machine import Refused
from raftline.machines.partition.commands import (
    LETTERS_PURGED,
    LETTERS_REDRIVEN,
    Malformed,
    MarkLetters,
    Trim,
    encode_append,
    encode_command,
)
from raftline.machines.partition.letters import Letters
from raftline.machines.partition.machine import (
    AppendedEntry,
    LettersMarked,
    PartitionMachine,
)
from raftline.machines.partition.streams import (
    Streamed,
    StreamHead,
    Streams,
    decode_stream_append,
    encode_stream_append,
)
from raftline.model.batch import BatchInfo


def piece(first: int, last: int, *, buried: int = 0, shard: int = 100, producer: int = -1) -> bytes:
    count = last - first + 1
    info = BatchInfo(count, count, count - 1, 0, 0, producer, 0, 0)
    append = encode_append(1000, [(b"x" * count, info)])
    return encode_stream_append(StreamHead(shard, "u1", first, last, buried), append)


def apply(machine: PartitionMachine, data: bytes):
    events = machine.apply(1, 1, data)
    machine.check()
    return events


def test_the_next_piece_is_stored():
    machine = PartitionMachine()
    appended, streamed = apply(machine, piece(1, 3))
    assert isinstance(appended, AppendedEntry)
    assert appended.outcomes == [0]
    assert streamed == Streamed(3, is_stored=True)
    assert apply(machine, piece(4, 4))[1] == Streamed(4, is_stored=True)
    assert machine.next_offset == 4


def test_a_repeat_stores_nothing():
    machine = PartitionMachine()
    apply(machine, piece(1, 3))
    for again in (piece(1, 3), piece(2, 3), piece(1, 1)):
        assert apply(machine, again) == (Streamed(3, is_stored=False),)
    assert machine.next_offset == 3


def test_a_piece_that_is_here_in_part_is_cut_by_its_sender():
    machine = PartitionMachine()
    apply(machine, piece(1, 3))
    assert apply(machine, piece(1, 8)) == (Streamed(3, is_stored=False),)
    assert apply(machine, piece(4, 8))[1] == Streamed(8, is_stored=True)
    assert machine.next_offset == 8


def test_a_gap_is_not_passed_over():
    machine = PartitionMachine()
    assert apply(machine, piece(2, 3)) == (Streamed(0, is_stored=False),)
    apply(machine, piece(1, 3))
    assert apply(machine, piece(5, 5, buried=3)) == (Streamed(3, is_stored=False),)
    assert machine.next_offset == 3


def test_what_was_confirmed_elsewhere_is_not_waited_for():
    """The dead-letter topic was deleted and created anew: numbers begin where the source is."""
    machine = PartitionMachine()
    assert apply(machine, piece(57, 60, buried=56))[1] == Streamed(60, is_stored=True)
    assert apply(machine, piece(57, 60, buried=56)) == (Streamed(60, is_stored=False),)


def test_streams_do_not_touch_each_other():
    machine = PartitionMachine()
    apply(machine, piece(1, 3))
    assert apply(machine, piece(1, 2, shard=101))[1] == Streamed(2, is_stored=True)
    assert machine.streams.last((100, "u1")) == 3


def test_only_plain_batches():
    machine = PartitionMachine()
    (event,) = apply(machine, piece(1, 1, producer=7))
    assert isinstance(event, Refused)
    assert machine.next_offset == 0
    assert len(machine.streams) == 0


@pytest.mark.parametrize("head", [(0, 1, 0), (3, 2, 0), (1, 1, 1), (-1, 5, 0), (5, 9, -1)], ids=str)
def test_heads_that_make_no_sense(head):
    data = bytearray(piece(1, 1))
    for at, number in zip((8, 16, 24), head, strict=True):
        data[at : at + 8] = number.to_bytes(8, "little", signed=True)
    with pytest.raises(Malformed):
        decode_stream_append(bytes(data))
    (event,) = PartitionMachine().apply(1, 1, bytes(data))
    assert isinstance(event, Refused)


def test_every_cut_is_malformed():
    data = piece(1, 5)
    for end in range(1, len(data)):
        with pytest.raises(Malformed):
            decode_stream_append(data[:end])


def test_a_restored_machine_answers_alike():
    machine = PartitionMachine()
    apply(machine, piece(1, 3))
    apply(machine, piece(1, 9, shard=7))
    apply(machine, encode_command(MarkLetters([1, 2], LETTERS_PURGED, 5)))
    other = PartitionMachine()
    other.restore(machine.snapshot())
    assert other.digest() == machine.digest()
    assert apply(other, piece(1, 3)) == (Streamed(3, is_stored=False),)
    other.restore(PartitionMachine().snapshot())
    assert len(other.streams) == 0


def test_the_longest_unused_is_forgotten_first():
    streams = Streams(streams_max=2)
    for shard in (1, 2, 1, 3):
        last = streams.last((shard, "u"))
        streams.stored(StreamHead(shard, "u", last + 1, last + 1))
        streams.check()
    assert [streams.last((shard, "u")) for shard in (1, 2, 3)] == [2, 0, 1]


def mark(machine: PartitionMachine, ranges: list[int], state: int):
    (event,) = apply(machine, encode_command(MarkLetters(ranges, state, 0)))
    return event


def test_the_last_word_on_a_letter_holds():
    machine = PartitionMachine()
    apply(machine, piece(1, 10))
    assert mark(machine, [0, 4, 6, 99], LETTERS_REDRIVEN) == LettersMarked(8)  # the log ends at 10
    assert mark(machine, [2, 7], LETTERS_PURGED) == LettersMarked(5)
    assert mark(machine, [2, 7], LETTERS_PURGED) == LettersMarked(0)
    states = [machine.letters.state(offset) for offset in range(11)]
    assert states == [1, 1, 2, 2, 2, 2, 2, 1, 1, 1, 0]
    apply(machine, encode_command(Trim(3, 0)))
    assert list(machine.letters.purged) == [(3, 7)]
    assert list(machine.letters.redriven) == [(7, 10)]


@pytest.mark.parametrize(
    ("ranges", "state"), [([1], LETTERS_PURGED), ([1, 2], 0), ([1, 2], 9)], ids=str
)
def test_marks_that_make_no_sense(ranges, state):
    machine = PartitionMachine()
    apply(machine, piece(1, 10))
    assert isinstance(mark(machine, ranges, state), Refused)


def test_marks_are_bounded():
    letters = Letters(ranges_max=10)
    for at in range(0, 40, 4):
        letters.mark(MarkLetters([at, at + 1], LETTERS_PURGED, 0), 0, 100)
        letters.check()
    assert len(letters.purged) == 9
