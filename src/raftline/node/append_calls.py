"""Appends: here if the partition is led here, else by the node that leads it.

The hot path is ``append`` to a partition led here: one dictionary look-up and one collected tuple.
An append that was refused here, with nothing of it stored, is tried where the leader is now.
"""

import struct
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.partition.commands import Malformed
from raftline.machines.partition.side_car import (
    SideCar,
    decode_side,
    encode_side,
    problem,
    stamped,
)
from raftline.model.batch import NO_PRODUCER, BatchInfo, check_batch
from raftline.model.calls import Appended
from raftline.model.errors import (
    InvalidArgument,
    OverLimit,
    RaftlineError,
)
from raftline.model.ids import ShardId
from raftline.model.settings import SETTINGS
from raftline.node.appends import Append, AppendDone, Refuse
from raftline.node.partition import PartitionHost
from raftline.node.remote import VERB_APPEND, VERB_APPEND_SIDE, Reply
from raftline.node.replica import Replica
from raftline.node.router import DEFINITE

if TYPE_CHECKING:
    from raftline.node.calls import Place
    from raftline.node.node import Node

_SHARD = struct.Struct("<I")
_SIDE = struct.Struct("<II")  # shard, bytes of the side car
_pack = msgspec.msgpack.encode
_decode_appended = msgspec.msgpack.Decoder(Appended).decode


class AppendCalls:
    """Stores batches, wherever their partition is led."""

    __slots__ = ("_clock", "_first_use", "_local", "_node", "_uncommitted_max")

    def __init__(self, node: "Node", local: "dict[tuple[str, int], Place]") -> None:
        self._node = node
        self._clock = node.clock
        self._local = local
        self._first_use = node.first_use
        self._uncommitted_max = node.settings.limits.node_uncommitted_bytes_max

    def serve(self) -> None:
        """Store what other nodes pass on."""
        self._node.remote.handle(VERB_APPEND, self._on_append)
        self._node.remote.handle(VERB_APPEND_SIDE, self._on_append_side)

    def append(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        info: BatchInfo,
        timeout_ms: int,
        done: AppendDone,
        side: SideCar | None = None,
    ) -> None:
        """Store one sealed batch. Creates the topic at first use where settings allow it."""
        place = self._local.get((topic, partition))
        if place is None or not place.replica.is_leader:
            self._elsewhere(topic, partition, batch, info, timeout_ms, done, side)
            return
        deadline = self._clock.mono_ms() + timeout_ms
        self._here(place.replica, batch, info, deadline, timeout_ms, done, place.refuse, side)

    def _here(
        self,
        replica: Replica,
        batch: bytes,
        info: BatchInfo,
        deadline: float,
        timeout_ms: int,
        done: AppendDone,
        refuse: Refuse | None = None,
        side: SideCar | None = None,
    ) -> None:
        node = self._node
        # One look a turn: what is collected already was let in.
        refusal = None if replica.is_collecting else node.upkeep.admission(replica)
        if refusal is not None:
            done(refusal)
            return
        waiting = node.shards.pressure.bytes
        if waiting + info.length > self._uncommitted_max:
            done(OverLimit("uncommitted bytes on this node", waiting, self._uncommitted_max))
            return
        host = replica.host
        assert isinstance(host, PartitionHost)
        if side is not None:
            wrong = problem(side, info.count)
            if wrong:
                done(InvalidArgument(f"the side car of a batch for {host.name}: {wrong}"))
                return
            side = stamped(side, self._dedup_ms(replica.shard))
        host.append(batch, info, deadline, timeout_ms, done, refuse, side)

    def _dedup_ms(self, shard: ShardId) -> int:
        """Return the dedup window of the topic a shard belongs to."""
        machine = self._node.catalog_machine
        row = machine.shards.get(shard)
        topic = machine.topics.get(row.topic) if row is not None else None
        settings = topic.settings if topic is not None else {}
        return int(settings.get("dedup_ms", SETTINGS["dedup_ms"].default))

    def try_elsewhere(
        self, topic: str, partition: int, append: Append, error: RaftlineError
    ) -> None:
        """An append was refused here, nothing of it is stored: ask who leads now."""
        batch, info, done, deadline, _, _, side = append
        left = int(deadline - self._clock.mono_ms())
        if left > 0 and isinstance(error, DEFINITE):
            self._elsewhere(topic, partition, batch, info, left, done, side)
        else:
            done(error)

    def _elsewhere(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        info: BatchInfo,
        timeout_ms: int,
        done: AppendDone,
        side: SideCar | None,
    ) -> None:
        shard = self._node.locate(topic, partition)
        if isinstance(shard, RaftlineError):

            def found(left_ms: int) -> None:
                self.append(topic, partition, batch, info, left_ms, done, side)

            self._first_use.find(topic, partition, timeout_ms, done, found)
            return

        def local(replica: Replica, left_ms: int, answer: AppendDone) -> None:
            deadline = self._clock.mono_ms() + left_ms
            self._here(replica, batch, info, deadline, left_ms, answer, None, side)

        verb, body = VERB_APPEND, [_SHARD.pack(shard), batch]
        if side is not None:
            beside = encode_side(side)
            verb, body = VERB_APPEND_SIDE, [_SIDE.pack(shard, len(beside)), beside, batch]
        self._node.router.send(
            shard,
            verb,
            body,
            timeout_ms,
            lambda answer: done(_decode_appended(answer) if isinstance(answer, bytes) else answer),
            local,
            repeatable=info.producer_id != NO_PRODUCER or _is_keyed(side, info),
        )

    def _on_append(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        (shard,) = _SHARD.unpack_from(body)
        self._take_over(shard, body[_SHARD.size :], timeout_ms, reply, None)

    def _on_append_side(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        shard, length = _SIDE.unpack_from(body)
        start = _SIDE.size + length
        try:
            side = decode_side(body[_SIDE.size : start])
        except Malformed as error:
            reply(InvalidArgument(str(error)))
            return
        self._take_over(shard, body[start:], timeout_ms, reply, side)

    def _take_over(
        self, shard: int, body: memoryview, timeout_ms: int, reply: Reply, side: SideCar | None
    ) -> None:
        """Store a batch that another node passed on."""
        replica = self._node.led_log(shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        batch = bytes(body)
        try:
            info = check_batch(batch, replica.name)
        except RaftlineError as error:
            reply(error)
            return
        self._here(
            replica,
            batch,
            info,
            self._clock.mono_ms() + timeout_ms,
            timeout_ms,
            lambda answer: reply(answer if isinstance(answer, RaftlineError) else _pack(answer)),
            None,
            side,
        )

    def append_led(
        self,
        replica: Replica,
        batch: bytes,
        info: BatchInfo,
        timeout_ms: int,
        done: AppendDone,
        side: SideCar,
    ) -> None:
        """Store a batch with its side car here, or nowhere."""
        deadline = self._clock.mono_ms() + timeout_ms
        self._here(replica, batch, info, deadline, timeout_ms, done, None, side)


def _is_keyed(side: SideCar | None, info: BatchInfo) -> bool:
    """Say whether a repeat would be known by the dedup keys alone."""
    return side is not None and len(side.dedup) == info.count
