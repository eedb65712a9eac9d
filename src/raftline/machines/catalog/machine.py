"""The catalog: which nodes, topics and shards there are, and where shards should live.

State
    Rows for nodes, topics, shards (the catalog's own among them), tombstones of deleted topics; the
    counters that ids come from; log time; the feature level; ``version``, which counts changes.

Commands
    See commands.py. The first event of an answer is the command's own outcome.

Invariants
    C1  Every partition of a topic is one shard, and every partition shard belongs to one topic.
    C2  A shard's replicas are on different nodes that are not removed; incarnations only rise.
    C3  Every node that is not removed holds a copy of the catalog: min(3, members) vote.
    C4  Ids (nodes, shards, producers) are given once.
    C5  A refused command changes nothing but log time.
    C6  ``loads`` and ``on_node`` agree with the shards.
"""

from collections.abc import Mapping, Sequence

import msgspec

from raftline.machines.catalog import coordination, nodes, shards, topics
from raftline.machines.catalog.commands import (
    AddPartitions,
    AdmitNode,
    AllocateProducers,
    Command,
    CreateTopic,
    DeleteTopic,
    DropNode,
    ForceReplicas,
    Found,
    LeaveNode,
    Malformed,
    MoveReplica,
    PlaceCoordination,
    ReplaceNode,
    ReplaceReplica,
    SetFeatureLevel,
    SetTopic,
    decode_command,
)
from raftline.machines.catalog.events import Event, FeatureLevelSet, ProducersAllocated
from raftline.machines.catalog.placement import Loads
from raftline.machines.catalog.state import (
    LEAVING,
    MEMBER,
    REMOVED,
    CatalogState,
    Node,
    Shard,
    Tombstone,
    Topic,
)
from raftline.machines.machine import FEATURE_LEVEL, digest_of, refused, require_level
from raftline.model.errors import (
    InvalidArgument,
    NewerFormat,
    NotReady,
    RaftlineError,
    UnknownPartition,
)
from raftline.model.ids import (
    CATALOG_SHARD,
    COORDINATION_SHARDS,
    PARTITION_SHARD_FIRST,
    NodeId,
    ShardId,
    incarnation_of,
    node_of,
)
from raftline.model.limits import CATALOG_VOTERS, PRODUCERS_ALLOCATED_MAX

SNAPSHOT_FORMAT = 1


class CatalogSnapshot(msgspec.Struct, array_like=True):
    """The canonical snapshot: rows in the order of their keys, tombstones oldest first."""

    format: int
    cluster: str
    version: int
    at_ms: int
    feature_level: int
    next_node: int
    next_shard: int
    next_producer: int
    nodes: list[Node]
    topics: list[Topic]
    shards: list[Shard]
    tombstones: list[Tombstone]


