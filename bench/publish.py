"""Messages as JSON over ``POST /v1/topics/{topic}/messages``: GoQueue's tables, FalconQ's rate.

GoQueue publishes what it did on three machines of 4 cores each (c5.xlarge): one message after the
other, 8 threads, batches of different sizes one after the other, and from a client 150 ms away.
The same is done here, servers and load on one machine, every reply after fdatasync on a majority.
The notes name its figures, and what it did on a machine like this one (one node, no fsync).

FalconQ names a rate, 1.5 million messages a minute: it is sent at that rate, not as fast as it
goes, so that latency at the rate can be told.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.appends import check_end
from bench.cluster import BenchCluster, free_port_base, http_port, run_load, running
from bench.figures import Figure, Goal, at_least
from bench.json_load import JsonSpec
from bench.latency_proxy import ProxySpec
from bench.load import LoadResult

TOPIC = "published"
SIZES = (10, 50, 100, 200, 500, 1000)
GOQUEUE = {
    "1 after the other": "GoQueue: 320 on 3 machines; 1,400 on 2 cores, 1 node, no fsync",
    "8 threads": "GoQueue: 1,300 on 3 machines",
    "batches of 10": "GoQueue: 3,000 on 3 machines",
    "batches of 50": "GoQueue: 15,000 on 3 machines",
    "batches of 100": "GoQueue: 30,000 on 3 machines",
    "batches of 200": "GoQueue: 60,000 on 3 machines",
    "batches of 500": "GoQueue: 130,000 on 3 machines",
    "batches of 1,000": "GoQueue: 220,000 on 3 machines; 104,000 on 2 cores, 1 node, no fsync",
}
DISTANCE_MS = 75.0  # one way
FAR = (  # name, connections, messages, bytes, what GoQueue's clients did
    ("1 after the other", 1, 1, 100, "GoQueue: 6.3"),
    ("batches of 100 x 1 KiB", 1, 100, 1024, "GoQueue: 112 (Go), 331 (Python), 284 (TypeScript)"),
    ("8 threads", 8, 1, 100, "GoQueue: 152 (Go), 567 (Python), 571 (TypeScript)"),
    ("8 threads, batches of 1,000", 8, 1000, 100, ""),
)
HELD_RATE = 25_000  # messages a second: 1.5 million a minute
HELD_BATCH = 10
HELD_CONNECTIONS = 16


def tables(work: Path, *, quick: bool) -> list[Figure]:
    """One after the other, 8 threads, batches, 64 connections, on one node and on three."""
    seconds = 0.3 if quick else 2.5
    found: list[Figure] = []
    for nodes in (1, 3):
        goals = (at_least(8_000), at_least(250_000)) if nodes == 1 else (None, None)
        section = f"{_count(nodes)}, JSON, 100 B"
        with running(work / f"publish-{nodes}", nodes) as cluster:
            cluster.create(TOPIC)
            for name, connections, messages, goal in _plan(goals, quick=quick):
                spec = JsonSpec(
                    port=0,
                    topic=TOPIC,
                    messages=messages,
                    connections=connections,
                    seconds=seconds,
                )
                result = load(cluster, spec)
                found += rows(section, name, result, GOQUEUE.get(name, ""), goal)
            check_end(cluster)
    return found


def _plan(
    goals: tuple[Goal | None, Goal | None], *, quick: bool
) -> Iterator[tuple[str, int, int, Goal | None]]:
    """Yield name, connections, messages of a request, goal."""
    yield "1 after the other", 1, 1, None
    yield "8 threads", 8, 1, None
    yield "64 connections", 64, 1, goals[0]
    for size in (1000,) if quick else SIZES:
        yield f"batches of {size:,}", 1, size, None
    yield "4 connections, batches of 1,000", 4, 1000, goals[1]


def far(work: Path, *, quick: bool) -> list[Figure]:
    """A client whose requests take 75 ms to the cluster, and the replies as long back."""
    seconds = 1.0 if quick else 4.0
    found: list[Figure] = []
    for nodes in (3,) if quick else (1, 3):
        section = f"{_count(nodes)}, JSON, a client {2 * DISTANCE_MS:.0f} ms away"
        with running(work / f"far-{nodes}", nodes) as cluster:
            cluster.create(TOPIC)
            with distant(http_port(cluster.leader_of(TOPIC))) as port:
                for name, connections, messages, size, note in FAR[::3] if quick else FAR:
                    spec = JsonSpec(
                        port=port,
                        topic=TOPIC,
                        messages=messages,
                        message_bytes=size,
                        connections=connections,
                        seconds=seconds,
                    )
                    found += rows(section, name, load(cluster, spec), note, None)
            check_end(cluster)
    return found


def held(work: Path, *, quick: bool) -> list[Figure]:
    """FalconQ's rate for a minute on three nodes, sent whether or not replies come."""
    seconds = 1.0 if quick else 60.0
    section = f"3 nodes, JSON, {HELD_BATCH} x 100 B, {HELD_RATE:,} messages/s for {seconds:.0f} s"
    with running(work / "held", 3) as cluster:
        cluster.create(TOPIC)
        spec = JsonSpec(
            port=0,
            topic=TOPIC,
            messages=HELD_BATCH,
            connections=HELD_CONNECTIONS,
            rate=HELD_RATE / HELD_BATCH,
            seconds=seconds,
        )
        result = load(cluster, spec)
        check_end(cluster)
    rate, *others = rows(
        section, "held", result, "FalconQ: 1.5 million a minute, not measured by it", None
    )
    # What is due in the last moments is answered after the end: 0.5 % of a minute are 300 ms.
    rate.goal = at_least(HELD_RATE * 0.995)
    lowest = min(result.rates, default=0.0) * HELD_BATCH
    return [
        rate,
        Figure(section=section, name="held: lowest second", value=lowest, unit="messages/s"),
        Figure(section=section, name="held: max", value=result.max_ms, unit="ms"),
        *others,
    ]


