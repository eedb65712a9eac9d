"""The guide to the work queue is true: its commands are run, its answers are what comes."""

import re
import subprocess
from pathlib import Path

from tests.cluster.conftest import MakeRig

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "work-queue.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "=== answer"
SHOWN = "#> "
SECONDS_MAX = 90


def steps() -> list[tuple[list[str], list[str]]]:
    """Return commands with the answers that are shown for them."""
    found: list[tuple[list[str], list[str]]] = []
    for block in BLOCK.findall(GUIDE.read_text()):
        for line in block.splitlines():
            if line.startswith(SHOWN):
                found[-1][1].append(line.removeprefix(SHOWN))
            elif found and not found[-1][1]:
                found[-1][0].append(line)
            else:
                found.append(([line], []))
    return found


def pattern(shown: list[str]) -> str:
    """Return what an answer must look like; ``…`` stands for anything."""
    return ".*".join(re.escape(line).replace("…", ".*") for line in shown)


def test_the_guide_does_what_it_says(make_rig: MakeRig) -> None:
    rig = make_rig(nodes=1)
    parts = steps()
    assert len(parts) > 25
    script = "".join("\n".join(commands) + f"\necho '{MARK}'\n" for commands, _ in parts)
    script = script.replace("http://127.0.0.1:8080", rig.node("node-1").http)
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    answers = done.stdout.split(MARK)
    for (commands, shown), answer in zip(parts, answers, strict=False):
        told = f"{commands}\n{answer}\n{done.stderr}"
        assert re.search(pattern(shown), answer, re.DOTALL), told
    assert done.returncode == 0, done.stdout + done.stderr
