"""What is no gRPC, or no request, ends at most the call or the connection it came on."""

import asyncio
import random
from typing import Any

import grpc.aio

from raftline.gateways.grpc.registry import Arrived
from raftline.wire.proto.raftline.v1 import messages_pb2 as pb
from tests.unit.gateways.grpc_rig import FILES, Rig, Stubs, refusal, serve, serve_little
from tests.unit.gateways.little_node import LittleNode

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SEEDS = 60


async def is_alive(rig: Rig) -> None:
    """Send through a new connection."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{rig.port}") as channel:
        request = pb.SendRequest(topic="orders", messages=[pb.NewMessage(value=b"x")])
        async with asyncio.timeout(10):
            await Stubs(channel).MessageService.Send(request)


def test_bytes_that_are_no_request_are_refused_as_such() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rng = random.Random(11)
        for file in FILES:
            for service in file.DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    path = f"/{service.full_name}/{method.name}"
                    for _ in range(4):
                        noise = rng.randbytes(rng.randrange(1, 60))
                        await _call_raw(rig.channel, path, method, noise)
        await is_alive(rig)
        send = rig.channel.unary_unary("/raftline.v1.MessageService/Send")
        said = await refusal(send(b"\xff\xff\xff"))
        assert said == ("INVALID_ARGUMENT", "invalid_argument")

    serve(scenario)


async def _call_raw(channel: Any, path: str, method: Any, noise: bytes) -> None:
    try:
        async with asyncio.timeout(3):
            if not method.server_streaming:
                await channel.unary_unary(path)(noise, timeout=2)
            elif method.client_streaming:
                call = channel.stream_stream(path)(timeout=2)
                await call.write(noise)
                await call.done_writing()
                await call.read()
            else:
                call = channel.unary_stream(path)(noise, timeout=1)
                await call.read()
                call.cancel()
    except (grpc.aio.AioRpcError, asyncio.CancelledError, asyncio.InvalidStateError):
        pass  # refused, which is right; some noise is a request


def test_frames_of_noise_never_end_a_node() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rng = random.Random(7)
        for seed in range(SEEDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
            if seed % 3:
                writer.write(PREFACE)
            writer.write(_frames(rng) if seed % 2 else rng.randbytes(rng.randrange(1, 400)))
            if seed % 5 == 0:
                writer.write_eof()
            try:
                async with asyncio.timeout(0.05):
                    await reader.read(1_000)
            except (TimeoutError, ConnectionError):
                pass
            writer.close()
        await is_alive(rig)

    serve(scenario)


def _frames(rng: random.Random) -> bytes:
    """Return frames with sound heads and contents of noise."""
    out = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # settings
    for _ in range(rng.randrange(1, 6)):
        body = rng.randbytes(rng.randrange(0, 80))
        kind, flags, stream = rng.randrange(0, 12), rng.randrange(0, 256), rng.randrange(0, 9)
        out += len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
        out += body
    return out


def test_headers_of_every_kind() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        request = pb.SendRequest(topic="orders", messages=[pb.NewMessage(value=b"x")])
        for metadata in (
            [("a", "b" * 4_000)],
            [("x-bin", bytes(range(256)))],
            [("partition", "9")],
        ):
            await rig.stubs.MessageService.Send(request, metadata=metadata)
        huge = rig.stubs.MessageService.Send(request, metadata=[("a", "b" * 60_000)])
        assert (await refusal(huge))[0] in ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL")
        await is_alive(rig)

    serve(scenario)


def test_names_never_reach_the_file_system() -> None:
    async def scenario(rig: Rig) -> None:
        for name in ("../x", "a/b", "..", "", "a" * 300, "a\x00b"):
            request = pb.SendRequest(topic=name, messages=[pb.NewMessage(value=b"x")])
            said = await refusal(rig.stubs.MessageService.Send(request))
            assert said[0] == "INVALID_ARGUMENT", name

    serve(scenario)


def test_more_bytes_in_work_than_allowed_are_refused() -> None:
    arrived = Arrived(None, "no", 5)
    assert (arrived.size, arrived.problem) == (5, "no")

    async def scenario(node: LittleNode, channel: Any) -> None:
        node.topic("orders", 1)
        node.later = []
        stubs, value = Stubs(channel), b"x" * (7 << 20)
        request = pb.SendRequest(
            topic="orders", messages=[pb.NewMessage(value=value, partition=0)] * 4
        )
        calls = [
            asyncio.ensure_future(stubs.MessageService.Send(request))  # 28 MiB each
            for _ in range(10)
        ]
        done, waiting = await asyncio.wait(calls, timeout=20, return_when="FIRST_COMPLETED")
        said = await refusal(done.pop())
        assert said == ("RESOURCE_EXHAUSTED", "over_limit")
        node.release()
        await asyncio.wait(waiting, timeout=20)
        assert any(not call.exception() for call in waiting)

    serve_little(scenario)
