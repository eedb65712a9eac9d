"""Work groups over gRPC, on a real node: receive, settle, and both in one stream."""

import asyncio
from typing import Any, cast

import grpc.aio
import pytest

from raftline.gateways.grpc.leasing import Leasing
from raftline.machines.delivery.commands import RELEASE
from raftline.model.calls import Received
from raftline.model.records import open_batches
from raftline.wire.proto.raftline.v1 import deliveries_pb2 as pb
from raftline.wire.proto.raftline.v1 import groups_pb2
from raftline.wire.proto.raftline.v1.messages_pb2 import FORM_BATCHES
from tests.unit.gateways.grpc_rig import Rig, refusal, serve


def values(deliveries: list[Any]) -> list[bytes]:
    return [delivery.message.value for delivery in deliveries]


def acks(deliveries: list[Any], verb: int = pb.VERB_ACK, **fields: Any) -> pb.SettleRequest:
    settles = [pb.Settle(lease_token=d.lease_token, verb=verb, **fields) for d in deliveries]
    return pb.SettleRequest(settles=settles)


def opening(**fields: Any) -> pb.ReceiveStreamRequest:
    return pb.ReceiveStreamRequest(open=pb.Open(**{"topic": "orders", "group": "w", **fields}))


async def work(rig: Rig, group: str = "w") -> Any:
    request = groups_pb2.ShowGroupRequest(group=group)
    (row,) = (await rig.stubs.GroupService.Show(request)).work
    return row


async def leased(rig: Rig, count: int) -> None:
    """Wait for the log to hold what was handed out before it was committed."""
    async with asyncio.timeout(5):
        while (await work(rig)).leased != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------------- one call each


def test_receive_and_settle_in_every_way() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(backoff_ms=50)
        await rig.send(b"a", b"b", b"c", b"d", key=b"k")
        got = await rig.receive(count=4, member="w-1")
        assert values(got) == [b"a", b"b", b"c", b"d"]
        assert [(d.attempt, d.message.offset) for d in got] == [(1, 0), (1, 1), (1, 2), (1, 3)]
        assert (await rig.settle("ack", got[0])).settled == 1
        await rig.settle("extend", got[3], lease_ms=60_000)
        await rig.settle("nack", got[1], delay_ms=0, reason="busy")
        await rig.settle("reject", got[2], reason="poison")
        said = await refusal(rig.settle("ack", got[0]))
        assert said == ("FAILED_PRECONDITION", "lease_lost")
        (again,) = await rig.receive(wait_ms=5_000)
        assert (again.message.value, again.attempt) == (b"b", 2)
        mixed = await rig.settle("ack", again, got[1])
        assert [result.error.code for result in mixed.results] == ["", "lease_lost"]
        assert mixed.settled == 1
        assert await rig.receive() == []

    serve(scenario)


def test_settles_that_make_no_sense() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        await rig.send(b"a")
        (got,) = await rig.receive()
        settle = rig.stubs.DeliveryService.Settle
        for settles in (
            [],
            [pb.Settle(lease_token="?", verb=pb.VERB_ACK)],
            [pb.Settle(lease_token=got.lease_token)],
            [pb.Settle(lease_token=got.lease_token, verb=9)],
            [pb.Settle(lease_token=got.lease_token, verb=pb.VERB_ACK, delay_ms=5)],
            [pb.Settle(lease_token=got.lease_token, verb=pb.VERB_ACK, lease_ms=5_000)],
            [pb.Settle(lease_token=got.lease_token, verb=pb.VERB_EXTEND)],
            [pb.Settle(lease_token=got.lease_token, verb=pb.VERB_NACK, delay_ms=-1)],
        ):
            said = await refusal(settle(pb.SettleRequest(settles=settles)))
            assert said == ("INVALID_ARGUMENT", "invalid_argument"), settles

    serve(scenario)


def test_a_release_is_no_delivery() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(max_retries=0)
        await rig.send(b"a")
        for _ in range(2):
            (got,) = await rig.receive()
            assert got.attempt == 1
            assert (await rig.settle("release", got)).settled == 1
        raw = pb.ReceiveRequest(topic="orders", group="workers", form=FORM_BATCHES)
        leased = (await rig.stubs.DeliveryService.Receive(raw)).batches
        row = pb.RangeSettle(
            verb=pb.VERB_RELEASE,
            term=leased.term,
            sequence=leased.sequence,
            attempt=1,
            ranges=[0, 1],
        )
        request = pb.SettleRangesRequest(topic="orders", group="workers", settles=[row])
        assert [
            list(r.ranges) for r in (await rig.stubs.DeliveryService.SettleRanges(request)).lost
        ] == [[]]
        (last,) = await rig.receive()
        assert last.attempt == 1
        await rig.settle("nack", last, reason="x" * 5_000)  # cut, not refused

    serve(scenario)


