"""Traces over gRPC: the timeline of one message, and finding messages."""

from typing import Any

from raftline.config.moments import MOMENT_MS_MAX
from raftline.gateways.grpc.bounds import bounded
from raftline.gateways.grpc.calling import Call, answer_of
from raftline.gateways.ports import Calls
from raftline.gateways.traces import LIMIT_DEFAULT, LIMIT_MAX, SearchWish, Traces
from raftline.model.errors import InvalidArgument
from raftline.wire.proto.raftline.v1 import traces_pb2 as pb

LINE_FIELDS = frozenset(pb.TraceEvent.DESCRIPTOR.fields_by_name)


class TraceService:
    """raftline.v1.TraceService."""

    __slots__ = ("_traces",)

    def __init__(self, calls: Calls) -> None:
        self._traces = Traces(calls)

    async def show(self, request: pb.ShowTraceRequest, call: Call) -> pb.Trace:
        """Tell what happened to a message."""
        body = await answer_of(lambda done: self._traces.show(request.id, call.timeout_ms, done))
        states, attempts = body["groups"], body["attempts"]
        return pb.Trace(
            id=body["id"],
            topic=body["topic"],
            partition=body["partition"],
            offset=body["offset"],
            groups=[
                _group(name, states, attempts, body["latencies_ms"].get(name, {}))
                for name in sorted({*states, *attempts, *body["latencies_ms"]})
            ],
            timeline=[_line(line) for line in body["timeline"]],
            traced=body["traced"],
            complete=body["complete"],
        )

    async def search(self, request: pb.SearchTracesRequest, call: Call) -> pb.SearchTracesReply:
        """Find messages by key, time window, member, group and state."""
        wish = SearchWish(
            topic=request.topic,
            partition=request.partition if request.HasField("partition") else None,
            key=request.key if request.HasField("key") else None,
            from_ms=_moment(request, "from_ms"),
            to_ms=_moment(request, "to_ms"),
            member=request.member,
            group=request.group,
            state=request.state,
            limit=bounded("limit", request.limit, LIMIT_DEFAULT, 1, LIMIT_MAX),
            after=request.after,
        )
        page = await answer_of(lambda done: self._traces.search(wish, call.timeout_ms, done))
        return pb.SearchTracesReply(
            messages=[
                pb.FoundMessage(
                    id=row["id"],
                    partition=row["partition"],
                    offset=row["offset"],
                    timestamp_ms=row["timestamp"],
                    key=row["key"],
                    groups=row["groups"],
                )
                for row in page["messages"]
            ],
            complete=page["complete"],
            next=page["next"] or "",
        )


def _group(
    name: str, states: dict[str, str], attempts: dict[str, int], latency: dict[str, int]
) -> pb.TraceGroup:
    return pb.TraceGroup(
        group=name,
        state=states.get(name, ""),
        attempts=attempts.get(name, 0),
        to_delivery_ms=latency.get("to_delivery"),
        to_end_ms=latency.get("to_end"),
    )


def _line(line: dict[str, Any]) -> pb.TraceEvent:
    return pb.TraceEvent(**{name: value for name, value in line.items() if name in LINE_FIELDS})


def _moment(request: pb.SearchTracesRequest, name: str) -> int | None:
    if not request.HasField(name):  # pyright: ignore[reportArgumentType]
        return None
    time_ms = getattr(request, name)
    if not 0 <= time_ms <= MOMENT_MS_MAX:
        raise InvalidArgument(f"{name}={time_ms} is out of bounds", "Unix milliseconds")
    return time_ms
