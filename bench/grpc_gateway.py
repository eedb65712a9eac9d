"""CPU of a real node per gRPC call, and messages a second, in every way to send and to receive.

    .venv/bin/python -m bench.grpc_gateway [seconds each]

The client is this process; the figures are those of the node alone.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio
import uvloop

from bench.cluster import BenchCluster
from bench.processes import cpu_ns
from raftline.model.records import seal_batch
from raftline.wire.proto.raftline.v1 import deliveries_pb2 as deliveries
from raftline.wire.proto.raftline.v1 import messages_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SERVICE, WORK = "/raftline.v1.MessageService/", "/raftline.v1.DeliveryService/"
VALUE = b"v" * 100
TOPIC = "orders"


class Channel:
    """The calls that are measured."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.send = channel.unary_unary(
            SERVICE + "Send", pb.SendRequest.SerializeToString, pb.SendReply.FromString
        )
        self.send_stream = channel.stream_stream(
            SERVICE + "SendStream", pb.SendRequest.SerializeToString, pb.SendReply.FromString
        )
        self.batches_stream = channel.stream_stream(
            SERVICE + "SendBatchesStream",
            pb.SendBatchesRequest.SerializeToString,
            pb.SendBatchesReply.FromString,
        )
        self.receive_stream = channel.stream_stream(
            WORK + "ReceiveStream",
            deliveries.ReceiveStreamRequest.SerializeToString,
            deliveries.ReceiveStreamReply.FromString,
        )


def request(count: int) -> pb.SendRequest:
    return pb.SendRequest(topic=TOPIC, messages=[pb.NewMessage(value=VALUE, partition=0)] * count)


async def unary(channel: Channel, count: int, until: float, inflight: int = 32) -> tuple[int, int]:
    """Return calls and messages."""
    calls = 0
    asked = request(count)

    async def caller() -> None:
        nonlocal calls
        while time.perf_counter() < until:
            await channel.send(asked)
            calls += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(inflight):
            group.create_task(caller())
    return calls, calls * count


async def streamed(call: Any, asked: Any, count: int, until: float) -> tuple[int, int]:
    async def write() -> None:
        while time.perf_counter() < until:
            await call.write(asked)
        await call.done_writing()

    calls = 0
    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        async for reply in call:
            assert not reply.HasField("error"), reply
            calls += 1
    return calls, calls * count


async def work(channel: Channel, form: int, until: float) -> tuple[int, int]:
    call = channel.receive_stream()
    opening = deliveries.Open(
        topic=TOPIC, group=f"g{form}", window=5_000, count=500, form=form, lease_ms=60_000
    )
    await call.write(deliveries.ReceiveStreamRequest(open=opening))
    calls = messages = 0
    while time.perf_counter() < until:
        reply = await call.read()
        if reply.WhichOneof("reply") != "received":
            continue
        calls += 1
        if form == pb.FORM_BATCHES:
            got = reply.received.batches
            spans = list(got.spans)
            rows = [
                deliveries.RangeSettle(
                    verb=deliveries.VERB_ACK,
                    term=got.term,
                    sequence=got.sequence,
                    attempt=spans[at + 2],
                    generation=spans[at + 3],
                    ranges=spans[at : at + 2],
                )
                for at in range(0, len(spans), 4)
            ]
            messages += sum(spans[at + 1] - spans[at] for at in range(0, len(spans), 4))
            ranges = deliveries.SettleRangesRequest(topic=TOPIC, group=f"g{form}", settles=rows)
            await call.write(deliveries.ReceiveStreamRequest(settle_ranges=ranges))
        else:
            got = reply.received.deliveries
            messages += len(got)
            settles = [
                deliveries.Settle(lease_token=d.lease_token, verb=deliveries.VERB_ACK) for d in got
            ]
            settle = deliveries.SettleRequest(settles=settles)
            await call.write(deliveries.ReceiveStreamRequest(settle=settle))
    call.cancel()
    return calls, messages


async def measure(cluster: BenchCluster, seconds: float) -> None:
    node = cluster.nodes[0]
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(node.grpc, options=options) as opened:
        channel = Channel(opened)
        sealed = seal_batch([(None, VALUE, (), 1_700_000_000_000)] * 1_000)
        batch = pb.SendBatchesRequest(topic=TOPIC, partition=0, batches=sealed)
        await channel.send(request(1))
        rows: list[tuple[str, Callable[[float], Awaitable[tuple[int, int]]]]] = [
            ("Send, 1 message", lambda end: unary(channel, 1, end)),
            ("Send, 100 messages", lambda end: unary(channel, 100, end, 8)),
            (
                "SendStream, 1 message",
                lambda end: streamed(channel.send_stream(), request(1), 1, end),
            ),
            (
                "SendStream, 1,000 messages",
                lambda end: streamed(channel.send_stream(), request(1_000), 1_000, end),
            ),
            (
                "SendBatchesStream, 1,000 messages",
                lambda end: streamed(channel.batches_stream(), batch, 1_000, end),
            ),
            ("ReceiveStream + settle, 500 messages", lambda end: work(channel, 0, end)),
            ("ReceiveStream + ranges, batches", lambda end: work(channel, 1, end)),
        ]
        for name, run in rows:
            cpu, began = cpu_ns(node.pid), time.perf_counter()
            calls, messages = await run(began + seconds)
            took, used = time.perf_counter() - began, cpu_ns(node.pid) - cpu
            print(
                f"{name:40} {used / max(1, calls) / 1000:8.0f} us/call "
                f"{used / max(1, messages) / 1000:8.1f} us/message "
                f"{messages / took:10,.0f} messages/s  {used / took / 1e7:4.0f} % CPU",
                flush=True,
            )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    with tempfile.TemporaryDirectory() as directory:
        cluster = BenchCluster(Path(directory), 1)
        cluster.start()
        try:
            cluster.create(TOPIC)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(measure(cluster, seconds))
        finally:
            cluster.local.stop()


if __name__ == "__main__":
    main()
