"""One run of chaos: a cluster, load on it, faults one after another, a verdict, the evidence.

Evidence, in the run's directory: ``verdict.json``, ``faults.jsonl`` (what was done when),
``log-history.jsonl`` and ``queue-history.jsonl`` (every call and what its caller was told), and
each node's log and data. A run has a seed: it fixes which faults come in which order, not how
threads and disks take turns.
"""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from raftline.chaos import faults as catalogue
from raftline.chaos.catalog_traffic import CatalogTraffic
from raftline.chaos.faults import SMALL_DISK_MB, Fault, Scene
from raftline.chaos.linear import check_partitions
from raftline.chaos.queue_traffic import QueueTraffic
from raftline.chaos.queue_verdict import judge_queue
from raftline.chaos.rig import ChaosProblem, Rig, mono_ms
from raftline.chaos.traffic import Traffic
from raftline.testing.checker import Violation

TOPIC = "chaos-log"
WHOLE_S_MAX = 60.0
SETTINGS = (  # small files, so that rolling, checkpoints and trims happen within minutes
    "wal.file_bytes=16MiB",
    "wal.bytes_max=128MiB",
    "log.segment_bytes=1MiB",
    "log.checkpoint_bytes=2MiB",
    "log.checkpoint_ms=3000",
)
Tell = Callable[[str], None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run does."""

    seconds: float = 60.0
    nodes: int = 3
    seed: int = 1
    faults: tuple[str, ...] = tuple(fault.name for fault in catalogue.ALL if fault.is_usual)
    every_s: float = 0.0  # begin a fault so often; 0: one after another
    hold_s: float = 1.5
    queue: bool = True


PRESETS = {
    "all": Plan(),
    "dqueue": Plan(seconds=60, faults=("kill-leader",), every_s=10.0),
    "failover": Plan(seconds=12, faults=("kill-leader",), every_s=6.0),
}


class Happened(msgspec.Struct, frozen=True):
    """One fault of a run."""

    fault: str
    where: str
    at_s: float
    took_s: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What came out."""

    clean: bool
    acked: int  # messages whose sender was told that they are stored
    lost: int
    duplicated: int
    reordered: int
    early: int
    late: int
    outage_ms_max: float
    violations: list[str]
    faults: dict[str, int]
    left_out: dict[str, str]  # faults that cannot be had here, and why
    counts: dict[str, int]
    recovery_ms: float
    seconds: float
    evidence: str


def run_chaos(plan: Plan, directory: Path, tell: Tell) -> Verdict:
    """Run it; everything that was started is ended, whatever happens.

    Raises:
        ChaosProblem: the cluster could not be run, or did not come back in time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    usable, left_out = _choose(plan)
    rig = Rig(
        directory,
        nodes=plan.nodes,
        settings=SETTINGS,
        wired=plan.nodes > 1 and not catalogue.wires.why_not(),
        clock_library=catalogue.clock_library() if "clock" in plan.faults else "",
    )
    try:
        small_disk = _small_disk(rig, usable, left_out)
        rig.start_all()
        tell(f"{plan.nodes} nodes on {rig.node('node-1').http} and above, data in {directory}")
        log = Traffic(rig, topic=TOPIC, partitions=2, pause_s=0.02, seed=plan.seed).start()
        queue = QueueTraffic(rig, seed=plan.seed).start() if plan.queue else None
        catalog = CatalogTraffic(rig, seed=plan.seed).start()
        happened = list(_disturb(plan, rig, usable, small_disk, tell))
        tell("no more faults: healing, reading everything back")
        catalog.stop()
        judged = log.judge(allowed_bugs=("node.failed", "process.failed"))
        violations = [*judged.verdict.violations, *check_partitions(log.history), *catalog.judge()]
        counts = {**judged.verdict.counts, "catalog_calls": sum(map(len, catalog.changes.values()))}
        if queue is not None:
            queue.drain()
            found = judge_queue(rig, queue)
            violations += found.violations
            counts |= {f"queue {name}": count for name, count in found.counts.items()}
            counts["queue late_ms_max"] = found.late_ms_max
            violations += [Violation("P10", text) for text in queue.problems]
        verdict = Verdict(
            clean=not violations and not judged.out_of_service,
            acked=_acked(log) + counts.get("queue sent", 0),
            lost=sum(v.promise == "P1" for v in violations),
            duplicated=sum(" times" in v.text or "twice" in v.text for v in violations),
            reordered=sum("offset" in v.text and v.promise in ("P2", "P3") for v in violations),
            early=sum("early" in v.text for v in violations),
            late=counts.get("queue late", 0),
            outage_ms_max=judged.outage_ms,
            violations=[str(violation) for violation in violations],
            faults={name: sum(h.fault == name for h in happened) for name in usable},
            left_out=left_out,
            counts=counts,
            recovery_ms=judged.recovery_ms,
            seconds=time.monotonic() - began,
            evidence=str(directory),
        )
        _keep(directory, verdict, happened, log, queue)
        return verdict
    finally:
        rig.close()


def _acked(log: Traffic) -> int:
    return sum(op.count for op in log.history.ops if (op.kind, op.outcome) == ("append", "ok"))


def _choose(plan: Plan) -> tuple[dict[str, Fault], dict[str, str]]:
    usable: dict[str, Fault] = {}
    left_out: dict[str, str] = {}
    for name in plan.faults:
        fault = catalogue.BY_NAME[name]
        why = fault.needs() or ("needs three nodes" if plan.nodes < 3 and name != "kill" else "")
        if why:
            left_out[name] = why
        else:
            usable[name] = fault
    if not usable:
        raise ChaosProblem(f"no fault can be had here: {left_out}")
    return usable, left_out


def _small_disk(rig: Rig, usable: dict[str, Fault], left_out: dict[str, str]) -> str:
    """Give the last node a disk that can be filled, where that is wanted and possible."""
    if "full-disk" not in usable:
        return ""
    name = rig.names[-1]
    why = rig.mount_small(name, SMALL_DISK_MB)
    if why:
        left_out["full-disk"] = why
        del usable["full-disk"]
        return ""
    return name


def _disturb(
    plan: Plan, rig: Rig, usable: dict[str, Fault], small_disk: str, tell: Tell
) -> Iterator[Happened]:
    """Run faults until the time is up: each kind once in chance's order, then again."""
    rng = random.Random(plan.seed)
    began = time.monotonic()
    order: list[str] = []
    while time.monotonic() - began < plan.seconds:
        order = order or rng.sample(sorted(usable), len(usable))
        name = order.pop()
        where: list[str] = []
        scene = Scene(rig, rng, TOPIC, plan.hold_s, where.append, small_disk)
        at_s, from_ms = time.monotonic() - began, mono_ms()
        usable[name].run(scene)
        rig.wait_whole(WHOLE_S_MAX)
        took_s = (mono_ms() - from_ms) / 1000
        tell(f"{at_s:6.1f} s  {name}: {' '.join(where)} (whole again after {took_s:.1f} s)")
        yield Happened(name, " ".join(where), at_s, took_s)
        time.sleep(max(0.2, plan.every_s - took_s))


def _keep(
    directory: Path,
    verdict: Verdict,
    happened: list[Happened],
    log: Traffic,
    queue: QueueTraffic | None,
) -> None:
    """Write the evidence."""
    encoded = msgspec.json.format(msgspec.json.encode(verdict))
    (directory / "verdict.json").write_bytes(encoded)
    _lines(directory / "faults.jsonl", happened)
    _lines(directory / "log-history.jsonl", log.history.ops)
    if queue is not None:
        rows = [*queue.sendings.values(), *(d for rows in queue.deliveries.values() for d in rows)]
        _lines(directory / "queue-history.jsonl", rows)


def _lines(file: Path, rows: list[Any]) -> None:
    file.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
