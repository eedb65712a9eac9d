"""The commands of the guide to chaos, as written but for their length."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import MakeRig
from tests.cluster.test_cli_guide import commands_of

GUIDE = "docs/guides/chaos.md"
COMMANDS = [command for command, _ in commands_of(GUIDE)]
SECONDS = 5
QUICK = ("--list", "--faults", "failover", "--take")  # the others are runs of everything


def test_the_guide_has_all_of_them() -> None:
    assert len(COMMANDS) == 7
    assert all(any(word in line for line in COMMANDS) for word in QUICK)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            command,
            marks=[] if any(word in command for word in QUICK) else pytest.mark.full,
        )
        for command in COMMANDS
    ],
)
@pytest.mark.timeout(300)
def test_a_command_of_the_guide_runs(make_rig: MakeRig, tmp_path: Path, command: str) -> None:
    if "--take" in command:
        rig = make_rig()
        servers = ",".join(rig.node(name).http for name in rig.names)
        command = re.sub(r"http://10\.\S+", servers, command)
    if "--list" not in command:
        command = f"{command} --seconds {SECONDS}"  # the last one counts
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert not list(tmp_path.glob("raftline-chaos-*")), "a clean run leaves nothing behind"
