"""The calls of a node: append, read, look up, command, verify (gateways/ports.py).

Any node takes any call. What is led here is served at once; the rest goes through the router.
Appends and reads have files of their own (append_calls.py, read_calls.py); here is the table of
what is held here, what can be answered from the catalog, and who answers the rest.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from raftline.config.new_topics import new_topic_settings
from raftline.machines.delivery.commands import START_FIRST, Settle
from raftline.model.calls import (
    CatalogView,
    ClusterStatus,
    NewWaiting,
    NodesView,
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
    RaftlineError,
    UnknownPartition,
    UnknownTopic,
)
from raftline.model.groups import Answer, GroupList, Request
from raftline.model.overview import Overview
from raftline.model.partitioner import partition_of
from raftline.model.settings import Value, effective
from raftline.node.append_calls import AppendCalls
from raftline.node.appends import Append
from raftline.node.counter import always
from raftline.node.desks import Receive
from raftline.node.first_use import FirstUse
from raftline.node.group_calls import GroupRequest
from raftline.node.led import LedPartition
from raftline.node.partition import PartitionHost
from raftline.node.read_calls import ReadCalls
from raftline.node.replica import Replica
from raftline.node.waiters import Told
from raftline.telemetry.metrics import Board

if TYPE_CHECKING:
    from raftline.node.node import Node


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
        self._calls.appends.try_elsewhere(self._topic, self._partition, append, error)


class NodeCalls:
    """What gateways may ask of a node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._clock = node.clock
        self._local: dict[tuple[str, int], Place] = {}
        self._round_robin: dict[str, int] = {}
        self._uuids: dict[str, str] = {}  # of topics, as of a version of the catalog
        self._uuids_version = -1
        self.first_use = FirstUse(node)
        self.appends = AppendCalls(node, self._local)
        self._reads = ReadCalls(node, self._local)
        self.append = self.appends.append
        self.read = self._reads.read
        self.look_up_time = self._reads.look_up_time

    def serve(self) -> None:
        """Answer other nodes' questions."""
        self.appends.serve()
        self._reads.serve()

    def place(self, topic: str, partition: int, replica: Replica | None) -> None:
        """Keep the table of replicas held here."""
        if replica is None:
            self._local.pop((topic, partition), None)
        else:
            self._local[(topic, partition)] = Place(self, topic, partition, replica)

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

    def locate(self, topic: str, partition: int) -> int | RaftlineError:
        """Return the shard of a partition, or why there is none."""
        node = self._node
        if not node.is_ready:
            return NotReady(node.reason)
        row = node.catalog_machine.topics.get(topic)
        if row is None:
            return self.unknown(topic)
        if not 0 <= partition < len(row.shards):
            return UnknownPartition(topic, partition, len(row.shards))
        return row.shards[partition]

    def unknown(self, topic: str) -> RaftlineError:
        """Say that there is no such topic; or only that we do not know, after a start and alone."""
        if self._node.catalog_check.is_sure:
            return UnknownTopic(topic)
        return NotReady("the catalog here may be an old one")

    @property
    def is_sure(self) -> bool:
        """Say whether the catalog's leader was heard since our start, and when last asked."""
        return self._node.catalog_check.is_sure

    def check_catalog(self, timeout_ms: int, done: Told) -> None:
        """Bring the catalog here up to now (catalog_check.py); tell when, or why not."""
        self._node.catalog_check.run(timeout_ms, done)

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
            return None if node.settings.topics.auto_create else self.unknown(topic)
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

    def led_log(self, shard: int) -> Replica | RaftlineError:
        """Return our replica of a partition if it leads, else a refusal."""
        replica = self._node.led(shard)
        if isinstance(replica, Replica) and not isinstance(replica.host, PartitionHost):
            return InvalidArgument(f"{replica.name} holds no messages")
        return replica

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
            self._node.settles.settle_led(place.replica, settles, timeout_ms, done)
        else:
            self._node.settles.settle(topic, partition, settles, timeout_ms, done)

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

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 if this node knows none of that name."""
        row = self._node.catalog_machine.topics.get(topic)
        return 0 if row is None else len(row.shards)

    def known_topic(self, name: str) -> TopicRow:
        """Return one topic. Raises UnknownTopic, NotReady."""
        row = self._node.status_pages.topic(name, guesses=True)
        if row is None:
            raise self.unknown(name)
        return row

    def known_topics(self) -> tuple[TopicRow, ...]:
        """Return all topics. Raises NotReady: the catalog here may be from before the start."""
        if not self._node.catalog_check.is_heard:
            raise NotReady("the catalog here may be from before the start")
        return self._node.status_pages.catalog().topics

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
