"""The scripts that people run to see it work."""

import os
import subprocess
from pathlib import Path

import pytest

from raftline.chaos.rig import free_port_base

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(*words: str, seconds: float) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(SCRIPTS / words[0]), *words[1:]],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "PORT_BASE": str(free_port_base(3))},
    )


def test_the_failover_demo_loses_no_task(tmp_path: Path) -> None:
    ran = run("demo-failover.sh", str(tmp_path / "cluster"), seconds=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "21 of 21 tasks done" in ran.stdout
    assert "all replicas are identical" in ran.stdout


@pytest.mark.parametrize(
    "seconds", [12, pytest.param(60, marks=[pytest.mark.full, pytest.mark.timeout(400)])]
)
def test_the_chaos_test_kills_leaders_and_loses_nothing(tmp_path: Path, seconds: int) -> None:
    words = ("--seconds", str(seconds), "--data-dir", str(tmp_path / "run"))
    ran = run("chaos-test.sh", *words, seconds=seconds + 200)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "every promise was kept" in ran.stdout
    assert f"kill-leader {max(2, seconds // 10)}" in ran.stdout
