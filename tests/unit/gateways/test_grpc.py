"""Messages over gRPC, on a real node: send, read, find; deadlines, statuses, health, reflection."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from raftline.config.settings import LimitSettings, TopicSettings
from raftline.gateways.error_table import ERROR_TABLE
from raftline.gateways.grpc import pipeline
from raftline.gateways.grpc.calling import (
    CODE_KEY,
    DETAILS_KEY,
    ERROR_KEY,
    error_message,
    status_of,
)
from raftline.gateways.grpc.gateway import GrpcGateway
from raftline.gateways.grpc.registry import method_name
from raftline.model.errors import ERRORS, RaftlineError, TimedOut, UnknownTopic
from raftline.model.records import open_batches, seal_batch
from raftline.wire.proto.raftline.v1 import admin_pb2, deliveries_pb2
from raftline.wire.proto.raftline.v1 import messages_pb2 as pb
from raftline.wire.proto.raftline.v1.errors_pb2 import Error, StatusDetails
from tests.unit.gateways.grpc_rig import Rig, Stubs, refusal, serve, serve_little
from tests.unit.gateways.little_node import LittleNode


def seal(values: list[bytes]) -> bytes:
    return seal_batch([(None, value, [], 1_000) for value in values])


def read(partition: int = 0, offset: int = 0, topic: str = "orders", **fields: Any) -> Any:
    return pb.ReadRequest(topic=topic, partition=partition, offset=offset, **fields)


# ---------------------------------------------------------------------- send


def test_send_and_read() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        headers = [pb.Header(name="colour", value=b"red"), pb.Header(name="empty")]
        first, second = await rig.send(b"a", b"\xff", key=b"k", headers=headers)
        assert (first.id, first.partition, first.offset) == ("orders.0.0", 0, 0)
        assert (second.id, second.offset, second.HasField("error")) == ("orders.0.1", 1, False)
        reply = await rig.stubs.MessageService.Read(read())
        assert [(m.id, m.key, m.value) for m in reply.messages] == [
            ("orders.0.0", b"k", b"a"),
            ("orders.0.1", b"k", b"\xff"),
        ]
        shown = reply.messages[0].headers
        assert [(h.name, h.value, h.HasField("value")) for h in shown] == [
            ("colour", b"red", True),
            ("empty", b"", False),
        ]
        assert (reply.next_offset, reply.log_start, reply.commit_end) == (2, 0, 2)
        assert not (await rig.send(b"x"))[0].HasField("error")

    serve(scenario)


def test_what_a_message_lacks_it_lacks() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        bare = pb.SendRequest(topic="orders", messages=[pb.NewMessage()])
        await rig.stubs.MessageService.Send(bare)
        (message,) = (await rig.stubs.MessageService.Read(read())).messages
        assert not message.HasField("key")
        assert not message.HasField("value")

    serve(scenario)


def test_every_message_has_its_own_result() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(partitions=2)
        request = pb.SendRequest(topic="orders")
        request.messages.add(value=b"fine", partition=1)
        request.messages.add(value=b"nowhere", partition=7)
        request.messages.add(value=b"odd", priority_name="sometimes")
        request.messages.add(value=b"late", timestamp_ms=-5)
        results = (await rig.stubs.MessageService.Send(request)).results
        assert [result.error.code for result in results] == [
            "",
            "unknown_partition",
            "invalid_argument",
            "invalid_argument",
        ]
        assert (results[0].partition, results[0].offset) == (1, 0)
        assert results[1].offset == -1
        assert not results[1].error.retry
        del request.messages[0]
        said = await refusal(rig.stubs.MessageService.Send(request))
        assert said == ("INVALID_ARGUMENT", "invalid_argument"), "all refused: the call is"

    serve(scenario)


def test_priority_delay_and_dedup() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        (high,) = await rig.send(b"h", priority_name="high")
        assert high.priority == 10
        (first,) = await rig.send(b"once", dedup_key="d-1")
        (again,) = await rig.send(b"once", dedup_key="d-1")
        assert again.duplicate
        assert again.id == first.id
        (later,) = await rig.send(b"later", delay_ms=200)
        assert (later.delayed, later.offset) == (True, -1)
        assert later.due_ms > 0
        assert later.id.startswith("orders.0.w")
        got = []
        async with asyncio.timeout(10):
            while len(got) < 3:
                got = (await rig.stubs.MessageService.Read(read(wait_ms=1000))).messages
        assert got[0].priority == 10
        assert (got[2].value, got[2].id) == (b"later", later.id)

    serve(scenario)


def test_a_stream_of_sends_is_answered_in_order() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        await rig.send(b"the leader is known now")
        call = rig.stubs.MessageService.SendStream()

        async def write() -> None:
            for n in range(200):
                request = pb.SendRequest(topic="orders")
                request.messages.add(value=b"%d" % n, partition=9 if n == 100 else 0)
                await call.write(request)
            await call.write(pb.SendRequest(topic="orders"))
            await call.done_writing()

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(write())
            replies = [reply async for reply in call]
        assert len(replies) == 201
        offsets = [reply.results[0].offset for reply in replies[:200]]
        assert offsets == [*range(1, 101), -1, *range(101, 200)]
        assert replies[100].results[0].error.code == "unknown_partition"
        assert replies[200].error.code == "invalid_argument"

    serve(scenario)


def test_a_stream_is_not_read_from_while_too_many_bytes_of_it_are_in_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sixty-four requests of thirty-two mebibytes were two gibibytes of a node's memory."""
    monkeypatch.setattr(pipeline, "WINDOW_BYTES", 100_000)
    big = pb.SendBatchesRequest(topic="orders", partition=0, batches=seal([b"x" * 30_000]))
    whole = pb.SendBatchesRequest(topic="orders", partition=0, batches=seal([b"x" * 200_000]))

    async def scenario(node: LittleNode, channel: Any) -> None:
        node.topic("orders")
        call = Stubs(channel).MessageService.SendBatchesStream()
        node.later = []
        offsets: list[int] = []

        async def write() -> None:
            for request in (*[big] * 20, whole, big):
                await call.write(request)
            await call.done_writing()

        async def answer() -> None:
            while not offsets:
                await asyncio.sleep(0.05)
                assert node.later is not None
                assert len(node.later) <= 3
                node.release()
                node.later = []

        async def hear() -> None:
            offsets.extend([reply.results[0].base_offset async for reply in call])

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for part in (write, answer, hear):
                group.create_task(part())
        assert offsets == list(range(22))

    serve_little(scenario)


