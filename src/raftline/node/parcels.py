"""A producer's batch that was taken apart, on its way into the log of a partition led here.

It is one entry (machines/partition/parcels.py), proposed behind all that was collected before it,
so that the sequence numbers of its producer stay in order. Where an answer is lost the producer
sends its batch again, and hears what was stored the first time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.partition.commands import BatchItem, encode_append
from raftline.machines.partition.parcels import ParcelTaken, encode_parcel
from raftline.machines.partition.side_car import SideCar, encode_extension, stamped
from raftline.machines.partition.waiting_commands import NewWaiting as WaitingItem
from raftline.machines.partition.waiting_commands import encode_schedule
from raftline.model.batch import BatchInfo
from raftline.model.calls import Appended, NewWaiting
from raftline.model.errors import InvalidArgument, OverLimit, RaftlineError
from raftline.model.limits import BATCH_BYTES_MAX, ENTRY_BATCHES_MAX
from raftline.model.settings import Value, effective
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.partition import PartitionHost

if TYPE_CHECKING:
    from raftline.node.node import Node
    from raftline.node.replica import Replica

ROW_BYTES = 128  # what a message weighs besides its bytes, with a dedup key

ParcelDone = Callable[[Appended | RaftlineError], None]


class NewParcel(msgspec.Struct, frozen=True):
    """What a gateway made of one batch of a producer."""

    source: BatchInfo  # of the batch as it came
    batches: Sequence[tuple[bytes, BatchInfo, SideCar | None]]  # in order; no producer
    waiting: Sequence[NewWaiting]
    timestamps: Sequence[int]  # of what waits

    @property
    def size(self) -> int:
        """Return what it counts in an entry, about."""
        sealed = sum([info.length for _, info, _ in self.batches])
        rows = ROW_BYTES * (len(self.batches) + len(self.waiting))
        return sealed + rows + sum([len(item.batch) for item in self.waiting])


def send_parcel(
    node: "Node",
    replica: "Replica",
    topic: str,
    parcel: NewParcel,
    timeout_ms: int,
    done: ParcelDone,
) -> None:
    """Store a parcel here, or nowhere."""
    host = replica.host
    assert isinstance(host, PartitionHost)
    refusal = _refusal(node, replica, parcel)
    row = node.catalog_machine.topics.get(topic)
    if refusal is not None or row is None:
        done(refusal or InvalidArgument(f"topic {topic} is gone"))
        return
    settings = effective(row.settings)
    replica.propose_collected()  # what came before it goes before it
    at_ms = replica.time.stamp()
    data = encode_new_parcel(at_ms, parcel, settings)
    partition, count = host.identity.partition, parcel.source.count
    pressure, size = node.shards.pressure, len(data)
    pressure.bytes += size

    def answered(answer: Applied | RaftlineError) -> None:
        pressure.bytes -= size
        if isinstance(answer, RaftlineError):
            done(answer)
            return
        taken = answer.events[-1]
        assert isinstance(taken, ParcelTaken), taken
        start = host.machine.log_start
        done(Appended(taken.base_offset, count, partition, at_ms, taken.is_repeat, start))

    deadline = node.clock.mono_ms() + timeout_ms
    replica.propose(data, CommandProposal(replica.name, deadline, timeout_ms, answered))


def _refusal(node: "Node", replica: "Replica", parcel: NewParcel) -> RaftlineError | None:
    size, waits = parcel.size, node.shards.pressure.bytes
    if size > BATCH_BYTES_MAX or max(len(parcel.batches), len(parcel.waiting)) > ENTRY_BATCHES_MAX:
        return InvalidArgument(
            f"a batch of {parcel.source.count} messages with delays or dedup keys needs {size} "
            "bytes when it is taken apart",
            f"send smaller batches: at most {BATCH_BYTES_MAX} bytes, {ENTRY_BATCHES_MAX} messages",
        )
    limit = node.settings.limits.node_uncommitted_bytes_max
    if waits + size > limit:
        return OverLimit("uncommitted bytes on this node", waits, limit)
    return node.upkeep.admission(replica)


def encode_new_parcel(at_ms: int, parcel: NewParcel, settings: Mapping[str, Value]) -> bytes:
    """Return the entry of a parcel; ``settings`` are its topic's, as they hold."""
    dedup_ms, delay_ms_max = int(settings["dedup_ms"]), int(settings["delay_ms_max"])
    source = parcel.source
    producer = (source.producer_id, source.producer_epoch, source.base_sequence)
    schedule = _schedule(at_ms, parcel, dedup_ms, delay_ms_max) if parcel.waiting else b""
    append = _append(at_ms, parcel, dedup_ms) if parcel.batches else b""
    return encode_parcel(at_ms, producer, source.count, schedule, append)


def _append(at_ms: int, parcel: NewParcel, dedup_ms: int) -> bytes:
    sides: list[tuple[int, SideCar]] = []
    for at, (_, _, side) in enumerate(parcel.batches):
        kept = None if side is None else stamped(side, dedup_ms)
        if kept is not None:
            sides.append((at, kept))
    items: list[BatchItem] = [(batch, info) for batch, info, _ in parcel.batches]
    return encode_append(at_ms, items, *encode_extension(sides))


def _schedule(at_ms: int, parcel: NewParcel, dedup_ms: int, delay_ms_max: int) -> bytes:
    items: list[WaitingItem] = []
    sides: list[tuple[int, SideCar]] = []
    for at, (item, timestamp) in enumerate(zip(parcel.waiting, parcel.timestamps, strict=True)):
        due_ms = item.due_ms if item.due_ms >= 0 else at_ms - item.due_ms
        if item.dedup and dedup_ms > 0:
            sides.append((at, SideCar((), ((0, item.dedup),), dedup_ms)))
        items.append((item.batch, item.priority, due_ms, timestamp))
    return encode_schedule(at_ms, delay_ms_max, items, *encode_extension(sides))
