"""Faults of disks: lost, damaged, without power, failing, full."""

import contextlib
import os
import shutil
import time

from raftline.chaos.rig import flip_bit
from raftline.chaos.scene import Scene

UNTOUCHED = ("identity.json", "lock")  # a directory without them is another directory


def wipe(scene: Scene) -> None:
    """Lose a node's disk."""
    victim = scene.victims()[0]
    scene.tell(victim)
    scene.rig.kill(victim)
    scene.rig.wipe(victim)
    scene.rig.restart(victim)


def flip(scene: Scene) -> None:
    """Turn bits of a stopped node's files over."""
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


def cut_power_all(scene: Scene) -> None:
    """Cut the power of all machines at the same moment."""
    names = scene.victims()
    told = scene.rig.cut_power(*names)
    scene.tell(f"all nodes, {_lost(told)}")
    time.sleep(scene.rng.random())
    for name in names:
        scene.rig.spawn(name)
        time.sleep(scene.rng.random() / 2)


def cut_power(scene: Scene) -> None:
    """Cut the power of one machine."""
    victim = scene.victims()[0]
    told = scene.rig.cut_power(victim)
    scene.tell(f"{victim}, {_lost(told)}")
    scene.hold()
    scene.rig.restart(victim)


def _lost(told: dict[str, int]) -> str:
    gone, names = told["bytes"] - told["kept"], told["names"] - told["names_kept"]
    return f"{gone} of {told['bytes']} unsynced bytes and {names} of {told['names']} names lost"


def fail_disk(scene: Scene) -> None:
    """Let a node's disk answer EIO a few times; a node that ends for it comes back."""
    victim = scene.victims()[0]
    what = scene.rng.choice(("read", "write", "sync"))
    pattern = scene.rng.choice(("wal*", "shards/*", "*"))
    times = scene.rng.randrange(1, 4)
    disk = scene.rig.disks[victim]
    before = disk.show()["failed"]
    disk.fail(what, pattern, times)
    scene.hold()
    disk.heal()
    failed = disk.show()["failed"] - before
    scene.tell(f"{victim}, {what} of {pattern}, {failed} failed of {times} at most")
    if victim not in scene.rig.running():
        scene.tell("(it ended, as it must)")
        scene.rig.restart(victim)


def fill(scene: Scene) -> None:
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
