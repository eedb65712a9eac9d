"""A stream whose pieces are cut anyhow, repeated, lost and reordered: each number is stored once.

The source is the outbox protocol at its wildest: leaders come and go, each knows only what was
buried, cuts pieces as it likes, and what a former leader sent may still arrive.
"""

from hypothesis import given
from hypothesis import strategies as st

from raftline.machines.partition.commands import encode_append
from raftline.machines.partition.machine import AppendedEntry, PartitionMachine
from raftline.machines.partition.streams import Streamed, StreamHead, encode_stream_append
from raftline.model.batch import BatchInfo

NUMBERS = 12
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.integers(1, 5)),  # skip, length
        st.tuples(st.just("arrive"), st.integers(0, 30), st.booleans()),  # which, kept in flight
        st.tuples(st.just("bury"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


def entry(head: StreamHead) -> bytes:
    numbers = bytes(range(head.first, head.last + 1))
    count = len(numbers)
    info = BatchInfo(count, count, count - 1, 0, 0)
    return encode_stream_append(head, encode_append(0, [(numbers, info)]))


class Source:
    """What the leaders of the source know, and what is on its way."""

    def __init__(self) -> None:
        self.buried = 0
        self.confirmed = 0
        self.flying: list[StreamHead] = []

    def send(self, skip: int, length: int) -> None:
        first = self.buried + 1 + skip
        last = min(first + length - 1, NUMBERS)
        if first <= last:
            self.flying.append(StreamHead(9, "u", first, last, self.buried))


@given(steps)
def test_each_number_once(story):
    machine, source = PartitionMachine(), Source()
    stored: list[int] = []
    for index, (verb, which, how) in enumerate([*story, *[("end", 0, 0)] * 3 * NUMBERS]):
        if verb == "send":
            source.send(which, how)
        elif verb == "bury":
            source.buried = max(source.buried, source.confirmed)
        elif verb == "restart":
            fresh = PartitionMachine()
            fresh.restore(machine.snapshot())
            machine = fresh
        elif verb == "arrive" and source.flying:
            at = which % len(source.flying)
            head = source.flying[at] if how else source.flying.pop(at)
            arrive(machine, source, head, index, stored)
        elif verb == "end":  # faults stop: one leader sends, hears and buries
            source.buried = source.confirmed
            if source.buried < NUMBERS:
                head = StreamHead(9, "u", source.buried + 1, NUMBERS, source.buried)
                arrive(machine, source, head, index, stored)
        machine.check()
    assert stored == list(range(1, NUMBERS + 1))


def arrive(
    machine: PartitionMachine, source: Source, head: StreamHead, index: int, stored: list[int]
) -> None:
    data = entry(head)
    for event in machine.apply(index, 1, data):
        if isinstance(event, AppendedEntry):
            (batch,) = event.stored
            stored += data[batch.start : batch.start + batch.length]
        else:
            assert isinstance(event, Streamed)
            source.confirmed = max(source.confirmed, event.last)
    assert len(stored) == machine.next_offset
