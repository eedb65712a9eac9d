"""Groups: many readers of the same messages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench.cluster import BenchCluster, running
from bench.processes import cpu_ns
from bench.scaling.asks import Asker, append_call, cost_of, idle_cpu, memory_mb, restart
from bench.scaling.curve import Curve, Plot, Point, count_text

TOPIC = "groups"
COUNTS = (1, 10, 100, 1000)
HOW = """
One node, one partition. *work*: so many work groups on it; each receives a message of its own and
acks it, one call after the other. *stream*: so many stream groups of one member; heartbeat and
commit, one call after the other. CPU is the node's, per call. *append* is one message of 100 B
while all of them are there; *list* and *metrics* are the questions about all of them.
"""
READING = """
This run shared the machine with other work: its figures are about twice those of a quiet one, and
move as much. What counts is that the last row is like the first.

**1,000 work groups on one partition cost a call no more than one.** An entry looks at the groups it
names and at those whose lease or backoff ends by then (machines/delivery/agenda.py). Before, every
entry let time pass in *all* groups of its partition, nearly 2 us each: in a quiet run an ack took
446 us with one group and 2,270 us with 1,000, a receive 308 and 938. A partition takes 1,000 groups
at most; groups on different partitions do not see each other. Memory is 10 kB a group (a work group
and a stream group with one member). A heartbeat costs the same at 1,000.

**Questions about all of them grow with them**: `/metrics` by 75 us a group in a quiet run (a dozen
series each), worked off between turns; `GET /v1/groups` by 9 us.
"""


def walk(work: Path, *, quick: bool) -> Curve:
    """Begin more and more groups and use them."""
    counts = (1, 20) if quick else COUNTS
    points: list[Point] = []
    with running(work / "groups", 1) as cluster:
        cluster.create(TOPIC)
        begun = 0
        for count in counts:
            points.append(_point(cluster, begun, count, 0.2 if quick else 1.0))
            begun = count
    return Curve(
        name="groups",
        title="Groups",
        x_name="groups",
        how=HOW,
        points=points,
        plots=[
            Plot(
                "cpu",
                "CPU of the node per call",
                "us",
                ("append CPU us", "receive CPU us", "ack CPU us", "heartbeat CPU us"),
            ),
            Plot("all", "Questions about all of them", "ms", ("list p50 ms", "metrics p50 ms")),
            Plot("memory", "Memory of the node", "MB", ("memory MB",)),
        ],
        reading=READING,
    )


def _point(cluster: BenchCluster, begun: int, count: int, seconds: float) -> Point:
    node = cluster.nodes[0]
    asker = Asker(node)
    append = append_call(asker, TOPIC)
    for number in range(begun, count):
        group = f"/v1/topics/{TOPIC}/groups/w{number}"
        asker.post(f"{group}/receive", count=1, start="next", partition=0)
        asker.post(f"/v1/groups/s{number}/join", topics=[TOPIC], session_timeout_ms=3_600_000)
    values = {"memory MB": memory_mb(node)}
    cost = cost_of(node, append, seconds)
    values |= {"append p50 ms": cost.p50_ms, "append CPU us": cost.cpu_us}
    values |= _work(asker, count, seconds)
    values |= _stream(asker, count, seconds)
    values["idle CPU %"] = idle_cpu([node], seconds)
    cost = cost_of(node, lambda: asker.ask("GET", "/v1/groups"), seconds / 2, warm_up=2)
    values |= {"list p50 ms": cost.p50_ms}
    cost = cost_of(node, lambda: asker.ask("GET", "/metrics"), seconds / 2, warm_up=2)
    values |= {"metrics p50 ms": cost.p50_ms}
    values["start s"] = restart(cluster, TOPIC)
    return Point(x=count, label=count_text(count), values=values)


def _work(asker: Asker, count: int, seconds: float) -> dict[str, float]:
    """Receive and ack in every group in turn."""
    turn, tokens = 0, []
    fill = append_call(asker, TOPIC, messages=1000)
    for _ in range(10):
        fill()

    def receive() -> None:
        nonlocal turn
        path = f"/v1/topics/{TOPIC}/groups/w{turn % count}/receive"
        got = asker.post(path, count=1, partition=0, lease=3_600_000)["messages"]
        if not got:
            raise SystemExit(f"group w{turn % count} was given nothing")
        tokens.append(got[0]["lease_token"])
        turn += 1

    received = cost_of(asker.node, receive, seconds)

    def ack() -> None:
        asker.post("/v1/messages/ack", lease_token=tokens.pop())

    before, many = cpu_ns(asker.node.pid), len(tokens)
    while tokens:
        ack()
    acked_us = (cpu_ns(asker.node.pid) - before) / many / 1000
    return {
        "receive p50 ms": received.p50_ms,
        "receive CPU us": received.cpu_us,
        "ack CPU us": acked_us,
    }


def _stream(asker: Asker, count: int, seconds: float) -> dict[str, float]:
    """Heartbeats and commits of every group in turn."""
    members: list[dict[str, Any]] = [
        asker.post(f"/v1/groups/s{number}/join", topics=[TOPIC], session_timeout_ms=3_600_000)
        for number in range(min(count, 50))
    ]
    turn = 0

    def call(verb: str, **more: object) -> Callable[[], None]:
        def ask() -> None:
            nonlocal turn
            number = turn % len(members)
            member = members[number]
            said = {"member_id": member["member_id"], "generation": member["generation"], **more}
            asker.ask("POST", f"/v1/groups/s{number}/{verb}", msgspec.json.encode(said))
            turn += 1

        return ask

    beat = cost_of(asker.node, call("heartbeat"), seconds / 2)
    values = {"heartbeat CPU us": beat.cpu_us}
    for number, member in enumerate(members):
        said = {"member_id": member["member_id"], "generation": member["generation"]}
        asker.post(f"/v1/groups/s{number}/leave", **said)
    return values
