"""Glances: the state of what is led here, looked at and not asked for.

Everything comes from memory and is bounded per partition, so that a page or a scrape may look every
second. Nothing here proposes, reads an index or wakes a shard.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.delivery.rows import DEAD, DYING, LEASED, RESTING, state_of
from raftline.machines.groups.views import summary
from raftline.model.errors import RaftlineError
from raftline.model.overview import (
    GroupGlance,
    NodeGlance,
    Overview,
    PartitionGlance,
    StreamGlance,
)
from raftline.node.groups_host import GroupsHost
from raftline.node.pacing import pace
from raftline.node.partition import PartitionHost
from raftline.node.remote import VERB_GLANCE, Reply

if TYPE_CHECKING:
    from raftline.machines.delivery.group import WorkGroup
    from raftline.machines.groups.group import Group
    from raftline.node.node import Node
    from raftline.node.replica import Replica

PIECES_MAX = 1_000  # looked at in a group for its oldest message
FRESH_MS = 250  # as long as a glance is good enough for the next who asks
UNKNOWN = -1

Cursor = tuple[str, int, int, int]  # topic, partition, offset (-1: none), age in ms (-1: unknown)

_pack = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(NodeGlance).decode


class Glances:
    """What this node leads, and by asking all others the whole cluster."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._last: NodeGlance | None = None
        self._last_mono = 0.0
        self._waiting: list[Callable[[NodeGlance], None]] = []

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_GLANCE, self._on_glance)

    # ------------------------------------------------------------------ the cluster

    def all(self, timeout_ms: int, done: Callable[[Overview], None]) -> None:
        """Ask every live node what it leads; who does not answer is named."""
        node = self._node
        others = [n for n in node.catalog_machine.nodes if n != node.id]
        live = [int(n) for n in others if node.peers.is_live(n)]
        found: list[NodeGlance] = []
        silent = [int(n) for n in others if int(n) not in live]
        left = len(live) + 1

        def taker(number: int) -> Callable[[bytes | RaftlineError], None]:
            def take(answer: bytes | RaftlineError) -> None:
                if isinstance(answer, RaftlineError):
                    silent.append(number)
                else:
                    found.append(_decode(answer))
                count_down()

            return take

        def ours(glance: NodeGlance) -> None:
            found.append(glance)
            count_down()

        def count_down() -> None:
            nonlocal left
            left -= 1
            if not left:
                done(Overview(sorted(found, key=lambda row: row.node), sorted(silent)))

        self.here(ours)
        for number in live:
            node.remote.call(number, VERB_GLANCE, [], timeout_ms, taker(number))

    def _on_glance(self, _body: memoryview, _timeout_ms: int, reply: Reply) -> None:
        self.here(lambda glance: reply(_pack(glance)))

    # ------------------------------------------------------------------ this node

    def here(self, done: Callable[[NodeGlance], None]) -> None:
        """Tell what this node leads; many who ask at about the same time hear the same."""
        clock = self._node.clock
        if self._last is not None and clock.mono_ms() - self._last_mono < FRESH_MS:
            done(self._last)
            return
        self._waiting.append(done)
        if len(self._waiting) > 1:
            return
        partitions: list[PartitionGlance] = []
        groups: list[GroupGlance] = []
        streams: list[StreamGlance] = []

        def look() -> Iterator[None]:
            for topic, _, host in self.partitions():
                partitions.append(_partition(topic, host))
                yield
            for row in self.work_groups():
                groups.append(_group(*row))
                yield
            for group in list(self.stream_groups()):
                streams.append(self._stream(group))
                yield

        def looked() -> None:
            glance = self._glance(partitions, groups, streams)
            self._last, self._last_mono = glance, clock.mono_ms()
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call(glance)

        pace(clock, look(), looked)

    def _glance(
        self,
        partitions: list[PartitionGlance],
        groups: list[GroupGlance],
        streams: list[StreamGlance],
    ) -> NodeGlance:
        node = self._node
        counters = node.counters
        led = [replica for replica in node.shards if replica.is_leader]
        out = {topic: counts.messages_read for topic, counts in counters.topics.items()}
        for (topic, _), counts in counters.groups.items():
            out[topic] = out.get(topic, 0) + counts.delivered
        return NodeGlance(
            node=node.id,
            leads=len(led),
            replicas=len(node.shards),
            uptime_ms=int(node.clock.mono_ms() - node.started_mono),
            connections=sum(row.connections or 0 for row in counters.gateways.values()),
            free_bytes=node.upkeep.free_bytes,
            total_bytes=node.upkeep.total_bytes,
            wal_bytes=node.wal.bytes_used,
            messages_in={name: counts.messages_in for name, counts in counters.topics.items()},
            messages_out=out,
            partitions=partitions,
            groups=groups,
            streams=streams,
        )

    def partitions(self) -> "Iterator[tuple[str, Replica, PartitionHost]]":
        """Yield the partitions led here, with their topics."""
        for replica in list(self._node.shards):
            host = replica.host
            if replica.is_leader and isinstance(host, PartitionHost) and host.tally is not None:
                yield host.tally.topic, replica, host

    def work_groups(self) -> "Iterator[tuple[str, PartitionHost, WorkGroup, int]]":
        """Yield the work groups of partitions led here: topic, partition, group, age of oldest."""
        now_ms = int(self._node.time.now_ms())
        for topic, _, host in self.partitions():
            for group in list(host.machine.delivery.groups.values()):
                oldest = _oldest(group, host.machine.next_offset)
                age_ms = 0 if oldest is None else age_of(host, oldest, now_ms)
                yield topic, host, group, max(0, age_ms)

    def stream_groups(self) -> "Iterator[Group]":
        """Yield the stream groups that are coordinated here."""
        for replica in list(self._node.shards):
            if replica.is_leader and isinstance(replica.host, GroupsHost):
                yield from replica.host.machine.groups.values()

    def cursors(self, group: "Group") -> list[Cursor]:
        """Return where a stream group is, with the age of what it reads next where we know it."""
        found: list[Cursor] = []
        for name in sorted(group.topics):
            topic = group.topics[name]
            for partition in range(len(topic.slots)):
                cursor = topic.cursors.get(partition)
                offset = UNKNOWN if cursor is None else cursor.offset
                found.append((name, partition, offset, self._age(name, partition, offset)))
        return found

    def host_of(self, topic: str, partition: int) -> PartitionHost | None:
        """Return our replica of a partition, leader or not."""
        row = self._node.catalog_machine.topics.get(topic)
        if row is None or partition >= len(row.shards):
            return None
        replica = self._node.shards.get(row.shards[partition])
        host = replica.host if replica is not None else None
        return host if isinstance(host, PartitionHost) else None

    def _age(self, topic: str, partition: int, offset: int) -> int:
        host = self.host_of(topic, partition)
        if host is None:
            return UNKNOWN
        offset = max(offset, host.log.log_start)
        if offset >= host.log.log_end:
            return 0
        return max(0, age_of(host, offset, int(self._node.time.now_ms())))

    def _stream(self, group: "Group") -> StreamGlance:
        row = summary(group)
        return StreamGlance(group.name, row.state, row.members, group.epoch, self.cursors(group))