def load(cluster: BenchCluster, spec: JsonSpec) -> LoadResult:
    """Run one load and check that what was acknowledged is there, and nothing else."""
    leader = cluster.leader_of(TOPIC)
    spec.port = spec.port or http_port(leader)
    spec.pids = [leader.pid, *(node.pid for node in cluster.followers_of(leader))]
    spec.warm_up_s = min(1.0, spec.seconds / 2)
    before = cluster.end_of(TOPIC)
    result = run_load(spec, "bench.json_load")
    after = cluster.end_of(TOPIC)
    sent = result.appends_total * spec.messages
    if after - before != sent or result.last_offset + 1 != after:
        raise SystemExit(f"{sent} messages were acknowledged, {after - before} are there")
    return result


def rows(section: str, name: str, result: LoadResult, note: str, goal: Goal | None) -> list[Figure]:
    """Return rate, latency of a request, and CPU for a message on both sides."""
    each = result.appends / max(1, result.messages)
    leader, *followers = result.server_cpu_us
    found = [
        Figure(
            section=section,
            name=f"{name}: rate",
            value=result.messages / result.seconds,
            unit="messages/s",
            goal=goal,
            note=note,
            on_disk=True,
        )
    ]
    for share, value in (("p50", result.p50_ms), ("p99", result.p99_ms)):
        found.append(Figure(section=section, name=f"{name}: {share}", value=value, unit="ms"))
    spent = {"CPU leader": leader, "CPU load process": result.client_cpu_us}
    if followers:
        spent["CPU follower"] = sum(followers) / len(followers)
    for who, value in spent.items():
        unit = "us/message"
        found.append(Figure(section=section, name=f"{name}: {who}", value=value * each, unit=unit))
    return found


@contextlib.contextmanager
def distant(port: int) -> Iterator[int]:
    """Run a proxy before ``port`` that is 75 ms away; yield the port it listens on."""
    spec = ProxySpec(port=free_port_base(1), to=port, delay_ms=DISTANCE_MS)
    proxy = subprocess.Popen(
        [sys.executable, "-m", "bench.latency_proxy", msgspec.json.encode(spec).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    )
    assert proxy.stdin is not None
    assert proxy.stdout is not None
    try:
        if proxy.stdout.readline() != b"ready\n":
            raise SystemExit("the proxy did not start")
        yield spec.port
    finally:
        proxy.stdin.close()
        proxy.stdout.close()
        try:
            proxy.wait(timeout=10)
        except subprocess.TimeoutExpired:
            proxy.kill()
            proxy.wait()


def _count(nodes: int) -> str:
    return f"{nodes} node{'s' * (nodes > 1)}"
