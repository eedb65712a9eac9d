"""The calls of a node: append, read, look up, command, verify (gateways/ports.py).

Any node takes any call. What is led here is served at once; the rest goes through the router. The
hot path is ``append`` to a partition led here: one dictionary look-up and one collected tuple.
"""

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from raftline.config.new_topics import new_topic_settings
from raftline.machines.delivery.commands import START_FIRST, Settle
from raftline.machines.partition.commands import Malformed
from raftline.machines.partition.side_car import (
    SideCar,
    decode_side,
    encode_side,
    problem,
    stamped,
)
from raftline.model.batch import NO_PRODUCER, BatchInfo, check_batch
from raftline.model.calls import (
    Appended,
    CatalogView,
    ClusterStatus,
    Looked,
    NewWaiting,
    NodesView,
    ReadReply,
    Received,
    Scheduled,
    Settled,
    TopicRow,
    Verified,
)
from raftline.model.errors import (
    InvalidArgument,
    NoLeader,
    NotLeader,
    NotReady,
    OverLimit,
    RaftlineError,
    TimedOut,
    UnknownPartition,
    UnknownTopic,
)
from raftline.model.groups import Answer, GroupList, Request
from raftline.model.ids import ShardId
from raftline.model.names import traced_topic
from raftline.model.overview import Overview
from raftline.model.partitioner import partition_of
from raftline.model.settings import SETTINGS, Value, effective
from raftline.node.appends import Append, AppendDone, Refuse
from raftline.node.counter import always
from raftline.node.desks import Receive
from raftline.node.group_calls import GroupRequest
from raftline.node.led import LedPartition
from raftline.node.partition import PartitionHost
from raftline.node.remote import (
    VERB_APPEND,
    VERB_APPEND_SIDE,
    VERB_READ,
    VERB_TIME,
    Reply,
)
from raftline.node.replica import Replica
from raftline.node.router import DEFINITE
from raftline.telemetry.metrics import Board

if TYPE_CHECKING:
    from raftline.node.node import Node

_SHARD = struct.Struct("<I")
_SIDE = struct.Struct("<II")  # shard, bytes of the side car
_READ = struct.Struct("<IqIIB")  # shard offset bytes_max wait_ms linearizable
_TIME = struct.Struct("<Iq")
_pack = msgspec.msgpack.encode
_decode_appended = msgspec.msgpack.Decoder(Appended).decode
_decode_read = msgspec.msgpack.Decoder(ReadReply).decode
_decode_looked = msgspec.msgpack.Decoder(Looked).decode

ReadDone = Callable[[ReadReply | RaftlineError], None]
LookDone = Callable[[Looked | RaftlineError], None]
Created = Callable[[RaftlineError | None], None]
Waiting = dict[int, Created]
CREATE_TIMEOUT_MS = 5_000  # one creation serves callers with more and with less time


class Place:
    """A partition with a replica here."""

    __slots__ = ("_calls", "_partition", "_topic", "led", "refuse", "replica")

    def __init__(self, calls: "NodeCalls", topic: str, partition: int, replica: Replica) -> None:
        self._calls = calls
        self._topic = topic
        self._partition = partition
        self.replica = replica
        self.refuse = self._refuse
        self.led: LedPartition | None = None  # once a gateway asked for it

    def _refuse(self, append: Append, error: RaftlineError) -> None:
        self._calls.try_elsewhere(self._topic, self._partition, append, error)


