"""A partition that is led here, for gateways whose clients find the leader themselves.

Nothing is forwarded: what another node leads is refused (``NotLeader``), and the client asks where
it should go. A batch may be a view: it is not looked at any more once ``done`` was called.

Costs
    One look-up a batch on the way in; on the way out the buffers of the log as they are.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from raftline.model.batch import BatchInfo
from raftline.model.calls import Looked, ReadReply
from raftline.model.errors import NotReady, OverLimit, RaftlineError
from raftline.model.settings import Value
from raftline.node.appends import AppendDone
from raftline.node.parcels import NewParcel, send_parcel
from raftline.node.partition import PartitionHost
from raftline.node.replica import Replica
from raftline.storage.files import Buffer

if TYPE_CHECKING:
    from raftline.machines.partition.side_car import SideCar
    from raftline.node.node import Node

BuffersDone = Callable[[list[Buffer] | RaftlineError], None]


class Growth(Protocol):
    """Somebody who wants to know that a partition grew."""

    def grown(self) -> None:
        """There is more to read, or the partition is not led here any more."""
        ...


class LedPartition:
    """One partition, as long as it is led here."""

    __slots__ = ("_host", "_node", "replica", "topic")

    def __init__(self, node: "Node", replica: Replica, topic: str) -> None:
        host = replica.host
        assert isinstance(host, PartitionHost)
        self._node = node
        self._host = host
        self.replica = replica
        self.topic = topic

    @property
    def settings(self) -> dict[str, Value]:
        """Return what was set of the topic, without what holds anyhow."""
        row = self._node.catalog_machine.topics.get(self.topic)
        return {} if row is None else row.settings

    @property
    def term(self) -> int:
        """Return the term of its leader."""
        return self.replica.raft.term

    @property
    def log_start(self) -> int:
        """Return the first offset that is kept."""
        return self._host.log.log_start

    @property
    def commit_end(self) -> int:
        """Return the first offset that cannot be read yet."""
        return self._host.log.log_end

    def append(
        self,
        batch: bytes | memoryview,
        info: BatchInfo,
        timeout_ms: int,
        done: AppendDone,
        side: "SideCar | None" = None,
    ) -> None:
        """Store one sealed batch here, or nowhere."""
        node = self._node
        if side is not None:
            node.appends.append_led(self.replica, bytes(batch), info, timeout_ms, done, side)
            return
        # One look a turn: what is collected already was let in.
        refusal = None if self.replica.is_collecting else node.upkeep.admission(self.replica)
        if refusal is not None:
            done(refusal)
            return
        waiting = node.shards.pressure.bytes
        limit = node.settings.limits.node_uncommitted_bytes_max
        if waiting + info.length > limit:
            done(OverLimit("uncommitted bytes on this node", waiting, limit))
            return
        deadline = node.clock.mono_ms() + timeout_ms
        self._host.append(batch, info, deadline, timeout_ms, done)  # type: ignore[arg-type]

    def send_parcel(self, parcel: NewParcel, timeout_ms: int, done: AppendDone) -> None:
        """Store a producer's batch that was taken apart here, or nowhere."""
        send_parcel(self._node, self.replica, self.topic, parcel, timeout_ms, done)

    def read(self, offset: int, bytes_max: int, done: BuffersDone) -> None:
        """Read whole batches from the one that holds ``offset``; empty at the end."""
        host = self._host
        if self.replica.frozen:
            done(NotReady(f"{host.name} is catching up here"))
            return
        buffers = host.log.read_tail(offset, bytes_max)
        if buffers is not None:
            if host.tally is not None and buffers:
                host.tally.read(buffers, sum(map(len, buffers)))
            done(buffers)
            return

        def answered(reply: ReadReply | RaftlineError) -> None:
            done(reply if isinstance(reply, RaftlineError) else [reply.batches])

        now_ms = self._node.clock.mono_ms()
        host.readers.read(offset, bytes_max, now_ms, now_ms, answered)

    def confirm(self, done: Callable[[RaftlineError | None], None]) -> None:
        """Call ``done`` when all that was committed until now is applied here."""
        self.replica.read_index(done)

    def look_up_time(self, time_ms: int, done: Callable[[Looked | RaftlineError], None]) -> None:
        """Find the first message at or after ``time_ms``."""
        self._host.readers.look_up_time(time_ms, done)

    def watch(self, growth: Growth) -> bool:
        """Tell ``growth`` when the partition grows, until ``unwatch``; False: too many wait."""
        return self._host.readers.watch(growth)

    def unwatch(self, growth: Growth) -> None:
        """Tell it no more."""
        self._host.readers.unwatch(growth)
