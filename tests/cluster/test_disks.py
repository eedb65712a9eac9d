"""Disks that lose or change bytes: nothing damaged is served, everything is filled again."""

import contextlib
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from raftline.chaos.rig import Rig, flip_bit, wait_for
from raftline.chaos.traffic import Traffic
from tests.cluster.conftest import MakeRig

# Small files, so that a short load makes cold segments, checkpoints and recycled WAL files.
SMALL = (
    "log.segment_bytes=64KiB",
    "log.tail_bytes=16KiB",
    "log.flush_bytes=8KiB",
    "log.checkpoint_bytes=64KiB",
    "log.checkpoint_ms=500",
    "raft.tail_bytes_max=64KiB",
    "wal.file_bytes=1MiB",
    "wal.bytes_max=16MiB",
    "limits.batch_bytes_max=256KiB",
)
HEAVY = {"batch": 20, "value_bytes": 200}  # about 4 KiB in a batch


def test_a_wiped_node_comes_back_under_its_name_and_is_filled(make_rig: MakeRig) -> None:
    rig = make_rig(settings=SMALL)
    traffic = Traffic(rig, **HEAVY).start()
    traffic.wait_acked(100)
    victim = rig.leader_of("orders")
    number = rig.number(victim)
    before = _incarnations(rig, victim)
    rig.kill(victim)
    traffic.wait_acked(30)
    rig.wipe(victim)
    rig.restart(victim)
    traffic.wait_acked(30)
    traffic.finish()
    assert rig.number(victim) == number
    after = _incarnations(rig, victim)
    assert before
    for shard, replica in before.items():
        assert after[shard] > replica, "an old vote could be given twice"


def _incarnations(rig: Rig, name: str) -> dict[int, int]:
    """Return the replica numbers a node's own files carry, by shard."""
    from raftline.storage.checkpoint import load_checkpoint
    from raftline.storage.os_disk import OsDisk

    cluster = rig.status()["cluster"]
    found: dict[int, int] = {}
    for home in sorted((rig.home(name) / "shards").iterdir()):
        if home.name.isdigit():
            loaded = load_checkpoint(
                OsDisk(str(rig.home(name))), f"shards/{home.name}", cluster=cluster,
                shard=int(home.name),
            )  # fmt: skip
            if loaded.checkpoint is not None:
                found[int(home.name)] = loaded.checkpoint.replica
    return found


def test_every_disk_is_replaced_one_after_another(make_rig: MakeRig) -> None:
    rig = make_rig(settings=SMALL)
    traffic = Traffic(rig, **HEAVY).start()
    traffic.wait_acked(60)
    for victim in rig.names:
        rig.kill(victim)
        rig.wipe(victim)
        rig.restart(victim)
        rig.wait_whole()
        traffic.wait_acked(10)
    traffic.finish()


