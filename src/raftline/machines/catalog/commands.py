"""Commands in the catalog's log: tagged msgpack structs, stamped by the leader.

Tags and the meaning of fields are permanent (golden bytes in tests/unit/machines/golden); a new
meaning is a new tag. ``at_ms`` is the leader's log time, uuids are the leader's randomness.
"""

import msgspec

from raftline.model.ids import NodeId, ReplicaId, ShardId
from raftline.model.settings import Value


class NodeSpec(msgspec.Struct, frozen=True, array_like=True):
    """A founding node, with the number it was given beforehand."""

    id: NodeId
    name: str
    directory: str  # uuid of its data directory
    peer: str
    http: str = ""
    grpc: str = ""
    kafka: str = ""
    rack: str = ""


class Found(msgspec.Struct, frozen=True, tag="found"):
    """Found the cluster with these nodes, numbered 1..n."""

    cluster: str  # uuid
    nodes: tuple[NodeSpec, ...]
    at_ms: int


class AdmitNode(msgspec.Struct, frozen=True, tag="admit_node"):
    """Admit a node, take its new addresses, or take it back with an empty disk."""

    name: str
    directory: str
    peer: str
    http: str = ""
    grpc: str = ""
    kafka: str = ""
    rack: str = ""
    at_ms: int = 0


class LeaveNode(msgspec.Struct, frozen=True, tag="leave_node"):
    """Give all replicas of ``node`` to others. ``force``: where there are none, do with fewer."""

    node: NodeId
    force: bool = False
    at_ms: int = 0


class DropNode(msgspec.Struct, frozen=True, tag="drop_node"):
    """Forget a node that left and that no shard targets any more."""

    node: NodeId
    at_ms: int = 0


class ReplaceNode(msgspec.Struct, frozen=True, tag="replace_node"):
    """Give all replicas of ``node`` to ``by``; ``node`` is leaving then."""

    node: NodeId
    by: NodeId
    at_ms: int = 0


class CreateTopic(msgspec.Struct, frozen=True, tag="create_topic"):
    """Create a topic. ``replication_factor`` 0: min(3, members)."""

    name: str
    uuid: str
    partitions: int
    replication_factor: int = 0
    settings: dict[str, Value] = {}
    at_ms: int = 0


class DeleteTopic(msgspec.Struct, frozen=True, tag="delete_topic"):
    """Delete a topic with all its messages.

    ``request`` is the caller's own: a repeat after a lost answer hears that it is done.
    """

    name: str
    at_ms: int = 0
    request: str = ""


class SetTopic(msgspec.Struct, frozen=True, tag="set_topic"):
    """Change settings; those in ``unset`` go back to their defaults."""

    name: str
    settings: dict[str, Value] = {}
    unset: tuple[str, ...] = ()
    at_ms: int = 0


class AddPartitions(msgspec.Struct, frozen=True, tag="add_partitions"):
    """Give a topic more partitions: ``partitions`` in all."""

    name: str
    partitions: int
    at_ms: int = 0


class MoveReplica(msgspec.Struct, frozen=True, tag="move_replica"):
    """Move one replica to a node that has none of this shard."""

    shard: ShardId
    from_node: NodeId
    to_node: NodeId
    at_ms: int = 0


class ReplaceReplica(msgspec.Struct, frozen=True, tag="replace_replica"):
    """Give ``node``'s replica a new incarnation if it is still ``seen``."""

    shard: ShardId
    node: NodeId
    seen: ReplicaId
    at_ms: int = 0


class ForceReplicas(msgspec.Struct, frozen=True, tag="force_replicas"):
    """After a loss of the majority: go on with these. An incarnation of 0 asks for a new replica.

    With no replica of before among them the shard starts again empty.
    """

    shard: ShardId
    replicas: tuple[ReplicaId, ...]
    at_ms: int = 0


class PlaceCoordination(msgspec.Struct, frozen=True, tag="place_coordination"):
    """Place one of the shards that groups are kept in, where it is not placed yet."""

    shard: ShardId
    at_ms: int = 0


class AllocateProducers(msgspec.Struct, frozen=True, tag="allocate_producers"):
    """Reserve ``count`` producer ids."""

    count: int
    at_ms: int = 0


class SetFeatureLevel(msgspec.Struct, frozen=True, tag="feature_level"):
    """Let the cluster use what builds of ``level`` know. Never goes back."""

    level: int
    at_ms: int = 0


Command = (
    Found
    | AdmitNode
    | LeaveNode
    | DropNode
    | ReplaceNode
    | CreateTopic
    | DeleteTopic
    | SetTopic
    | AddPartitions
    | MoveReplica
    | ReplaceReplica
    | ForceReplicas
    | PlaceCoordination
    | AllocateProducers
    | SetFeatureLevel
)


class Malformed(Exception):
    """An entry whose bytes are no command: refused."""


def encode_command(command: Command) -> bytes:
    """Return the entry data of ``command``."""
    return _encoder.encode(command)


def decode_command(data: bytes) -> Command:
    """Read entry data.

    Raises:
        Malformed: no known command.
    """
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Malformed(str(error)) from error


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
