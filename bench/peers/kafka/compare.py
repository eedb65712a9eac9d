"""Raftline beside Apache Kafka, turn by turn, the median of several rounds.

    python -m bench.peers.kafka.compare [PIECE ...] [--rounds 5] [--more] [--quick] [--work DIR]

Pieces: one, three, limit, syncing, sustained, failover, spark; all of them if none is named. Each
leaves its raw figures in DIR/PIECE.json; ``--page`` makes docs/benchmarks/kafka.md and .json of
them, with DIR/notes.md, where somebody wrote down how the run went.
Both sides run at the same time and idle while the other is measured. Raftline syncs every
acknowledged batch to the disks of a majority; Kafka does not sync at all, unless a piece says so.
"""

import argparse
import signal
import statistics
import sys
from functools import partial
from pathlib import Path

import msgspec

from bench.figures import number
from bench.machine import start_compiled
from bench.peers.kafka.page import PAGE, page
from bench.peers.kafka.pieces import TITLES, Piece, measure, merge

ROOT = Path(__file__).parents[3]


def main(words: list[str] | None = None) -> int:
    """Compare; print a table a piece."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pieces", nargs="*", choices=[*TITLES, []], metavar="PIECE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--more", action="store_true", help="add rounds to those there are")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page")
    parser.add_argument("--work", default=str(ROOT / ".work" / "peers" / "kafka"))
    asked = parser.parse_args(words)
    start_compiled()
    work = Path(asked.work).resolve()
    for name in [] if asked.page else asked.pieces or list(TITLES):
        file = work / f"{name}.json"
        before = _load(file) if asked.more and file.exists() else None
        save = partial(_save, file, before)
        measure(name, work / "data", asked.rounds, save, quick=asked.quick)
        print(table(_load(file)), flush=True)
    if asked.page:
        kept = _kept(work)
        PAGE.parent.mkdir(exist_ok=True)
        notes = work / "notes.md"
        PAGE.write_text(page(kept, notes.read_text() if notes.exists() else ""))
        PAGE.with_suffix(".json").write_bytes(msgspec.json.encode(kept) + b"\n")
    return 0


def _load(file: Path) -> Piece:
    return msgspec.json.decode(file.read_bytes(), type=Piece)


def _save(file: Path, before: Piece | None, piece: Piece) -> None:
    if before is not None:
        piece = merge(before, piece)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(piece), indent=1) + b"\n")


def _kept(work: Path) -> list[Piece]:
    files = [work / f"{name}.json" for name in TITLES]
    return [_load(file) for file in files if file.exists()]


def table(piece: Piece) -> str:
    """Return the medians side by side."""
    lines = [f"{piece.title}, median of {piece.rounds}, {piece.seconds:.0f} s"]
    lines.append("  " + " " * 46 + "".join(f"{side[:26]:>28}" for side in piece.sides))
    for name, series in next(iter(piece.sides.values())).items():
        medians = [statistics.median(rows[name].values) for rows in piece.sides.values()]
        label = f"{name} ({series.unit})"
        lines.append(f"  {label:46}" + "".join(f"{number(value):>28}" for value in medians))
    return "\n".join(lines)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and no server stays behind
    sys.exit(main())
