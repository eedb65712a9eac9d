"""Connections: a thousand clients of one node."""

import selectors
import socket
import time
from pathlib import Path

from bench.appends import check_end
from bench.cluster import BenchCluster, http_port, running
from bench.processes import cpu_ns
from bench.scaling.asks import idle_cpu, memory_mb, request
from bench.scaling.curve import Curve, Plot, Point, count_text

TOPIC = "connections"
COUNTS = (1, 10, 100, 1000, 4000)
HOW = """
One node. *busy*: so many connections, each with one append of 100 B on its way. *idle*: so many
connections on which nothing happens. *parked*: so many receivers that wait for a message of one
work group, 20 s each; then one message comes.
"""
READING = """
**More connections make an append cheaper, not dearer**: what arrives while a group is being
synced goes into the next entry together, so 323 us of CPU alone become 26 us with 4,000
connections. A connection takes about 5 kB, a parked receiver no more, and neither costs CPU while
nothing happens (1.8 % of a core for 4,000 parked ones, which are looked through for their
deadlines).

**The knee at 100 connections is the load process**: from there on latency is the number of
connections divided by the rate, while the node uses less than half a core. Why 1,000 came out
slower than 4,000 in this run is not known; CPU by the append is the figure to go by. The largest
number is 10,000 (`CONNECTIONS_MAX`).
"""


def walk(work: Path, *, quick: bool) -> Curve:
    """Open more and more connections: busy, idle, waiting."""
    counts = (1, 50) if quick else COUNTS
    with running(work / "connections", 1) as cluster:
        cluster.create(TOPIC)
        points = [_point(cluster, count, 0.4 if quick else 2.0) for count in counts]
        check_end(cluster)
    return Curve(
        name="connections",
        title="Connections",
        x_name="connections",
        how=HOW,
        points=points,
        plots=[
            Plot("latency", "An append on each connection", "ms", ("busy p50 ms", "busy p99 ms")),
            Plot("cpu", "CPU of the node", "us", ("busy CPU us", "parked CPU us")),
            Plot("memory", "Memory of the node", "MB", ("idle MB", "parked MB")),
        ],
        reading=READING,
    )


def _point(cluster: BenchCluster, count: int, seconds: float) -> Point:
    node = cluster.nodes[0]
    busy = cluster.load(TOPIC, connections=count, seconds=seconds, warm_up_s=seconds / 2)
    values = {
        "busy appends/s": busy.appends / busy.seconds,
        "busy p50 ms": busy.p50_ms,
        "busy p99 ms": busy.p99_ms,
        "busy CPU us": busy.server_cpu_us[0],
    }
    idle = [_connect(http_port(node)) for _ in range(count)]
    time.sleep(0.5)
    values |= {"idle CPU %": idle_cpu([node], seconds / 2), "idle MB": memory_mb(node)}
    for sock in idle:
        sock.close()
    values |= _parked(cluster, count, seconds)
    return Point(x=count, label=count_text(count), values=values)


def _parked(cluster: BenchCluster, count: int, seconds: float) -> dict[str, float]:
    """Let receivers wait in one group: what asking costs, what waiting costs, who gets one."""
    node = cluster.nodes[0]
    group = f"g{count}"
    body = b'{"count":1,"wait":20000,"start":"next"}'
    ask = request("POST", f"/v1/topics/{TOPIC}/groups/{group}/receive", body)
    waiting = [_connect(http_port(node)) for _ in range(count)]
    before = cpu_ns(node.pid)
    for sock in waiting:
        sock.sendall(ask)
    time.sleep(0.5 + count / 2000)
    asked_us = (cpu_ns(node.pid) - before) / count / 1000
    share, memory = idle_cpu([node], seconds / 2), memory_mb(node)
    cluster.load(TOPIC, seconds=0.01, warm_up_s=0.0)
    if not _answered(waiting).recv(65_536).startswith(b"HTTP/1.1 200"):
        raise SystemExit("a receiver was refused")
    for sock in waiting:
        sock.close()
    time.sleep(0.5)
    return {"parked CPU us": asked_us, "parked idle CPU %": share, "parked MB": memory}


def _answered(waiting: list[socket.socket]) -> socket.socket:
    """Return one that was given a message."""
    with selectors.DefaultSelector() as selector:
        for sock in waiting:
            selector.register(sock, selectors.EVENT_READ)
        ready = selector.select(10)
    if not ready:
        raise SystemExit(f"a message came, and none of {len(waiting)} receivers heard of it")
    return next(sock for sock in waiting if sock is ready[0][0].fileobj)


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 10)
