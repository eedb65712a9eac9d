"""queue.v1.QueueService on a real node: what the original meant to promise, kept."""

import asyncio
import zlib
from typing import Any

import grpc.aio

from raftline.wire.proto.queue.v1 import queue_pb2 as pb
from raftline.wire.proto.raftline.v1 import groups_pb2
from tests.unit.gateways.grpc_rig import Rig, refusal, serve


def queue(rig: Rig) -> Any:
    return rig.stubs.QueueService


async def create(rig: Rig, partitions: int) -> Any:
    request = pb.CreateTopicRequest(
        topic="orders", number_of_partitions=partitions, replication_factor=1
    )
    return await queue(rig).CreateTopic(request)


async def send(rig: Rig, data: bytes, key: str = "") -> Any:
    request = pb.SendMessageRequest(topic="orders", data=data, partition_key=key)
    return (await queue(rig).SendMessage(request)).message


async def connect(rig: Rig, consumer: str, group: str = "g") -> Any:
    request = pb.ConnectRequest(consumer_id=consumer, consumer_group=group, topics=["orders"])
    return await queue(rig).Connect(request)


async def receive(rig: Rig, consumer: str, partition: str = "orders-0") -> Any:
    request = pb.ReceiveMessageForPartitionIDRequest(consumer_id=consumer, partition_id=partition)
    return (await queue(rig).ReceiveMessageForPartitionID(request)).message


async def ack(rig: Rig, consumer: str, number: int, partition: str = "orders-0") -> None:
    request = pb.AckMessageRequest(
        consumer_id=consumer, partition_id=partition, message_id=number.to_bytes(8, "big")
    )
    await queue(rig).AckMessage(request)


def test_create_and_send() -> None:
    async def scenario(rig: Rig) -> None:
        made = await create(rig, 4)
        assert (made.topic.topic, made.topic.num_of_partitions) == ("orders", 4)
        assert await refusal(create(rig, 4)) == ("ALREADY_EXISTS", "topic_exists")
        assert (await refusal(create(rig, 0)))[0] == "INVALID_ARGUMENT"
        first = await send(rig, b"hello", "k1")
        assert first.partition_id == f"orders-{zlib.crc32(b'k1') % 4}"
        assert (first.topic, first.partition_key, first.data) == ("orders", "k1", b"hello")
        assert first.id == (1).to_bytes(8, "big")
        second = await send(rig, b"again", "k1")
        assert (second.partition_id, second.id) == (first.partition_id, (2).to_bytes(8, "big"))
        for data in (b"a", b"b", b"c"):
            keyless = await send(rig, data)
            assert keyless.partition_id == f"orders-{zlib.crc32(data) % 4}"
        (result,) = await rig.send(b"native", key=b"k1")
        assert f"orders-{result.partition}" == first.partition_id

    serve(scenario)


def test_the_head_comes_until_it_is_acked() -> None:
    async def scenario(rig: Rig) -> None:
        await create(rig, 1)
        joined = await connect(rig, "c1")
        assert list(joined.consumer.partitions) == ["orders-0"]
        assert joined.consumer.is_active
        assert list(joined.consumer_group.consumers) == ["c1"]
        assert not (await receive(rig, "c1")).id, "nothing there: an empty message"
        for data in (b"1", b"2", b"3"):
            await send(rig, data)
        for _ in range(3):
            assert (await receive(rig, "c1")).data == b"1"
        await ack(rig, "c1", 2)
        assert (await receive(rig, "c1")).data == b"1", "out of order skips nothing"
        await ack(rig, "c1", 1)
        assert (await receive(rig, "c1")).data == b"3", "and rewinds nothing"
        await ack(rig, "c1", 1)
        assert (await receive(rig, "c1")).data == b"3"
        await ack(rig, "c1", 3)
        assert not (await receive(rig, "c1")).id
        assert (await refusal(ack(rig, "c1", 9)))[0] == "NOT_FOUND"
        odd = pb.AckMessageRequest(consumer_id="c1", partition_id="orders-0", message_id=b"x")
        assert (await refusal(queue(rig).AckMessage(odd)))[0] == "INVALID_ARGUMENT"

    serve(scenario)


