"""Messages and work groups: native routes as calls of ``raftline.v1``."""

from typing import Any, cast

import msgspec

from raftline.client.core.ports import Ask, Reply
from raftline.client.grpc import forms
from raftline.client.grpc.remotes import (
    OK,
    Asked,
    Json,
    Remote,
    as_json,
    moment_ms,
    refusal_of,
)
from raftline.client.messages import take_bytes
from raftline.wire.proto.raftline.v1 import deliveries_pb2, messages_pb2

VERBS = {
    name.removeprefix("VERB_").lower(): number
    for name, number in deliveries_pb2.Verb.items()
    if number
}


# ---------------------------------------------------------------------- messages


def send_batch(ask: Ask) -> Remote:
    """Send a sealed batch."""
    request = messages_pb2.SendBatchesRequest(
        topic=ask.topic, partition=ask.partition, batches=ask.body, priority=ask.priority
    )

    def answer(reply: messages_pb2.SendBatchesReply) -> Reply:
        row = reply.results[0]
        if row.HasField("error"):
            return refusal_of(row.error)
        told = {"base_offset": row.base_offset, "duplicate": row.duplicate}
        return Reply(OK, b"", msgspec.json.encode({"results": [told]}))

    return Remote("MessageService/SendBatches", request, answer)


def send(asked: Asked) -> Remote:
    """Send messages with wishes of their own."""
    request = messages_pb2.SendRequest(
        topic=asked.topic, messages=[_new_message(row) for row in asked.body()["messages"]]
    )

    def answer(reply: messages_pb2.SendReply) -> Json:
        return {"results": [forms.send_result(row) for row in reply.results]}

    return Remote("MessageService/Send", request, as_json(answer))


def _new_message(row: Json) -> messages_pb2.NewMessage:
    message = messages_pb2.NewMessage(
        value=take_bytes(row, "value"),
        key=take_bytes(row, "key"),
        headers=[
            messages_pb2.Header(name=name, value=value) for name, value in forms.header_pairs(row)
        ],
        partition=row.get("partition"),
        timestamp_ms=row.get("timestamp"),
        dedup_key=row.get("dedup_key"),
    )
    priority = row.get("priority", 0)
    if isinstance(priority, str):
        message.priority_name = priority
    elif priority:
        message.priority = priority
    if "delay" in row:
        message.delay_ms = row["delay"]
    if "deliverAt" in row:
        message.due_ms = moment_ms("deliver_at", row["deliverAt"])
    return message


def read(asked: Asked) -> Remote:
    """Read a partition."""
    request = messages_pb2.ReadRequest(
        topic=asked.topic,
        partition=asked.partition,
        form=messages_pb2.FORM_BATCHES,
        **asked.numbers("offset", "wait_ms", "bytes_max"),
    )

    def answer(reply: messages_pb2.ReadReply) -> Reply:
        head = f"\r\nRaftline-Log-Start: {reply.log_start}"
        head += f"\r\nRaftline-Commit-End: {reply.commit_end}"
        return Reply(OK, head.encode(), reply.batches)

    return Remote("MessageService/Read", request, answer)


def offsets(asked: Asked) -> Remote:
    """Find an offset."""
    time = asked.query.get("time")
    request = messages_pb2.FindOffsetRequest(
        topic=asked.topic,
        partition=asked.partition,
        time_ms=None if time is None else moment_ms("time", time),
    )

    def answer(reply: messages_pb2.FindOffsetReply) -> Json:
        if time is None:
            return {"log_start": reply.log_start, "commit_end": reply.commit_end}
        return {
            "offset": reply.offset,
            "timestamp": reply.timestamp_ms,
            "commit_end": reply.commit_end,
        }

    return Remote("MessageService/FindOffset", request, as_json(answer))


# ---------------------------------------------------------------------- work groups


def receive(asked: Asked) -> Remote:
    """Lease messages."""
    body = asked.body()
    partition = body["partition"]
    request = deliveries_pb2.ReceiveRequest(
        topic=asked.topic,
        group=asked.params["group"],
        count=body["count"],
        wait_ms=body["wait"],
        lease_ms=body["lease"],
        member=body["member"],
        partition=partition if partition >= 0 else None,
        bytes_max=body["bytes_max"],
        ordered=body["ordered"],
        start=(
            deliveries_pb2.START_NEXT if body["start"] == "next" else deliveries_pb2.START_FIRST
        ),
        form=messages_pb2.FORM_BATCHES,
    )

    def answer(reply: deliveries_pb2.ReceiveReply) -> Reply:
        leased = reply.batches
        if not leased.spans:
            return Reply(OK, b"", b"")
        head = f"\r\nRaftline-Partition: {leased.partition}"
        head += f"\r\nRaftline-Lease: {leased.term}.{leased.sequence}"
        head += f"\r\nRaftline-Spans: {','.join(map(str, leased.spans))}"
        return Reply(OK, head.encode(), leased.batches)

    return Remote("DeliveryService/Receive", request, answer)


def settle(asked: Asked) -> Remote:
    """Settle ranges of leases."""
    body = asked.body()
    request = deliveries_pb2.SettleRangesRequest(
        topic=asked.topic,
        partition=asked.partition,
        group=asked.params["group"],
        settles=[_range_settle(*row) for row in body["settles"]],
        reason=body.get("reason", ""),
        delay_ms=body.get("delay"),
        lease_ms=body.get("lease", 0),
    )

    def answer(reply: deliveries_pb2.SettleRangesReply) -> Json:
        return {"lost": [list(row.ranges) for row in reply.lost]}

    return Remote("DeliveryService/SettleRanges", request, as_json(answer))


def _range_settle(
    verb: str, term: int, sequence: int, attempt: int, generation: int, ranges: list[int]
) -> deliveries_pb2.RangeSettle:
    return deliveries_pb2.RangeSettle(
        verb=cast("Any", VERBS[verb]),
        term=term,
        sequence=sequence,
        attempt=attempt,
        generation=generation,
        ranges=ranges,
    )
