"""One run of chaos: a cluster, load on it, faults one after another, a verdict, the evidence.

Evidence, in the run's directory: ``verdict.json``, ``faults.jsonl`` (what was done when),
``log-``, ``catalog-``, ``queue-``, ``keyed-`` and ``kafka-history.jsonl`` (every call and what
its caller was told), and each node's log and data. A run has a seed: it fixes which faults come in
which order, not how threads and disks take turns.
"""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from raftline.chaos import faults as catalogue
from raftline.chaos.faults import SMALL_DISK_MB, Fault
from raftline.chaos.loads import TOPIC, Loads, write_lines
from raftline.chaos.rig import ChaosProblem, Rig, mono_ms
from raftline.chaos.scene import Scene
from raftline.chaos.taken import Taken
from raftline.chaos.traffic import Traffic

WHOLE_S_MAX = 60.0
SETTINGS = (  # small files, so that rolling, checkpoints and trims happen within minutes
    "wal.file_bytes=16MiB",
    "wal.bytes_max=128MiB",
    "log.segment_bytes=1MiB",
    "log.checkpoint_bytes=2MiB",
    "log.checkpoint_ms=3000",
)
SENDERS = ("queue", "keyed", "kafka")
OUTAGES_SHOWN = 5
HANDS_OFF = "transfer"  # the one fault that needs nothing but clients
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
    kafka: bool = True
    servers: str = ""  # of a cluster that is there and that others hurt


PRESETS = {
    "all": Plan(),
    "dqueue": Plan(seconds=60, faults=("kill-leader",), every_s=10.0),
    "failover": Plan(seconds=12, faults=("kill-leader",), every_s=6.0),
}


class NoFault(ChaosProblem):
    """None of the faults that were asked for can be had here: nothing was started."""


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
    fenced_accepted: int  # settles of leases that had moved on
    late: int
    outage_ms_max: float
    outages: list[str]  # the longest ones, each with the fault that explains it
    violations: list[str]
    faults: dict[str, int]
    left_out: dict[str, str]  # faults and loads that cannot be had here, and why
    counts: dict[str, int]
    recovery_ms: float
    seconds: float
    seed: int
    evidence: str