class CatalogMachine:
    """The replicated state of the cluster."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = CatalogState()

    def apply(self, index: int, term: int, data: bytes) -> Sequence[Event]:
        """Apply one committed entry and say what happened."""
        if not data:
            return ()
        try:
            command = decode_command(data)
        except Malformed as error:
            return (refused(InvalidArgument(f"entry {index} is no command: {error}")),)
        return self.apply_command(command)

    def apply_command(self, command: Command) -> Sequence[Event]:
        """Apply one committed command. C5."""
        state = self._state
        state.at_ms = max(state.at_ms, command.at_ms)
        try:
            if not state.cluster and not isinstance(command, Found):
                raise NotReady("the cluster is not founded yet")
            events = self._dispatch(command)
        except NewerFormat:
            raise  # M5
        except RaftlineError as error:
            return (refused(error),)
        state.version += 1
        return events

    # Queries. None changes anything; rows are frozen.

    @property
    def cluster(self) -> str:
        """Return the cluster's uuid, "" before it is founded."""
        return self._state.cluster

    @property
    def version(self) -> int:
        """Return how many changes there were."""
        return self._state.version

    @property
    def at_ms(self) -> int:
        """Return log time."""
        return self._state.at_ms

    @property
    def feature_level(self) -> int:
        """Return the cluster's feature level."""
        return self._state.feature_level

    @property
    def nodes(self) -> Mapping[NodeId, Node]:
        """Return all nodes, removed ones too."""
        return self._state.nodes

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Return all topics by name."""
        return self._state.topics

    @property
    def shards(self) -> Mapping[ShardId, Shard]:
        """Return all shards, the catalog's too."""
        return self._state.shards

    def members(self) -> list[Node]:
        """Return the nodes that may hold replicas, by number."""
        return self._state.members()

    def node_named(self, name: str) -> Node | None:
        """Return the node of that name that is not removed."""
        return self._state.node_named(name)

    def shards_on(self, node: NodeId) -> list[Shard]:
        """Return the shards with a replica on ``node``, by number."""
        return self._state.shards_on(node)

    def shard_of(self, topic: str, partition: int) -> Shard:
        """Return the shard of a partition.

        Raises:
            UnknownTopic: there is no such topic.
            UnknownPartition: it has fewer partitions.
        """
        found = self._state.topic(topic)
        if not 0 <= partition < len(found.shards):
            raise UnknownPartition(topic, partition, len(found.shards))
        return self._state.shards[found.shards[partition]]

    def is_deleted(self, shard: ShardId, topic_uuid: str) -> bool:
        """Say whether a replica of this shard may be removed from disk: a tombstone says so."""
        tombstone = self._state.tombstones.get(topic_uuid)
        return tombstone is not None and shard in tombstone.shards

    def is_gone(self, shard: ShardId) -> bool:
        """Say whether this shard's topic was deleted, as far as is remembered."""
        return any(shard in tombstone.shards for tombstone in self._state.tombstones.values())

    def was_deleted(self, topic_uuid: str) -> bool:
        """Say whether a topic was deleted, as far as is remembered."""
        return topic_uuid in self._state.tombstones

    def snapshot(self) -> bytes:
        """Return the whole state, canonical."""
        state = self._state
        return msgspec.msgpack.encode(
            CatalogSnapshot(
                SNAPSHOT_FORMAT,
                state.cluster,
                state.version,
                state.at_ms,
                state.feature_level,
                state.next_node,
                state.next_shard,
                state.next_producer,
                [row for _, row in sorted(state.nodes.items())],
                [row for _, row in sorted(state.topics.items())],
                [row for _, row in sorted(state.shards.items())],
                list(state.tombstones.values()),
            )
        )

    def restore(self, snapshot: bytes) -> None:
        """Replace the state.

        Raises:
            NewerFormat: the snapshot is of a newer build.
        """
        saved = _decoder.decode(snapshot)
        if saved.format > SNAPSHOT_FORMAT:
            raise NewerFormat("the catalog's snapshot", saved.format, SNAPSHOT_FORMAT)
        require_level(saved.feature_level)
        state = CatalogState()
        state.cluster, state.version, state.at_ms = saved.cluster, saved.version, saved.at_ms
        state.feature_level = saved.feature_level
        state.next_node, state.next_shard = saved.next_node, saved.next_shard
        state.next_producer = saved.next_producer
        state.nodes = {row.id: row for row in saved.nodes}
        state.topics = {row.name: row for row in saved.topics}
        for row in saved.shards:
            state.put_shard(row)
        state.tombstones = {row.uuid: row for row in saved.tombstones}
        self._state = state

    def check(self) -> None:
        """Raise if an invariant is broken."""
        state = self._state
        if not state.cluster:
            assert not state.nodes
            assert not state.shards
            return
        _check_topics(state)
        _check_shards(state)
        _check_seats(state)
        _check_indexes(state)
        assert 1 <= state.feature_level <= FEATURE_LEVEL

    def digest(self) -> str:
        """Return a short text that is equal for equal states."""
        return digest_of(self.snapshot())

    def _dispatch(self, command: Command) -> list[Event]:
        state = self._state
        match command:
            case CreateTopic():
                return topics.create(state, command)
            case DeleteTopic():
                return topics.delete(state, command)
            case SetTopic():
                return topics.change(state, command)
            case AddPartitions():
                return topics.add_partitions(state, command)
            case AllocateProducers():
                return self._allocate_producers(command)
            case AdmitNode():
                return nodes.admit(state, command)
            case MoveReplica():
                return shards.move(state, command)
            case ReplaceReplica():
                return shards.replace_replica(state, command)
            case LeaveNode():
                return nodes.leave(state, command)
            case ReplaceNode():
                return nodes.replace(state, command)
            case DropNode():
                return nodes.drop(state, command)
            case PlaceCoordination():
                return coordination.place_shard(state, command)
            case ForceReplicas():
                return shards.force(state, command)
            case SetFeatureLevel():
                return self._set_feature_level(command)
            case Found():
                return nodes.found(state, command)

    def _allocate_producers(self, command: AllocateProducers) -> list[Event]:
        if not 0 < command.count <= PRODUCERS_ALLOCATED_MAX:
            raise InvalidArgument(
                f"{command.count} producer ids", f"ask for 1 to {PRODUCERS_ALLOCATED_MAX}"
            )
        first = self._state.next_producer
        self._state.next_producer += command.count
        return [ProducersAllocated(first, command.count)]

    def _set_feature_level(self, command: SetFeatureLevel) -> list[Event]:
        require_level(command.level)
        self._state.feature_level = max(self._state.feature_level, command.level)
        return [FeatureLevelSet(self._state.feature_level)]


