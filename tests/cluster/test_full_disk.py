"""A disk without room: appends are refused before it is too late, the rest goes on."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from raftline.chaos.rig import Rig, wait_for
from raftline.chaos.traffic import BATCH, Caller, Traffic, wall_ms
from raftline.model.errors import DiskFull
from raftline.testing.batches import seal
from tests.cluster.conftest import MakeRig
from tests.cluster.test_disks import HEAVY, SMALL

CANNOT_MOUNT = "this user may not mount a small file system to fill it"
DISK_MB = 64


def _mount(rig: Rig, name: str) -> None:
    if rig.mount_small(name, DISK_MB):
        pytest.skip(CANNOT_MOUNT)


def _fill(home: Path, left_bytes: int) -> Path:
    """Leave this much of a disk."""
    ballast = home / "ballast"
    with ballast.open("wb") as file, contextlib.suppress(OSError):
        space = os.statvfs(home)
        os.posix_fallocate(file.fileno(), 0, max(1, space.f_bavail * space.f_frsize - left_bytes))
    return ballast


def test_one_full_disk_stops_nothing_and_is_filled_up_later(make_rig: MakeRig) -> None:
    rig = make_rig(settings=SMALL, start=False)
    _mount(rig, "node-3")
    rig.start_all()
    traffic = Traffic(rig, **HEAVY).start()
    traffic.wait_acked(40)

    # Little room: the node says so and leaves the work to the others.
    ballast = _fill(rig.home("node-3"), DISK_MB * 20_000)
    wait_for(lambda: "full" in rig.status("node-3")["reason"], 10)
    traffic.wait_acked(80)
    assert rig.leader_of("orders", 0) != "node-3"
    ballast.unlink()
    wait_for(lambda: not rig.status("node-3")["reason"], 10, lambda: rig.why("node-3"))
    traffic.wait_acked(20)

    # No room at all, from one moment to the next: it goes on or ends with a reason.
    ballast = _fill(rig.home("node-3"), 0)
    traffic.wait_acked(80)
    ballast.unlink()
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = rig.ended("node-3", 0.5)
        assert code == 70, code
        assert "error: node node-3 ends:" in rig.log_text("node-3")
        rig.restart("node-3")
    traffic.wait_acked(20)
    traffic.finish(allowed_bugs=("node.failed",))


def test_without_any_room_appends_are_refused_and_reads_go_on(make_rig: MakeRig) -> None:
    rig = make_rig(nodes=1, settings=SMALL, start=False)
    _mount(rig, "node-1")
    rig.start_all()
    caller = Caller(rig)
    rig.at_close.append(caller.close)
    path = "/v1/topics/orders/partitions/0/messages"
    batch = seal([b"one"], [wall_ms()])
    assert caller.call("node-1", "POST", path, batch, fields={"Content-Type": BATCH}).status == 200
    ballast = _fill(rig.home("node-1"), DISK_MB * 20_000)
    wait_for(lambda: "full" in rig.status()["reason"], 10)
    refused = caller.call("node-1", "POST", path, batch, fields={"Content-Type": BATCH})
    assert refused.status == 507
    assert refused.error["code"] == DiskFull.code
    assert "node-1" in refused.error["message"]
    assert refused.error["hint"]
    said = rig.command("produce", "orders", "-m", "two")
    assert said.exit == 8, said
    read = caller.call("node-1", "GET", path)
    assert [m["value"] for m in read.json()["messages"]] == ["one"]
    ballast.unlink()
    wait_for(lambda: not rig.status()["reason"], 10)
    assert caller.call("node-1", "POST", path, batch, fields={"Content-Type": BATCH}).status == 200
