"""Topics: creating, deleting, settings, more partitions.

Rules
    T1  A topic has a uuid of its own: a topic of the same name later is another topic.
    T2  The replication factor is min(3, members) unless asked for, never more than members, and
        never depends on which nodes are alive.
    T3  Partitions are only added. Shard numbers are never used again.
    T4  A deleted topic leaves a tombstone, which is what allows nodes to remove its replicas.
"""

import msgspec

from raftline.machines.catalog.commands import AddPartitions, CreateTopic, DeleteTopic, SetTopic
from raftline.machines.catalog.events import (
    Event,
    ShardPlaced,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
)
from raftline.machines.catalog.placement import Loads, place
from raftline.machines.catalog.state import (
    FIRST_INCARNATION,
    CatalogState,
    Shard,
    Tombstone,
    Topic,
)
from raftline.model.errors import InvalidArgument, NotEnoughNodes, OverLimit, TopicExists
from raftline.model.ids import ShardId, replica_id
from raftline.model.limits import (
    PARTITIONS_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    REPLICATION_FACTOR_DEFAULT,
    REPLICATION_FACTOR_MAX,
    TOMBSTONES_MAX,
    TOPICS_MAX,
)
from raftline.model.names import check_topic_name
from raftline.model.settings import check_setting_names, check_settings


def create(state: CatalogState, command: CreateTopic) -> list[Event]:
    """Create a topic and place its partitions. T1, T2."""
    check_topic_name(command.name)
    if command.name in state.topics:
        raise TopicExists(command.name)
    if len(state.topics) >= TOPICS_MAX:
        raise OverLimit("topics", len(state.topics) + 1, TOPICS_MAX)
    used = any(topic.uuid == command.uuid for topic in state.topics.values())
    if used or not command.uuid or command.uuid in state.tombstones:
        raise InvalidArgument(f"topic {command.name} needs a uuid that was never used")
    _check_partitions(state, command.partitions, command.partitions)
    factor = _replication_factor(state, command)
    settings = check_settings(command.settings, state.feature_level)
    topic = Topic(command.name, command.uuid, factor, state.at_ms, settings, ())
    placed = _place(state, topic, command.partitions, Loads())
    topic = state.topics[topic.name]
    return [TopicCreated(topic.name, topic.uuid, topic.shards), *placed]


def delete(state: CatalogState, command: DeleteTopic) -> list[Event]:
    """Delete a topic. T4."""
    for gone in state.tombstones.values() if command.request else ():
        if (gone.request, gone.name) == (command.request, command.name):
            return [TopicDeleted(gone.name, gone.uuid, gone.shards)]
    topic = state.topic(command.name)
    for shard in topic.shards:
        state.remove_shard(shard)
    del state.topics[topic.name]
    tombstone = Tombstone(topic.uuid, topic.name, topic.shards, state.at_ms, command.request)
    state.tombstones[topic.uuid] = tombstone
    if len(state.tombstones) > TOMBSTONES_MAX:
        del state.tombstones[next(iter(state.tombstones))]
    return [TopicDeleted(topic.name, topic.uuid, topic.shards)]


def change(state: CatalogState, command: SetTopic) -> list[Event]:
    """Change a topic's settings."""
    topic = state.topic(command.name)
    given = check_settings(command.settings, state.feature_level)
    check_setting_names(command.unset, state.feature_level)
    both = [name for name in command.unset if name in given]
    if both:
        raise InvalidArgument(f"{both[0]} is both set and unset")
    merged = {**topic.settings, **given}
    settings = {name: merged[name] for name in sorted(merged) if name not in command.unset}
    state.topics[topic.name] = msgspec.structs.replace(topic, settings=settings)
    return [TopicChanged(topic.name)]


def add_partitions(state: CatalogState, command: AddPartitions) -> list[Event]:
    """Add partitions at the end. T3."""
    topic = state.topic(command.name)
    added = command.partitions - len(topic.shards)
    if added <= 0:
        raise InvalidArgument(
            f"topic {topic.name} has {len(topic.shards)} partitions",
            "partitions are only added: ask for more in all",
        )
    _check_partitions(state, command.partitions, added)
    members = len(state.members())
    if topic.replication_factor > members:
        raise NotEnoughNodes(f"topic {topic.name}", topic.replication_factor, members)
    placed = _place(state, topic, added, state.topic_loads(topic))
    return [TopicChanged(topic.name), *placed]


def _place(state: CatalogState, topic: Topic, count: int, loads: Loads) -> list[Event]:
    """Give ``count`` more partitions of ``topic`` their shards, and store the topic."""
    seats, total = state.members(), state.loads.copy()
    events: list[Event] = []
    shards = list(topic.shards)
    for _ in range(count):
        nodes = place(seats, topic.replication_factor, loads, total)
        replicas = tuple(replica_id(node, FIRST_INCARNATION) for node in nodes)
        number = ShardId(state.next_shard)
        state.next_shard += 1
        state.put_shard(Shard(number, topic.name, topic.uuid, len(shards), replicas, replicas))
        shards.append(number)
        events.append(ShardPlaced(number, replicas))
    state.topics[topic.name] = msgspec.structs.replace(topic, shards=tuple(shards))
    return events


def _replication_factor(state: CatalogState, command: CreateTopic) -> int:
    members = len(state.members())
    factor = command.replication_factor or min(REPLICATION_FACTOR_DEFAULT, members)
    if not 0 < factor <= REPLICATION_FACTOR_MAX:
        raise InvalidArgument(
            f"replication factor {factor}", f"use 1 to {REPLICATION_FACTOR_MAX}, or 0 to choose"
        )
    if factor > members:
        raise NotEnoughNodes(f"topic {command.name}", factor, members)
    return factor


def _check_partitions(state: CatalogState, in_topic: int, added: int) -> None:
    if not 0 < in_topic <= PARTITIONS_PER_TOPIC_MAX:
        raise InvalidArgument(
            f"{in_topic} partitions in a topic", f"use 1 to {PARTITIONS_PER_TOPIC_MAX}"
        )
    if len(state.shards) + added > PARTITIONS_MAX:
        raise OverLimit("partitions of the cluster", len(state.shards) + added, PARTITIONS_MAX)