def age_of(host: PartitionHost, offset: int, now_ms: int) -> int:
    """Return for how long a message has been in the log, in log time."""
    at_ms = host.ages.at(offset) or host.log.logged_at(offset)
    return now_ms - at_ms if at_ms else 0


def _oldest(group: "WorkGroup", next_offset: int) -> int | None:
    """Return the first message workers are still to settle; near it, behind very many dead."""
    last = None
    for start, end, row, _ in islice(group.pieces(group.floor, next_offset), PIECES_MAX):
        if row is None or state_of(row) not in (DYING, DEAD):
            return start
        last = end
    return last if last is not None and group.lag(next_offset) else None


def _partition(topic: str, host: PartitionHost) -> PartitionGlance:
    machine = host.machine
    counts = [group.counts for group in machine.delivery.groups.values()]
    return PartitionGlance(
        topic,
        host.identity.partition,
        host.log.log_start,
        host.log.log_end,
        host.log.bytes,
        machine.waiting.count,
        sum(row[DYING] + row[DEAD] for row in counts),
        machine.delivery.outbox.next_number - 1,
    )


def _group(topic: str, host: PartitionHost, group: "WorkGroup", age_ms: int) -> GroupGlance:
    return GroupGlance(
        topic,
        host.identity.partition,
        group.name,
        group.lag(host.machine.next_offset),
        age_ms,
        group.counts[LEASED],
        group.counts[RESTING],
        group.counts[DYING] + group.counts[DEAD],
        host.desk.parked(group.name) if host.desk is not None else 0,
    )