def test_sealed_batches_travel_untouched() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(partitions=2)
        batches = seal([b"a", b"b"]) + seal([b"c"])
        request = pb.SendBatchesRequest(topic="orders", partition=1, batches=batches)
        results = (await rig.stubs.MessageService.SendBatches(request)).results
        assert [(r.partition, r.base_offset, r.count) for r in results] == [(1, 0, 2), (1, 2, 1)]
        reply = await rig.stubs.MessageService.Read(read(1, form=pb.FORM_BATCHES))
        assert [m.value for m in open_batches(reply.batches)] == [b"a", b"b", b"c"]
        assert reply.next_offset == 3
        broken = pb.SendBatchesRequest(topic="orders", partition=1, batches=batches[:-1] + b"?")
        assert (await refusal(rig.stubs.MessageService.SendBatches(broken)))[1] == "corrupt_batch"
        once = pb.SendBatchesRequest(topic="orders", batches=seal([b"d"]), dedup_key="d-7")
        (first,) = (await rig.stubs.MessageService.SendBatches(once)).results
        (again,) = (await rig.stubs.MessageService.SendBatches(once)).results
        assert (again.duplicate, again.base_offset) == (True, first.base_offset)
        many = pb.SendBatchesRequest(topic="orders", batches=batches, dedup_key="d-8")
        said = await refusal(rig.stubs.MessageService.SendBatches(many))
        assert said == ("INVALID_ARGUMENT", "invalid_argument")

    serve(scenario)


