"""Tallies: what goes through a partition, counted where it goes through.

Appends, deliveries and settles are counted by the leader of their entry's term, so each of them
once in the cluster; reads where they are served. Everything is counted per entry or per reply, and
read by measures.py.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raftline.machines.delivery.commands import (
    ACK,
    REJECT,
    AckQuery,
    Deliver,
    Grant,
    LeaseQuery,
    RejectQuery,
    Settle,
)
from raftline.machines.delivery.outcomes import (
    Granted,
    Leased,
    Outcome,
    QuerySettled,
    SettledRanges,
)
from raftline.model.batch import LENGTH_FROM
from raftline.model.limits import BATCH_HEADER_BYTES
from raftline.node.appends import AppendProposal
from raftline.node.deliver_proposal import DeliverProposal
from raftline.node.ports import Clock
from raftline.storage.files import Buffer
from raftline.telemetry.counters import Counters

if TYPE_CHECKING:
    from raftline.machines.partition.machine import StoredBatch

HEADS_MAX = 1_024  # of one reply that are looked at; the rest is taken to be like them
_DELTA = 23  # of the last message, in a batch
_DELTA_IN_REST = 7  # the same, where the first 16 bytes are apart


class Tally:
    """The counts of one partition's topic."""

    __slots__ = ("_clock", "counters", "counts", "topic")

    def __init__(self, clock: Clock, counters: Counters, topic: str) -> None:
        self._clock = clock
        self.counters = counters
        self.counts = counters.topic(topic)
        self.topic = topic

    def stored(self, stored: "Sequence[StoredBatch]", next_offset: int) -> None:
        """Batches got the offsets up to ``next_offset``."""
        counts = self.counts
        counts.messages_in += next_offset - stored[0].base_offset
        if len(stored) == 1:
            counts.bytes_in += stored[0].length
        else:
            counts.bytes_in += sum([batch.length for batch in stored])

    def appended(self, proposal: AppendProposal) -> None:
        """An entry of appends was applied; the first of them waited longest."""
        first = proposal.appends[0]
        if first is not None:
            took_ms = self._clock.mono_ms() - (first[3] - first[4])
            self.counters.append_times.note(took_ms, len(proposal.appends))

    def delivered(self, entry: Deliver, outcomes: Sequence[Outcome]) -> None:
        """An entry of delivery commands was applied."""
        name, counts = "", None  # of the last settle: as a rule those of the next one
        for command, outcome in zip(entry.commands, outcomes, strict=True):
            if type(command) is Settle and type(outcome) is SettledRanges:
                if counts is None or command.group != name:
                    name, counts = command.group, self.counters.group(self.topic, command.group)
                counts.settled[command.verb] += _length(command.ranges)
                if outcome.lost:
                    lost = _length(outcome.lost)
                    counts.settled[command.verb] -= lost
                    counts.lost += lost
            elif type(command) is Grant and type(outcome) is Granted:
                self._granted(command.group, outcome.spans)
            elif type(command) is LeaseQuery and type(outcome) is Leased:
                self._granted(command.group, outcome.granted)
                self.counters.group(self.topic, command.group).settled[ACK] += _spans(outcome.acked)
            elif type(outcome) is QuerySettled and isinstance(command, AckQuery | RejectQuery):
                verb = ACK if type(command) is AckQuery else REJECT
                self.counters.group(self.topic, command.group).settled[verb] += outcome.count

    def _granted(self, group: str, spans: Sequence[int]) -> None:
        counts = self.counters.group(self.topic, group)
        for at in range(0, len(spans), 4):
            count = spans[at + 1] - spans[at]
            counts.delivered += count
            if spans[at + 2] > 1:
                counts.redelivered += count

    def settled(self, proposal: DeliverProposal) -> None:
        """An entry was applied: note how long its settles took."""
        count, began_mono = proposal.settles()
        if count:
            self.counters.settle_times.note(self._clock.mono_ms() - began_mono, count)

    def handed_out(self, size: int, chosen_mono: float) -> None:
        """Batches of so many bytes, chosen at that time, go to a worker now."""
        self.counts.bytes_delivered += size
        self.counters.receive_times.note(self._clock.mono_ms() - chosen_mono)

    def read(self, buffers: Sequence[Buffer], size: int) -> None:
        """Batches go to a reader."""
        if size:
            self.counts.bytes_read += size
            self.counts.messages_read += count_messages(buffers)


def count_messages(buffers: Sequence[Buffer]) -> int:
    """Return how many messages are in whole batches: contiguous, heads apart or not.

    Beyond ``HEADS_MAX`` small batches in one buffer it is an estimate.
    """
    if len(buffers) > 1:  # from memory: head and rest of each batch by turns
        last, rest = buffers[-2], buffers[-1]
        delta = int.from_bytes(rest[_DELTA_IN_REST : _DELTA_IN_REST + 4], "big")
        return _offset_of(last) + delta + 1 - _offset_of(buffers[0])
    data = memoryview(buffers[0])
    at = heads = end = 0
    while at + BATCH_HEADER_BYTES <= len(data) and heads < HEADS_MAX:
        end = _offset_of(data[at : at + 8]) + 1
        end += int.from_bytes(data[at + _DELTA : at + _DELTA + 4], "big")
        at += int.from_bytes(data[at + 8 : at + 12], "big") + LENGTH_FROM
        heads += 1
    if not heads:
        return 0
    count = end - _offset_of(data)
    return count if at >= len(data) else count * len(data) // at


def _offset_of(batch: Buffer) -> int:
    return int.from_bytes(batch[:8], "big")


def _spans(spans: Sequence[int]) -> int:
    return sum(spans[1::4]) - sum(spans[::4])


def _length(ranges: Sequence[int]) -> int:
    if len(ranges) == 2:
        return ranges[1] - ranges[0]
    return sum(ranges[1::2]) - sum(ranges[::2])