def _check_topics(state: CatalogState) -> None:
    owned: dict[ShardId, str] = {}
    for name, topic in state.topics.items():
        assert topic.name == name
        assert topic.shards, name
        assert topic.uuid not in state.tombstones, name
        for partition, number in enumerate(topic.shards):
            shard = state.shards[number]  # C1
            assert (shard.topic, shard.topic_uuid) == (name, topic.uuid)
            assert shard.partition == partition
            owned[number] = name
    assert set(owned) == {shard for shard in state.shards if shard >= PARTITION_SHARD_FIRST}  # C1


def _check_shards(state: CatalogState) -> None:
    for number, shard in state.shards.items():
        assert shard.id == number
        if number != CATALOG_SHARD and number not in COORDINATION_SHARDS:
            assert PARTITION_SHARD_FIRST <= number < state.next_shard  # C4
        held = [*shard.replicas, *shard.observers]
        assert shard.replicas
        assert len({node_of(replica) for replica in held}) == len(held)  # C2
        for replica in held:
            assert 0 < incarnation_of(replica) < shard.next_incarnation  # C2
            node = state.nodes[node_of(replica)]
            assert node.state != REMOVED, shard  # C2
            assert node.state == MEMBER or shard.forced or number == CATALOG_SHARD, shard


def _check_seats(state: CatalogState) -> None:
    shard = state.shards[CATALOG_SHARD]
    present = {node for node, row in state.nodes.items() if row.state != REMOVED}
    seated = {node_of(replica) for replica in (*shard.replicas, *shard.observers)}
    assert seated == present  # C3
    assert len(shard.replicas) == min(CATALOG_VOTERS, len(state.members()))  # C3
    names = [row.name for row in state.nodes.values() if row.state in (MEMBER, LEAVING)]
    assert len(set(names)) == len(names)
    assert all(node < state.next_node for node in state.nodes)  # C4


def _check_indexes(state: CatalogState) -> None:
    loads = Loads()
    on_node: dict[NodeId, set[ShardId]] = {}
    for number, shard in state.shards.items():
        if number >= PARTITION_SHARD_FIRST:
            loads.add(shard.nodes())
        for replica in (*shard.replicas, *shard.observers):
            on_node.setdefault(node_of(replica), set()).add(number)
    assert loads.counts() == state.loads.counts()  # C6
    assert on_node == {node: set(held) for node, held in state.on_node.items() if held}  # C6


_decoder = msgspec.msgpack.Decoder(CatalogSnapshot)
