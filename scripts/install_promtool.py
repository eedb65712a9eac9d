"""Unpack promtool, Prometheus' own checker, from the packages of Debian or Ubuntu.

    python scripts/install_promtool.py      prints the program

Nothing is installed: the package is fetched with apt-get, unpacked in ``$RAFTLINE_CACHE`` (default
~/.cache/raftline). Elsewhere install Prometheus yourself; a promtool on the path is used as it is.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "prometheus"
TIMEOUT_S = 120


def find() -> Path | None:
    """Return promtool; unpack it if it is not there. None: it cannot be had."""
    installed = shutil.which("promtool")
    if installed is not None:
        return Path(installed)
    home = Path(os.environ.get("RAFTLINE_CACHE") or Path.home() / ".cache" / "raftline")
    program = home / "promtool"
    if not program.exists() and not _unpack(home, program):
        return None
    return program


def _unpack(home: Path, program: Path) -> bool:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return False
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        command = ["apt-get", "download", PACKAGE]
        done = subprocess.run(
            command, cwd=scratch, capture_output=True, timeout=TIMEOUT_S, check=False
        )
        packages = list(Path(scratch).glob("*.deb"))
        if done.returncode != 0 or not packages:
            return False
        tree = Path(scratch) / "tree"
        subprocess.run(["dpkg-deb", "-x", str(packages[0]), str(tree)], check=True)
        found = tree / "usr" / "bin" / "promtool"
        if not found.exists():
            return False
        found.replace(program)
    return True


def main() -> int:
    """Say where it is."""
    program = find()
    if program is None:
        print("promtool is not here: install Prometheus")
        return 1
    print(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