def test_a_stream_of_batches() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        await rig.send(b"the leader is known now")
        call = rig.stubs.MessageService.SendBatchesStream()
        for _ in range(3):
            await call.write(pb.SendBatchesRequest(topic="orders", batches=seal([b"a", b"b"])))
        await call.write(pb.SendBatchesRequest(topic="orders", batches=b"nonsense"))
        await call.done_writing()
        replies = [reply async for reply in call]
        assert [reply.results[0].base_offset for reply in replies[:3]] == [1, 3, 5]
        assert replies[3].error.code == "corrupt_batch"

    serve(scenario)


# ---------------------------------------------------------------------- read


def test_read_by_limit_and_time() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        request = pb.SendRequest(topic="orders")
        for n in range(10):
            request.messages.add(value=b"%d" % n, timestamp_ms=1_000 + 10 * n)
        await rig.stubs.MessageService.Send(request)
        reply = await rig.stubs.MessageService.Read(read(offset=3, limit=4))
        assert [m.offset for m in reply.messages] == [3, 4, 5, 6]
        assert reply.next_offset == 7
        find = rig.stubs.MessageService.FindOffset
        found = await find(pb.FindOffsetRequest(topic="orders", time_ms=1_035))
        assert (found.offset, found.timestamp_ms) == (4, 1_040)
        late = await find(pb.FindOffsetRequest(topic="orders", time_ms=9_999))
        assert (late.offset, late.commit_end) == (-1, 10)
        bounds = await find(pb.FindOffsetRequest(topic="orders"))
        assert (bounds.log_start, bounds.commit_end) == (0, 10)
        assert (await refusal(rig.stubs.MessageService.Read(read(offset=99))))[0] == "OUT_OF_RANGE"

    serve(scenario)


def test_a_log_begins_with_its_first_message_also_if_that_has_no_time() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        sealed = seal_batch([(None, b"a", (), -1)])
        await rig.stubs.MessageService.SendBatches(
            pb.SendBatchesRequest(topic="orders", partition=0, batches=sealed)
        )
        find = rig.stubs.MessageService.FindOffset
        bounds = await find(pb.FindOffsetRequest(topic="orders"))
        assert (bounds.offset, bounds.log_start, bounds.commit_end) == (0, 0, 1)
        assert (await find(pb.FindOffsetRequest(topic="orders", time_ms=0))).offset == -1

    serve(scenario)


def test_a_read_that_waits_is_answered_before_its_deadline() -> None:
    """It waited to the last millisecond: all its caller heard was that the time was up."""

    async def scenario(rig: Rig) -> None:
        await rig.create()
        await rig.stubs.MessageService.Read(read())  # the leader is known now
        asked: list[int] = []
        ask = rig.node.read

        def note(*arguments: Any, **more: Any) -> None:
            asked.extend(arguments[4:6])
            ask(*arguments, **more)

        rig.node.read = note
        reply = await rig.stubs.MessageService.Read(read(wait_ms=5_000), timeout=3)
        assert (list(reply.messages), reply.next_offset) == ([], 0)
        wait_ms, timeout_ms = asked
        assert timeout_ms < 4_000
        assert wait_ms == timeout_ms - 100

    serve(scenario)


def test_a_stream_reads_what_comes() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        await rig.send(b"0", b"1")
        call = rig.stubs.MessageService.ReadStream(read())
        assert [m.value for m in (await call.read()).messages] == [b"0", b"1"]
        await rig.send(b"2")
        assert [m.value for m in (await call.read()).messages] == [b"2"]
        call.cancel()
        ending = rig.stubs.MessageService.ReadStream(read(wait_ms=100))
        async with asyncio.timeout(10):
            assert [m.offset async for reply in ending for m in reply.messages] == [0, 1, 2]

    serve(scenario)


