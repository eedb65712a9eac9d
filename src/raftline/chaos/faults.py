"""The catalogue of faults: what is done to a cluster, for how long, and how it ends.

Each is a function over a ``Scene``: it breaks something, waits, and mends it, in bounded time.
Afterwards the rig is whole again or on its way there; the run waits for that before the next one,
because two of three nodes lost at once is more than any majority can stand.
"""

import contextlib
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from raftline.chaos import fuse_wire, switch, wires
from raftline.chaos.rig import Rig, flip_bit, wait_for
from raftline.model.errors import RaftlineError

LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/local/lib/faketime/libfaketime.so.1",
)
UNTOUCHED = ("identity.json", "lock")  # a directory without them is another directory
SMALL_DISK_MB = 256
MEMBER_S_MAX = 40.0
FAKETIME = "clock-faketime"
ON_OUR_DISK = ("power-cut", "power-cut-all", "eio")


class Scene(msgspec.Struct, frozen=True):
    """Where a fault happens."""

    rig: Rig
    rng: random.Random
    topic: str
    hold_s: float  # how long a fault lasts, about
    tell: Callable[[str], None]
    small_disk: str = ""  # the node whose disk can be filled

    def victims(self) -> list[str]:
        """Return all nodes, in chance's order."""
        return self.rng.sample(self.rig.names[:3], len(self.rig.names[:3]))

    def hold(self) -> None:
        """Let it last."""
        time.sleep(self.hold_s * (0.5 + self.rng.random()))


class Fault(msgspec.Struct, frozen=True):
    """One kind of fault."""

    name: str
    text: str
    run: Callable[[Scene], None]
    needs: Callable[[], str] = lambda: ""  # why it cannot be had here
    is_usual: bool = True  # part of a run that names no faults


def clock_library() -> str:
    """Return where libfaketime is; empty if it is not here."""
    named = os.environ.get("RAFTLINE_FAKETIME_LIBRARY", "")
    return next((path for path in (named, *LIBRARIES) if path and Path(path).exists()), "")


def _no_clock() -> str:
    return "" if clock_library() else "libfaketime is not installed (Debian: apt install faketime)"


def _no_small_disk() -> str:
    return "" if os.geteuid() == 0 else "a small disk can be mounted by root only"


# ---------------------------------------------------------------------- processes


def _kill(scene: Scene) -> None:
    victim = scene.victims()[0]
    scene.tell(victim)
    scene.rig.kill(victim)
    scene.hold()
    scene.rig.restart(victim)


def _kill_leader(scene: Scene) -> None:
    victim = scene.rig.leader_of(scene.topic, 0)
    scene.tell(victim)
    scene.rig.kill(victim)
    scene.hold()
    scene.rig.restart(victim)


def _kill_two(scene: Scene) -> None:
    first, second, _ = scene.victims()
    scene.tell(f"{first} and {second}")
    scene.rig.kill(first)
    time.sleep(scene.rng.random() / 2)
    scene.rig.kill(second)
    scene.hold()
    scene.rig.spawn(first)
    scene.rig.spawn(second)


def _kill_all(scene: Scene) -> None:
    names = scene.victims()
    scene.tell("all nodes")
    scene.rig.kill(*names)
    time.sleep(scene.rng.random())
    for name in names:
        scene.rig.spawn(name)
        time.sleep(scene.rng.random() / 2)


def _stop(scene: Scene) -> None:
    victim = scene.victims()[0]
    scene.tell(victim)
    scene.rig.stop(victim)
    scene.hold()
    scene.rig.restart(victim)


def _pause(scene: Scene) -> None:
    victim = scene.victims()[0]
    scene.tell(victim)
    scene.rig.pause(victim)
    scene.hold()
    scene.rig.resume(victim)


def _pause_all(scene: Scene) -> None:
    scene.tell("all nodes")
    for name in scene.rig.names[:3]:
        scene.rig.pause(name)
    time.sleep(min(2.0, scene.hold_s))
    for name in scene.rig.names[:3]:
        scene.rig.resume(name)


# ---------------------------------------------------------------------- disks


def _wipe(scene: Scene) -> None:
    victim = scene.victims()[0]
    scene.tell(victim)
    scene.rig.kill(victim)
    scene.rig.wipe(victim)
    scene.rig.restart(victim)


def _flip(scene: Scene) -> None:
    victim = scene.victims()[0]
    scene.rig.kill(victim)
    files = [
        file
        for file in sorted(scene.rig.home(victim).rglob("*"))
        if file.is_file() and file.stat().st_size and file.name not in UNTOUCHED
    ]
    chosen = scene.rng.sample(files, min(3, len(files)))
    scene.tell(f"{victim}: {', '.join(file.name for file in chosen)}")
    for file in chosen:
        used = len(file.read_bytes().rstrip(b"\0")) or 1
        flip_bit(file, scene.rng.randrange(used))
    scene.rig.sync_disk(victim)
    scene.rig.restart(victim)


