"""Everything at once, from a seed: kills, pauses, stops, wiped disks, flipped bits, under load."""

import random
import socket
import time

import pytest

from raftline.chaos.rig import Rig, flip_bit
from raftline.chaos.traffic import Caller, Traffic, wall_ms
from raftline.testing.batches import seal
from tests.cluster.conftest import MakeRig
from tests.cluster.test_disks import HEAVY, SMALL


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        (1, 5),
        *(
            pytest.param(seed, 25, marks=[pytest.mark.full, pytest.mark.timeout(600)])
            for seed in range(2, 6)
        ),
    ],
)
def test_faults_of_every_kind_one_after_another(make_rig: MakeRig, seed: int, faults: int) -> None:
    rig = make_rig(settings=SMALL)
    traffic = Traffic(rig, **HEAVY, seed=seed).start()
    rng = random.Random(seed)
    for _ in range(faults):
        traffic.wait_acked(rng.randrange(10, 60), 25)
        fault = rng.choice([_kill_one, _kill_two, _kill_all, _pause, _pause_all, _wipe, _flip])
        victims = rng.sample(rig.names, 3)
        print(f"{fault.__name__} {victims}")
        fault(rig, traffic, rng, victims)
        rig.wait_whole()  # one more loss would be one too many
    traffic.wait_acked(20, 25)
    traffic.finish()


@pytest.mark.parametrize("hangs", [True, False])
def test_a_start_that_keeps_callers_waiting_is_no_excuse(make_rig: MakeRig, *, hangs: bool) -> None:
    """A planted fault: what a node does that listens before it can answer. P10 names it."""
    rig = make_rig()
    traffic = Traffic(rig, texts=0)
    caller, name = Caller(rig), rig.names[2]
    rig.at_close.append(caller.close)
    rig.kill(name)
    host, port = rig.node(name).http.removeprefix("http://").split(":")
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((host, int(port)))
        if hangs:
            door.listen()
        rig._back(name)  # as spawn does: it starts, and is not down any more
        time.sleep(0.01)
        batch = seal([b"one"], [wall_ms()])
        op = traffic.append(caller, name, 0, batch, None)
    rig.restart(name)
    rig.wait_whole()
    judged = traffic.judge()
    if hangs:
        assert op.outcome == "unknown"
        assert [v.promise for v in judged.verdict.violations] == ["P10"], str(judged)
        assert "a call ended after" in str(judged)
    else:
        assert op.outcome == "refused"
        assert judged.verdict.clean, str(judged)


def _kill_one(rig: Rig, traffic: Traffic, rng: random.Random, names: list[str]) -> None:
    rig.kill(names[0])
    traffic.wait_acked(rng.randrange(30), 25)
    rig.spawn(names[0])


def _kill_two(rig: Rig, traffic: Traffic, rng: random.Random, names: list[str]) -> None:
    """Two of three: no majority until one is back."""
    del traffic
    rig.kill(names[0])
    time.sleep(rng.random() / 2)
    rig.kill(names[1])
    time.sleep(rng.random())
    rig.spawn(names[rng.randrange(2)])
    time.sleep(rng.random())
    for name in names:
        if name not in rig.running():
            rig.spawn(name)


def _kill_all(rig: Rig, traffic: Traffic, rng: random.Random, names: list[str]) -> None:
    del traffic
    rig.kill(*names)
    for name in names:
        rig.spawn(name)
        time.sleep(rng.random() / 2)


def _pause(rig: Rig, traffic: Traffic, rng: random.Random, names: list[str]) -> None:
    del traffic
    rig.pause(names[0])
    time.sleep(rng.choice([0.3, 1.0, 3.0]))
    rig.resume(names[0])


def _pause_all(rig: Rig, traffic: Traffic, rng: random.Random, names: list[str]) -> None:
    """The whole machine slept."""
    del traffic
    for name in names:
        rig.pause(name)
    time.sleep(rng.choice([0.5, 2.0]))
    for name in names:
        rig.resume(name)


def _wipe(rig: Rig, traffic: Traffic, rng: random.Random, names: list[str]) -> None:
    rig.kill(names[0])
    traffic.wait_acked(rng.randrange(30), 25)
    rig.wipe(names[0])
    rig.spawn(names[0])
    rig.wait_ready(names[0])
    if rng.random() < 0.5:  # again, while it is being filled
        rig.kill(names[0])
        rig.spawn(names[0])


def _flip(rig: Rig, traffic: Traffic, rng: random.Random, names: list[str]) -> None:
    rig.kill(names[0])
    files = [
        file
        for file in sorted(rig.home(names[0]).rglob("*"))
        if file.is_file() and file.stat().st_size and file.name not in ("identity.json", "lock")
    ]
    for file in rng.sample(files, min(3, len(files))):
        used = len(file.read_bytes().rstrip(b"\0")) or 1
        flip_bit(file, rng.randrange(used))
    traffic.wait_acked(rng.randrange(10), 25)
    rig.spawn(names[0])
