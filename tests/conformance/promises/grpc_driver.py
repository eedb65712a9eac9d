"""The promises over gRPC: raftline.v1, one channel."""

from collections.abc import Callable
from typing import Any

import grpc

from raftline.gateways.grpc.calling import CODE_KEY
from raftline.wire.proto.raftline.v1 import (
    admin_pb2,
    dead_letters_pb2,
    deliveries_pb2,
    groups_pb2,
    messages_pb2,
    scheduled_pb2,
)
from tests.conformance.promises.driver import Leased, Letter, Moved, Placed, Refused, own_headers
from tests.unit.gateways.grpc_rig import Stubs

TIMEOUT_S = 30
VERBS = {
    "ack": deliveries_pb2.VERB_ACK,
    "nack": deliveries_pb2.VERB_NACK,
    "reject": deliveries_pb2.VERB_REJECT,
    "extend": deliveries_pb2.VERB_EXTEND,
    "release": deliveries_pb2.VERB_RELEASE,
}


def text_of(message: Any, name: str) -> str | None:
    """Return a field of bytes as text; None if it is left out."""
    return getattr(message, name).decode() if message.HasField(name) else None


class GrpcDriver:
    """Unary calls to one node."""

    name = "grpc"

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._stubs = Stubs(self._channel)

    def close(self) -> None:
        self._channel.close()

    def call(self, method: Callable[..., Any], request: Any) -> Any:
        """Make a call. Raises Refused."""
        try:
            return method(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            told: Any = error
            code = dict(told.trailing_metadata() or ()).get(CODE_KEY, told.code().name)
            raise Refused(str(code), str(told.details())) from error

    def create(self, topic: str, *, partitions: int, **settings: Any) -> None:
        told: dict[str, admin_pb2.Setting] = {}
        for name, value in settings.items():
            kind = {bool: "flag", int: "number", str: "text"}[type(value)]
            told[name] = admin_pb2.Setting(**{kind: value})
        request = admin_pb2.CreateTopicRequest(name=topic, partitions=partitions, settings=told)
        self.call(self._stubs.AdminService.CreateTopic, request)

    def send(
        self,
        topic: str,
        value: str,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        priority: int = 0,
        delay_ms: int | None = None,
        dedup_key: str | None = None,
    ) -> Placed:
        message = messages_pb2.NewMessage(
            value=value.encode(),
            key=None if key is None else key.encode(),
            headers=[
                messages_pb2.Header(name=name, value=text.encode())
                for name, text in (headers or {}).items()
            ],
            priority=priority,
            delay_ms=delay_ms,
            dedup_key=dedup_key,
        )
        request = messages_pb2.SendRequest(topic=topic, messages=[message])
        (result,) = self.call(self._stubs.MessageService.Send, request).results
        return Placed(
            id=result.id,
            partition=result.partition,
            offset=result.offset,
            is_duplicate=result.duplicate,
        )

    def receive(
        self,
        topic: str,
        group: str,
        *,
        count: int = 10,
        wait_ms: int = 0,
        lease_ms: int = 10_000,
        ordered: bool = False,
        member: str = "",
    ) -> list[Leased]:
        request = deliveries_pb2.ReceiveRequest(
            topic=topic,
            group=group,
            count=count,
            wait_ms=wait_ms,
            lease_ms=lease_ms,
            ordered=ordered,
            member=member,
        )
        reply = self.call(self._stubs.DeliveryService.Receive, request)
        return [
            Leased(
                id=row.message.id,
                partition=row.message.partition,
                offset=row.message.offset,
                key=text_of(row.message, "key"),
                value=row.message.value.decode(),
                headers=own_headers((h.name, h.value.decode()) for h in row.message.headers),
                priority=row.message.priority,
                attempt=row.attempt,
                handle=row.lease_token,
            )
            for row in reply.deliveries
        ]

    def settle(
        self,
        message: Leased,
        verb: str,
        *,
        delay_ms: int | None = None,
        reason: str = "",
        lease_ms: int = 0,
    ) -> None:
        settle = deliveries_pb2.Settle(
            lease_token=message.handle,
            verb=VERBS[verb],
            reason=reason,
            delay_ms=delay_ms,
            lease_ms=lease_ms,
        )
        request = deliveries_pb2.SettleRequest(settles=[settle])
        assert self.call(self._stubs.DeliveryService.Settle, request).settled == 1

    def read(self, topic: str, partition: int = 0) -> list[str]:
        request = messages_pb2.ReadRequest(topic=topic, partition=partition)
        reply = self.call(self._stubs.MessageService.Read, request)
        return [row.value.decode() for row in reply.messages]

    def offset_at(self, topic: str, time_ms: int) -> int:
        request = messages_pb2.FindOffsetRequest(topic=topic, time_ms=time_ms)
        return self.call(self._stubs.MessageService.FindOffset, request).offset

    def cancel(self, message: str) -> None:
        request = scheduled_pb2.CancelScheduledRequest(id=message)
        self.call(self._stubs.ScheduledService.Cancel, request)

    def letters(self, topic: str) -> list[Letter]:
        request = dead_letters_pb2.ListDeadLettersRequest(topic=topic)
        return [
            Letter(
                id=row.message.id,
                state=row.state,
                origin=row.origin_id,
                group=row.group,
                generation=row.generation,
                reason=row.reason,
                attempts=row.attempts,
                member=row.member,
                error=row.error,
                key=text_of(row.message, "key"),
                value=row.message.value.decode(),
            )
            for row in self.call(self._stubs.DeadLetterService.List, request).letters
        ]

    def redrive(self, topic: str) -> int:
        request = dead_letters_pb2.DeadLetterWork(topic=topic, all=True)
        return self.call(self._stubs.DeadLetterService.Redrive, request).done

    def reset(
        self,
        topic: str,
        group: str,
        *,
        offset: int | None = None,
        time_ms: int | None = None,
        create: bool = False,
        dry_run: bool = False,
    ) -> list[Moved]:
        request = groups_pb2.ResetGroupRequest(
            topic=topic, group=group, kind=groups_pb2.KIND_WORK, create=create, dry_run=dry_run
        )
        if offset is not None:
            request.offset = offset
        elif time_ms is not None:
            request.time_ms = time_ms
        else:
            request.end = groups_pb2.END_EARLIEST
        return [
            Moved(partition=row.partition, start=row.from_offset, to=row.to_offset)
            for row in self.call(self._stubs.GroupService.Reset, request).partitions
        ]
