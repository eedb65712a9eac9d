"""Nodes: founding, admission, leaving; and the seats of the catalog shard.

Every node holds a copy of the catalog: min(3, members) of them vote, the others observe. Voters
stay as they are while their nodes are members; a seat that falls free is taken by an observer.

Rules
    N1  A name is one node. The same directory again is the same node; another directory is the same
        node with a lost disk, and every replica it held gets a new incarnation, so that a wiped
        disk never votes under an old identity.
    N2  A node that left keeps its number and directory for itself: neither comes back.
    N3  Leaving gives every replica to a member that has none of that shard, or is refused. With
        ``force`` a shard that finds none does with fewer, but never with none. Coordination
        shards always do (coordination.py).
"""

from collections.abc import Sequence

import msgspec

from raftline.machines.catalog.commands import AdmitNode, DropNode, Found, LeaveNode, ReplaceNode
from raftline.machines.catalog.coordination import coordination_loads, grow
from raftline.machines.catalog.events import (
    Event,
    Founded,
    NodeAdmitted,
    NodeLeaving,
    NodeRemoved,
    ShardMoved,
    ShardPlaced,
    TopicChanged,
)
from raftline.machines.catalog.placement import Loads, Seat, catalog_voters, choose
from raftline.machines.catalog.state import (
    FIRST_INCARNATION,
    LEAVING,
    MEMBER,
    REMOVED,
    CatalogState,
    Node,
    Shard,
    renew,
    swap,
)
from raftline.model.errors import (
    AlreadyBootstrapped,
    InvalidArgument,
    NodeExists,
    NotEnoughNodes,
    OverLimit,
    TooLarge,
    UnknownNode,
)
from raftline.model.ids import CATALOG_SHARD, NodeId, ReplicaId, node_of, replica_id
from raftline.model.limits import ADDRESS_CHARS_MAX, CATALOG_VOTERS, NODES_MAX, RACK_CHARS_MAX
from raftline.model.names import check_node_name

CATALOG_UUID = "catalog"


def found(state: CatalogState, command: Found) -> list[Event]:
    """Start the cluster."""
    if state.cluster:
        raise AlreadyBootstrapped(state.cluster)
    specs = command.nodes
    if not command.cluster or not specs or len(specs) > NODES_MAX:
        raise InvalidArgument(f"a cluster is founded with a uuid and 1 to {NODES_MAX} nodes")
    if [spec.id for spec in specs] != list(range(1, len(specs) + 1)):
        raise InvalidArgument("founding nodes are numbered 1, 2, 3 ...")
    for field, what in (("name", "names"), ("directory", "directories")):
        if len({getattr(spec, field) for spec in specs}) < len(specs):
            raise InvalidArgument(f"founding nodes need different {what}")
    nodes = [Node(*msgspec.structs.astuple(spec)) for spec in specs]
    for node in nodes:
        _check_node(node)
    voters, observers = founding_seats(nodes)
    state.cluster = command.cluster
    state.nodes = {node.id: node for node in nodes}
    state.next_node = len(nodes) + 1
    shard = Shard(CATALOG_SHARD, "", CATALOG_UUID, 0, voters, voters, observers=observers)
    state.put_shard(shard)
    admitted = [NodeAdmitted(node.id, node.name, "new") for node in nodes]
    return [Founded(state.cluster), *admitted, ShardPlaced(CATALOG_SHARD, voters, observers)]


def founding_seats(
    nodes: Sequence[Seat],
) -> tuple[tuple[ReplicaId, ...], tuple[ReplicaId, ...]]:
    """Return the catalog's first voters and observers, as founding nodes must start them."""
    voters = catalog_voters(nodes, (), CATALOG_VOTERS)
    others = [node.id for node in nodes if node.id not in voters]
    return _first_replicas(voters), _first_replicas(others)