def test_partitions_are_shared_out_and_others_refused() -> None:
    async def scenario(rig: Rig) -> None:
        await create(rig, 4)
        assert len((await connect(rig, "c1")).consumer.partitions) == 4
        second = list((await connect(rig, "c2")).consumer.partitions)
        assert len(second) == 2
        first = [f"orders-{n}" for n in range(4) if f"orders-{n}" not in second]
        for partition in first:
            assert not (await receive(rig, "c1", partition)).id
            said = await refusal(receive(rig, "c2", partition))
            assert said == ("FAILED_PRECONDITION", "fenced_member")
            assert (await refusal(ack(rig, "c2", 1, partition)))[1] == "fenced_member"
        for partition in second:
            assert (await refusal(receive(rig, "c1", partition)))[1] == "fenced_member"
        other = await connect(rig, "c3", "another")
        assert len(other.consumer.partitions) == 4, "groups do not share"
        assert (await refusal(receive(rig, "ghost")))[1] == "unknown_member"
        assert (await refusal(receive(rig, "c1", "nowhere-0")))[1] == "unknown_topic"
        assert (await refusal(receive(rig, "c1", "orders")))[0] == "INVALID_ARGUMENT"

    serve(scenario)


def test_an_expired_consumer_is_refused_until_it_connects_again() -> None:
    async def scenario(rig: Rig) -> None:
        await create(rig, 1)
        await connect(rig, "c1")
        await send(rig, b"1")
        assert (await receive(rig, "c1")).data == b"1"
        order = groups_pb2.LeaveGroupRequest(group="g", member="c1")  # what expiry does
        await rig.stubs.GroupService.Leave(order)
        assert (await refusal(receive(rig, "c1")))[1] == "unknown_member"
        assert (await refusal(ack(rig, "c1", 1)))[1] == "unknown_member"
        await connect(rig, "c2")
        assert (await receive(rig, "c2")).data == b"1"
        await connect(rig, "c1")
        assert (await refusal(receive(rig, "c1")))[1] == "fenced_member"

    serve(scenario)


def test_a_health_check_answers_every_ping() -> None:
    async def scenario(rig: Rig) -> None:
        await create(rig, 1)
        await connect(rig, "c1")
        call = queue(rig).HealthCheck()
        for _ in range(3):
            ping = pb.HealthCheckRequest(consumer_id="c1")
            ping.ping_at.GetCurrentTime()
            await call.write(ping)
            async with asyncio.timeout(5):
                assert (await call.read()).message
        await call.done_writing()
        assert await call.read() == grpc.aio.EOF
        stranger = queue(rig).HealthCheck()
        await stranger.write(pb.HealthCheckRequest(consumer_id="ghost"))
        assert (await refusal(stranger.read()))[1] == "unknown_member"

    serve(scenario)


def test_shards_and_nodes() -> None:
    async def scenario(rig: Rig) -> None:
        await create(rig, 2)
        await send(rig, b"x")
        shown = await queue(rig).ShardInfo(pb.ShardInfoRequest(topics=["orders"]))
        assert sorted(shown.shard_info) == ["orders-0", "orders-1"]
        info = shown.shard_info["orders-0"]
        assert (info.topic, info.partition_id, info.shard_type) == ("orders", "orders-0", 2)
        assert [broker.id for broker in info.brokers] == [1]
        assert shown.leader == shown.brokers[0]
        async with asyncio.timeout(10):
            while not shown.leader.reach_grpc_address:  # the node tells the catalog of itself
                await asyncio.sleep(0.05)
                shown = await queue(rig).ShardInfo(pb.ShardInfoRequest())
        assert shown.leader.reach_grpc_address == rig.node.settings.listen.grpc
        every = await queue(rig).ShardInfo(pb.ShardInfoRequest())
        assert set(shown.shard_info) <= set(every.shard_info)
        lost = queue(rig).ShardInfo(pb.ShardInfoRequest(topics=["nowhere"]))
        assert (await refusal(lost))[0] == "NOT_FOUND"
        manage = queue(rig).ManageBrokers
        assert (await refusal(manage(pb.ManageBrokersRequest())))[0] == "INVALID_ARGUMENT"
        action = pb.BrokerAction(replica_id=2, raft_address="127.0.0.1:7001")
        await manage(pb.ManageBrokersRequest(action=pb.ACTION_ADD, broker_action=action))

    serve(scenario)
