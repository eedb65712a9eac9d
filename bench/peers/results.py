"""Raw results of runs: one JSON file a run, many of them in one report."""

import statistics
from pathlib import Path

import msgspec

from bench.peers.workloads import Sample


class Piece(msgspec.Struct, kw_only=True):
    """One run: so many rounds in which the systems took turns."""

    at: str
    command: str
    commit: str
    machine: dict[str, str]
    sync_p50_ms: float
    sync_p99_ms: float
    load_before: str
    seconds: float = 0.0
    samples: list[Sample] = []
    rounds: list[int] = []  # for each sample, the round of this piece that it is of
    failures: list[str] = []
    versions: dict[str, str] = {}
    quick: bool = False


class Row(msgspec.Struct, kw_only=True):
    """A metric of a system over all rounds."""

    median: float
    low: float
    high: float
    count: int


Key = tuple[str, int, str, str]  # system, nodes, workload, metric


def write(piece: Piece, file: Path) -> None:
    """Keep a run."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(piece), indent=1) + b"\n")


def read(files: list[Path]) -> list[Piece]:
    """Return runs as they were written."""
    return [msgspec.json.decode(file.read_bytes(), type=Piece) for file in files]


def rows(pieces: list[Piece]) -> dict[Key, Row]:
    """Return the median and the spread of everything that was measured."""
    found: dict[Key, list[float]] = {}
    for piece in pieces:
        for sample in piece.samples:
            key = (sample.system, sample.nodes, sample.workload, sample.metric)
            found.setdefault(key, []).append(sample.value)
    return {
        key: Row(
            median=statistics.median(values), low=min(values), high=max(values), count=len(values)
        )
        for key, values in found.items()
    }