def run_chaos(plan: Plan, directory: Path, tell: Tell) -> Verdict:
    """Run it; everything that was started is ended, whatever happens.

    Raises:
        ChaosProblem: the cluster could not be run, or did not come back in time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    usable, left_out = _choose(plan)
    if plan.servers:
        rig = Taken(plan.servers, directory)
    else:
        rig = _new_rig(plan, directory, usable, left_out)
    try:
        small_disk = "" if plan.servers else _disks(plan, rig, usable, left_out)
        rig.start_all()
        first = rig.node(rig.names[0]).http
        tell(f"{len(rig.names)} nodes on {first} and above, evidence in {directory}")
        loads = Loads(rig, left_out, seed=plan.seed, queue=plan.queue, kafka=plan.kafka)
        loads_ms = mono_ms()
        happened: list[Happened] = []
        try:
            happened.extend(_disturb(plan, rig, usable, small_disk, tell))
            tell("no more faults: healing, reading everything back")
            judged, violations, counts = loads.judge()
        finally:  # also of a run that did not come to its end
            loads.hush()
            write_lines(directory / "faults.jsonl", happened)
            loads.keep(directory)
        outages = loads.log.outages()[:OUTAGES_SHOWN]
        verdict = Verdict(
            clean=not violations and not judged.out_of_service,
            acked=_acked(loads.log) + sum(counts.get(f"{name} sent", 0) for name in SENDERS),
            lost=sum(v.promise == "P1" for v in violations),
            duplicated=sum(" times" in v.text or "twice" in v.text for v in violations),
            reordered=sum(v.promise == "P7" or "order" in v.text for v in violations),
            early=sum("early" in v.text for v in violations),
            fenced_accepted=sum(v.promise == "P5" for v in violations),
            late=counts.get("queue late", 0),
            outage_ms_max=judged.outage_ms,
            outages=[_explain(gap, loads_ms, happened) for gap in outages],
            violations=[str(violation) for violation in violations],
            faults={name: sum(h.fault == name for h in happened) for name in usable},
            left_out=left_out,
            counts=counts,
            recovery_ms=judged.recovery_ms,
            seconds=time.monotonic() - began,
            seed=plan.seed,
            evidence=str(directory),
        )
        encoded = msgspec.json.format(msgspec.json.encode(verdict))
        (directory / "verdict.json").write_bytes(encoded)
        return verdict
    finally:
        rig.close()


def _explain(gap: tuple[str, float, float], since_ms: float, happened: list[Happened]) -> str:
    """Say what was going on while a partition acknowledged nothing."""
    place, from_ms, to_ms = gap
    from_s, to_s = (from_ms - since_ms) / 1000, (to_ms - since_ms) / 1000
    why = [h for h in happened if h.at_s < to_s and h.at_s + h.took_s > from_s]
    told = ", ".join(f"{h.fault} {h.where}" for h in why) or "no fault at that time"
    return f"{place} {to_s - from_s:.1f} s from {max(0.0, from_s):.0f} s on: {told}"


def _acked(log: Traffic) -> int:
    return sum(op.count for op in log.history.ops if (op.kind, op.outcome) == ("append", "ok"))


def _choose(plan: Plan) -> tuple[dict[str, Fault], dict[str, str]]:
    usable: dict[str, Fault] = {}
    left_out: dict[str, str] = {}
    for name in plan.faults:
        fault = catalogue.BY_NAME[name]
        why = "the cluster is not ours" if plan.servers and name != HANDS_OFF else ""
        why = (
            why
            or fault.needs()
            or ("needs three nodes" if plan.nodes < 3 and name != "kill" else "")
        )
        if why:
            left_out[name] = why
        else:
            usable[name] = fault
    if not usable:
        why = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise NoFault(f"no fault can be had here: {why}")
    return usable, left_out


def _new_rig(
    plan: Plan, directory: Path, usable: dict[str, Fault], left_out: dict[str, str]
) -> Rig:
    """Lay the cluster out: behind a switch, or if there is none, behind wires."""
    library = catalogue.clock_library() if catalogue.FAKETIME in usable else ""

    def rig(*, switched: bool) -> Rig:
        return Rig(
            directory,
            nodes=plan.nodes,
            settings=SETTINGS,
            wired=not catalogue.wires.why_not(),
            switched=switched,
            clocks=True,
            clock_library=library,
            kept=True,
        )

    try:
        return rig(switched="packet-loss" in usable)
    except OSError as error:
        _leave_out(["packet-loss"], str(error), usable, left_out)
        return rig(switched=False)


def _disks(plan: Plan, rig: Rig, usable: dict[str, Fault], left_out: dict[str, str]) -> str:
    """Give nodes disks that can fail; return the one that can be filled, if that is wanted."""
    small = rig.names[-1] if "full-disk" in usable else ""
    room_mb = SMALL_DISK_MB + int(plan.seconds) // 2
    wanted = [name for name in catalogue.ON_OUR_DISK if name in usable]
    if wanted:
        why = rig.give_disks(plan.seed, small, room_mb << 20)
        if not why:
            return small
        _leave_out(wanted, why, usable, left_out)
    if small:
        why = rig.mount_small(small, room_mb)
        if why:
            _leave_out(["full-disk"], why, usable, left_out)
            return ""
    return small


def _leave_out(
    names: list[str], why: str, usable: dict[str, Fault], left_out: dict[str, str]
) -> None:
    for name in names:
        left_out[name] = why
        del usable[name]


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
        for ended in sorted(set(rig.founders) - set(rig.running())):
            where.append(f"({ended} ended by itself)")
            rig.restart(ended)
        rig.wait_whole(WHOLE_S_MAX)
        took_s = (mono_ms() - from_ms) / 1000
        tell(f"{at_s:6.1f} s  {name}: {' '.join(where)} (whole again after {took_s:.1f} s)")
        yield Happened(name, " ".join(where), at_s, took_s)
        time.sleep(max(0.2, plan.every_s - took_s))
