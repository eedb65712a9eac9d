"""Partitions: each is a Raft group of its own; one node holds a thousand of them."""

import threading
import time
from pathlib import Path

from bench.cluster import BenchCluster, http_port, running
from bench.load import LoadSpec, encode_request
from bench.processes import cpu_ns
from bench.scaling.asks import idle_cpu, memory_mb
from bench.scaling.curve import Curve, Plot, Point, count_text
from bench.worker import Wire
from raftline.client.client import Client
from raftline.model.errors import RaftlineError
from raftline.server.local_cluster import LocalNode

TOPIC = "spread"
COUNTS = (1, 10, 100, 1000)
DEPTH = 16  # requests on their way to each node
LED_S_MAX = 60.0
HOW = """
Three nodes, one topic of so many partitions with three replicas each. *made*: from the call until
every partition has a leader. *idle*: CPU of all three nodes while nobody asks anything. *spread*:
single messages of 100 B to all partitions in turn, each sent to its leader, 16 on their way to each
node; CPU of all three nodes together. *failover*: one node is killed; until others lead all of its
partitions. *start*: all three are stopped and started; until every partition is led.
"""
READING = """
**Idle partitions are nearly free**: 1,000 of them (3,000 replicas) cost 20 MB a node and 1 % of a
core over all three nodes. Failover stays below half a second.

**A start is processes, then elections.** Nobody calls while it is timed, so shards wake by their
own election timers, up to a second after the node serves; a call wakes its shard at once. The
1,000 partitions of the table were stopped right after load and a failover; stopped at rest they
were led 3.7 s after the start (one run).

**Spread appends have a knee between 10 and 100 partitions.** 48 requests are on their way. With
10 partitions a turn finds several for each and makes one entry of them; with 100 and more every
message is an entry of its own on three nodes, with its own rpc part, WAL record and apply. What
helps is more on the way per partition: batches, or fewer partitions.

**At 1,000 the shards cost as much as the appends.** A shard stays awake for a while after its last
append, and one that is awake has heartbeats and their answers, ticks, looks for overdue calls and
housekeeping (py-spy). Going quiet costs about what one heartbeat does, so it now does after 0.3 s
instead of 2 s (`raft.quiet_after_ms`). One after the other on one busy machine: 2,400 us an append
with 2 s, 1,100 us with 0.2 s. What is left has no hot spot.

**Making 1,000 partitions is mostly the disk**: four syncs a replica (two directories, a checkpoint,
its name), one after the other in the lane, with three nodes on one disk.
"""


def walk(work: Path, *, quick: bool) -> Curve:
    """Make topics of more and more partitions, use them, hurt them."""
    counts = (1, 20) if quick else COUNTS
    points = [_point(work, count, 0.5 if quick else 3.0, quick=quick) for count in counts]
    return Curve(
        name="partitions",
        title="Partitions",
        x_name="partitions",
        how=HOW,
        points=points,
        plots=[
            Plot("spread", "Appends spread over all", "us", ("spread CPU us",)),
            Plot("memory", "Memory of the largest node", "MB", ("memory MB",)),
            Plot("time", "Made, failed over, started", "s", ("made s", "failover s", "start s")),
        ],
        reading=READING,
    )


def _point(work: Path, count: int, seconds: float, *, quick: bool) -> Point:
    with running(work / f"partitions-{count}", 3) as cluster:
        begun = time.perf_counter()
        cluster.create(TOPIC, count)
        _until_led(cluster, count)
        values = {"made s": time.perf_counter() - begun}
        time.sleep(0.5 if quick else 6.0)  # for every shard to go quiet
        values["idle CPU %"] = idle_cpu(cluster.nodes, seconds)
        values["memory MB"] = max(map(memory_mb, cluster.nodes))
        values |= _spread(cluster, count, seconds)
        values["memory after MB"] = max(map(memory_mb, cluster.nodes))
        values["failover s"] = _failover(cluster, count)
        cluster.start()
        _until_led(cluster, count)
        cluster.stop()
        begun = time.perf_counter()
        cluster.local.start()
        _until_led(cluster, count)
        values["start s"] = time.perf_counter() - begun
        if not cluster.verify():
            raise SystemExit("the replicas differ")
    return Point(x=count, label=count_text(count), values=values)