def test_a_long_poll_ends_with_a_message_or_at_its_time() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await rig.receive(wait_ms=300) == []
        assert loop.time() - began >= 0.29
        request = pb.ReceiveRequest(topic="orders", group="workers", wait_ms=30_000)
        reply = await rig.stubs.DeliveryService.Receive(request, timeout=0.6)
        assert not reply.deliveries, "a caller's deadline is an answer in time, not a failure"
        waiting = asyncio.ensure_future(rig.receive(wait_ms=30_000))
        await asyncio.sleep(0.2)
        await rig.send(b"x")
        async with asyncio.timeout(10):
            assert values(await waiting) == [b"x"]

    serve(scenario)


def test_a_worker_that_left_gets_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        await rig.receive()
        gone = rig.stubs.DeliveryService.Receive(
            pb.ReceiveRequest(topic="orders", group="workers", wait_ms=30_000)
        )
        await asyncio.sleep(0.3)
        gone.cancel()
        await asyncio.sleep(0.3)
        await rig.send(b"x")
        (got,) = await rig.receive(wait_ms=5_000)
        assert got.attempt == 1, "it was leased to nobody before"

    serve(scenario)


def test_batches_under_a_lease_and_ranges_settled() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        await rig.send(*[b"%d" % n for n in range(6)])
        request = pb.ReceiveRequest(topic="orders", group="w", count=4, form=FORM_BATCHES)
        got = (await rig.stubs.DeliveryService.Receive(request)).batches
        assert list(got.spans) == [0, 4, 1, 0]
        assert [m.value for m in open_batches(got.batches)][:4] == [b"0", b"1", b"2", b"3"]
        row = pb.RangeSettle(
            verb=pb.VERB_ACK, term=got.term, sequence=got.sequence, attempt=1, ranges=[0, 2, 3, 4]
        )
        ranges = pb.SettleRangesRequest(topic="orders", group="w", settles=[row])
        reply = await rig.stubs.DeliveryService.SettleRanges(ranges)
        assert [list(lost.ranges) for lost in reply.lost] == [[]]
        assert (await work(rig)).floor == 2
        again = await rig.stubs.DeliveryService.SettleRanges(ranges)
        assert [list(lost.ranges) for lost in again.lost] == [[0, 2, 3, 4]]
        ranges.settles[0].ranges[:] = [5, 2]
        said = await refusal(rig.stubs.DeliveryService.SettleRanges(ranges))
        assert said == ("INVALID_ARGUMENT", "invalid_argument")

    serve(scenario)


# ---------------------------------------------------------------------- one stream


async def replies(call: Any, count: int) -> list[Any]:
    async with asyncio.timeout(15):
        return [await call.read() for _ in range(count)]


def test_a_window_is_filled_and_settles_make_room() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        await rig.send(*[b"%d" % n for n in range(10)])
        call = rig.stubs.DeliveryService.ReceiveStream()
        await call.write(opening(window=4, count=3, member="w-1"))
        first, second = await replies(call, 2)
        out = [*first.received.deliveries, *second.received.deliveries]
        assert values(out) == [b"0", b"1", b"2", b"3"]
        await leased(rig, 4)
        await call.write(pb.ReceiveStreamRequest(settle=acks(out[:2])))
        got = await replies(call, 2)
        settled = next(r.settled for r in got if r.WhichOneof("reply") == "settled")
        fresh = next(r.received for r in got if r.WhichOneof("reply") == "received")
        assert settled.settled == 2
        assert values(fresh.deliveries) == [b"4", b"5"]
        await call.done_writing()
        assert await call.read() == grpc.aio.EOF
        assert (await call.code()).name == "OK"
        await leased(rig, 4)
        assert (await work(rig)).floor == 2

    serve(scenario)


def test_the_end_of_a_lease_makes_room_too() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        await rig.send(b"0", b"1", b"2")
        call = rig.stubs.DeliveryService.ReceiveStream()
        await call.write(opening(window=2, lease_ms=600))
        (first,) = await replies(call, 1)
        assert values(first.received.deliveries) == [b"0", b"1"]
        later = await replies(call, 1)
        assert {d.attempt for r in later for d in r.received.deliveries} <= {1, 2}
        call.cancel()

    serve(scenario)


def test_credit_is_a_message_each() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        await rig.send(*[b"%d" % n for n in range(5)])
        call = rig.stubs.DeliveryService.ReceiveStream()
        await call.write(opening())
        await call.write(pb.ReceiveStreamRequest(credit=pb.Credit(count=2)))
        (first,) = await replies(call, 1)
        assert values(first.received.deliveries) == [b"0", b"1"]
        await asyncio.sleep(0.2)
        await leased(rig, 2)
        await call.write(pb.ReceiveStreamRequest(settle=acks(list(first.received.deliveries))))
        (settled,) = await replies(call, 1)
        assert settled.settled.settled == 2
        await call.write(pb.ReceiveStreamRequest(credit=pb.Credit(count=1)))
        (third,) = await replies(call, 1)
        assert values(third.received.deliveries) == [b"2"]
        call.cancel()

    serve(scenario)


