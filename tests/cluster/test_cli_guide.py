"""What the documents tell people to type does what they say."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftline.chaos.rig import Rig, free_port_base

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
OURS = re.compile(r"(^|\| |\(|&& )raftline (?!up|down|serve)")
LINE = re.compile(r"\$ (?P<command>.*?)(?:\s+# exit (?P<code>\d))?(?:\s+# .*)?")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Start a cluster for one page: pages create the same topics."""
    rig = Rig(tmp_path / "cluster", nodes=3)
    try:
        rig.start_all()
        yield rig
    finally:
        rig.close()


def commands_of(page: str) -> list[tuple[str, int]]:
    """Return the commands of a page that start with our program, and their exit codes."""
    found: list[tuple[str, int]] = []
    for block in BLOCK.findall((ROOT / page).read_text()):
        for line in block.splitlines():
            match = LINE.fullmatch(line)
            if match and OURS.search(match["command"]):
                found.append((match["command"], int(match["code"] or 0)))
    return found


def type_in(rig: Rig, commands: list[tuple[str, int]], folder: Path) -> None:
    """Type the commands into one shell; the first wrong exit code ends it."""
    lines = ["set -o pipefail"]
    for command, code in commands:
        told = command.replace("'", "'\\''")
        lines.append(f"{command}; got=$?")
        lines.append(f"[ $got = {code} ] || {{ echo 'FAILED: {told}' $got >&2; exit 1; }}")
    servers = ",".join(rig.node(name).http for name in rig.running())
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/bash", "-c", "\n".join(lines)],
        env={**os.environ, "PATH": path, "RAFTLINE_SERVER": servers},
        capture_output=True, text=True, check=False, cwd=folder, timeout=580,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("docs/guides/command-line.md", 40),
        ("docs/guides/delays.md", 10),
        ("docs/guides/dead-letters.md", 9),
        ("docs/coming-from/sqs.md", 7),
        ("docs/coming-from/kafka.md", 4),
        ("docs/coming-from/rabbitmq.md", 6),
        ("docs/coming-from/nats.md", 6),
    ],
)
def test_a_page_can_be_typed_from_top_to_bottom(
    rig: Rig, tmp_path: Path, page: str, least: int
) -> None:
    commands = commands_of(page)
    assert len(commands) >= least
    type_in(rig, commands, tmp_path)


def test_the_demo_of_the_basics(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PORT_BASE": str(free_port_base(3))}
    environment.pop("RAFTLINE_SERVER", None)
    done = subprocess.run(
        [ROOT / "scripts" / "demo-basic.sh", str(tmp_path / "demo")],
        env=environment, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    for part in ("ACKNOWLEDGED", "DEAD_LETTERED", "all replicas are identical", "stopped node-1"):
        assert part in done.stdout
