"""Work groups over gRPC: receive, settle."""

from collections.abc import AsyncIterator

from raftline.gateways.grpc.bounds import bounded
from raftline.gateways.grpc.calling import Call, unwrap
from raftline.gateways.grpc.leasing import Leasing
from raftline.gateways.grpc.receive_stream import ReceiveStream
from raftline.gateways.grpc.registry import Send
from raftline.gateways.grpc.settling import Settling, ranges_reply, settle_reply
from raftline.gateways.ports import Calls
from raftline.model.limits import WAIT_MS_MAX
from raftline.node.ports import Clock
from raftline.wire.proto.raftline.v1 import deliveries_pb2 as pb

COUNT_DEFAULT = 10


class DeliveryService:
    """raftline.v1.DeliveryService."""

    __slots__ = ("_clock", "_leasing", "_settling")

    def __init__(self, clock: Clock, calls: Calls, *, reply_bytes_max: int) -> None:
        self._clock = clock
        self._leasing = Leasing(calls, reply_bytes_max=reply_bytes_max)
        self._settling = Settling(calls)

    async def receive(self, request: pb.ReceiveRequest, call: Call) -> pb.ReceiveReply:
        """Lease messages; wait for some if there are none."""
        wish = self._leasing.wish_of(request, COUNT_DEFAULT)
        wait_ms = bounded("wait_ms", request.wait_ms, 0, 0, WAIT_MS_MAX)
        wait_ms, timeout_ms = call.waiting(wait_ms)
        received = await self._leasing.lease(wish, wish.count, wait_ms, timeout_ms, call.is_wanted)
        return self._leasing.reply_of(wish, received)

    async def receive_stream(
        self, requests: AsyncIterator[pb.ReceiveStreamRequest], call: Call, send: Send
    ) -> None:
        """Lease messages as they come."""
        await ReceiveStream(self._clock, self._leasing, self._settling, call, send).run(requests)

    async def settle(self, request: pb.SettleRequest, call: Call) -> pb.SettleReply:
        """Ack, nack, reject or extend, each delivery in its own way."""
        started, _ = self._settling.start(request, call.timeout_ms)
        errors = unwrap(await started)
        if all(error is not None for error in errors):
            raise errors[0]
        return settle_reply(request, errors)

    async def settle_ranges(
        self, request: pb.SettleRangesRequest, call: Call
    ) -> pb.SettleRangesReply:
        """Settle ranges of leases on one partition."""
        return ranges_reply(unwrap(await self._settling.start_ranges(request, call.timeout_ms)))
