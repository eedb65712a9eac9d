"""Nodes of a run that was killed end, whenever it was killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from raftline.chaos import rig as module
from raftline.chaos.rig import Rig


def test_a_run_killed_before_it_was_answered_is_minded() -> None:
    words = [sys.executable, "-c", "import time; time.sleep(60)", "/the/data"]
    with (
        subprocess.Popen(words) as node,
        subprocess.Popen(
            [sys.executable, "-m", "raftline.chaos.keeper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as keeper,
    ):
        try:
            assert keeper.stdin is not None
            assert keeper.stdout is not None
            assert keeper.stdout.readline() == b"{}\n"
            keeper.stdout.close()
            order = {"name": "node-1", "pid": node.pid, "data_dir": "/the/data"}
            keeper.stdin.write(json.dumps(order).encode() + b"\n")
            keeper.stdin.close()
            assert keeper.wait(30) == 0
            assert node.wait(30) == -9
        finally:
            node.kill()
            keeper.kill()


def test_the_keeper_is_there_before_the_first_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start of Python later, a run killed in between would have left the node."""

    class NoKeeper:
        def __init__(self, log: Path) -> None:
            raise OSError(f"none, see {log}")

    monkeypatch.setattr(module, "Keeper", NoKeeper)
    rig = Rig(tmp_path, nodes=1, kept=True)
    try:
        with pytest.raises(OSError, match="none, see"):
            rig.spawn("node-1")
        assert rig.running() == []
    finally:
        rig.close()
