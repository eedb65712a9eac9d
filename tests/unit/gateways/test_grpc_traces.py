"""Traces over gRPC: the timeline of a message by its id, and finding messages."""

from typing import Any

from raftline.wire.proto.raftline.v1 import traces_pb2 as pb
from tests.unit.gateways.grpc_rig import Rig, refusal, serve


async def search(rig: Rig, **wanted: Any) -> list[str]:
    request = pb.SearchTracesRequest(topic="orders", **wanted)
    return [row.id for row in (await rig.stubs.TraceService.Search(request)).messages]


def test_the_timeline_of_a_message() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(backoff_ms=100)
        (sent,) = await rig.send(b"x", key=b"k")
        first = await rig.receive(member="w-1")
        await rig.settle("nack", *first, reason="no paper", delay_ms=0)
        await rig.settle("ack", *await rig.receive(wait_ms=5_000, member="w-2"))
        trace = await rig.stubs.TraceService.Show(pb.ShowTraceRequest(id=sent.id))
        assert [line.event for line in trace.timeline] == [
            "PUBLISHED",
            "REPLICATED",
            "DELIVERED",
            "NACKED",
            "REDELIVERED",
            "ACKNOWLEDGED",
            "RETAINED",
        ]
        published, replicated, delivered, nacked, again, _, kept = trace.timeline
        assert published.partition == 0
        assert list(replicated.nodes) == ["node-1"]
        assert (delivered.member, delivered.group, delivered.attempt) == ("w-1", "workers", 1)
        assert not delivered.HasField("reason")
        assert (nacked.reason, again.reason, again.attempt) == ("no paper", "no paper", 2)
        assert kept.until_ms - published.at_ms == 168 * 3_600_000
        (group,) = trace.groups
        assert (group.group, group.state, group.attempts) == ("workers", "settled", 2)
        assert 0 <= group.to_delivery_ms <= group.to_end_ms
        assert (trace.offset, trace.traced, trace.complete) == (0, True, True)
        by_place = await rig.stubs.TraceService.Show(pb.ShowTraceRequest(id="orders/0@0"))
        assert by_place.timeline == trace.timeline

    serve(scenario)


def test_a_timeline_that_is_not_there() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        service = rig.stubs.TraceService
        assert await refusal(service.Show(pb.ShowTraceRequest(id="orders.0.9"))) == (
            "OUT_OF_RANGE",
            "offset_out_of_range",
        )
        assert (await refusal(service.Show(pb.ShowTraceRequest(id="?"))))[1] == "invalid_argument"
        lost = service.Search(pb.SearchTracesRequest(topic="nowhere"))
        assert await refusal(lost) == ("NOT_FOUND", "unknown_topic")
        wrong = service.Search(pb.SearchTracesRequest(topic="orders", state="lively"))
        assert (await refusal(wrong))[1] == "invalid_argument"
        far = service.Search(pb.SearchTracesRequest(topic="orders", partition=7))
        assert (await refusal(far))[1] == "unknown_partition"

    serve(scenario)


def test_messages_are_found_page_by_page() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(partitions=2)
        sent = [
            *await rig.send(b"a", b"b", partition=0, key=b"left"),
            *await rig.send(b"c", partition=1, key=b"\xff"),
        ]
        names = [row.id for row in sent]
        assert sorted(await search(rig)) == sorted(names)
        assert await search(rig, key=b"\xff") == names[2:]
        assert await search(rig, partition=0) == names[:2]
        (got,) = await rig.receive(partition=1, member="w-9")
        await rig.settle("extend", got, lease_ms=60_000)  # so its lease is committed
        assert await search(rig, state="leased", group="workers") == names[2:]
        assert await search(rig, member="w-9") == names[2:]
        await rig.settle("ack", got)
        assert await search(rig, state="settled") == names[2:]
        service = rig.stubs.TraceService
        page = await service.Search(pb.SearchTracesRequest(topic="orders", limit=2))
        assert page.next
        rest = await service.Search(
            pb.SearchTracesRequest(topic="orders", limit=2, after=page.next)
        )
        assert {row.id for row in [*page.messages, *rest.messages]} == set(names)
        assert rest.next == ""
        assert page.messages[0].key in (b"left", b"\xff")

    serve(scenario)
