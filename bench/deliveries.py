"""Work groups: lease and ack by worker processes, and latency from send to receive."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from bench.cluster import BenchCluster, http_port, running
from bench.figures import Figure, at_least, under
from bench.processes import cpu_ns
from bench.worker import WorkerResult, WorkerSpec

TOPIC = "work"
WORKERS = 8
START_S = 1.2  # for the worker processes to come up
PER_S_MAX = 250_000  # messages that workers may use up in a second
WARM_UP_S = 0.5  # as WorkerSpec has it
FORMS = {
    "pipelined": "HTTP on plain sockets, settle route of the partition: one request acks a receive",
    "blocking": "HTTP on plain sockets, settle route of the partition: one request an ack, awaited",
}


def workers(work: Path, *, quick: bool) -> list[Figure]:
    """Eight worker processes, 100 B, every message acked by itself."""
    seconds = 0.5 if quick else 4.0
    found: list[Figure] = []
    for nodes, pipelined, blocking in ((1, 40_000, 10_000), (3, 25_000, None)):
        with running(work / f"workers-{nodes}", nodes) as cluster:
            cluster.create(TOPIC)
            for form, goal in (("pipelined", pipelined), ("blocking", blocking)):
                expected = (PER_S_MAX if form == "pipelined" else 20_000) * (seconds + WARM_UP_S)
                fill(cluster, int(expected))
                found += _rows(cluster, nodes, form, seconds, goal)
            if not cluster.verify():
                raise SystemExit("the replicas differ after the work")
    return found


def traces(work: Path, *, quick: bool) -> list[Figure]:
    """What tracing costs: the same work with and without it, taking turns.

    By the rate, which is what users see, and by the leader's CPU, which varies less: where workers
    and server share two cores, the rate of a run says more about who ran when.
    """
    seconds, rounds = (0.4, 1) if quick else (2.5, 4)
    rates: dict[int, list[float]] = {100: [], 0: []}
    cpu_us: dict[int, list[float]] = {100: [], 0: []}
    with running(work / "traces", 1) as cluster:
        cluster.create(TOPIC)
        with cluster.client() as client:
            for number in range(2 * rounds):
                percent = 0 if number % 2 else 100
                client.set_topic(TOPIC, {"trace_percent": percent})
                time.sleep(6.0)  # leaders adopt it with the next look at retention
                fill(cluster, int(PER_S_MAX * (seconds + WARM_UP_S)))
                pid = cluster.leader_of(TOPIC).pid
                before = cpu_ns(pid)
                results = run_workers(_specs(cluster, "pipelined", seconds, f"g{number}"))
                rates[percent].append(sum(result.acks for result in results) / seconds)
                total = max(1, sum(result.acks_total for result in results))
                cpu_us[percent].append((cpu_ns(pid) - before) / total / 1e3)
    with_it, without = (statistics.median(rates[percent]) for percent in (100, 0))
    cpu, cpu_without = (statistics.median(cpu_us[percent]) for percent in (100, 0))
    section = f"1 node, {WORKERS} workers, pipelined, traces on and off in turn"
    return [
        Figure(section=section, name="rate, traced", value=with_it, unit="messages/s"),
        Figure(section=section, name="rate, not traced", value=without, unit="messages/s"),
        Figure(
            section=section,
            name="cost of traces",
            value=100 * (1 - with_it / max(1.0, without)),
            unit="%",
            goal=under(10.0),
        ),
        Figure(section=section, name="CPU leader, traced", value=cpu, unit="us/message"),
        Figure(
            section=section, name="CPU leader, not traced", value=cpu_without, unit="us/message"
        ),
    ]


def fill(cluster: BenchCluster, messages: int) -> None:
    """Have at least so many messages waiting, in batches of 100."""
    batches = messages // 100 + 1
    seconds = max(0.2, batches / 5_000)
    end = cluster.end_of(TOPIC)
    while cluster.end_of(TOPIC) - end < messages:
        cluster.load(TOPIC, messages=100, in_flight=8, seconds=seconds, warm_up_s=0.0)


def _rows(
    cluster: BenchCluster, nodes: int, form: str, seconds: float, goal: int | None
) -> list[Figure]:
    leader = cluster.leader_of(TOPIC)
    specs = _specs(cluster, form, seconds, form)
    before = cpu_ns(leader.pid)
    results = run_workers(specs)
    cpu_s = (cpu_ns(leader.pid) - before) / 1e9
    acks = sum(result.acks for result in results)
    total = max(1, sum(result.acks_total for result in results))
    lost = sum(result.lost for result in results)
    if lost:
        raise SystemExit(f"{lost} acks were refused without a fault")
    section = f"{nodes} node{'s' * (nodes > 1)}, {WORKERS} workers, 100 B, lease + ack, {form}"
    client = sum(result.cpu_s for result in results) / max(1, acks) * 1e6
    return [
        Figure(
            section=section,
            name="rate",
            value=acks / seconds,
            unit="messages/s",
            goal=at_least(goal) if goal else None,
            on_disk=form == "blocking",
            note=FORMS[form],
        ),
        Figure(section=section, name="CPU leader", value=cpu_s / total * 1e6, unit="us/message"),
        Figure(section=section, name="CPU workers", value=client, unit="us/message"),
    ]


def _specs(cluster: BenchCluster, form: str, seconds: float, group: str) -> list[WorkerSpec]:
    leader = cluster.leader_of(TOPIC)
    begin_at = time.time() + START_S
    return [
        WorkerSpec(
            port=http_port(leader),
            topic=TOPIC,
            group=group,
            member=f"worker-{number}",
            form=form,
            begin_at=begin_at,
            seconds=seconds,
        )
        for number in range(WORKERS)
    ]


def run_workers(specs: list[WorkerSpec]) -> list[WorkerResult]:
    """Run worker processes side by side to their end."""
    running_workers = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.worker", msgspec.json.encode(spec).decode()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parent.parent,
        )
        for spec in specs
    ]
    results: list[WorkerResult] = []
    for spec, process in zip(specs, running_workers, strict=True):
        limit_s = START_S + spec.warm_up_s + spec.seconds + 60
        out, errors = process.communicate(timeout=limit_s)
        if process.returncode:
            raise SystemExit(f"a worker failed: {errors.decode().strip()[-2000:]}")
        results.append(msgspec.json.decode(out, type=WorkerResult))
    return results
