"""Seeds that were clean, kept in a file, so that a long run can be stopped and gone on with.

A clean seed says something about the code it ran on, and about a run of its size. The file begins
with a fingerprint of both: a file with another one is not of this run and is begun anew.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOMS = ("config", "machines", "model", "node", "raft", "storage", "telemetry", "testing",
         "transport", "wire")  # fmt: skip
_PACKAGE = Path(__file__).parents[1]


class CleanSeed(msgspec.Struct, frozen=True):
    """What is remembered of a seed."""

    seed: int
    digest: str
    faults: dict[str, int]
    sim_ms: float
    events: int


class CleanSeeds:
    """The clean seeds of one code and one size of run, a line each."""

    def __init__(self, path: Path, plan: object) -> None:
        """Read what is there, as far as it is of this code and plan. Raises ``OSError``."""
        head = fingerprint(plan)
        self.done: dict[int, CleanSeed] = {}
        lines = path.read_text().splitlines() if path.exists() else []
        if lines[:1] == [head]:
            self.done = {clean.seed: clean for clean in _whole(lines[1:])}
        text = "".join(_line(clean) for clean in self.done.values())
        path.write_text(f"{head}\n{text}")  # without a line that was torn when the run was stopped
        self._path = path

    def note(self, clean: CleanSeed) -> None:
        """Remember a seed."""
        self.done[clean.seed] = clean
        with self._path.open("a") as file:
            file.write(_line(clean))


def fingerprint(plan: object, package: Path = _PACKAGE) -> str:
    """Return a hash over the plan and the source of everything that a run runs."""
    found = hashlib.sha256(repr(plan).encode())
    for room in ROOMS:
        for file in sorted((package / room).rglob("*.py")):
            found.update(str(file.relative_to(package)).encode())
            found.update(file.read_bytes())
    return found.hexdigest()


def _line(clean: CleanSeed) -> str:
    return msgspec.json.encode(clean).decode() + "\n"


def _whole(lines: list[str]) -> Iterator[CleanSeed]:
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=CleanSeed)
        except msgspec.DecodeError:
            continue  # torn; that seed runs again
