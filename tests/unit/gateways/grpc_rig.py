"""gRPC on a real small node: real disk, lanes and loop, one process, and a real channel to it."""

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import uvloop
from google.protobuf.message_factory import GetMessageClass

from raftline.config.settings import ListenSettings, NodeSettings, Settings
from raftline.gateways.grpc.calling import ERROR_KEY
from raftline.gateways.grpc.gateway import GrpcGateway
from raftline.node.clock import LoopClock
from raftline.node.lanes import ThreadLane
from raftline.node.node import Node
from raftline.storage.os_disk import OsDisk
from raftline.transport.tcp import TcpNetwork
from raftline.wire.proto.queue.v1 import queue_pb2
from raftline.wire.proto.raftline.v1 import (
    admin_pb2,
    dead_letters_pb2,
    deliveries_pb2,
    errors_pb2,
    groups_pb2,
    messages_pb2,
    scheduled_pb2,
    traces_pb2,
)
from tests.unit.gateways.little_node import LittleNode
from tests.unit.transport.free_port import bind_free

FILES = (
    messages_pb2,
    deliveries_pb2,
    groups_pb2,
    scheduled_pb2,
    dead_letters_pb2,
    traces_pb2,
    admin_pb2,
    queue_pb2,
)


class Stub:
    """The methods of one service, made from its descriptor."""

    def __init__(self, channel: Any, service: Any) -> None:
        for method in service.methods:
            kind = {
                (False, False): channel.unary_unary,
                (False, True): channel.unary_stream,
                (True, True): channel.stream_stream,
            }[method.client_streaming, method.server_streaming]
            call = kind(
                f"/{service.full_name}/{method.name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            setattr(self, method.name, call)


class Stubs:
    """All services over one channel: ``stubs.MessageService.Send(...)``."""

    def __init__(self, channel: Any) -> None:
        for file in FILES:
            for service in file.DESCRIPTOR.services_by_name.values():
                setattr(self, service.name, Stub(channel, service))

    def __getattr__(self, name: str) -> Stub:
        raise AttributeError(name)


class Rig:
    """A node that serves, and who calls it."""

    def __init__(self, node: Node, port: int, channel: Any, logged: list[Any]) -> None:
        self.node = node
        self.port = port
        self.channel = channel
        self.logged = logged
        self.stubs = Stubs(channel)

    async def create(self, name: str = "orders", partitions: int = 1, **settings: Any) -> None:
        request = admin_pb2.CreateTopicRequest(name=name, partitions=partitions)
        for key, value in settings.items():
            field = {bool: "flag", int: "number", str: "text"}[type(value)]
            setattr(request.settings[key], field, value)
        await self.stubs.AdminService.CreateTopic(request)

    async def send(self, *values: bytes, topic: str = "orders", **fields: Any) -> list[Any]:
        messages = [messages_pb2.NewMessage(value=value, **fields) for value in values]
        request = messages_pb2.SendRequest(topic=topic, messages=messages)
        return list((await self.stubs.MessageService.Send(request)).results)

    async def receive(self, group: str = "workers", **fields: Any) -> list[Any]:
        fields = {"topic": "orders", "count": 100, **fields}
        request = deliveries_pb2.ReceiveRequest(group=group, **fields)
        return list((await self.stubs.DeliveryService.Receive(request)).deliveries)

    async def settle(self, verb: str, *deliveries: Any, **fields: Any) -> Any:
        settles = [
            deliveries_pb2.Settle(
                lease_token=delivery.lease_token,
                verb=deliveries_pb2.Verb.Value(f"VERB_{verb.upper()}"),
                **fields,
            )
            for delivery in deliveries
        ]
        return await self.stubs.DeliveryService.Settle(
            deliveries_pb2.SettleRequest(settles=settles)
        )


def serve(scenario: Callable[[Rig], Awaitable[None]], **changes: Any) -> None:
    """Run a scenario on a node of its own."""
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_run(scenario, Path(directory), changes))


async def _run(scenario: Callable[[Rig], Awaitable[None]], home: Path, changes: Any) -> None:
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    listener = bind_free()
    peer = f"127.0.0.1:{listener.getsockname()[1]}"
    settings = Settings(
        node=NodeSettings(data_dir=str(home)), listen=ListenSettings(peer=peer), **changes
    )
    logged: list[Any] = []

    def log(level: str, event: str, **fields: Any) -> None:
        logged.append((level, event, fields))

    lanes = (ThreadLane(loop, "sync"), ThreadLane(loop, "segment"))
    network = TcpNetwork(loop, peer, log)
    disk = OsDisk(str(home))
    node = Node(clock, random.Random(7), disk, *lanes, network, settings, log)
    network.events = node
    gateway = GrpcGateway(clock, node, settings, log)
    try:
        node.start()
        await network.start(listener)
        async with asyncio.timeout(20):
            while not node.status().ready:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        port = free_port()
        await gateway.start(f"127.0.0.1:{port}")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await scenario(Rig(node, port, channel, logged))
    finally:
        await gateway.stop(0)
        stopped = asyncio.Event()
        node.stop(stopped.set)
        async with asyncio.timeout(10):
            await stopped.wait()
        network.close()
        for lane in lanes:
            lane.close()
    bugs = [row for row in logged if row[1] == "grpc.bug"]
    assert not bugs, bugs[0][2]["where"]


def serve_little(
    scenario: Callable[[LittleNode, Any], Awaitable[None]], node: LittleNode | None = None
) -> list[Any]:
    """Run a scenario on a node that is one dictionary (node, channel); return what was logged."""
    node = node or LittleNode()
    logged: list[Any] = []

    async def run() -> None:
        port = free_port()
        clock = LoopClock(asyncio.get_running_loop())

        def log(level: str, event: str, **fields: Any) -> None:
            logged.append((level, event, fields))

        gateway = GrpcGateway(clock, node, Settings(), log)  # type: ignore[arg-type]
        await gateway.start(f"127.0.0.1:{port}")
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await scenario(node, channel)
        finally:
            await gateway.stop(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    return logged


def free_port() -> int:
    """Return a port that nobody uses."""
    with bind_free() as listener:
        return listener.getsockname()[1]


async def refusal(awaitable: Awaitable[Any]) -> tuple[str, str]:
    """Return status and code of a call that must fail."""
    try:
        answer = await awaitable
    except grpc.aio.AioRpcError as error:
        return told(error)
    raise AssertionError(f"not refused: {answer}")


def told(error: grpc.aio.AioRpcError) -> tuple[str, str]:
    """Return the status of a failed call, and the code of the error it carries."""
    trailing = dict(error.trailing_metadata() or ())
    raw = trailing.get(ERROR_KEY)
    return error.code().name, errors_pb2.Error.FromString(raw).code if raw else ""