def admit(state: CatalogState, command: AdmitNode) -> list[Event]:
    """Admit a node, or take it back. N1, N2."""
    known = state.node_named(command.name)
    for node in state.nodes.values():
        if node.directory == command.directory and node is not known:
            reason = f"its data directory belongs to node {node.id} ({node.name}, {node.state})"
            raise NodeExists(command.name, reason)
    if known is None:
        return _admit_new(state, command)
    node = _node_from(known.id, command, known.state)
    _check_node(node)
    moved: list[Event] = []
    if known.directory != command.directory:
        renewed = [_renew_on(shard, known.id) for shard in state.shards_on(known.id)]
        moved = _put_all(state, renewed)
    state.nodes[known.id] = node
    how = "again" if known.directory != command.directory else "known"
    return [NodeAdmitted(node.id, node.name, how), *moved]


def leave(state: CatalogState, command: LeaveNode) -> list[Event]:
    """Move everything off a node. N3."""
    node = state.node(command.node)
    others = [member for member in state.members() if member.id != node.id]
    if not others:
        raise NotEnoughNodes(f"leaving of node {node.id}", 1, 0)
    plan = _Plan(state, others)
    changed = [
        plan.give_away(shard, node.id, may_shrink=command.force or not shard.topic)
        for shard in state.shards_on(node.id)
        if shard.id != CATALOG_SHARD
    ]
    return _leave_with(state, node, changed)


def replace(state: CatalogState, command: ReplaceNode) -> list[Event]:
    """Move everything of one node to another; what cannot go there goes elsewhere. N3."""
    node, by = state.node(command.node), state.node(command.by)
    if by.state != MEMBER or by.id == node.id:
        raise InvalidArgument(f"node {by.id} cannot replace node {node.id}", "choose a member")
    others = [member for member in state.members() if member.id != node.id]
    plan = _Plan(state, others)
    changed: list[Shard] = []
    for shard in state.shards_on(node.id):
        if shard.id == CATALOG_SHARD:
            continue
        if shard.replica_on(by.id) is None:
            changed.append(_hand_over(shard, node.id, by.id))
        else:
            changed.append(plan.give_away(shard, node.id, may_shrink=not shard.topic))
    return _leave_with(state, node, changed)


def drop(state: CatalogState, command: DropNode) -> list[Event]:
    """Forget a node that holds nothing but its copy of the catalog."""
    node = state.node(command.node)
    if node.state != LEAVING:
        raise InvalidArgument(
            f"node {node.id} is a member", f"raftline cluster remove {node.name} moves it out first"
        )
    held = [shard for shard in state.shards_on(node.id) if shard.id != CATALOG_SHARD]
    if held:
        raise InvalidArgument(f"node {node.id} still holds {held[0].place} and {len(held)} in all")
    state.nodes[node.id] = msgspec.structs.replace(node, state=REMOVED)
    _forget_removed(state)
    return [NodeRemoved(node.id), *reseat(state)]


def reseat(state: CatalogState) -> list[Event]:
    """Bring the catalog's voters and observers in line with the nodes."""
    old = shard = state.shards[CATALOG_SHARD]
    voters = catalog_voters(state.members(), shard.nodes(), CATALOG_VOTERS)
    replicas: dict[NodeId, ReplicaId] = {}
    for node in sorted(state.nodes):
        if state.nodes[node].state != REMOVED:
            held = shard.replica_on(node)
            if held is None:
                shard, held = renew(shard, node)
            replicas[node] = held
    shard = msgspec.structs.replace(
        shard,
        replicas=tuple(replicas[node] for node in voters),
        observers=tuple(replica for node, replica in replicas.items() if node not in voters),
    )
    return _put_all(state, [shard]) if shard != old else []


class _Plan:
    """New homes for replicas, chosen one after another before anything changes."""

    def __init__(self, state: CatalogState, seats: list[Node]) -> None:
        self._state = state
        self._seats = seats
        self._total = state.loads.copy()
        self._topics: dict[str, Loads] = {}

    def give_away(self, shard: Shard, node: NodeId, *, may_shrink: bool) -> Shard:
        """Return ``shard`` with its replica on ``node`` somewhere else."""
        state = self._state
        beside = [state.nodes[other] for other in shard.nodes() if other != node]
        taken = {other.id for other in beside}
        if all(seat.id in taken for seat in self._seats):
            if not may_shrink or not beside:
                raise NotEnoughNodes(shard.place, len(shard.replicas), len(self._seats))
            kept = tuple(r for r in shard.replicas if node_of(r) != node)
            return msgspec.structs.replace(shard, replicas=kept)
        topic = self._loads_of(shard.topic)
        home = choose(self._seats, beside, topic, self._total).id
        moved = _hand_over(shard, node, home)
        for loads in (topic, self._total) if shard.topic else (topic,):
            loads.remove(shard.nodes())
            loads.add(moved.nodes())
        return moved

    def _loads_of(self, topic: str) -> Loads:
        found = self._topics.get(topic)
        if found is None:
            state = self._state
            found = state.topic_loads(state.topics[topic]) if topic else coordination_loads(state)
            self._topics[topic] = found
        return found


