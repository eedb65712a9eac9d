"""Kafka clients on one node and on three: rate and CPU of produce and consume, latency.

The same load runs against Apache Kafka in bench/peers/kafka, turn by turn with this one.
"""

import subprocess
import sys
from pathlib import Path

import msgspec

from bench.cluster import BenchCluster, running
from bench.figures import Figure, Goal, under
from bench.kafka_load import KafkaResult, KafkaSpec

TOPIC = "kafka"
LIMIT_S = 400
IN_FLIGHT = (1, 8, 64)
SINGLES_S, SINGLES_MAX = 3.0, 200_000
WISHES: tuple[tuple[str, bool, dict[str, str]], ...] = (
    ("headers=false, a header each", False, {"note": "plain"}),
    ("headers=true, a header each", True, {"note": "plain"}),
    ("headers=true, a priority each", True, {"raftline-priority": "high"}),
)
ROOT = Path(__file__).parent.parent


def kafka(work: Path, *, quick: bool) -> list[Figure]:
    """Measure one node, then three."""
    found: list[Figure] = []
    for nodes in (1, 3):
        with running(work / f"kafka-{nodes}", nodes) as cluster:
            section = f"Kafka, {nodes} node{'s' * (nodes > 1)}"
            found += measure(cluster, section, quick=quick)
            if nodes == 1:
                found += wishes(cluster, section, quick=quick)
    return found


def measure(cluster: BenchCluster, section: str, *, quick: bool) -> list[Figure]:
    """Run every task on a cluster of ours."""
    for name in (f"{TOPIC}-1k", TOPIC):
        cluster.create(name, 1)
        cluster.leader_of(name)
    leader = cluster.leader_of(TOPIC)
    pids = [node.pid for node in cluster.nodes]
    servers = ",".join(node.kafka for node in cluster.nodes)
    goal = under(1.2) if len(cluster.nodes) == 3 else None
    base = KafkaSpec(
        task="", servers=servers, topic=TOPIC, pids=pids, leader=leader.kafka, partitions=1
    )
    return tasks(base, section, goal, quick=quick)


def wishes(cluster: BenchCluster, section: str, *, quick: bool) -> list[Figure]:
    """What headers=true costs: without wishes, and with one in each message."""
    servers = ",".join(node.kafka for node in cluster.nodes)
    found: list[Figure] = []
    for name, setting, headers in WISHES:
        topic = f"wishes-{len(found)}"
        with cluster.client() as client:
            client.create_topic(
                topic, partitions=1, replication_factor=0, settings={"headers": setting}
            )
        cluster.leader_of(topic)
        pids = [node.pid for node in cluster.nodes]
        base = KafkaSpec(task="produce", servers=servers, topic=topic, pids=pids, headers=headers)
        result = run(base, count=20_000 if quick else 500_000)
        found.append(_cpu(section, f"{name}: server CPU", result, None))
    return found


def tasks(base: KafkaSpec, section: str, goal: Goal | None, *, quick: bool) -> list[Figure]:
    """Run every task; on whatever answers there."""
    many = 50_000 if quick else 2_000_000
    found = pair(base, section, many, 100, goal)
    found += arrays(base, section, many)
    if not quick:
        one_kib = msgspec.structs.replace(base, topic=f"{base.topic}-1k")
        found += pair(one_kib, section, 500_000, 1024, None)
    result = run(base, task="latency", count=100 if quick else 1_000)
    found.append(_figure(section, "100 B at 200/s: p50", result.p50_ms, "ms"))
    found.append(_figure(section, "100 B at 200/s: p99", result.p99_ms, "ms"))
    for depth in (1, 64) if quick else IN_FLIGHT:
        count = 300 * depth if quick else SINGLES_MAX
        result = run(base, task="single", count=count, in_flight=depth, seconds_max=SINGLES_S)
        name = f"single messages, {depth} in flight"
        found.append(_figure(section, f"{name}: rate", result.count / result.seconds, "requests/s"))
        found.append(_figure(section, f"{name}: p99", result.p99_ms, "ms"))
        found.append(_cpu(section, f"{name}: server CPU", result, None))
    return found


def pair(
    base: KafkaSpec, section: str, count: int, message_bytes: int, goal: Goal | None
) -> list[Figure]:
    """Produce, then read it back."""
    found = produce(base, section, count, message_bytes, goal)
    return found + _bulk("consume", base, section, count, message_bytes, None)


def produce(
    base: KafkaSpec, section: str, count: int, message_bytes: int, goal: Goal | None
) -> list[Figure]:
    """Produce as a Python program does."""
    return _bulk("produce", base, section, count, message_bytes, goal)


def _bulk(
    task: str, base: KafkaSpec, section: str, count: int, message_bytes: int, goal: Goal | None
) -> list[Figure]:
    result = run(base, task=task, count=count, message_bytes=message_bytes)
    size = "100 B" if message_bytes == 100 else "1 KiB"
    return _rate_and_cpu(section, f"{task} {count:,} x {size}", result, goal)


def arrays(base: KafkaSpec, section: str, count: int) -> list[Figure]:
    """Produce as a C program does: messages go to librdkafka by the array."""
    result = run(base, task="produce_arrays", count=count)
    return _rate_and_cpu(section, f"produce {count:,} x 100 B, from C", result, None)


def _rate_and_cpu(section: str, name: str, result: KafkaResult, goal: Goal | None) -> list[Figure]:
    rate = result.count / result.seconds
    note = f"client CPU {result.client_cpu_s / result.count * 1e6:.2f} µs/message"
    return [
        _figure(section, f"{name}: rate", rate, "messages/s", note),
        _cpu(section, f"{name}: server CPU", result, goal),
    ]


def run(base: KafkaSpec, **wanted: object) -> KafkaResult:
    """Run one load process to its end."""
    spec = msgspec.structs.replace(base, **wanted)
    done = subprocess.run(
        [sys.executable, "-m", "bench.kafka_load", msgspec.json.encode(spec).decode()],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        raise SystemExit(f"the load process failed: {done.stderr.strip()[-2000:]}")
    return msgspec.json.decode(done.stdout.encode(), type=KafkaResult)


def _cpu(section: str, name: str, result: KafkaResult, goal: Goal | None) -> Figure:
    value = result.server_cpu_s / result.count * 1e6
    return Figure(section=section, name=name, value=value, unit="µs/message", goal=goal)


def _figure(section: str, name: str, value: float, unit: str, note: str = "") -> Figure:
    return Figure(section=section, name=name, value=value, unit=unit, note=note)
