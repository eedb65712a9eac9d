"""The catalogue of faults: what is done to a cluster, for how long, and how it ends.

Each is a function over a ``Scene``: it breaks something, waits, and mends it, in bounded time.
Afterwards the rig is whole again or on its way there; the run waits for that before the next one,
because two of three nodes lost at once is more than any majority can stand.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from raftline.chaos import (
    cluster_faults,
    disk_faults,
    fuse_wire,
    network_faults,
    process_faults,
    switch,
    wires,
)
from raftline.chaos.scene import Scene

LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/local/lib/faketime/libfaketime.so.1",
)
SMALL_DISK_MB = 256
FAKETIME = "clock-faketime"
ON_OUR_DISK = ("power-cut", "power-cut-all", "eio")


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


ALL = (
    Fault("kill", "one node is killed (SIGKILL) and started again", process_faults.kill),
    Fault("kill-leader", "the leader of a partition is killed", process_faults.kill_leader),
    Fault("kill-two", "two of three are killed: no majority for a while", process_faults.kill_two),
    Fault("kill-all", "all nodes are killed at the same moment", process_faults.kill_all),
    Fault("stop", "a node is asked to end and started again", process_faults.stop),
    Fault("pause", "a node is stopped where it is and goes on (SIGSTOP)", process_faults.pause),
    Fault("pause-all", "all nodes sleep, as a suspended machine does", process_faults.pause_all),
    Fault("wipe", "a node loses its disk and comes back with an empty one", disk_faults.wipe),
    Fault("flip", "bits of a stopped node's files are turned over", disk_faults.flip),
    Fault(
        "power-cut",
        "a machine loses power, and all that was not synced",
        disk_faults.cut_power,
        fuse_wire.why_not,
    ),
    Fault(
        "power-cut-all",
        "all machines lose power at the same moment",
        disk_faults.cut_power_all,
        fuse_wire.why_not,
    ),
    Fault(
        "eio",
        "a disk fails to read, write or sync a few times",
        disk_faults.fail_disk,
        fuse_wire.why_not,
    ),
    Fault("full-disk", "a disk fills up and is freed", disk_faults.fill, _no_small_disk),
    Fault("cut", "a node hears nobody and nobody hears it", network_faults.cut, wires.why_not),
    Fault(
        "cut-one-way",
        "connections carry in one direction only",
        network_faults.cut_one_way,
        wires.why_not,
    ),
    Fault(
        "flap",
        "connections break and come back, again and again",
        network_faults.flap,
        wires.why_not,
    ),
    Fault("slow", "everything to and from a node takes longer", network_faults.slow, wires.why_not),
    Fault(
        "packet-loss",
        "packets are lost, doubled and delayed",
        network_faults.disturb,
        switch.why_not,
    ),
    Fault("clock", "a node's clock jumps, and back", cluster_faults.jump),
    # Under libfaketime processes with several threads hang now and then, whatever they do: its
    # fault, and only where somebody asks for it.
    Fault(
        FAKETIME,
        "the same for the whole process (libfaketime)",
        cluster_faults.jump,
        _no_clock,
        is_usual=False,
    ),
    Fault(
        "members",
        "a node joins, takes a replica over and leaves again",
        cluster_faults.change_members,
    ),
    Fault("transfer", "leaderships are handed over under load", cluster_faults.transfer),
)
BY_NAME = {fault.name: fault for fault in ALL}
