"""gRPC on three real processes: every node serves everything, also while one of them is gone."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from raftline.chaos.rig import Rig, wait_for
from raftline.wire.proto.queue.v1 import queue_pb2
from raftline.wire.proto.raftline.v1 import admin_pb2, deliveries_pb2, messages_pb2
from tests.cluster.conftest import MakeRig
from tests.unit.gateways.grpc_rig import Stubs

TOPIC = "orders"
RETRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def wait_serving(rig: Rig, *names: str) -> None:
    """Wait until nodes listen for gRPC: they begin to a moment after they take work."""
    for name in names:
        host, port = rig.node(name).grpc.split(":")

        def listens(address: tuple[str, int] = (host, int(port))) -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(address) == 0

        wait_for(listens, 20, lambda name=name: rig.log_text(name)[-2000:])


class Callers:
    """A channel to each node."""

    def __init__(self, rig: Rig) -> None:
        self.channels = {n: grpc.aio.insecure_channel(rig.node(n).grpc) for n in rig.names}
        self.stubs = {name: Stubs(channel) for name, channel in self.channels.items()}

    async def close(self) -> None:
        for channel in self.channels.values():
            await channel.close()


def run(rig: Rig, scenario: Callable[[Callers], Awaitable[None]]) -> None:
    async def main() -> None:
        callers = Callers(rig)
        try:
            async with asyncio.timeout(120):
                await scenario(callers)
        finally:
            await callers.close()

    asyncio.run(main())


def sending(*values: bytes, **fields: Any) -> messages_pb2.SendRequest:
    messages = [messages_pb2.NewMessage(value=value, **fields) for value in values]
    return messages_pb2.SendRequest(topic=TOPIC, messages=messages)


async def again(call: Callable[[], Awaitable[Any]], seconds: float = 20.0) -> Any:
    """Call until it is not told to try again."""
    until = time.monotonic() + seconds
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() not in RETRY or time.monotonic() > until:
                raise
            await asyncio.sleep(0.05)


def test_every_node_serves_everything(make_rig: MakeRig) -> None:
    rig = make_rig()
    wait_serving(rig, *rig.names)

    async def scenario(callers: Callers) -> None:
        first = callers.stubs[rig.names[0]]
        await first.AdminService.CreateTopic(admin_pb2.CreateTopicRequest(name=TOPIC, partitions=3))
        sent: list[str] = []
        for n, stubs in enumerate(callers.stubs.values()):
            request = sending(*[b"%d-%d" % (n, i) for i in range(10)])
            reply = await again(lambda s=stubs, r=request: s.MessageService.Send(r))
            sent += [result.id for result in reply.results]
        assert len(set(sent)) == 30
        for stubs in callers.stubs.values():
            found = []
            for partition in range(3):
                read = messages_pb2.ReadRequest(topic=TOPIC, partition=partition)
                reply = await again(lambda s=stubs, r=read: s.MessageService.Read(r))
                found += [message.id for message in reply.messages]
            assert sorted(found) == sorted(sent)
        settled: list[str] = []
        for turn in range(30):
            name, other_name = rig.names[turn % 3], rig.names[(turn + 1) % 3]
            stubs, other = callers.stubs[name], callers.stubs[other_name]
            want = deliveries_pb2.ReceiveRequest(
                topic=TOPIC, group="workers", count=5, wait_ms=3_000
            )
            got = (await stubs.DeliveryService.Receive(want)).deliveries
            rows = [
                deliveries_pb2.Settle(lease_token=d.lease_token, verb=deliveries_pb2.VERB_ACK)
                for d in got
            ]
            reply = await other.DeliveryService.Settle(deliveries_pb2.SettleRequest(settles=rows))
            assert reply.settled == len(got), "any node settles what another leased"
            settled += [d.message.id for d in got]
            if len(settled) >= 30:
                break
        assert len(settled) == len(set(settled)) == 30

    run(rig, scenario)


def test_a_stream_goes_on_while_nodes_are_killed(make_rig: MakeRig) -> None:
    rig = make_rig()
    wait_serving(rig, *rig.names)
    total = 600

    async def scenario(callers: Callers) -> None:
        await callers.stubs[rig.names[0]].AdminService.CreateTopic(
            admin_pb2.CreateTopicRequest(name=TOPIC, partitions=1)
        )
        leader = await asyncio.to_thread(rig.leader_of, TOPIC)
        asked = next(name for name in rig.names if name != leader)
        stubs = callers.stubs[asked]
        acked: set[str] = set()
        sent: set[str] = set()

        async def send() -> None:
            for n in range(0, total, 20):
                values = [b"%d" % i for i in range(n, n + 20)]
                request = sending(*values)
                for i, message in enumerate(request.messages):
                    message.dedup_key = f"{n + i}"
                reply = await again(lambda r=request: stubs.MessageService.Send(r, timeout=8))
                assert not any(result.HasField("error") for result in reply.results), reply
                sent.update(result.id for result in reply.results)
                if n == total // 3:
                    await asyncio.to_thread(rig.kill, leader)

        async def work() -> None:
            call = stubs.DeliveryService.ReceiveStream()
            opening = deliveries_pb2.Open(topic=TOPIC, group="w", window=50, lease_ms=3_000)
            await call.write(deliveries_pb2.ReceiveStreamRequest(open=opening))
            pending: list[list[Any]] = []
            while len(acked) < total:
                reply = await call.read()
                kind = reply.WhichOneof("reply")
                if kind == "received":
                    got = list(reply.received.deliveries)
                    rows = [
                        deliveries_pb2.Settle(
                            lease_token=d.lease_token, verb=deliveries_pb2.VERB_ACK
                        )
                        for d in got
                    ]
                    pending.append(got)
                    settle = deliveries_pb2.SettleRequest(settles=rows)
                    await call.write(deliveries_pb2.ReceiveStreamRequest(settle=settle))
                elif kind == "settled":
                    for d, result in zip(pending.pop(0), reply.settled.results, strict=True):
                        if not result.HasField("error"):
                            acked.add(d.message.id)
                else:
                    pending.pop(0)
            call.cancel()

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            group.create_task(work())
        assert sent == acked
        assert len(sent) == total, "nothing is lost, nothing comes in twice under two ids"

    run(rig, scenario)


def test_consumers_of_the_foreign_queue_survive_a_failover(make_rig: MakeRig) -> None:
    rig = make_rig()
    wait_serving(rig, *rig.names)

    async def scenario(callers: Callers) -> None:
        queues = {name: stubs.QueueService for name, stubs in callers.stubs.items()}
        first, second, third = rig.names
        await queues[first].CreateTopic(
            queue_pb2.CreateTopicRequest(topic=TOPIC, number_of_partitions=2, replication_factor=3)
        )
        for n in range(6):
            request = queue_pb2.SendMessageRequest(topic=TOPIC, data=b"%d" % n, partition_key="k")
            name = rig.names[n % 3]
            sent = await again(lambda q=queues[name], r=request: q.SendMessage(r))
        partition = sent.message.partition_id
        joining = queue_pb2.ConnectRequest(consumer_id="c1", consumer_group="g", topics=[TOPIC])
        joined = await again(lambda: queues[second].Connect(joining))
        assert partition in joined.consumer.partitions

        def receiving(name: str, consumer: str = "c1") -> Any:
            request = queue_pb2.ReceiveMessageForPartitionIDRequest(
                consumer_id=consumer, partition_id=partition
            )
            return again(lambda: queues[name].ReceiveMessageForPartitionID(request))

        for name in rig.names:
            assert (await receiving(name)).message.data == b"0", "the head, through every node"
        head = (await receiving(third)).message
        ack = queue_pb2.AckMessageRequest(
            consumer_id="c1", partition_id=partition, message_id=head.id
        )
        await again(lambda: queues[first].AckMessage(ack))
        shown = await queues[first].ShardInfo(queue_pb2.ShardInfoRequest(topics=[TOPIC]))
        assert len(shown.shard_info[partition].brokers) == 3
        victim = await asyncio.to_thread(rig.leader_of, TOPIC, int(partition[-1]))
        await asyncio.to_thread(rig.kill, victim)
        alive = [name for name in rig.names if name != victim]
        began = time.monotonic()
        for name in alive:
            assert (await receiving(name)).message.data == b"1", "the ack outlived its leader"
        print(f"first poll after the kill: {time.monotonic() - began:.2f} s")

    run(rig, scenario)