def test_a_bit_flipped_in_a_cold_segment_is_repaired_and_never_served(make_rig: MakeRig) -> None:
    rig = make_rig(settings=SMALL)
    traffic = Traffic(rig, **HEAVY).start()
    traffic.wait_acked(150)
    victim = rig.followers_of("orders")[0]
    segments = sorted((rig.shard_home(victim, "orders") / "log").glob("*.log"))
    assert len(segments) > 1, "the load made no cold segment"
    rig.stop(victim)
    flip_bit(segments[0], segments[0].stat().st_size // 2)
    rig.restart(victim)
    traffic.wait_acked(20)
    wait_for(
        lambda: bool(rig.events(victim, "log.repaired")), 15, lambda: rig.log_text(victim)[-2000:]
    )
    traffic.finish()


def test_a_bit_flipped_in_the_wal_never_counts(make_rig: MakeRig) -> None:
    rig = make_rig(settings=[s for s in SMALL if "checkpoint" not in s])
    traffic = Traffic(rig, **HEAVY).start()
    traffic.wait_acked(100)
    victim = rig.followers_of("orders")[0]
    rig.kill(victim)  # not stopped: that would checkpoint, and the WAL would hold nothing of worth
    _flip_in_wal(rig.home(victim))
    rig.restart(victim)
    traffic.wait_acked(20)
    wait_for(lambda: not rig.status(victim)["quarantined"], 15, lambda: str(rig.status(victim)))
    traffic.finish()
    assert rig.events(victim, "replica.quarantined"), rig.log_text(victim)


def _flip_in_wal(home: Path) -> None:
    """Turn a bit over in the middle of what the WAL holds, not in the zeros between two groups."""
    files = sorted(file for file in (home / "wal").iterdir() if file.is_file())
    used = [(file, file.read_bytes().rstrip(b"\0")) for file in files]
    file, data = max(used, key=lambda pair: len(pair[1]))
    assert len(data) > 10_000, used
    at = len(data) // 2
    while b"\0" * 8 in data[at - 32 : at + 32]:
        at += 1
    flip_bit(file, at)


@pytest.mark.full
def test_bits_flipped_anywhere(make_rig: MakeRig) -> None:
    """Any byte of any file of one node, again and again: refused, repaired or filled anew."""
    rig = make_rig(settings=SMALL)
    traffic = Traffic(rig, **HEAVY).start()
    rng = random.Random(7)
    for _ in range(12):
        traffic.wait_acked(60)
        victim = rng.choice(rig.names)
        (rig.kill if rng.random() < 0.5 else rig.stop)(victim)
        files = sorted(
            file for file in rig.home(victim).rglob("*") if file.is_file() and file.stat().st_size
        )
        file = rng.choice(files)
        used = len(file.read_bytes().rstrip(b"\0")) or 1
        flip_bit(file, rng.randrange(used))
        print(f"flipped a bit of {file.relative_to(rig.directory)}")
        rig.spawn(victim)
        if file.name == "identity.json":
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert rig.ended(victim, 3) == 6, rig.log_text(victim)[-2000:]
                rig.wipe(victim)
                rig.spawn(victim)
        rig.wait_ready(victim)
        wait_for(
            lambda victim=victim: not rig.status(victim)["quarantined"],
            20,
            lambda victim=victim: str(rig.status(victim)),
        )
    traffic.finish()


def test_a_bit_flipped_in_a_checkpoint_costs_the_replica_its_number(make_rig: MakeRig) -> None:
    rig = make_rig(settings=SMALL)
    traffic = Traffic(rig, **HEAVY).start()
    traffic.wait_acked(100)
    victim = rig.followers_of("orders")[0]
    home = rig.shard_home(victim, "orders")
    rig.stop(victim)
    checkpoints = sorted(home.glob("checkpoint*"))
    assert checkpoints, list(home.iterdir())
    for checkpoint in checkpoints:
        flip_bit(checkpoint, checkpoint.stat().st_size // 2)
    rig.restart(victim)
    traffic.wait_acked(20)
    wait_for(lambda: not rig.status(victim)["quarantined"], 15, lambda: str(rig.status(victim)))
    traffic.finish()
    assert rig.events(victim, "replica.quarantined")


def test_a_wiped_node_killed_while_it_is_filled_is_filled_all_the_same(make_rig: MakeRig) -> None:
    """Offers to fill a replica get lost on the way: the leader must make them again."""
    rig = make_rig(settings=SMALL)
    traffic = Traffic(rig, **HEAVY).start()
    traffic.wait_acked(100)
    victim = rig.followers_of("orders")[0]
    rig.kill(victim)
    rig.wipe(victim)
    for pause_s in (0.1, 0.15, 0.2):
        rig.restart(victim)
        time.sleep(pause_s)
        rig.kill(victim)
    rig.restart(victim)
    traffic.finish()


def test_a_leader_whose_files_fail_while_its_shard_rests_is_replaced(make_rig: MakeRig) -> None:
    """The node lives on and sends heartbeats; its followers must notice all the same."""
    rig = make_rig(settings=("log.checkpoint_ms=4000", "raft.quiet_after_ms=1000"))
    with rig.client() as client:
        client.create_topic("orders", partitions=1, replication_factor=0, settings={})
        client.send("orders", [b"one"])
    leader = rig.leader_of("orders")
    home = rig.shard_home(leader, "orders")
    time.sleep(2)
    shutil.rmtree(home)  # the next checkpoint finds no directory
    wait_for(lambda: bool(rig.events(leader, "replica.quarantined")), 15)
    rig.wait_whole(15)
    for name in rig.names:
        with rig.client(name, timeout_ms=8000) as client:
            assert client.send("orders", [b"more"])[0].error is None
    assert rig.verify().exit == 0