def _leaders(node: LocalNode, count: int) -> list[int]:
    """Return who leads each partition as one node sees it; empty if it does not know."""
    try:
        with Client(node.http, timeout_ms=5_000) as client:
            rows = client.topic(TOPIC)["partitions"]
    except (RaftlineError, OSError):
        return []
    return [int(row["leader"]) for row in rows] if len(rows) == count else []


def _until_led(cluster: BenchCluster, count: int) -> list[int]:
    """Wait until the nodes that run agree on leaders that run."""
    until = time.perf_counter() + LED_S_MAX
    while (asked := time.perf_counter()) < until:
        nodes = cluster.running()
        alive = {node.id for node in nodes}
        seen = [_leaders(node, count) for node in nodes]
        if seen[0] and set(seen[0]) <= alive and all(one == seen[0] for one in seen):
            return seen[0]
        time.sleep(max(0.02, 4 * (time.perf_counter() - asked)))  # asking of many costs as well
    raise SystemExit(f"not all of {count} partitions are led after {LED_S_MAX:.0f} s")


def _failover(cluster: BenchCluster, count: int) -> float:
    """Kill the node that leads most; return the seconds until others lead all."""
    leaders = _until_led(cluster, count)
    node = cluster.node(max(set(leaders), key=leaders.count))
    cluster.kill(node)
    begun = time.perf_counter()
    _until_led(cluster, count)
    return time.perf_counter() - begun


def _spread(cluster: BenchCluster, count: int, seconds: float) -> dict[str, float]:
    """Append to all partitions in turn, through their leaders."""
    leaders = _until_led(cluster, count)
    senders = []
    for node in cluster.nodes:
        led = [number for number, leader in enumerate(leaders) if leader == node.id]
        if led:
            senders.append(_Sender(node, led, seconds))
    cpu = sum(cpu_ns(node.pid) for node in cluster.nodes)
    threads = [threading.Thread(target=sender.run) for sender in senders]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed = time.perf_counter() - begun
    cpu = sum(cpu_ns(node.pid) for node in cluster.nodes) - cpu
    took = sorted(one for sender in senders for one in sender.took)
    if not took or any(sender.failed for sender in senders):
        raise SystemExit(f"a sender failed: {[sender.failed for sender in senders]}")
    return {
        "spread appends/s": len(took) / passed,
        "spread p50 ms": took[len(took) // 2] * 1000,
        "spread p99 ms": took[len(took) * 99 // 100] * 1000,
        "spread CPU us": cpu / len(took) / 1000,
    }


class _Sender:
    """Keeps ``DEPTH`` appends on their way to one node, over the partitions it leads."""

    def __init__(self, node: LocalNode, led: list[int], seconds: float) -> None:
        self.took: list[float] = []
        self.failed = ""
        self._port, self._seconds = http_port(node), seconds
        self._requests = [
            encode_request(LoadSpec(port=0, topic=TOPIC, partition=number))[0] for number in led
        ]

    def run(self) -> None:
        """Send until time is over, then take the last replies."""
        try:
            self._run()
        except (SystemExit, OSError) as error:
            self.failed = repr(error)

    def _run(self) -> None:
        wire, sent, turn = Wire(self._port), [], 0
        until = time.perf_counter() + self._seconds
        while sent or time.perf_counter() < until:
            while len(sent) < DEPTH and time.perf_counter() < until:
                sent.append(time.perf_counter())
                wire.send(self._requests[turn % len(self._requests)])
                turn += 1
            if sent:
                wire.reply()
                self.took.append(time.perf_counter() - sent.pop(0))
