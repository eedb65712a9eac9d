"""The service of sreekar2307/queue: its names, its numbers, and the promises it meant to keep.

What consumers may do is decided in gateways/queue_consumers.py, as for its HTTP routes. Partitions
are ``topic-0`` …; a message's id is its offset plus one, as eight bytes.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from google.protobuf.timestamp_pb2 import Timestamp

from raftline.gateways.grpc.calling import Call, answer_of
from raftline.gateways.grpc.registry import Send
from raftline.gateways.new_messages import check_key
from raftline.gateways.ports import Calls
from raftline.gateways.queue_consumers import (
    QueueConsumers,
    message_number,
    parse_message_number,
    parse_partition_id,
    partition_ids,
)
from raftline.gateways.topic_finder import TopicFinder
from raftline.model.batch import check_batch
from raftline.model.calls import Appended, NodeRow
from raftline.model.errors import InvalidArgument, NotReady
from raftline.model.limits import PARTITIONS_PER_TOPIC_MAX, REPLICATION_FACTOR_MAX
from raftline.model.records import seal_batch
from raftline.node.ports import Clock
from raftline.wire.proto.queue.v1 import queue_pb2 as pb
from raftline.wire.proto.types.v1 import types_pb2 as types

if TYPE_CHECKING:
    from raftline.model.groups import GroupView
    from raftline.model.message import Message

PONG = "pong"
INVITE_MS = 1_000  # for a node that runs already to join


class QueueService:
    """queue.v1.QueueService."""

    __slots__ = ("_batch_bytes_max", "_calls", "_clock", "_consumers", "_finder")

    def __init__(
        self, clock: Clock, calls: Calls, finder: TopicFinder, *, batch_bytes_max: int
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._finder = finder
        self._batch_bytes_max = batch_bytes_max
        self._consumers = QueueConsumers(calls)

    # ------------------------------------------------------------------ messages

    async def create_topic(
        self, request: pb.CreateTopicRequest, call: Call
    ) -> pb.CreateTopicResponse:
        """Create a topic that spreads keys as the original does."""
        count = request.number_of_partitions
        arguments: dict[str, object] = {"name": request.topic, "settings": {"partitioner": "crc32"}}
        bounds = (
            ("partitions", count, PARTITIONS_PER_TOPIC_MAX),
            ("replication_factor", request.replication_factor, REPLICATION_FACTOR_MAX),
        )
        for name, number, most in bounds:
            if not 1 <= number <= most:
                raise InvalidArgument(
                    f"{name}={number} is out of bounds", f"allowed is 1 to {most}"
                )
            arguments[name] = number
        await answer_of(
            lambda done: self._calls.command("topic.create", arguments, call.timeout_ms, done)
        )
        return pb.CreateTopicResponse(
            topic=types.Topic(topic=request.topic, num_of_partitions=count)
        )

    async def send_message(
        self, request: pb.SendMessageRequest, call: Call
    ) -> pb.SendMessageResponse:
        """Send one message; without a key the data chooses the partition."""
        if not request.data:
            raise InvalidArgument("data is empty", "send at least one byte")
        topic, data = request.topic, request.data
        key = request.partition_key.encode() or None
        check_key(key)
        batch = seal_batch([(key, data, [], self._clock.wall_ms())])
        info = check_batch(batch, bytes_max=self._batch_bytes_max)
        (partition,) = await answer_of(
            lambda done: self._finder.choose(topic, [key or data], call.timeout_ms, done)
        )
        stored: Appended = await answer_of(
            lambda done: self._calls.append(topic, partition, batch, info, call.timeout_ms, done)
        )
        message = types.Message(
            topic=topic,
            partition_key=request.partition_key,
            partition_id=f"{topic}-{partition}",
            data=data,
            id=message_number(stored.base_offset),
        )
        return pb.SendMessageResponse(message=message)

    async def receive_message_for_partition_id(
        self, request: pb.ReceiveMessageForPartitionIDRequest, call: Call
    ) -> pb.ReceiveMessageForPartitionIDResponse:
        """Read the first message that the consumer's group has not acked; none: empty."""
        topic, partition = parse_partition_id(request.partition_id)
        found: tuple[int, Message] | None = await answer_of(
            lambda done: self._consumers.poll(
                request.consumer_id, topic, partition, call.timeout_ms, done
            )
        )
        if found is None:
            return pb.ReceiveMessageForPartitionIDResponse()
        offset, message = found
        shown = types.Message(
            topic=topic,
            partition_key=(message.key or b"").decode("utf-8", "replace"),
            partition_id=request.partition_id,
            data=message.value or b"",
            id=message_number(offset),
        )
        return pb.ReceiveMessageForPartitionIDResponse(message=shown)

    async def ack_message(self, request: pb.AckMessageRequest, call: Call) -> pb.AckMessageResponse:
        """Ack one message."""
        topic, partition = parse_partition_id(request.partition_id)
        offset = parse_message_number(request.message_id)
        await answer_of(
            lambda done: self._consumers.ack(
                request.consumer_id, topic, partition, offset, call.timeout_ms, done
            )
        )
        return pb.AckMessageResponse()

    # ------------------------------------------------------------------ consumers

    async def connect(self, request: pb.ConnectRequest, call: Call) -> pb.ConnectResponse:
        """Join a group; answered when its partitions have moved."""
        consumer = request.consumer_id
        view: GroupView = await answer_of(
            lambda done: self._consumers.connect(
                consumer, request.consumer_group, list(request.topics), call.timeout_ms, done
            )
        )
        row = next((member for member in view.members if member.member == consumer), None)
        heard = Timestamp()
        heard.FromMilliseconds(self._clock.wall_ms())
        return pb.ConnectResponse(
            consumer=types.Consumer(
                id=consumer,
                partitions=[] if row is None else partition_ids(row.partitions),
                consumer_group=view.group,
                topics=[] if row is None else row.topics,
                is_active=row is not None,
                last_health_check_at=heard,
            ),
            consumer_group=types.ConsumerGroup(
                id=view.group,
                consumers=[member.member for member in view.members],
                topics=sorted({topic for member in view.members for topic in member.topics}),
            ),
        )

    async def health_check(
        self, requests: AsyncIterator[pb.HealthCheckRequest], call: Call, send: Send
    ) -> None:
        """Answer every ping of a consumer that is a member."""
        async for request in requests:
            consumer = request.consumer_id
            await answer_of(
                lambda done, consumer=consumer: self._consumers.beat(
                    consumer, call.stream_timeout_ms, done
                )
            )
            await send(pb.HealthCheckResponse(message=PONG))

    # ------------------------------------------------------------------ cluster

    async def shard_info(self, request: pb.ShardInfoRequest, call: Call) -> pb.ShardInfoResponse:
        """Show who leads and who holds each partition: of some topics, or of all."""
        catalog, status = self._calls.catalog(), self._calls.status()
        for topic in request.topics:
            self._calls.known_topic(topic)
        brokers = {row.id: _broker(row) for row in catalog.nodes}
        reply = pb.ShardInfoResponse(
            brokers=brokers.values(), leader=brokers.get(status.catalog_leader)
        )
        for row in catalog.topics:
            if request.topics and row.name not in request.topics:
                continue
            for partition in row.partitions:
                first = [partition.leader] if partition.leader in partition.replicas else []
                nodes = [*first, *(node for node in partition.replicas if node not in first)]
                name = f"{row.name}-{partition.partition}"
                reply.shard_info[name].CopyFrom(
                    types.ShardInfo(
                        shard_type=types.SHARD_TYPE_PARTITIONS,
                        shard_id=partition.shard,
                        topic=row.name,
                        partition_id=name,
                        brokers=[brokers[node] for node in nodes if node in brokers],
                    )
                )
        return reply

    async def manage_brokers(
        self, request: pb.ManageBrokersRequest, call: Call
    ) -> pb.ManageBrokersResponse:
        """Let a node join. One that does not run yet joins when it is started with --join."""
        if request.action != pb.ACTION_ADD:
            raise InvalidArgument(f"there is no action {request.action}", "use ACTION_ADD")
        wanted = request.broker_action
        if not wanted.replica_id or not wanted.raft_address:
            raise InvalidArgument("a node has a replica_id and a raft_address", "name both")
        arguments: dict[str, Any] = {
            "name": f"node-{wanted.replica_id}",
            "address": wanted.raft_address,
        }
        timeout_ms = min(call.timeout_ms, INVITE_MS)
        with contextlib.suppress(NotReady):
            await answer_of(
                lambda done: self._calls.command("cluster.add", arguments, timeout_ms, done)
            )
        return pb.ManageBrokersResponse()


def _broker(row: NodeRow) -> types.Broker:
    return types.Broker(
        id=row.id, raft_address=row.peer, reach_grpc_address=row.grpc, reach_http_address=row.http
    )