def _cut_power_all(scene: Scene) -> None:
    names = scene.victims()
    told = scene.rig.cut_power(*names)
    scene.tell(f"all nodes, {_lost(told)}")
    time.sleep(scene.rng.random())
    for name in names:
        scene.rig.spawn(name)
        time.sleep(scene.rng.random() / 2)


def _cut_power(scene: Scene) -> None:
    victim = scene.victims()[0]
    told = scene.rig.cut_power(victim)
    scene.tell(f"{victim}, {_lost(told)}")
    scene.hold()
    scene.rig.restart(victim)


def _lost(told: dict[str, int]) -> str:
    gone, names = told["bytes"] - told["kept"], told["names"] - told["names_kept"]
    return f"{gone} of {told['bytes']} unsynced bytes and {names} of {told['names']} names lost"


def _fail_disk(scene: Scene) -> None:
    """Let a node's disk answer EIO a few times; a node that ends for it comes back."""
    victim = scene.victims()[0]
    what = scene.rng.choice(("read", "write", "sync"))
    pattern = scene.rng.choice(("wal*", "shards/*", "*"))
    times = scene.rng.randrange(1, 4)
    scene.tell(f"{victim}, {what} of {pattern}, {times} times at most")
    disk = scene.rig.disks[victim]
    disk.fail(what, pattern, times)
    scene.hold()
    disk.heal()
    if victim not in scene.rig.running():
        scene.tell("(it ended, as it must)")
        scene.rig.restart(victim)


