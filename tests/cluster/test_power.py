"""Power cuts of real nodes on disks that lose what was not synced; and a node that does not sync.

The last test is about the judge: with ``fdatasync`` switched off the same cut loses acknowledged
messages, and the verdict says so. Without it, nothing here would show that a cut takes anything.
"""

import time
from pathlib import Path

import pytest

from raftline.chaos.fuse_wire import why_not
from raftline.chaos.rig import Rig
from raftline.chaos.traffic import Traffic
from tests.cluster.conftest import MakeRig

pytestmark = pytest.mark.skipif(
    bool(why_not()), reason="no file system of our own can be mounted here"
)
SMALL = ("wal.file_bytes=16MiB", "log.segment_bytes=1MiB", "log.checkpoint_bytes=1MiB")
NO_SYNC = """
import os
from pathlib import Path

_real = os.fdatasync


def _maybe(fd):
    if not Path({flag!r}).exists():
        _real(fd)


os.fdatasync = _maybe
"""


def start(make_rig: MakeRig, seed: int, **options: object) -> Rig:
    rig = make_rig(start=False, settings=SMALL, **options)
    assert not rig.give_disks(seed)
    rig.start_all()
    return rig


def test_nothing_acknowledged_is_lost_when_all_machines_lose_power(make_rig: MakeRig) -> None:
    rig = start(make_rig, 1)
    traffic = Traffic(rig).start()
    for _ in range(3):
        traffic.wait_acked(60, 30)
        told = rig.cut_power(*rig.names)
        print(told)
        for name in rig.names:
            rig.spawn(name)
        rig.wait_whole()
    traffic.wait_acked(20, 30)
    traffic.finish(outage_ms_max=30_000)


@pytest.mark.parametrize("what", ["sync", "write", "read"])
def test_a_failing_disk_costs_a_node_and_no_message(make_rig: MakeRig, what: str) -> None:
    rig = start(make_rig, 2)
    traffic = Traffic(rig).start()
    traffic.wait_acked(30, 30)
    victim = rig.leader_of("orders")
    rig.disks[victim].fail(what, "wal*" if what == "sync" else "*", 1)
    if what == "sync":  # after a failed sync nobody knows what is on the disk: it ends
        assert rig.ended(victim, 20) == 70
    else:
        time.sleep(1.0)
    rig.disks[victim].heal()
    if victim not in rig.running():
        rig.restart(victim)
    rig.wait_whole()
    traffic.wait_acked(30, 30)
    rig.cut_power(*rig.names)  # what the failed sync lost shows only now
    for name in rig.names:
        rig.spawn(name)
    rig.wait_whole()
    traffic.wait_acked(20, 30)
    traffic.finish(allowed_bugs=("node.failed", "process.failed"), outage_ms_max=30_000)


def test_nodes_that_do_not_sync_are_caught(make_rig: MakeRig, tmp_path: Path) -> None:
    flag = tmp_path / "no-sync"
    patch = tmp_path / "patch"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(NO_SYNC.format(flag=str(flag)))
    rig = start(make_rig, 3, environment={"PYTHONPATH": str(patch)})
    traffic = Traffic(rig).start()
    traffic.wait_acked(30, 30)
    flag.touch()
    traffic.wait_acked(60, 30)
    told = rig.cut_power(*rig.names)
    print(told)
    flag.unlink()
    for name in rig.names:
        rig.spawn(name)
    rig.wait_whole()
    judged = traffic.judge(allowed_bugs=("node.failed", "process.failed"))
    print(judged)
    assert "P1" in judged.verdict.promises
    assert any("is lost" in v.text for v in judged.verdict.violations)