def test_the_place_in_a_trace_travels_with_the_messages() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        request = pb.SendRequest(topic="orders")
        request.messages.add(value=b"a", headers=[pb.Header(name="colour", value=b"red")])
        parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        metadata = [("traceparent", parent), ("tracestate", "a=b")]
        await rig.stubs.MessageService.Send(request, metadata=metadata)
        await rig.stubs.MessageService.Send(request, metadata=[("traceparent", "nonsense")])
        first, second = (await rig.stubs.MessageService.Read(read())).messages
        assert {h.name: h.value for h in first.headers} == {
            "colour": b"red",
            "traceparent": parent.encode(),
            "tracestate": b"a=b",
        }
        assert [h.name for h in second.headers] == ["colour"]

    serve(scenario)


def test_calls_and_refusals_are_counted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        await refusal(rig.stubs.MessageService.Read(read(topic="nowhere")))
        counts = rig.node.counters.gateway("grpc")
        assert counts.requests == 2
        assert counts.refused == {"unknown_topic": 1}

    serve(scenario)


# ---------------------------------------------------------------------- statuses


def test_topics_made_at_first_use_unless_the_setting_says_no() -> None:
    async def with_it(rig: Rig) -> None:
        assert (await rig.send(b"x", topic="fresh"))[0].id.startswith("fresh.")

    async def without(rig: Rig) -> None:
        request = pb.SendRequest(topic="fresh", messages=[pb.NewMessage(value=b"x")])
        said = await refusal(rig.stubs.MessageService.Send(request))
        assert said == ("NOT_FOUND", "unknown_topic")

    serve(with_it)
    serve(without, topics=TopicSettings(auto_create=False))


def test_a_refusal_says_code_message_and_hint_in_every_way() -> None:
    async def scenario(rig: Rig) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rig.stubs.MessageService.Read(read(topic="nowhere"))
        error, expected = caught.value, UnknownTopic("nowhere")
        assert error.code() == grpc.StatusCode.NOT_FOUND
        trailing = dict(error.trailing_metadata())
        told = Error.FromString(trailing[ERROR_KEY])
        assert (told.code, told.message) == ("unknown_topic", expected.message)
        assert told.hint == expected.hint
        assert told.message in error.details()
        assert told.hint in error.details()
        assert trailing[CODE_KEY] == "unknown_topic"
        details = StatusDetails.FromString(trailing[DETAILS_KEY])
        assert details.code == grpc.StatusCode.NOT_FOUND.value[0]
        packed, inside = details.details[0], Error()
        assert isinstance(packed, AnyMessage)
        assert packed.Unpack(inside)
        assert inside == told

    serve(scenario)


@pytest.mark.parametrize("kind", ERRORS.values(), ids=list(ERRORS))
def test_every_error_has_its_status(kind: type[RaftlineError]) -> None:
    error = kind.__new__(kind)
    RaftlineError.__init__(error, "message é", "hint")
    code, text, trailing = status_of(error)
    assert code.name == ERROR_TABLE[kind].grpc
    assert "message" in text
    told = Error.FromString(dict(trailing)[ERROR_KEY])
    assert (told.code, told.retry, told.unknown) == (kind.code, kind.retry, kind.unknown)
    assert told == error_message(error)


def test_a_deadline_is_the_timeout_of_the_call() -> None:
    async def scenario(node: LittleNode, channel: Any) -> None:
        stubs = Stubs(channel)
        request = pb.SendRequest(topic="orders", messages=[pb.NewMessage(value=b"x")])
        await stubs.MessageService.Send(request)
        await stubs.MessageService.Send(request, timeout=13)
        await stubs.MessageService.Send(request, timeout=7_200)
        assert node.timeouts[0] == 15_000
        assert 3_000 < node.timeouts[1] <= 13_100  # a busy machine may take its time
        assert node.timeouts[2] == 60_000
        node.refuse = TimedOut("append", 5)
        said = await refusal(stubs.MessageService.Send(request))
        assert said == ("DEADLINE_EXCEEDED", "timed_out")
        node.refuse, node.later = None, []
        began = asyncio.get_running_loop().time()
        said = await refusal(stubs.MessageService.Send(request, timeout=0.3))
        assert said[0] == "DEADLINE_EXCEEDED"
        assert asyncio.get_running_loop().time() - began < 5
        node.release()  # nobody is there to hear it
        assert (await stubs.MessageService.Send(request)).results[0].id

    serve_little(scenario)


