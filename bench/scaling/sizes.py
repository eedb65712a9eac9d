"""Message size: one byte more costs what copying, checking and writing it costs."""

from pathlib import Path

from bench.appends import check_end
from bench.cluster import BenchCluster, running
from bench.scaling.asks import BATCH, Asker, cost_of, memory_mb
from bench.scaling.curve import Curve, Plot, Point, size_text

TOPIC = "sizes"
SIZES = (10, 100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 8_000_000)
HOW = """
Three nodes, a topic of one partition. *alone*: one message at a time, waited for. *stream*: 8
messages on their way on one connection. *read*: one message read by its offset, raw, from the
leader. CPU is the leader's; a follower needs less. 8 MB is close to the largest batch (8 MiB).
"""
READING = """
**Two slopes, one knee near 20 KiB.** Up to 10 KiB an append costs the same 80 to 170 us of the
leader's CPU whatever it weighs: HTTP, entry, WAL record, two rpcs, reply. From 100 KiB on a byte
costs 3.3 to 4.8 ns: it is copied, checksummed and written on the way. Small messages should
travel in batches, large ones as they are.

**1 KiB** is where messages of this run left the memory of the log's end before they were read: a
read costs 89 us from memory and 205 us through the lane. The latency of large *reads* (1 MiB and
more) is mostly the load process, which joins the pieces it receives; the node's part is "read
CPU". Above 1 MiB an append that is waited for is three times written to one disk here (three
nodes, one machine), which is where its p99 comes from. Memory grows with what is in flight, not
with what was sent.
"""


def walk(work: Path, *, quick: bool) -> Curve:
    """Append and read single messages, from tiny to the largest."""
    sizes = (10, 100 << 10) if quick else SIZES
    with running(work / "sizes", 3) as cluster:
        cluster.create(TOPIC)
        points = [_point(cluster, size, 0.3 if quick else _seconds(size)) for size in sizes]
        check_end(cluster)
    return Curve(
        name="sizes",
        title="Message size",
        x_name="message size",
        how=HOW,
        points=points,
        plots=[
            Plot("latency", "An append that is waited for", "ms", ("alone p50 ms", "read p50 ms")),
            Plot("cpu", "CPU of the leader", "us", ("append CPU us", "read CPU us")),
            Plot("rate", "8 in flight", "MB/s", ("stream MB/s",)),
        ],
        reading=READING,
    )


def _seconds(size: int) -> float:
    """Return how long one load runs: a shorter time for sizes that fill the disk."""
    return 2.0 if size < 100 << 10 else 1.2


def _point(cluster: BenchCluster, size: int, seconds: float) -> Point:
    first = cluster.end_of(TOPIC)
    alone = cluster.load(TOPIC, message_bytes=size, seconds=seconds, warm_up_s=seconds / 4)
    stream = cluster.load(
        TOPIC, message_bytes=size, in_flight=8, seconds=seconds, warm_up_s=seconds / 4
    )
    sent = alone.appends_total + stream.appends_total
    if cluster.end_of(TOPIC) - first != sent:
        raise SystemExit(f"{sent} messages were acknowledged, others are there")
    leader = cluster.leader_of(TOPIC)
    asker = Asker(leader)
    asker.wire.sock.settimeout(30)
    path = f"/v1/topics/{TOPIC}/partitions/0/messages?offset={first}&limit=1&bytes_max=1"
    read = cost_of(leader, lambda: asker.ask("GET", path, kind=BATCH), seconds / 2)
    rate = stream.appends * size / stream.seconds / 1e6
    return Point(
        x=size,
        label=size_text(size),
        values={
            "alone p50 ms": alone.p50_ms,
            "alone p99 ms": alone.p99_ms,
            "append CPU us": alone.server_cpu_us[0],
            "stream appends/s": stream.appends / stream.seconds,
            "stream MB/s": rate,
            "stream CPU us": stream.server_cpu_us[0],
            "stream CPU ns/B": stream.server_cpu_us[0] * 1000 / size,
            "read p50 ms": read.p50_ms,
            "read CPU us": read.cpu_us,
            "memory MB": memory_mb(leader),
        },
    )
