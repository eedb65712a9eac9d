"""``raftline bench``: a short look at what a cluster does. The real measurements: make bench."""

import contextlib
import threading
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote

import typer

from raftline.cli.session import Session, table
from raftline.client import clock
from raftline.client.caller import Caller
from raftline.model.errors import NotFound, RaftlineError

TOPIC = "raftline-bench"
GROUP = "bench"

Call = Callable[[Caller], int]  # returns how many messages it moved


class _Lane:
    """What one connection did."""

    __slots__ = ("count", "error", "took_ms")

    def __init__(self) -> None:
        self.count = 0
        self.took_ms: list[float] = []
        self.error: RaftlineError | None = None


def bench(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(min=0.1, max=600, help="of each part")] = 3.0,
    size: Annotated[int, typer.Option(min=1, max=1_000_000, help="bytes of a message")] = 100,
    batch: Annotated[int, typer.Option(min=1, max=1000, help="messages in one call")] = 100,
    connections: Annotated[int, typer.Option("--connections", "-c", min=1, max=64)] = 4,
    partitions: Annotated[int, typer.Option(min=1, max=100)] = 6,
    keep: Annotated[bool, typer.Option("--keep", help=f"do not delete {TOPIC} after")] = False,
) -> None:
    """Publish, then lease and ack, for a few seconds each; print rates and latencies.

    The messages go to a topic of their own. This process is one Python process: it is the limit
    before a cluster is.

    For example: raftline bench --seconds 5 --batch 1 --connections 8
    """
    session: Session = context.obj
    with contextlib.suppress(NotFound):
        session.call("DELETE", f"/v1/topics/{TOPIC}")
    session.call("POST", "/v1/topics", {"name": TOPIC, "num_partitions": partitions})
    rows = table("what", ">messages/s", ">calls/s", ">p50 ms", ">p99 ms", ">max ms")
    report: dict[str, Any] = {"size_bytes": size, "batch": batch, "connections": connections}
    body = {"messages": [{"value": "x" * size}] * batch}
    try:
        parts: dict[str, Call] = {
            "publish": lambda caller: _publish(caller, body),
            "lease and ack": lambda caller: _consume(caller, batch),
        }
        for name, work in parts.items():
            session.note(f"{name}: {seconds:g} s …")
            report[name.replace(" ", "_")] = figures = _measure(session, work, seconds, connections)
            rows.add_row(name, *(f"{value:,.1f}" for value in figures.values()))
    finally:
        if not keep:
            with contextlib.suppress(RaftlineError):
                session.call("DELETE", f"/v1/topics/{TOPIC}")
    session.table(report, rows)


def _publish(caller: Caller, body: dict[str, Any]) -> int:
    reply = caller.call("POST", f"/v1/topics/{quote(TOPIC)}/messages", body)
    return sum(result["error"] is None for result in reply["results"])


def _consume(caller: Caller, batch: int) -> int:
    path = f"/v1/topics/{quote(TOPIC)}/groups/{GROUP}/receive"
    rows = caller.call("POST", path, {"count": batch, "wait": 0})["messages"]
    if rows:
        tokens = [row["lease_token"] for row in rows]
        caller.call("POST", "/v1/messages/ack", {"lease_tokens": tokens})
    return len(rows)


def _measure(session: Session, work: Call, seconds: float, connections: int) -> dict[str, float]:
    lanes = [_Lane() for _ in range(connections)]
    began_ms = clock.mono_ms()
    until_ms = began_ms + seconds * 1000

    def run(lane: _Lane) -> None:
        with session.new_caller() as caller:
            while clock.mono_ms() < until_ms:
                at_ms = clock.mono_ms()
                try:
                    done = work(caller)
                except RaftlineError as error:
                    lane.error = error
                    return
                if not done:
                    return  # all is consumed
                lane.count += done
                lane.took_ms.append(clock.mono_ms() - at_ms)

    threads = [threading.Thread(target=run, args=(lane,), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = max(0.001, (clock.mono_ms() - began_ms) / 1000)
    errors = [lane.error for lane in lanes if lane.error is not None]
    if errors:
        raise errors[0]
    took = sorted(ms for lane in lanes for ms in lane.took_ms) or [0.0]
    return {
        "messages_per_s": sum(lane.count for lane in lanes) / took_s,
        "calls_per_s": len(took) / took_s,
        "p50_ms": took[len(took) // 2],
        "p99_ms": took[min(len(took) - 1, len(took) * 99 // 100)],
        "max_ms": took[-1],
    }
