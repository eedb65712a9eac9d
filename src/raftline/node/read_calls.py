"""Reads and look-ups by time: here if they may be, else by the node that leads the partition.

A linearizable read is routed like a write: leadership may move while it is confirmed. What the
log of a trace holds is read from its side files (trace_logs.py).
"""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.model.calls import Looked, ReadReply
from raftline.model.errors import NotReady, RaftlineError, UnknownTopic
from raftline.model.names import traced_topic
from raftline.node.partition import PartitionHost
from raftline.node.remote import VERB_READ, VERB_TIME, Reply
from raftline.node.replica import Replica

if TYPE_CHECKING:
    from raftline.node.calls import Place
    from raftline.node.node import Node

_READ = struct.Struct("<IqIIB")  # shard offset bytes_max wait_ms linearizable
_TIME = struct.Struct("<Iq")
_pack = msgspec.msgpack.encode
_decode_read = msgspec.msgpack.Decoder(ReadReply).decode
_decode_looked = msgspec.msgpack.Decoder(Looked).decode

ReadDone = Callable[[ReadReply | RaftlineError], None]
LookDone = Callable[[Looked | RaftlineError], None]


class ReadCalls:
    """Reads partitions, wherever they are led."""

    __slots__ = ("_clock", "_local", "_node")

    def __init__(self, node: "Node", local: "dict[tuple[str, int], Place]") -> None:
        self._node = node
        self._clock = node.clock
        self._local = local

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_READ, self._on_read)
        self._node.remote.handle(VERB_TIME, self._on_time)

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        bytes_max: int,
        wait_ms: int,
        timeout_ms: int,
        done: ReadDone,
        *,
        linearizable: bool = False,
        any_replica: bool = False,
    ) -> None:
        """Read whole committed batches that hold ``offset`` and on; wait for more if at the end."""
        limits = self._node.settings.limits
        bytes_max = max(1, min(bytes_max, limits.reply_bytes_max))
        wait_ms = max(0, min(wait_ms, limits.wait_ms_max, timeout_ms))
        shard = self._node.locate(topic, partition)
        if isinstance(shard, RaftlineError):
            source = traced_topic(topic) if isinstance(shard, UnknownTopic) else ""
            if source:
                traces = self._node.trace_logs
                traces.read(source, partition, offset, bytes_max, wait_ms, timeout_ms, done)
            else:
                done(shard)
            return
        place = self._local.get((topic, partition))
        replica = None if place is None else place.replica
        # A read that is confirmed first is routed: leadership may move meanwhile.
        if (
            replica is not None
            and not replica.is_closed
            and (any_replica or replica.is_leader)
            and not _is_confirmed(replica, offset, linearizable=linearizable)
        ):
            self._read(replica, offset, bytes_max, wait_ms, False, done)
            return

        def local(led: Replica, left_ms: int, answer: ReadDone) -> None:
            wait = min(wait_ms, left_ms)
            self._read(led, offset, bytes_max, wait, linearizable, answer)

        self._node.router.send(
            shard,
            VERB_READ,
            [_READ.pack(shard, offset, bytes_max, wait_ms, linearizable)],
            timeout_ms,
            lambda answer: done(_decode_read(answer) if isinstance(answer, bytes) else answer),
            local,
            repeatable=True,
        )

    def _read(
        self,
        replica: Replica,
        offset: int,
        bytes_max: int,
        wait_ms: int,
        linearizable: bool,  # noqa: FBT001
        done: ReadDone,
    ) -> None:
        host = replica.host
        assert isinstance(host, PartitionHost)
        if replica.frozen:
            done(NotReady(f"{replica.name} is catching up here"))
            return
        now = self._clock.mono_ms()
        if not _is_confirmed(replica, offset, linearizable=linearizable):
            host.readers.read(offset, bytes_max, now + wait_ms, now, done)
            return

        def confirmed(error: RaftlineError | None) -> None:
            if error is not None:
                done(error)
            else:
                host.readers.read(offset, bytes_max, now + wait_ms, self._clock.mono_ms(), done)

        replica.read_index(confirmed)

    def _on_read(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        shard, offset, bytes_max, wait_ms, linearizable = _READ.unpack_from(body)
        replica = self._node.led_log(shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        self._read(
            replica,
            offset,
            max(1, min(bytes_max, self._node.settings.limits.reply_bytes_max)),
            min(wait_ms, timeout_ms),
            bool(linearizable),
            lambda answer: reply(answer if isinstance(answer, RaftlineError) else _pack(answer)),
        )

    def look_up_time(
        self,
        topic: str,
        partition: int,
        time_ms: int,
        timeout_ms: int,
        done: Callable[[Looked | RaftlineError], None],
    ) -> None:
        """Find the first message with a timestamp at or after ``time_ms``."""
        shard = self._node.locate(topic, partition)
        if isinstance(shard, RaftlineError):
            source = traced_topic(topic) if isinstance(shard, UnknownTopic) else ""
            if source:
                traces = self._node.trace_logs
                traces.look_up_time(source, partition, time_ms, timeout_ms, done)
            else:
                done(shard)
            return

        def local(replica: Replica, _left_ms: int, answer: LookDone) -> None:
            self._look_up(replica, time_ms, answer)

        self._node.router.send(
            shard,
            VERB_TIME,
            [_TIME.pack(shard, time_ms)],
            timeout_ms,
            lambda answer: done(_decode_looked(answer) if isinstance(answer, bytes) else answer),
            local,
            repeatable=True,
        )

    def _look_up(self, replica: Replica, time_ms: int, answer: LookDone) -> None:
        host = replica.host
        assert isinstance(host, PartitionHost)

        def confirmed(error: RaftlineError | None) -> None:
            if error is not None:
                answer(error)
            else:
                host.readers.look_up_time(time_ms, answer)

        replica.read_index(confirmed)

    def _on_time(self, body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        shard, time_ms = _TIME.unpack_from(body)
        replica = self._node.led_log(shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        self._look_up(
            replica,
            time_ms,
            lambda found: reply(found if isinstance(found, RaftlineError) else _pack(found)),
        )


def _is_confirmed(replica: Replica, offset: int, *, linearizable: bool) -> bool:
    """Say whether a read waits until the leader is sure that it leads, and where its log ends.

    A new one has not applied all that its predecessor acknowledged: before it says that an offset
    is beyond the end it finds out where that is.
    """
    if linearizable or not replica.is_leader:
        return linearizable
    host = replica.host
    return isinstance(host, PartitionHost) and offset > host.log.log_end