def test_a_stream_of_batches_with_ranges_settled_in_it() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        await rig.send(*[b"%d" % n for n in range(4)])
        call = rig.stubs.DeliveryService.ReceiveStream()
        await call.write(opening(window=3, form=FORM_BATCHES))
        (first,) = await replies(call, 1)
        got = first.received.batches
        assert list(got.spans) == [0, 3, 1, 0]
        row = pb.RangeSettle(
            verb=pb.VERB_ACK,
            term=got.term,
            sequence=got.sequence,
            attempt=1,
            ranges=[0, 3],
        )
        ranges = pb.SettleRangesRequest(topic="orders", group="w", settles=[row])
        await call.write(pb.ReceiveStreamRequest(settle_ranges=ranges))
        seen = {r.WhichOneof("reply"): r for r in await replies(call, 2)}
        assert list(seen["settled_ranges"].settled_ranges.lost[0].ranges) == []
        assert list(seen["received"].received.batches.spans) == [3, 4, 1, 0]
        ranges.settles[0].ranges[:] = [0, 1 << 40]  # no more work than there are messages
        await call.write(pb.ReceiveStreamRequest(settle_ranges=ranges))
        (wide,) = await replies(call, 1)
        assert list(wide.settled_ranges.lost[0].ranges[:1]) == [0]
        call.cancel()

    serve(scenario)


def test_a_refused_settle_does_not_end_the_stream() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        call = rig.stubs.DeliveryService.ReceiveStream()
        await call.write(opening(window=1))
        await call.write(pb.ReceiveStreamRequest(settle=pb.SettleRequest()))
        (refused,) = await replies(call, 1)
        assert refused.refused.code == "invalid_argument"
        await rig.send(b"x")
        (got,) = await replies(call, 1)
        assert values(got.received.deliveries) == [b"x"]
        await call.write(pb.ReceiveStreamRequest(settle=acks(list(got.received.deliveries))))
        await call.done_writing()
        (settled,) = await replies(call, 1)
        assert settled.settled.settled == 1

    serve(scenario)


@pytest.mark.parametrize(
    "requests",
    [
        [],
        [pb.ReceiveStreamRequest()],
        [pb.ReceiveStreamRequest(credit=pb.Credit(count=1))],
        [opening(window=2), opening(window=2)],
        [opening(window=2), pb.ReceiveStreamRequest(credit=pb.Credit(count=1))],
        [opening(), pb.ReceiveStreamRequest(credit=pb.Credit(count=-1))],
        [opening(window=-1)],
        [opening(window=1, lease_ms=5)],
        [opening(window=1, group="")],
        [opening(window=1, topic="nowhere")],
    ],
)
def test_streams_that_make_no_sense(requests: list[pb.ReceiveStreamRequest]) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        call = rig.stubs.DeliveryService.ReceiveStream()

        async def run() -> None:
            for request in requests:
                await call.write(request)
            if not requests:
                await call.done_writing()
            while await call.read() != grpc.aio.EOF:
                pass
            raise AssertionError("not refused")

        async with asyncio.timeout(15):
            said = await refusal(run())
        assert said[0] in ("INVALID_ARGUMENT", "NOT_FOUND")
        assert said[1]

    serve(scenario)


def test_what_a_stream_did_not_settle_comes_again() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        await rig.send(b"0", b"1")
        call = rig.stubs.DeliveryService.ReceiveStream()
        await call.write(opening(window=5, lease_ms=500))
        await replies(call, 1)
        call.cancel()
        async with asyncio.timeout(10):
            got = await rig.receive("w", wait_ms=8_000)
        assert {d.attempt for d in got} == {2}

    serve(scenario)


def test_what_comes_in_the_moment_a_worker_leaves_is_given_back() -> None:
    """It was leased to nobody until its lease ran out, and that counted as a delivery."""

    class Calls:
        def __init__(self) -> None:
            self.settled: list[Any] = []

        def receive(self, *arguments: Any, **wishes: Any) -> None:
            self.answer = arguments[9]

        def settle(
            self, topic: str, partition: int, settles: list[Any], timeout_ms: int, done: Any
        ) -> None:
            self.settled += settles

    async def scenario() -> None:
        calls = Calls()
        leasing = Leasing(cast("Any", calls), reply_bytes_max=1 << 20)
        wish = leasing.wish_of(pb.ReceiveRequest(topic="orders", group="w"), 1)
        waiting = asyncio.create_task(leasing.lease(wish, 1, 0, 1_000, lambda: True))
        await asyncio.sleep(0)
        calls.answer(Received(2, 3, 7, 500, [40, 41, 1, 0], b"", 100))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        (given,) = calls.settled
        assert (given.verb, given.term, given.sequence, given.ranges) == (RELEASE, 3, 7, [40, 41])

    asyncio.run(scenario())
