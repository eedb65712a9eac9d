"""Check that every locked dependency can be installed without a compiler, on x64 and on ARM64.

    python scripts/check_wheels.py [--runtime]      exit code 1 names what is missing

For each processor pip is asked to find a wheel for every pin of requirements.lock, for Linux with
glibc 2.28 or newer and Python 3.11. ``--runtime`` asks only for what ``pip install raftline``
needs. Nothing is installed; the package index is the one that pip is configured for.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"
PROCESSORS = ("x86_64", "aarch64")
PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<rest>[^\\\n]+)", re.MULTILINE)
# Published as a source archive only, without anything to compile: Python files and jars.
WITHOUT_WHEELS = {"pyspark"}


def pins(*, runtime: bool) -> list[str]:
    """Return the pins that are to have wheels."""
    found = [(match["name"].lower(), match[0].strip()) for match in PIN.finditer(LOCK.read_text())]
    wanted = _needed("raftline") if runtime else {name for name, _ in found}
    return [pin for name, pin in found if name in wanted - WITHOUT_WHEELS]


def _needed(root: str) -> set[str]:
    """Return what a package needs, and what that needs, without extras."""
    seen: set[str] = set()
    left = [root]
    while left:
        for text in metadata.requires(left.pop()) or ():
            name = re.split(r"[\s\[<>=!~;(]", text, maxsplit=1)[0].lower().replace("_", "-")
            if "extra ==" not in text and name not in seen and _is_here(name):
                seen.add(name)
                left.append(name)
    return seen


def _is_here(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def complaint(processor: str, wanted: list[str]) -> tuple[str, list[str]]:
    """Return what pip misses on a processor (empty: nothing), and the wheels that it found."""
    with tempfile.TemporaryDirectory() as scratch:
        listed, report = Path(scratch) / "pins.txt", Path(scratch) / "report.json"
        listed.write_text("\n".join(wanted) + "\n")
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:"),
            *("--target", str(Path(scratch) / "none"), "--python-version", "3.11"),
            *("--implementation", "cp", "--report", str(report), "-r", str(listed)),
            *(word for name in PLATFORMS for word in ("--platform", f"{name}_{processor}")),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            return ran.stderr.strip() or "pip failed", []
        rows = json.loads(report.read_text())["install"]
    return "", [row["download_info"]["url"].rpartition("/")[2] for row in rows]


def main(words: list[str] | None = None) -> int:
    """Ask for each processor; 0 if nothing is missing."""
    parser = argparse.ArgumentParser(prog="check_wheels.py")
    parser.add_argument("--runtime", action="store_true", help="only what a node and a client need")
    wanted = pins(runtime=parser.parse_args(words).runtime)
    missing = False
    for processor in PROCESSORS:
        said, wheels = complaint(processor, wanted)
        missing |= bool(said)
        own = [wheel for wheel in wheels if processor in wheel]
        print(f"{processor}: {said or f'{len(wheels)} wheels, {len(own)} of them compiled for it'}")
    return int(missing)


if __name__ == "__main__":
    sys.exit(main())
