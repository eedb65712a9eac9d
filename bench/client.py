"""The Python client: ``send`` in a plain loop, and receive + ack by eight worker processes."""

import subprocess
import sys
import time
from pathlib import Path

import msgspec

from bench.client_load import ClientResult, ClientSpec
from bench.cluster import BenchCluster, running
from bench.figures import Figure, at_least
from bench.processes import cpu_ns

WORKERS = 8
START_S = 1.5  # for the processes to come up
PARTITIONS = 6
TAKEN_PER_S = 120_000  # more than eight workers take


def client(work: Path, *, quick: bool) -> list[Figure]:
    """Send with and without keys, then receive and ack what was sent."""
    seconds = 0.5 if quick else 4.0
    found: list[Figure] = []
    for nodes, goals in ((1, (100_000, 30_000)), (3, (None, None))):
        with running(work / f"client-{nodes}", nodes) as cluster:
            cluster.create("sent", PARTITIONS)
            cluster.create("work", PARTITIONS)
            cluster.leader_of("sent", PARTITIONS - 1)
            found += _send(cluster, nodes, seconds, keyed=False, goal=goals[0])
            found += _send(cluster, nodes, seconds, keyed=True, goal=None)
            found += _send(cluster, nodes, seconds, keyed=False, goal=None, way="grpc")
            found += _receive(cluster, nodes, seconds, goals[1])
            if not cluster.verify():
                raise SystemExit("the replicas differ after the clients' work")
    return found


def _send(
    cluster: BenchCluster,
    nodes: int,
    seconds: float,
    *,
    keyed: bool,
    goal: int | None,
    way: str = "http",
) -> list[Figure]:
    servers = cluster.local.servers()
    if way == "grpc":
        servers = ",".join(f"grpc://{node.grpc}" for node in cluster.nodes)
    spec = ClientSpec(servers=servers, topic="sent", keyed=keyed, seconds=seconds)
    before = _node_cpu_s(cluster)
    (result,) = run_clients([spec])
    how = "with keys" if keyed else "without keys"
    how += ", over gRPC" * (way == "grpc")
    section = f"{_count(nodes)}, client, send in a loop, 100 B, {how}"
    return _rows(cluster, section, [result], before, goal)


def _receive(cluster: BenchCluster, nodes: int, seconds: float, goal: int | None) -> list[Figure]:
    fill = ClientSpec(servers=cluster.local.servers(), topic="work", warm_up_s=0.0, seconds=0.5)
    wanted, there = TAKEN_PER_S * (seconds + 1.0), 0
    while there < wanted:
        there += sum(result.total for result in run_clients([fill]))
    begin_at = time.time() + START_S
    specs = [
        ClientSpec(
            servers=cluster.local.servers(),
            topic="work",
            form="receive",
            member=f"worker-{number}",
            begin_at=begin_at,
            seconds=seconds,
        )
        for number in range(WORKERS)
    ]
    before = _node_cpu_s(cluster)
    results = run_clients(specs)
    lost = sum(result.lost for result in results)
    if lost:
        raise SystemExit(f"{lost} acks were refused without a fault")
    section = f"{_count(nodes)}, client, {WORKERS} processes receive + ack, 100 B"
    return _rows(cluster, section, results, before, goal)


def _rows(
    cluster: BenchCluster,
    section: str,
    results: list[ClientResult],
    before_s: float,
    goal: int | None,
) -> list[Figure]:
    messages = max(1, sum(result.messages for result in results))
    total = max(1, sum(result.total for result in results))
    rate = sum(result.messages / result.seconds for result in results)
    nodes_s = _node_cpu_s(cluster) - before_s
    clients_s = sum(result.cpu_s for result in results)
    return [
        Figure(
            section=section,
            name="rate",
            value=rate,
            unit="messages/s",
            goal=at_least(goal) if goal else None,
        ),
        Figure(section=section, name="CPU nodes", value=nodes_s / total * 1e6, unit="us/message"),
        Figure(
            section=section, name="CPU clients", value=clients_s / messages * 1e6, unit="us/message"
        ),
    ]


def run_clients(specs: list[ClientSpec]) -> list[ClientResult]:
    """Run client processes side by side to their end."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.client_load", msgspec.json.encode(spec).decode()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parent.parent,
        )
        for spec in specs
    ]
    results: list[ClientResult] = []
    for spec, process in zip(specs, processes, strict=True):
        limit_s = START_S + spec.warm_up_s + spec.seconds + 60
        out, errors = process.communicate(timeout=limit_s)
        if process.returncode:
            raise SystemExit(f"a client failed: {errors.decode().strip()[-2000:]}")
        results.append(msgspec.json.decode(out, type=ClientResult))
    return results


def _node_cpu_s(cluster: BenchCluster) -> float:
    return sum(cpu_ns(node.pid) for node in cluster.nodes) / 1e9


def _count(nodes: int) -> str:
    return f"{nodes} node{'s' * (nodes > 1)}"
