"""Draw a real session at the terminal for the README: docs/images/session.svg.

    python scripts/make_picture.py [FILE]

Starts three nodes on free ports in a temporary directory, types the commands below into a shell,
and draws what came back, unchanged but for the ports (shown as the usual ones) and for what the
directory is called. The nodes are stopped and their data is removed.
"""

import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from raftline.chaos.rig import free_port_base

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "session.svg"
WIDTH = 110
THEME = TerminalTheme(
    (24, 26, 31),
    (222, 224, 228),
    [
        *((24, 26, 31), (229, 92, 87), (126, 200, 110), (229, 192, 100)),
        *((97, 160, 240), (198, 120, 221), (86, 182, 194), (222, 224, 228)),
    ],
)
# What is typed, how many lines of the answer are shown, and a variable that keeps it for later.
SESSION = (
    ("raftline up --nodes 3 --data-dir raftline-data --detach", 7, ""),
    ("raftline produce orders --key order-1 -m '{\"total\": 9}'", 0, "ID"),
    ("raftline consume orders --group billing", 1, ""),
    ("raftline trace $ID", 20, ""),
    ("kill -9 PID  # node-1", 1, ""),
    ("raftline produce orders -m 'still here'", 1, ""),
    ("raftline up --data-dir raftline-data --detach", 1, ""),
    ("raftline cluster verify", 1, ""),
)


def main(words: list[str]) -> int:
    """Draw the picture."""
    console = Console(record=True, width=WIDTH, force_terminal=True, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder:
        base = free_port_base(3)
        try:
            _type_all(console, Path(folder), base)
        finally:
            _shell("raftline down --data-dir raftline-data", Path(folder), base, {})
    picture = Path(words[0]) if words else PICTURE
    picture.parent.mkdir(parents=True, exist_ok=True)
    drawn = console.export_svg(title="raftline", theme=THEME, unique_id="session")
    # Fonts of the reader's own machine: a picture asks nobody for anything.
    picture.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))
    print(picture)
    return 0


def _type_all(console: Console, folder: Path, base: int) -> None:
    kept: dict[str, str] = {}
    for command, count, name in SESSION:
        if "PID" in command:
            nodes = json.loads((folder / "raftline-data" / "nodes.json").read_text())
            command = command.replace("PID", str(nodes[0]["pid"]))  # noqa: PLW2901
        is_first = "--nodes" in command
        typed = command.replace("--detach", f"--detach --port-base {base}") if is_first else command
        said = _shell(typed, folder, base, kept).replace(f"{folder}/", "")
        for step, usual in ((0, 8080), (1000, 9000), (2000, 9092), (3000, 7000)):
            for number in range(3):
                said = said.replace(f":{base + step + number}", f":{usual + number}")
        if name:
            kept[name] = said.strip()
        shown = f"{name}=$({command})" if name else command
        console.print(Text.assemble(("$ ", "bold green"), (shown, "bold")))
        for line in said.splitlines()[:count]:
            console.print(Text(line[:WIDTH]), no_wrap=True, crop=True)


def _shell(command: str, folder: Path, base: int, kept: dict[str, str]) -> str:
    """Run one command as a person would, and return what is shown."""
    servers = ",".join(f"127.0.0.1:{base + number}" for number in range(3))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **kept, "PATH": path, "RAFTLINE_SERVER": servers}
    command = command.replace("--data-dir raftline-data", f"--data-dir {folder}/raftline-data")
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
