"""Raftline beside Apache Kafka, turn by turn, the median of several rounds.

    python -m bench.peers.kafka.compare [--rounds 5] [--quick] [--nodes 1 3] [--work DIR]

Both run at the same time and idle while the other is measured. Each round has topics of its own.
Raftline syncs every acknowledged batch to the disks of a majority; Kafka does not sync at all.
"""

import argparse
import contextlib
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.cluster import BenchCluster, running
from bench.figures import Figure, number
from bench.kafka_gateway import tasks
from bench.kafka_load import KafkaSpec
from bench.peers.kafka.brokers import Brokers, brokers

ROOT = Path(__file__).parents[3]
Round = Callable[[int], list[Figure]]


def main(words: list[str] | None = None) -> int:
    """Compare; print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 3])
    parser.add_argument("--work", default=str(ROOT / ".work" / "peers"))
    asked = parser.parse_args(words)
    for nodes in asked.nodes:
        with contextlib.ExitStack() as stack:
            work = Path(asked.work)
            ours = stack.enter_context(running(work / f"raftline-{nodes}", nodes))
            theirs = stack.enter_context(brokers(work / f"kafka-{nodes}", nodes))
            found = compare(
                {
                    "Raftline": partial(_ours, ours, quick=asked.quick),
                    "Kafka": partial(_theirs, theirs, quick=asked.quick),
                },
                asked.rounds,
            )
        print(table(f"{nodes} node{'s' * (nodes > 1)}, median of {asked.rounds}", found))
    return 0


def compare(sides: dict[str, Round], rounds: int) -> dict[str, dict[str, list[Figure]]]:
    """Let the sides take turns; return the figures of each by name."""
    found: dict[str, dict[str, list[Figure]]] = {name: {} for name in sides}
    for turn in range(rounds):
        for name, run in sides.items():
            for figure in run(turn):
                found[name].setdefault(figure.name, []).append(figure)
    return found


def _ours(cluster: BenchCluster, turn: int, *, quick: bool) -> list[Figure]:
    topic = f"round-{turn}"
    for name in (f"{topic}-1k", topic):
        cluster.create(name, 1)
        cluster.leader_of(name)
    leader = cluster.leader_of(topic)
    servers = ",".join(node.kafka for node in cluster.nodes)
    pids = [node.pid for node in cluster.nodes]
    base = KafkaSpec(task="", servers=servers, topic=topic, pids=pids, leader=leader.kafka)
    return tasks(base, "", None, quick=quick)


def _theirs(cluster: Brokers, turn: int, *, quick: bool) -> list[Figure]:
    topic = f"round-{turn}"
    cluster.create(f"{topic}-1k", 1)
    leader = cluster.create(topic, 1)
    base = KafkaSpec(
        task="", servers=cluster.servers, topic=topic, pids=cluster.pids, leader=leader
    )
    return tasks(base, "", None, quick=quick)


def table(title: str, found: dict[str, dict[str, list[Figure]]]) -> str:
    """Return the medians side by side, and how ours stands: above 1 is better."""
    ours, theirs = found["Raftline"], found["Kafka"]
    lines = [title, f"  {'':52} {'Raftline':>12} {'Kafka':>12}  {'better by':>9}"]
    for name, rows in ours.items():
        one = statistics.median(row.value for row in rows)
        other = statistics.median(row.value for row in theirs[name])
        is_rate = rows[0].unit.endswith("/s")
        factor = one / other if is_rate else other / one
        label = f"{name} ({rows[0].unit})"
        lines.append(f"  {label:52} {number(one):>12} {number(other):>12}  {factor:8.2f}x")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
