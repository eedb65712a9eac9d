"""Unpack kcat (and the librdkafka it was built with) from the packages of Debian or Ubuntu.

    python scripts/install_kcat.py      prints the program, which finds its libraries beside it

Nothing is installed: packages are fetched with apt-get and unpacked in ``$RAFTLINE_CACHE`` (default
~/.cache/raftline). Elsewhere install kcat yourself; one on the path is used as it is.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = ("kcat", "librdkafka1", "libyajl2")
TIMEOUT_S = 120


def find() -> Path | None:
    """Return kcat; unpack it if it is not there. None: it cannot be had."""
    installed = shutil.which("kcat")
    if installed is not None:
        return Path(installed)
    home = Path(os.environ.get("RAFTLINE_CACHE") or Path.home() / ".cache" / "raftline")
    program = home / "kcat" / "kcat"
    if not program.exists() and not _unpack(home, program):
        return None
    return program


def _unpack(home: Path, program: Path) -> bool:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return False
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        command = ["apt-get", "download", *PACKAGES]
        done = subprocess.run(
            command, cwd=scratch, capture_output=True, timeout=TIMEOUT_S, check=False
        )
        tree = Path(scratch) / "tree"
        for package in Path(scratch).glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(tree)], check=True)
        if done.returncode != 0 or not (tree / "usr" / "bin" / "kcat").exists():
            return False
        folders = {str(file.parent.relative_to(tree)) for file in tree.rglob("lib*.so*")}
        paths = ":".join(f"$here/{folder}" for folder in sorted(folders))
        script = tree / "kcat"
        script.write_text(
            '#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")\n'
            f'LD_LIBRARY_PATH={paths} exec "$here/usr/bin/kcat" "$@"\n'
        )
        script.chmod(0o755)
        shutil.rmtree(program.parent, ignore_errors=True)
        tree.rename(program.parent)
    return True


def main() -> int:
    """Say where it is."""
    program = find()
    if program is None:
        print("kcat is not here: install it")
        return 1
    print(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
