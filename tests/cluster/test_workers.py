"""Workers and leaders that die: every message is settled once, and what came twice is explained.

Eight worker processes ack every message by itself, half of them by token, half by range. Every
second one is killed and replaced; now and then the leader of a partition is. In the end the group
has settled everything, and the workers' own logs tell what each of them did.
"""

import itertools
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from raftline.chaos.rig import Rig, wait_for
from raftline.chaos.traffic import Caller
from tests.cluster.conftest import MakeRig

TOPIC, GROUP = "jobs", "workers"
PARTITIONS = 3
WORKERS = 8
LEASE_MS = 4_000
PUBLISH = 500  # messages of one request
NEVER = float("inf")
Message = tuple[int, int]  # partition, offset


class Size(msgspec.Struct, frozen=True):
    """How much of it."""

    messages: int
    worker_kills: int  # at least, and no more than
    worker_kills_max: int
    leader_kills: int
    work_s: float  # what one message takes a worker
    seconds_max: float


class Step(msgspec.Struct, frozen=True):
    """One line of a worker's log."""

    what: str
    at_s: float
    attempt: int
    worker: str


class Crew:
    """The worker processes; those that are killed are replaced."""

    def __init__(self, rig: Rig, size: Size) -> None:
        self._rig = rig
        self._work_s = size.work_s
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = [int(rig.node(name).http.rsplit(":", 1)[1]) for name in rig.names]
        self.killed: dict[str, float] = {}  # when
        self.directory = rig.directory
        self._count = 0
        rig.at_close.append(self.close)

    def hire(self) -> None:
        """Start one more."""
        self._count += 1
        name = f"w-{self._count}"
        spec = {
            "ports": self._ports,
            "first": self._count,
            "topic": TOPIC,
            "group": GROUP,
            "member": name,
            "form": "tokens" if self._count % 2 else "ranges",
            "count": 20,
            "lease_ms": LEASE_MS,
            "work_s": self._work_s,
            "log": str(self.directory / f"{name}.steps"),
        }
        script = Path(__file__).with_name("worker_process.py")
        with (self.directory / f"{name}.err").open("wb") as output:
            self._running[name] = subprocess.Popen(
                [sys.executable, str(script), json.dumps(spec)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def kill_one(self, rng: random.Random) -> None:
        """kill -9 one of them; another takes its place."""
        name = rng.choice(sorted(self._running))
        self._end(name)
        self.killed[name] = time.monotonic()
        self.hire()

    def _end(self, name: str) -> None:
        child = self._running.pop(name)
        child.kill()
        child.wait(10)

    def assert_alive(self) -> None:
        for name, child in self._running.items():
            said = (self.directory / f"{name}.err").read_text()
            assert child.poll() is None, f"{name} ended by itself: {said}"

    def close(self) -> None:
        for name in list(self._running):
            self._end(name)

    def steps(self) -> dict[Message, list[Step]]:
        """Return what all of them did to every message, in the order of time."""
        found: dict[Message, list[Step]] = defaultdict(list)
        for file in sorted(self.directory.glob("*.steps")):
            for line in file.read_text().splitlines():
                what, at_s, partition, offset, attempt = line.split()
                step = Step(what, float(at_s), int(attempt), file.stem)
                found[int(partition), int(offset)].append(step)
        for steps in found.values():
            steps.sort(key=lambda step: step.at_s)
        return found


def publish(rig: Rig, caller: Caller, count: int) -> None:
    for start in range(0, count, PUBLISH):
        numbers = range(start, min(count, start + PUBLISH))
        body = {"messages": [{"value": f"job {n}", "partition": n % PARTITIONS} for n in numbers]}
        data = json.dumps(body).encode()
        answer = caller.call(rig.names[0], "POST", f"/v1/topics/{TOPIC}/messages", data)
        assert answer.status == 200, answer.body
        assert not [row for row in answer.json()["results"] if row["error"]]


def group_rows(rig: Rig, caller: Caller) -> list[dict[str, Any]]:
    """Return the group's state on every partition; empty while somebody cannot be asked."""
    for name in rig.running():
        if rig.is_down(name):
            continue
        try:
            answer = caller.call(name, "GET", f"/v1/groups/{GROUP}?topic={TOPIC}", timeout_ms=4000)
        except OSError:
            continue
        if answer.status == 200:
            rows = answer.json()["work"].get(TOPIC, [])
            if len(rows) == PARTITIONS:
                return rows
    return []


def is_settled(rig: Rig, caller: Caller) -> bool:
    rows = group_rows(rig, caller)
    return bool(rows) and all(row["floor"] == row["next_offset"] for row in rows)


def explain(steps: dict[Message, list[Step]], crew: Crew) -> dict[str, int]:
    """Count what was worked on more than once, by why; an unexplained one is a failure."""
    found: dict[str, int] = defaultdict(int)
    for message, all_of in steps.items():
        did = [step for step in all_of if step.what == "did"]
        for before, after in itertools.pairwise(did):
            gap_s = after.at_s - before.at_s
            if (
                crew.killed.get(before.worker, NEVER) < after.at_s
                and after.attempt > before.attempt
            ):
                found["its worker was killed before the ack"] += 1
            elif after.attempt == before.attempt:
                assert after.attempt == 1, (message, all_of)  # others wait for their commit
                found["its leader was gone before the first lease was committed"] += 1
            else:
                assert gap_s > LEASE_MS / 1000 / 2, (message, all_of)
                found["the lease ended while nobody could take the ack"] += 1
    return found


def check(steps: dict[Message, list[Step]], rows: list[dict[str, Any]], crew: Crew) -> None:
    """Every message was delivered, settled once, and never delivered anew after its ack."""
    everything = {(r["partition"], offset) for r in rows for offset in range(r["next_offset"])}
    assert set(steps) == everything, "delivered and stored are not the same"
    for message, all_of in steps.items():
        acks = [step for step in all_of if step.what == "ok"]
        assert len(acks) <= 1, (message, all_of)
        if not acks:  # the answer to its ack got lost, or the worker before it heard
            doubt = [s for s in all_of if s.what == "unknown" or s.worker in crew.killed]
            assert doubt, (message, all_of)
            continue
        later = [s for s in all_of if s.what == "got" and s.attempt > acks[0].attempt]
        assert not later, (message, all_of)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(Size(3_000, 2, 4, 1, 0.008, 60), id="small"),
        pytest.param(Size(50_000, 20, 300, 3, 0.002, 280), id="50000", marks=pytest.mark.full),
    ],
)
def test_workers_and_leaders_die_and_every_message_is_settled_once(
    make_rig: MakeRig, size: Size
) -> None:
    rig, rng = make_rig(), random.Random(4)
    sets = ("--set", "max_retries=1000", "--set", "lease_ms=5s")
    said = rig.command("topic", "create", TOPIC, "--partitions", str(PARTITIONS), *sets)
    assert said.exit == 0, said
    caller, crew = Caller(rig), Crew(rig, size)
    rig.at_close.append(caller.close)
    for partition in range(PARTITIONS):
        rig.leader_of(TOPIC, partition)
    publish(rig, caller, size.messages)
    began = time.monotonic()
    for _ in range(WORKERS):
        crew.hire()
    leaders_killed: list[float] = []
    down = ""
    turn = 0
    while not (is_settled(rig, caller) and turn > size.worker_kills):
        assert time.monotonic() - began < size.seconds_max, group_rows(rig, caller)
        time.sleep(max(0.0, began + turn + 1 - time.monotonic()))
        turn += 1
        crew.assert_alive()
        if turn <= size.worker_kills_max:
            crew.kill_one(rng)
        if down:
            rig.restart(down)
            down = ""
        elif len(leaders_killed) < size.leader_kills and turn % 3 == 2:
            down = rig.leader_of(TOPIC, len(leaders_killed) % PARTITIONS)
            leaders_killed.append(time.monotonic())
            rig.kill(down)
    if down:
        rig.restart(down)
    took_s = time.monotonic() - began
    wait_for(lambda: is_settled(rig, caller), 20)
    crew.close()
    rows, steps = group_rows(rig, caller), crew.steps()
    assert len(leaders_killed) == size.leader_kills
    assert sum(row["next_offset"] for row in rows) == size.messages
    assert not any(row["dead"] + row["dying"] + row["leased"] + row["ready"] for row in rows), rows
    check(steps, rows, crew)
    why = explain(steps, crew)
    got = sum(step.what == "got" for all_of in steps.values() for step in all_of)
    print(
        f"\n{size.messages} messages settled once each in {took_s:.0f} s; "
        f"{len(crew.killed)} workers and {len(leaders_killed)} leaders killed; "
        f"{got - size.messages} deliveries more than messages; worked on more than once: "
        f"{sum(why.values())}"
    )
    for reason, count in sorted(why.items()):
        print(f"  {count} because {reason}")
    assert rig.verify().exit == 0