def test_a_bug_is_told_and_hurts_nobody_else() -> None:
    class Buggy(LittleNode):
        def look_up_time(self, *_: Any) -> None:
            raise ZeroDivisionError

    async def scenario(node: LittleNode, channel: Any) -> None:
        stubs = Stubs(channel)
        find = stubs.MessageService.FindOffset(pb.FindOffsetRequest(topic="orders"))
        assert await refusal(find) == ("INTERNAL", "internal")
        request = pb.SendRequest(topic="orders", messages=[pb.NewMessage(value=b"x")])
        assert (await stubs.MessageService.Send(request)).results[0].id

    logged = serve_little(scenario, Buggy())
    (bug,) = [row for row in logged if row[1] == "grpc.bug"]
    assert "ZeroDivisionError" in bug[2]["where"]


# ---------------------------------------------------------------------- bounds, health, reflection


def test_a_request_over_the_limit_is_refused() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        value = b"x" * (3 << 20)
        request = pb.SendRequest(topic="orders", messages=[pb.NewMessage(value=value)])
        assert (await refusal(rig.stubs.MessageService.Send(request)))[0] == "RESOURCE_EXHAUSTED"
        many = pb.SendRequest(topic="orders", messages=[pb.NewMessage(value=b"")] * 10_001)
        said = await refusal(rig.stubs.MessageService.Send(many))
        assert said == ("INVALID_ARGUMENT", "too_large")

    limits = LimitSettings(batch_bytes_max=1 << 20, request_bytes_max=1 << 20)
    serve(scenario, limits=limits)


def test_health() -> None:
    async def scenario(node: LittleNode, channel: Any) -> None:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        for name in ("", "raftline.v1.MessageService", "queue.v1.QueueService"):
            reply = await check(health_pb2.HealthCheckRequest(service=name))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        unknown = check(health_pb2.HealthCheckRequest(service="no.such"))
        assert (await refusal(unknown))[0] == "NOT_FOUND"
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        node.ready = False
        async with asyncio.timeout(5):
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()

    serve_little(scenario)


def test_reflection_tells_the_whole_contract() -> None:
    async def scenario(rig: Rig) -> None:
        def look() -> tuple[list[str], list[str], list[str]]:
            with grpc.insecure_channel(f"127.0.0.1:{rig.port}") as channel:
                database = ProtoReflectionDescriptorDatabase(channel)
                pool = DescriptorPool(database)
                queue = pool.FindServiceByName("queue.v1.QueueService")
                send = pool.FindMessageTypeByName("raftline.v1.SendRequest")
                names = list(database.get_services())
                return names, [m.name for m in queue.methods], [f.name for f in send.fields]

        services, methods, fields = await asyncio.to_thread(look)
        assert "raftline.v1.DeliveryService" in services
        assert "grpc.health.v1.Health" in services
        assert "ReceiveMessageForPartitionID" in methods
        assert fields == ["topic", "messages", "producer"]

    serve(scenario)


def test_every_method_of_the_contract_is_served() -> None:
    files = (pb, admin_pb2, deliveries_pb2)
    names = [s.full_name for file in files for s in file.DESCRIPTOR.services_by_name.values()]
    assert method_name("ReceiveMessageForPartitionID") == "receive_message_for_partition_id"

    async def scenario(rig: Rig) -> None:
        gateway = GrpcGateway(rig.node.clock, rig.node, rig.node.settings, lambda *_, **__: None)
        assert set(names) <= set(gateway.services)
        nowhere = rig.channel.unary_unary("/raftline.v1.MessageService/Nothing")
        assert (await refusal(nowhere(b"")))[0] == "UNIMPLEMENTED"

    serve(scenario)
