"""Producers and offsets against a naive twin that remembers everything ever stored."""

from hypothesis import given
from hypothesis import strategies as st

from raftline.machines.partition.commands import (
    Malformed,
    Trim,
    decode_append,
    encode_append,
    encode_command,
)
from raftline.machines.partition.machine import AppendedEntry, Duplicate, PartitionMachine
from raftline.model.batch import BatchInfo
from raftline.model.errors import RaftlineError
from raftline.model.limits import SEQUENCE_MODULUS

batch = st.tuples(
    st.integers(1, 3),  # count
    st.sampled_from([-1, 5, 6]),  # producer
    st.integers(0, 1),  # epoch
    st.integers(0, 9),  # sequence
)
entry = st.tuples(st.integers(0, 1000), st.lists(batch, min_size=1, max_size=4))


class Naive:
    """All stored batches of each producer's newest epoch, and nothing clever."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.epochs: dict[int, int] = {}
        self.sent: dict[int, list[tuple[list[int], int]]] = {}

    def append(self, count: int, producer: int, epoch: int, sequence: int) -> int | str:
        if producer >= 0:
            verdict = self._judge(count, producer, epoch, sequence)
            if verdict is not None:
                return verdict
            if self.epochs.get(producer) != epoch:
                self.sent[producer] = []
            self.epochs[producer] = epoch
            sequences = [(sequence + n) % SEQUENCE_MODULUS for n in range(count)]
            self.sent[producer].append((sequences, self.next_offset))
        self.next_offset += count
        return self.next_offset - count

    def _judge(self, count: int, producer: int, epoch: int, sequence: int) -> int | str | None:
        if producer not in self.epochs:
            return None if sequence == 0 else "unknown_producer"
        if epoch < self.epochs[producer]:
            return "fenced_producer"
        if epoch > self.epochs[producer]:
            return None if sequence == 0 else "out_of_order"
        if sequence == (self.sent[producer][-1][0][-1] + 1) % SEQUENCE_MODULUS:
            return None
        for sequences, offset in self.sent[producer][-5:]:
            if sequences[0] == sequence and len(sequences) == count:
                return f"duplicate of {offset}"
        return "out_of_order"


def items(batches):
    return [
        (b"%d" % at * count, BatchInfo(count, count, count - 1, 0, 0, producer, epoch, sequence))
        for at, (count, producer, epoch, sequence) in enumerate(batches)
    ]


def told(outcome) -> int | str:
    if isinstance(outcome, Duplicate):
        return f"duplicate of {outcome.first_offset}"
    return outcome.code if isinstance(outcome, RaftlineError) else outcome


@given(st.lists(entry, max_size=25), st.integers(0, 24))
def test_the_same_as_the_naive_twin(entries, restart_at):
    machine, naive = PartitionMachine(), Naive()
    for number, (at_ms, batches) in enumerate(entries):
        if number == restart_at:
            again = PartitionMachine()
            again.restore(machine.snapshot())
            machine = again
        data = encode_append(at_ms, items(batches))
        (event,) = machine.apply(number, 1, data)
        assert isinstance(event, AppendedEntry)
        assert [told(o) for o in event.outcomes] == [naive.append(*b) for b in batches]
        stored = [o for o in event.outcomes if isinstance(o, int)]
        assert [b.base_offset for b in event.stored] == stored
        kept = [i for i, o in zip(items(batches), event.outcomes, strict=True) if told(o) in stored]
        assert [data[b.start : b.start + b.length] for b in event.stored] == [i[0] for i in kept]
        machine.check()
    assert machine.next_offset == naive.next_offset


@given(st.lists(entry, max_size=10), st.lists(st.integers(0, 40), max_size=4))
def test_replicas_that_restart_at_other_places_are_identical(entries, trims):
    log = [encode_append(at_ms, items(batches)) for at_ms, batches in entries]
    log += [encode_command(Trim(offset, 0)) for offset in trims]
    steady, restarting = PartitionMachine(), PartitionMachine()
    for index, data in enumerate(log):
        first, second = steady.apply(index, 1, data), restarting.apply(index, 1, data)
        assert first == second
        again = PartitionMachine()
        again.restore(restarting.snapshot())
        restarting = again
        assert restarting.digest() == steady.digest()
    steady.check()


@given(st.binary(max_size=120) | st.binary(max_size=120).map(lambda b: b"\x01\x00\x00\x00" + b))
def test_any_bytes_are_applied_or_refused(data):
    machine = PartitionMachine()
    machine.apply(1, 1, data)
    machine.check()
    try:
        view = decode_append(data)
    except Malformed:
        return
    assert view.body + sum(row[0] for row in view.rows) == len(data)
