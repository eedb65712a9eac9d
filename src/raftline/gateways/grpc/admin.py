"""Topics, nodes and the cluster over gRPC."""

from collections.abc import Mapping
from typing import Any

import msgspec

from raftline.gateways.grpc.calling import Call, answer_of
from raftline.gateways.ports import Calls
from raftline.gateways.publication import check_partition
from raftline.gateways.topic_finder import TopicFinder
from raftline.model.calls import NodeRow, PartitionRow, TopicRow, Verified
from raftline.model.errors import InvalidArgument
from raftline.model.settings import check_settings
from raftline.wire.proto.raftline.v1 import admin_pb2 as pb

Value = str | int | bool


class AdminService:
    """raftline.v1.AdminService."""

    __slots__ = ("_calls", "_finder")

    def __init__(self, calls: Calls, finder: TopicFinder) -> None:
        self._calls = calls
        self._finder = finder

    # ------------------------------------------------------------------ topics

    async def create_topic(self, request: pb.CreateTopicRequest, call: Call) -> pb.CreateTopicReply:
        """Create a topic."""
        arguments: dict[str, object] = {
            "name": request.name,
            "settings": _values(request.settings),
        }
        for name in ("partitions", "replication_factor"):
            number = getattr(request, name)
            if number < 0:
                raise InvalidArgument(f"{name}={number} is below 1", "leave it out for the default")
            if number:
                arguments[name] = number
        reply = await self._command("topic.create", arguments, call)
        count = reply.get("partitions")
        return pb.CreateTopicReply(
            name=request.name, partitions=count if isinstance(count, int) else 0
        )

    async def list_topics(self, request: pb.ListTopicsRequest, call: Call) -> pb.ListTopicsReply:
        """List all topics."""
        return pb.ListTopicsReply(topics=[_topic(row) for row in self._calls.known_topics()])

    async def show_topic(self, request: pb.ShowTopicRequest, call: Call) -> pb.Topic:
        """Show one topic with its settings and partitions."""
        return _topic(self._calls.known_topic(request.name))

    async def ensure_topic(self, request: pb.EnsureTopicRequest, call: Call) -> pb.Topic:
        """Show a topic; create it first, as a first send does, where that is allowed."""
        name = request.name
        await answer_of(lambda done: self._finder.choose(name, [None], call.timeout_ms, done))
        return _topic(self._calls.known_topic(name))

    async def set_topic(self, request: pb.SetTopicRequest, call: Call) -> pb.SetTopicReply:
        """Change settings of a topic."""
        name, settings = request.name, _values(request.settings)
        if request.partitions < 0:
            hint = "leave it out for as many as there are"
            raise InvalidArgument(f"partitions={request.partitions} is below 1", hint)
        check_settings(settings)  # so that not half of it is done
        if request.partitions:
            arguments = {"name": name, "partitions": request.partitions}
            await self._command("topic.grow", arguments, call)
        if settings or not request.partitions:
            await self._command("topic.set", {"name": name, "settings": settings}, call)
        return pb.SetTopicReply()

    async def delete_topic(self, request: pb.DeleteTopicRequest, call: Call) -> pb.DeleteTopicReply:
        """Delete a topic and all it holds."""
        await self._command("topic.delete", {"name": request.name}, call)
        return pb.DeleteTopicReply()

    async def trim_topic(self, request: pb.TrimTopicRequest, call: Call) -> pb.TrimTopicReply:
        """Forget the oldest messages of a partition."""
        arguments = {
            "name": request.name,
            "partition": check_partition(request.partition),
            "offset": request.offset,
        }
        await self._command("topic.trim", arguments, call)
        return pb.TrimTopicReply()

    async def new_producer(self, request: pb.NewProducerRequest, call: Call) -> pb.NewProducerReply:
        """Give out a producer id."""
        reply = await self._command("producer.new", {}, call)
        return pb.NewProducerReply(producer_id=reply["producer_id"], epoch=reply["epoch"])

    # ------------------------------------------------------------------ cluster

    async def list_shards(self, request: pb.ListShardsRequest, call: Call) -> pb.ListShardsReply:
        """Say who leads and who holds each partition, and where the nodes are."""
        topics, names = self._calls.known_topics(), frozenset(request.topics)
        return pb.ListShardsReply(
            shards=[
                pb.Shard(
                    topic=topic.name,
                    partition=row.partition,
                    shard=row.shard,
                    leader=row.leader,
                    replicas=row.replicas,
                )
                for topic in topics
                if request.all or topic.name in names
                for row in topic.partitions
            ],
            nodes=[_node(row) for row in self._calls.catalog().nodes],
        )

    async def show_cluster(self, request: pb.ShowClusterRequest, call: Call) -> pb.ClusterReply:
        """Show nodes, topics and health as this node sees them."""
        status = self._calls.status()
        fields = msgspec.structs.asdict(status)
        fields["nodes"] = [_node(row) for row in status.nodes]
        fields["topics"] = [_topic(row) for row in self._calls.catalog().topics]
        known = pb.ClusterReply.DESCRIPTOR.fields_by_name
        return pb.ClusterReply(**{name: value for name, value in fields.items() if name in known})

    async def verify(self, request: pb.VerifyRequest, call: Call) -> pb.VerifyReply:
        """Compare all replicas of all shards."""
        verified: Verified = await answer_of(lambda done: self._calls.verify(call.timeout_ms, done))
        return pb.VerifyReply(
            identical=verified.identical,
            shards=[
                pb.VerifiedShard(
                    name=shard.name,
                    identical=shard.identical,
                    replicas=[
                        pb.ReplicaDigest(**msgspec.structs.asdict(row)) for row in shard.replicas
                    ],
                )
                for shard in verified.shards
            ],
        )

    async def add_node(self, request: pb.AddNodeRequest, call: Call) -> pb.ChangeReply:
        """Let a node join."""
        arguments = {"name": request.name, "address": request.address}
        return await self._change("cluster.add", arguments, call)

    async def remove_node(self, request: pb.RemoveNodeRequest, call: Call) -> pb.ChangeReply:
        """Take a node out."""
        arguments = {"node": _named(request.node), "force": request.force}
        return await self._change("cluster.remove", arguments, call)

    async def replace_node(self, request: pb.ReplaceNodeRequest, call: Call) -> pb.ChangeReply:
        """Put one node in the place of another."""
        arguments = {"node": _named(request.node), "by": _named(request.by)}
        return await self._change("cluster.replace", arguments, call)

    async def move_replica(self, request: pb.MoveReplicaRequest, call: Call) -> pb.ChangeReply:
        """Move a replica."""
        arguments = {
            "topic": request.topic,
            "partition": check_partition(request.partition),
            "from_node": _named(request.from_node),
            "to_node": _named(request.to_node),
        }
        return await self._change("cluster.move", arguments, call)

    async def transfer_leader(
        self, request: pb.TransferLeaderRequest, call: Call
    ) -> pb.ChangeReply:
        """Hand leadership over."""
        arguments = {
            "topic": request.topic,
            "partition": check_partition(request.partition),
            "to_node": _named(request.to_node),
        }
        return await self._change("cluster.transfer", arguments, call)

    async def _change(self, name: str, arguments: dict[str, Any], call: Call) -> pb.ChangeReply:
        reply = await self._command(name, arguments, call)
        return pb.ChangeReply(told={key: str(value) for key, value in reply.items()})

    async def _command(self, name: str, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        return await answer_of(
            lambda done: self._calls.command(name, arguments, call.timeout_ms, done)
        )


def _named(node: str) -> str | int:
    """Return a node as commands name it: by number or by name."""
    return int(node) if node.isascii() and node.isdigit() and len(node) < 10 else node


def _values(settings: Mapping[str, pb.Setting]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, setting in settings.items():
        kind = setting.WhichOneof("value")
        if kind is None:
            raise InvalidArgument(f"setting {name!r} has no value", "text, number or flag")
        found[name] = getattr(setting, kind)
    return found


def _setting(value: Value) -> pb.Setting:
    if isinstance(value, bool):
        return pb.Setting(flag=value)
    return pb.Setting(number=value) if isinstance(value, int) else pb.Setting(text=value)


def _topic(row: TopicRow) -> pb.Topic:
    return pb.Topic(
        name=row.name,
        uuid=row.uuid,
        replication_factor=row.replication_factor,
        created_ms=row.created_ms,
        settings={name: _setting(value) for name, value in row.settings.items()},
        partitions=[_partition(partition) for partition in row.partitions],
    )


def _partition(row: PartitionRow) -> pb.Partition:
    fields = msgspec.structs.asdict(row)
    known = pb.Partition.DESCRIPTOR.fields_by_name
    return pb.Partition(**{name: value for name, value in fields.items() if name in known})


def _node(row: NodeRow) -> pb.Node:
    fields = msgspec.structs.asdict(row)
    known = pb.Node.DESCRIPTOR.fields_by_name
    return pb.Node(**{name: value for name, value in fields.items() if name in known})