def _fill(scene: Scene) -> None:
    """Take the small disk's free space away, all but a little, and give it back."""
    home = scene.rig.home(scene.small_disk)
    left = scene.rng.choice([0, shutil.disk_usage(home).total // 50])
    scene.tell(f"{scene.small_disk}, {left} bytes left")
    filler = home / "filler"
    try:
        with filler.open("wb") as opened, contextlib.suppress(OSError):
            os.posix_fallocate(opened.fileno(), 0, shutil.disk_usage(home).free - left)
        scene.hold()
    finally:
        filler.unlink(missing_ok=True)
    scene.rig.sync_disk(scene.small_disk)
    if scene.small_disk not in scene.rig.running():  # it may end with a reason, and did
        scene.rig.restart(scene.small_disk)


# ---------------------------------------------------------------------- network


def _pairs(scene: Scene) -> tuple[str, list[str]]:
    victim, *others = scene.victims()
    return victim, others


def _cut(scene: Scene) -> None:
    assert scene.rig.wires is not None
    victim, others = _pairs(scene)
    scene.tell(victim)
    for other in others:
        scene.rig.wires.cut(victim, other)
        scene.rig.wires.cut(other, victim)
    scene.hold()
    scene.rig.wires.heal()


def _cut_one_way(scene: Scene) -> None:
    assert scene.rig.wires is not None
    victim, others = _pairs(scene)
    scene.tell(f"{victim} hears nothing" if scene.rng.random() < 0.5 else f"{victim} is not heard")
    for other in others:
        if scene.rng.random() < 0.5:
            scene.rig.wires.cut(victim, other)
        else:
            scene.rig.wires.cut(other, victim)
    scene.hold()
    scene.rig.wires.heal()


def _flap(scene: Scene) -> None:
    assert scene.rig.wires is not None
    victim, others = _pairs(scene)
    scene.tell(victim)
    for _ in range(5):
        for other in others:
            scene.rig.wires.cut(victim, other)
        time.sleep(scene.hold_s / 10)
        scene.rig.wires.heal()
        time.sleep(scene.hold_s / 10)


def _slow(scene: Scene) -> None:
    assert scene.rig.wires is not None
    victim, others = _pairs(scene)
    delay_s = scene.rng.choice([0.02, 0.1, 0.3])
    scene.tell(f"{victim}, {delay_s * 1000:.0f} ms each way")
    for other in others:
        scene.rig.wires.slow(victim, other, delay_s)
        scene.rig.wires.slow(other, victim, delay_s)
    scene.hold()
    scene.rig.wires.heal()


def _disturb(scene: Scene) -> None:
    assert isinstance(scene.rig.wires, switch.Switch)
    victim, others = _pairs(scene)
    loss = scene.rng.choice([0.02, 0.1, 0.3])
    scene.tell(f"{victim}, {loss:.0%} lost, as many doubled, as many late")
    for other in others:
        scene.rig.wires.disturb(victim, other, loss)
        scene.rig.wires.disturb(other, victim, loss)
    scene.hold()
    scene.rig.wires.heal()


# ---------------------------------------------------------------------- clocks and membership


def _jump(scene: Scene) -> None:
    victim = scene.victims()[0]
    ahead_s = scene.rng.choice([-120.0, -2.0, 2.0, 120.0])
    scene.tell(f"{victim} {ahead_s:+.0f} s")
    scene.rig.set_clock(victim, ahead_s)
    scene.hold()
    scene.rig.set_clock(victim, 0)


def _transfer(scene: Scene) -> None:
    """Hand every leadership of the topic to another node."""
    with scene.rig.client() as client:
        numbers = {row["name"]: row["id"] for row in client.cluster()["nodes"]}
        rows = client.topic(scene.topic)["partitions"]
        scene.tell(f"{len(rows)} partitions of {scene.topic}")
        for row in rows:
            others = [n for n in row["replicas"] if n != row["leader"] and n in numbers.values()]
            if others:
                with contextlib.suppress(RaftlineError):
                    client.administer(
                        "transfer",
                        topic=scene.topic,
                        partition=row["partition"],
                        to_node=scene.rng.choice(others),
                    )


def _change_members(scene: Scene) -> None:
    """Let one more node join, take a replica over and lead it, and leave again."""
    rig, spare = scene.rig, f"node-{len(scene.rig.names[:3]) + 1}"
    if spare in rig.names:
        rig.restart(spare)
    else:
        rig.join()
    source = scene.victims()[0]
    place = f"{scene.topic}/0"
    said = rig.command("cluster", "move", place, "--from", source, "--to", spare)
    scene.tell(f"{spare} joined; {place} from {source}: {'moved' if not said.exit else said.err}")
    if not said.exit:
        came, left = rig.number(spare), rig.number(source)
        wait_for(lambda: _has_moved(scene, came, left), MEMBER_S_MAX, lambda: rig.why(spare))
        rig.command("cluster", "transfer", place, "--to", spare)
        scene.hold()
    _remove_member(scene, spare)


def _has_moved(scene: Scene, came: int, left: int) -> bool:
    with scene.rig.client() as client:
        row = client.topic(scene.topic)["partitions"][0]
    return came in row["replicas"] and left not in row["replicas"] and row["state"] == "ok"


def _remove_member(scene: Scene, name: str) -> None:
    rig = scene.rig
    stay = rig.names[:3]

    def is_gone() -> bool:
        rows = rig.status(*stay)["nodes"]
        return all(row["name"] != name or row["state"] == "removed" for row in rows)

    def is_taken_out() -> bool:
        return rig.command("cluster", "remove", name).exit == 0

    wait_for(is_taken_out, MEMBER_S_MAX, lambda: f"{name} cannot be removed", 1.0)
    wait_for(is_gone, MEMBER_S_MAX, lambda: f"{name} stays: {rig.status(*stay)}", 0.2)
    rig.stop(name)
    rig.wipe(name)


ALL = (
    Fault("kill", "one node is killed (SIGKILL) and started again", _kill),
    Fault("kill-leader", "the leader of a partition is killed", _kill_leader),
    Fault("kill-two", "two of three are killed: no majority for a while", _kill_two),
    Fault("kill-all", "all nodes are killed at the same moment", _kill_all),
    Fault("stop", "a node is asked to end and started again", _stop),
    Fault("pause", "a node is stopped where it is and goes on (SIGSTOP)", _pause),
    Fault("pause-all", "all nodes sleep, as a suspended machine does", _pause_all),
    Fault("wipe", "a node loses its disk and comes back with an empty one", _wipe),
    Fault("flip", "bits of a stopped node's files are turned over", _flip),
    Fault(
        "power-cut",
        "a machine loses power, and all that was not synced",
        _cut_power,
        fuse_wire.why_not,
    ),
    Fault(
        "power-cut-all",
        "all machines lose power at the same moment",
        _cut_power_all,
        fuse_wire.why_not,
    ),
    Fault("eio", "a disk fails to read, write or sync a few times", _fail_disk, fuse_wire.why_not),
    Fault("full-disk", "a disk fills up and is freed", _fill, _no_small_disk),
    Fault("cut", "a node hears nobody and nobody hears it", _cut, wires.why_not),
    Fault("cut-one-way", "connections carry in one direction only", _cut_one_way, wires.why_not),
    Fault("flap", "connections break and come back, again and again", _flap, wires.why_not),
    Fault("slow", "everything to and from a node takes longer", _slow, wires.why_not),
    Fault("packet-loss", "packets are lost, doubled and delayed", _disturb, switch.why_not),
    Fault("clock", "a node's clock jumps, and back", _jump),
    # Under libfaketime processes with several threads hang now and then, whatever they do: its
    # fault, and only where somebody asks for it.
    Fault(
        FAKETIME, "the same for the whole process (libfaketime)", _jump, _no_clock, is_usual=False
    ),
    Fault("members", "a node joins, takes a replica over and leaves again", _change_members),
    Fault("transfer", "leaderships are handed over under load", _transfer),
)
BY_NAME = {fault.name: fault for fault in ALL}
