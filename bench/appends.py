"""Rate, latency and CPU of appends."""

from pathlib import Path

from bench.cluster import BenchCluster, running
from bench.figures import Figure, Goal, at_least, under
from bench.load import LoadResult

TOPIC = "bench"
IN_FLIGHT = (1, 8, 64, 512)
LATENCY_GOALS = {1: (under(1.0), under(3.5))}
RATE_GOALS = {64: at_least(30_000)}
NO_GOALS: tuple[Goal | None, Goal | None] = (None, None)


def matrix(work: Path, *, quick: bool) -> list[Figure]:
    """In flight x size x nodes, single messages on one connection."""
    seconds = 0.4 if quick else 3.0
    depths = (1, 64) if quick else IN_FLIGHT
    found: list[Figure] = []
    for nodes in (1, 3):
        with running(work / f"appends-{nodes}", nodes) as cluster:
            cluster.create(TOPIC)
            for size in (100, 16_384):
                for depth in depths:
                    result = _load(cluster, seconds, message_bytes=size, in_flight=depth)
                    has_goals = nodes == 3 and size == 100
                    found += _rows(
                        f"{nodes} node{'s' * (nodes > 1)}, 1 x {_size(size)}",
                        f"{depth} in flight",
                        result,
                        LATENCY_GOALS.get(depth, NO_GOALS) if has_goals else NO_GOALS,
                        RATE_GOALS.get(depth) if has_goals else None,
                    )
            check_end(cluster)
    return found


def connections(work: Path, *, quick: bool) -> list[Figure]:
    """Many connections that each wait for their reply."""
    with running(work / "connections", 3) as cluster:
        cluster.create(TOPIC)
        result = _load(cluster, 0.4 if quick else 4.0, connections=64)
        check_end(cluster)
    goal = at_least(15_000)
    return _rows("3 nodes, 1 x 100 B", "64 connections x 1", result, NO_GOALS, goal)


def batches(work: Path, *, quick: bool) -> list[Figure]:
    """Batches of 1,000 messages: on a fresh cluster, then with files that were used before.

    The first gigabytes cost more: WAL files are not recycled yet, and on a virtual machine pages of
    memory may be touched for the first time.
    """
    found: list[Figure] = []
    with running(work / "batches", 3) as cluster:
        cluster.create(TOPIC)
        for depth, fresh in ((8, ""),) if quick else ((8, ", fresh"), (1, ""), (8, ""), (32, "")):
            seconds = 0.4 if quick else 4.0
            result = _load(cluster, seconds, messages=1000, in_flight=depth)
            section, name = f"3 nodes, 1,000 x 100 B{fresh}", f"{depth} in flight"
            found.append(
                Figure(
                    section=section,
                    name=f"{name}: rate",
                    value=result.messages / result.seconds,
                    unit="messages/s",
                    goal=at_least(1_500_000) if depth == 8 and not fresh else None,
                    on_disk=True,
                    note=_megabytes(result),
                )
            )
            found += _rows(section, name, result, NO_GOALS, None)[1:]
        check_end(cluster)
    return found


def sustained(work: Path, *, quick: bool) -> list[Figure]:
    """Long enough for segments to grow and the page cache to be written back."""
    seconds = 1.0 if quick else 40.0
    section = f"3 nodes, 100 x 100 B, 8 in flight, {seconds:.0f} s, growing segments"
    with running(work / "sustained", 3) as cluster:
        cluster.create(TOPIC)
        result = _load(cluster, seconds, messages=100, in_flight=8)
        check_end(cluster)
    rates = result.rates
    part = max(1, len(rates) // 4)
    figures = [
        Figure(
            section=section,
            name="rate",
            value=result.messages / result.seconds,
            unit="messages/s",
            note=_megabytes(result),
        ),
    ]
    for name, some in (("first quarter", rates[:part]), ("last quarter", rates[-part:])):
        value = sum(some) / max(1, len(some)) * 100
        figures.append(
            Figure(section=section, name=f"rate, {name}", value=value, unit="messages/s")
        )
    shares = {"p50": result.p50_ms, "p99": result.p99_ms, "p99.9": result.p999_ms}
    for name, value in {**shares, "max": result.max_ms}.items():
        figures.append(Figure(section=section, name=name, value=value, unit="ms"))
    return [*figures, *_cpu(section, "", result)]


def check_end(cluster: BenchCluster) -> None:
    """Fail unless all replicas are identical."""
    if not cluster.verify():
        raise SystemExit("the replicas differ after the load")


def _load(
    cluster: BenchCluster,
    seconds: float,
    *,
    message_bytes: int = 100,
    messages: int = 1,
    connections: int = 1,
    in_flight: int = 1,
) -> LoadResult:
    """Run one load and check that what was acknowledged is there."""
    before = cluster.end_of(TOPIC)
    result = cluster.load(
        TOPIC,
        message_bytes=message_bytes,
        messages=messages,
        connections=connections,
        in_flight=in_flight,
        seconds=seconds,
        warm_up_s=min(1.0, seconds / 2),
    )
    after = cluster.end_of(TOPIC)
    sent = result.appends_total * messages
    if after - before != sent or result.last_offset + messages != after:
        raise SystemExit(f"{sent} messages were acknowledged, {after - before} are there")
    return result


def _rows(
    section: str,
    name: str,
    result: LoadResult,
    latency: tuple[Goal | None, Goal | None],
    rate: Goal | None,
) -> list[Figure]:
    return [
        Figure(
            section=section,
            name=f"{name}: rate",
            value=result.appends / result.seconds,
            unit="appends/s",
            goal=rate,
            on_disk=True,
        ),
        Figure(
            section=section,
            name=f"{name}: p50",
            value=result.p50_ms,
            unit="ms",
            goal=latency[0],
            on_disk=True,
        ),
        Figure(
            section=section,
            name=f"{name}: p99",
            value=result.p99_ms,
            unit="ms",
            goal=latency[1],
            on_disk=True,
        ),
        *_cpu(section, f"{name}: ", result),
    ]


def _cpu(section: str, prefix: str, result: LoadResult) -> list[Figure]:
    leader, *followers = result.server_cpu_us
    rows = {"CPU leader": leader, "CPU load process": result.client_cpu_us}
    if followers:
        rows["CPU follower"] = sum(followers) / len(followers)
    return [
        Figure(section=section, name=f"{prefix}{name}", value=value, unit="us/append")
        for name, value in rows.items()
    ]


def _size(size: int) -> str:
    return f"{size} B" if size < 1024 else f"{size // 1024} KiB"


def _megabytes(result: LoadResult) -> str:
    rate = result.appends * result.batch_bytes / result.seconds / 1e6
    return f"{rate:.0f} MB/s of {result.batch_bytes} B batches"