def _first_replicas(numbers: Sequence[NodeId]) -> tuple[ReplicaId, ...]:
    return tuple(replica_id(number, FIRST_INCARNATION) for number in numbers)


def _admit_new(state: CatalogState, command: AdmitNode) -> list[Event]:
    present = sum(node.state != REMOVED for node in state.nodes.values())
    if present >= NODES_MAX:
        raise OverLimit("nodes of a cluster", present + 1, NODES_MAX)
    node = _node_from(NodeId(state.next_node), command, MEMBER)
    _check_node(node)
    state.next_node += 1
    state.nodes[node.id] = node
    return [NodeAdmitted(node.id, node.name, "new"), *reseat(state), *grow(state)]


def _leave_with(state: CatalogState, node: Node, changed: list[Shard]) -> list[Event]:
    events = _put_all(state, changed)
    state.nodes[node.id] = msgspec.structs.replace(node, state=LEAVING)
    for name in sorted({shard.topic for shard in changed if shard.topic}):
        topic = state.topics[name]
        fewest = min(len(state.shards[shard].replicas) for shard in topic.shards)
        if fewest < topic.replication_factor:
            state.topics[name] = msgspec.structs.replace(topic, replication_factor=fewest)
            events.append(TopicChanged(name))
    return [NodeLeaving(node.id), *events, *reseat(state)]


def _put_all(state: CatalogState, shards: list[Shard]) -> list[Event]:
    for shard in shards:
        state.put_shard(shard)
    return [ShardMoved(shard.id, shard.replicas, shard.observers) for shard in shards]


def _renew_on(shard: Shard, node: NodeId) -> Shard:
    old = shard.replica_on(node)
    assert old is not None, (shard, node)
    renewed, new = renew(shard, node)
    return swap(renewed, old, new)


def _hand_over(shard: Shard, node: NodeId, home: NodeId) -> Shard:
    old = shard.replica_on(node)
    assert old is not None, (shard, node)
    renewed, new = renew(shard, home)
    return swap(renewed, old, new)


def _node_from(number: NodeId, command: AdmitNode, node_state: str) -> Node:
    return Node(
        number,
        command.name,
        command.directory,
        command.peer,
        command.http,
        command.grpc,
        command.kafka,
        command.rack,
        node_state,
    )


def _check_node(node: Node) -> None:
    check_node_name(node.name)
    if not node.directory or not node.peer:
        raise InvalidArgument(f"node {node.name} has no data directory uuid or no peer address")
    for address in (node.directory, node.peer, node.http, node.grpc, node.kafka):
        if len(address) > ADDRESS_CHARS_MAX:
            raise TooLarge("characters of an address", len(address), ADDRESS_CHARS_MAX)
    if len(node.rack) > RACK_CHARS_MAX:
        raise TooLarge("characters of a rack", len(node.rack), RACK_CHARS_MAX)


def _forget_removed(state: CatalogState) -> None:
    """Keep the newest ``NODES_MAX`` removed rows."""
    removed = [node for node in sorted(state.nodes) if state.nodes[node].state == REMOVED]
    for node in removed[:-NODES_MAX]:
        del state.nodes[node]


def node_for(state: CatalogState, node: NodeId) -> Node:
    """Return a member, or raise UnknownNode."""
    found_node = state.node(node)
    if found_node.state != MEMBER:
        raise UnknownNode(f"{node} that may take replicas (it is {found_node.state})")
    return found_node