class NodeCalls:
    """What gateways may ask of a node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._clock = node.clock
        self._local: dict[tuple[str, int], Place] = {}
        self._round_robin: dict[str, int] = {}
        self._creating: dict[str, Waiting] = {}  # by topic
        self._create_count = 0
        self._uuids: dict[str, str] = {}  # of topics, as of a version of the catalog
        self._uuids_version = -1
        self._uncommitted_max = node.settings.limits.node_uncommitted_bytes_max

    def serve(self) -> None:
        """Answer other nodes' questions."""
        remote = self._node.remote
        remote.handle(VERB_APPEND, self._on_append)
        remote.handle(VERB_APPEND_SIDE, self._on_append_side)
        remote.handle(VERB_READ, self._on_read)
        remote.handle(VERB_TIME, self._on_time)

    def place(self, topic: str, partition: int, replica: Replica | None) -> None:
        """Keep the table of replicas held here."""
        if replica is None:
            self._local.pop((topic, partition), None)
        else:
            self._local[(topic, partition)] = Place(self, topic, partition, replica)

    # ------------------------------------------------------------------ append

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
            self._append_elsewhere(topic, partition, batch, info, timeout_ms, done, side)
            return
        deadline = self._clock.mono_ms() + timeout_ms
        self._append_here(
            place.replica, batch, info, deadline, timeout_ms, done, place.refuse, side
        )

    def _append_here(
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
            self._append_elsewhere(topic, partition, batch, info, left, done, side)
        else:
            done(error)

    def _append_elsewhere(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        info: BatchInfo,
        timeout_ms: int,
        done: AppendDone,
        side: SideCar | None,
    ) -> None:
        shard = self.locate(topic, partition)
        if isinstance(shard, UnknownTopic) and self._node.settings.topics.auto_create:
            deadline = self._clock.mono_ms() + timeout_ms

            def created(error: RaftlineError | None) -> None:
                left = int(deadline - self._clock.mono_ms())
                if error is not None:
                    done(error)
                elif left <= 0:
                    done(TimedOut(f"creating {topic}", timeout_ms))
                else:
                    self.append(topic, partition, batch, info, left, done, side)

            self._create(topic, timeout_ms, created)
            return
        if isinstance(shard, RaftlineError):
            done(shard)
            return

        def local(replica: Replica, left_ms: int, answer: AppendDone) -> None:
            deadline = self._clock.mono_ms() + left_ms
            self._append_here(replica, batch, info, deadline, left_ms, answer, None, side)

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
        self._append_for(shard, body[_SHARD.size :], timeout_ms, reply, None)

    def _on_append_side(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        shard, length = _SIDE.unpack_from(body)
        start = _SIDE.size + length
        try:
            side = decode_side(body[_SIDE.size : start])
        except Malformed as error:
            reply(InvalidArgument(str(error)))
            return
        self._append_for(shard, body[start:], timeout_ms, reply, side)

    def _append_for(
        self, shard: int, body: memoryview, timeout_ms: int, reply: Reply, side: SideCar | None
    ) -> None:
        """Store a batch that another node passed on."""
        replica = self._led(shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        batch = bytes(body)
        try:
            info = check_batch(batch, replica.name)
        except RaftlineError as error:
            reply(error)
            return
        self._append_here(
            replica,
            batch,
            info,
            self._clock.mono_ms() + timeout_ms,
            timeout_ms,
            lambda answer: reply(answer if isinstance(answer, RaftlineError) else _pack(answer)),
            None,
            side,
        )

    def led_partition(self, topic: str, partition: int) -> LedPartition | RaftlineError:
        """Return a partition that is led here, else where to go (``NotLeader``)."""
        place = self._local.get((topic, partition))
        if place is None or not place.replica.is_leader:
            shard = self.locate(topic, partition)
            if isinstance(shard, RaftlineError):
                return shard
            leader = self._node.router.known_leader(shard)
            name = f"{topic}/{partition}"
            if leader in (0, self._node.id):
                return NoLeader(name)
            return NotLeader(name, leader)
        if place.led is None:
            place.led = LedPartition(self._node, place.replica, topic)
        return place.led

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
        self._append_here(replica, batch, info, deadline, timeout_ms, done, None, side)

    def locate(self, topic: str, partition: int) -> int | RaftlineError:
        """Return the shard of a partition, or why there is none."""
        node = self._node
        if not node.is_ready:
            return NotReady(node.reason)
        row = node.catalog_machine.topics.get(topic)
        if row is None:
            return UnknownTopic(topic)
        if not 0 <= partition < len(row.shards):
            return UnknownPartition(topic, partition, len(row.shards))
        return row.shards[partition]

    def _create(self, topic: str, timeout_ms: int, done: Created) -> None:
        """Create a topic once for all who wait for it, each no longer than it may take."""
        waiting = self._creating.get(topic)
        if waiting is not None:
            self._wait_created(waiting, topic, timeout_ms, done)
            return
        waiting = self._creating[topic] = {}

        def created(answer: dict[str, object] | RaftlineError) -> None:
            error = answer if isinstance(answer, RaftlineError) else None
            if error is not None and error.code == "topic_exists":
                error = None
            calls = list(waiting.values())
            waiting.clear()
            del self._creating[topic]
            for call in calls:
                call(error)

        self._wait_created(waiting, topic, timeout_ms, done)
        create_ms = max(timeout_ms, CREATE_TIMEOUT_MS)
        self.command("topic.create", {"name": topic}, create_ms, created)

    def _wait_created(self, waiting: Waiting, topic: str, timeout_ms: int, done: Created) -> None:
        self._create_count += 1
        number = self._create_count

        def late() -> None:
            call = waiting.pop(number, None)
            if call is not None:
                call(NotReady(f"topic {topic} is being created; nothing was stored"))

        timer = self._clock.call_later(timeout_ms, late)

        def answered(error: RaftlineError | None) -> None:
            timer.cancel()
            done(error)

        waiting[number] = answered

    def settings_of(self, topic: str) -> dict[str, Value]:
        """Return every setting of a topic as it holds; of one that is not known, as it would."""
        row = self._node.catalog_machine.topics.get(topic)
        return effective(new_topic_settings(self._node.settings) if row is None else row.settings)

    def partitions_for(
        self, topic: str, keys: Sequence[bytes | None]
    ) -> list[int] | RaftlineError | None:
        """Choose partitions with the topic's partitioner; None: the topic does not exist yet.

        Messages without a key take turns.
        """
        node = self._node
        if not node.is_ready:
            return NotReady(node.reason)
        row = node.catalog_machine.topics.get(topic)
        if row is None:
            return None if node.settings.topics.auto_create else UnknownTopic(topic)
        count = len(row.shards)
        if count == 1:
            return [0] * len(keys)
        partitioner = node.partitioner_of(topic)
        turn = self._round_robin.get(topic, 0)
        chosen: list[int] = []
        for key in keys:
            if key is None:
                chosen.append(turn % count)
                turn += 1
            else:
                chosen.append(partition_of(partitioner, key, count))
        self._round_robin[topic] = turn
        return chosen

    # ------------------------------------------------------------------ read

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
        shard = self.locate(topic, partition)
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
        # A linearizable read is routed: leadership may move while it is confirmed.
        if (
            replica is not None
            and not linearizable
            and not replica.is_closed
            and (any_replica or replica.is_leader)
        ):
            self._read_here(replica, offset, bytes_max, wait_ms, False, done)
            return

        def local(led: Replica, left_ms: int, answer: ReadDone) -> None:
            wait = min(wait_ms, left_ms)
            self._read_here(led, offset, bytes_max, wait, linearizable, answer)

        self._node.router.send(
            shard,
            VERB_READ,
            [_READ.pack(shard, offset, bytes_max, wait_ms, linearizable)],
            timeout_ms,
            lambda answer: done(_decode_read(answer) if isinstance(answer, bytes) else answer),
            local,
            repeatable=True,
        )

    def _read_here(
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
        if not linearizable:
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
        replica = self._led(shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        self._read_here(
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
        shard = self.locate(topic, partition)
        if isinstance(shard, RaftlineError):
            source = traced_topic(topic) if isinstance(shard, UnknownTopic) else ""
            if source:
                traces = self._node.trace_logs
                traces.look_up_time(source, partition, time_ms, timeout_ms, done)
            else:
                done(shard)
            return

        def local(replica: Replica, _left_ms: int, answer: LookDone) -> None:
            self._time_here(replica, time_ms, answer)

        self._node.router.send(
            shard,
            VERB_TIME,
            [_TIME.pack(shard, time_ms)],
            timeout_ms,
            lambda answer: done(_decode_looked(answer) if isinstance(answer, bytes) else answer),
            local,
            repeatable=True,
        )

    def _time_here(self, replica: Replica, time_ms: int, answer: LookDone) -> None:
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
        replica = self._led(shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        self._time_here(
            replica,
            time_ms,
            lambda found: reply(found if isinstance(found, RaftlineError) else _pack(found)),
        )

    def _led(self, shard: int) -> Replica | RaftlineError:
        """Return our replica of a partition if it leads, else a refusal."""
        replica = self._node.led(shard)
        if isinstance(replica, Replica) and not isinstance(replica.host, PartitionHost):
            return InvalidArgument(f"{replica.name} holds no messages")
        return replica

    # ------------------------------------------------------------------ the rest

    def command(
        self,
        name: str,
        arguments: dict[str, object],
        timeout_ms: int,
        done: Callable[[dict[str, object] | RaftlineError], None],
    ) -> None:
        """Run an administrative command anywhere in the cluster."""
        self._node.admin.run(name, arguments, timeout_ms, done)

    def receive(
        self,
        topic: str,
        group: str,
        partition: int,
        count_max: int,
        bytes_max: int,
        lease_ms: int,
        wait_ms: int,
        member: str,
        timeout_ms: int,
        done: Callable[[Received | RaftlineError], None],
        *,
        start: int = START_FIRST,
        ordered: bool = False,
        is_wanted: Callable[[], bool] = always,
    ) -> None:
        """Lease messages to a member of a work group (desks.py)."""
        limits = self._node.settings.limits
        bytes_max = max(1, min(bytes_max, limits.reply_bytes_max))
        wait_ms = max(0, min(wait_ms, limits.wait_ms_max, timeout_ms))
        ask = Receive(0, group, count_max, bytes_max, lease_ms, wait_ms, member, start, ordered)
        self._node.desks.receive(topic, partition, ask, timeout_ms, done, is_wanted)

    def settle(
        self,
        topic: str,
        partition: int,
        settles: list[Settle],
        timeout_ms: int,
        done: Callable[[Settled | RaftlineError], None],
    ) -> None:
        """Ack, nack, reject or extend leased messages; answered when it is committed."""
        place = self._local.get((topic, partition))
        if place is not None and place.replica.is_leader:
            self._node.desks.settle_led(place.replica, settles, timeout_ms, done)
        else:
            self._node.desks.settle(topic, partition, settles, timeout_ms, done)

    def schedule(
        self,
        topic: str,
        partition: int,
        items: Sequence[NewWaiting],
        timeout_ms: int,
        done: Callable[[Scheduled | RaftlineError], None],
    ) -> None:
        """Let messages wait until they are due (waiting.py)."""
        self._node.waiting.schedule(topic, partition, items, timeout_ms, done)

    def group(
        self, request: Request, timeout_ms: int, done: Callable[[Answer | RaftlineError], None]
    ) -> None:
        """Ask the coordinator of a stream group (group_calls.py)."""
        self._node.group_calls.run(request, timeout_ms, done)

    def group_here(
        self, request: GroupRequest, timeout_ms: int, done: Callable[[Answer | RaftlineError], None]
    ) -> None:
        """Answer for a group that is coordinated here, else refuse (group_calls.py)."""
        self._node.group_calls.run_here(request, timeout_ms, done)

    def groups_here(
        self, timeout_ms: int, done: Callable[[GroupList | RaftlineError], None]
    ) -> None:
        """List the groups that are coordinated here."""
        self._node.group_calls.list_here(timeout_ms, done)

    def find_coordinator(
        self, group: str, timeout_ms: int, done: Callable[[int | RaftlineError], None]
    ) -> None:
        """Find the node that coordinates a group."""
        self._node.group_calls.find(group, timeout_ms, done)

    def stream_groups(
        self, timeout_ms: int, done: Callable[[GroupList | RaftlineError], None]
    ) -> None:
        """List all stream groups."""
        self._node.group_calls.list_all(timeout_ms, done)

    def ask(
        self,
        topic: str,
        partition: int,
        name: str,
        arguments: dict[str, object],
        timeout_ms: int,
        done: Callable[[dict[str, object] | RaftlineError], None],
    ) -> None:
        """Ask the leader of a partition (questions.py)."""
        self._node.questions.ask(topic, partition, name, arguments, timeout_ms, done)

    def verify(self, timeout_ms: int, done: Callable[[Verified | RaftlineError], None]) -> None:
        """Compare the digests of all replicas of all shards."""
        self._node.verifier.run(timeout_ms, done)

    def metrics(self, done: Callable[[Board], None]) -> None:
        """Put the values of all metrics of this node together (measures.py)."""
        self._node.measures.paced(done)

    def overview(self, timeout_ms: int, done: Callable[[Overview], None]) -> None:
        """Ask all live nodes what they lead (glances.py)."""
        self._node.glances.all(timeout_ms, done)

    def nodes_view(self) -> NodesView:
        """Return the nodes as this one sees them (no waiting)."""
        return self._node.status_pages.cluster()

    def find_topic(self, name: str) -> TopicRow | None:
        """Return one topic as this node sees it (no waiting)."""
        return self._node.status_pages.topic(name)

    def topic_names(self) -> list[str]:
        """Return the names of all topics, in order."""
        return sorted(self._node.catalog_machine.topics)

    def topic_of(self, uuid: str) -> str | None:
        """Return the name of the topic with a uuid."""
        topics = self._node.catalog_machine.topics
        name = self._uuids.get(uuid)
        if name is None or name not in topics or topics[name].uuid != uuid:
            version = self._node.catalog_machine.version
            if self._uuids_version == version:
                return None
            self._uuids_version = version
            self._uuids = {row.uuid: row.name for row in topics.values()}
            name = self._uuids.get(uuid)
        return name

    def catalog(self) -> CatalogView:
        """Return this node's view of topics and nodes (no waiting)."""
        return self._node.status_pages.catalog()

    def status(self) -> ClusterStatus:
        """Return nodes, shards, leaders and health as this node sees them (no waiting)."""
        return self._node.status_pages.status()


def _is_keyed(side: SideCar | None, info: BatchInfo) -> bool:
    """Say whether a repeat would be known by the dedup keys alone."""
    return side is not None and len(side.dedup) == info.count
