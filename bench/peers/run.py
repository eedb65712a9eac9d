"""The same workloads on Raftline and on the systems people would use instead.

    python -m bench.peers.run [--quick] [--only SYSTEM …] [--workloads NAME …] [--nodes 1 3]
                              [--rounds 3] [--out FILE.json] [--report] [--no-install]

The systems take turns: a round is one turn of each, the next one begins with another. Raw results
go to ``.work/peers/results/``; ``--report`` writes docs/benchmarks/peers.md from this run, or from
``--from FILE …``; with ``--no-run`` from all that is there. A system that cannot be installed is
named in the report.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.machine import describe, measure_sync, start_compiled
from bench.peers import install, report, results, workloads
from bench.peers.adapters import SYSTEMS, System

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".work" / "peers"


def main(words: list[str] | None = None) -> int:
    """Run and report."""
    asked = _parser().parse_args(words)
    files = [Path(name) for name in asked.files or sorted((WORK / "results").glob("*.json"))]
    if asked.run:
        start_compiled()
        signal.signal(
            signal.SIGTERM, lambda *_: sys.exit(143)
        )  # servers are stopped on the way out
        file = Path(
            asked.out or WORK / "results" / time.strftime("%Y%m%dT%H%M%SZ.json", time.gmtime())
        )
        piece = measure(asked, file)
        print(report.table([piece]))
        print(f"\n{file}")
        for failure in piece.failures:
            print(f"FAILED {failure}")
        if not piece.samples:
            return 1
        if not asked.files:
            files = [file]
    if asked.report:
        target = Path(asked.page)
        report.write(results.read(files), target)
        print(target)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    every = sorted({*workloads.SINGLE, *workloads.REPLICATED})
    parser.add_argument("--quick", action="store_true", help="tiny, to see that it works")
    parser.add_argument("--only", nargs="*", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--workloads", nargs="*", choices=every, default=every)
    parser.add_argument("--nodes", nargs="*", type=int, choices=(1, 3), default=[1, 3])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=1e9, help="seconds: then no more turns")
    parser.add_argument("--first", type=int, default=0, help="the system that begins, by number")
    parser.add_argument("--work", default=str(WORK / "data"))
    parser.add_argument("--out", help="file for the raw results")
    parser.add_argument("--no-install", dest="install", action="store_false")
    parser.add_argument("--no-run", dest="run", action="store_false", help="only report")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--from", dest="files", nargs="*", help="raw results to report")
    parser.add_argument("--page", default=str(ROOT / "docs" / "benchmarks" / "peers.md"))
    return parser


def measure(asked: argparse.Namespace, file: Path) -> results.Piece:
    """Let the systems take turns; what was found is kept after each."""
    begun = time.perf_counter()
    systems = [SYSTEMS[name] for name in asked.only]
    failures: list[str] = []
    if asked.install:
        systems, failures = _installed(systems)
    work = Path(asked.work)
    work.mkdir(parents=True, exist_ok=True)
    sync = measure_sync(work, 0.2 if asked.quick else 2.0)
    piece = results.Piece(
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        command="python -m bench.peers.run " + " ".join(sys.argv[1:]),
        commit=_commit(),
        machine=describe(work),
        sync_p50_ms=sync.p50_ms,
        sync_p99_ms=sync.p99_ms,
        load_before=" ".join(f"{value:.2f}" for value in os.getloadavg()),
        failures=failures,
        versions=install.versions([system.adapter for system in systems]),
        quick=asked.quick,
    )
    sizes = workloads.QUICK if asked.quick else workloads.Sizes()
    for number in range(asked.rounds):
        for nodes in asked.nodes:
            for _ in _round(piece, systems, nodes, number, asked, sizes):
                piece.seconds = time.perf_counter() - begun
                results.write(piece, file)
                if piece.seconds > asked.budget:
                    piece.failures.append(f"time was over in round {number + 1}, {nodes} nodes")
                    results.write(piece, file)
                    return piece
    return piece


def _round(
    piece: results.Piece,
    systems: list[System],
    nodes: int,
    number: int,
    asked: argparse.Namespace,
    sizes: workloads.Sizes,
) -> Iterator[None]:
    """Give each system a turn."""
    known = workloads.SINGLE if nodes == 1 else workloads.REPLICATED
    wanted = tuple(name for name in known if name in asked.workloads)
    able = [system for system in systems if nodes == 1 or system.replicates]
    shift = (number + asked.first) % max(1, len(able))
    for system in able[shift:] + able[:shift]:
        begun = time.perf_counter()
        mine = tuple(name for name in wanted if name in (system.workloads or wanted))
        found, failure = workloads.take_turn(system, Path(asked.work), nodes, sizes, mine)
        piece.samples += found
        piece.rounds += [number] * len(found)
        took = time.perf_counter() - begun
        label = f"round {number + 1}, {nodes} node{'s' * (nodes > 1)}, {system.name}"
        print(f"{label}: {len(found)} samples, {took:.1f} s {failure}", flush=True)
        if failure:
            piece.failures.append(f"{system.name}, {nodes} node{'s' * (nodes > 1)}: {failure}")
        yield


def _installed(systems: list[System]) -> tuple[list[System], list[str]]:
    """Return what could be installed, and why the rest could not."""
    if any(system.adapter != "raftline" for system in systems):
        install.install_clients()
    able: list[System] = []
    failures: list[str] = []
    for system in systems:
        try:
            install.install(system.adapter)
        except install.CannotInstall as error:
            failures.append(f"{system.name}: {error}")
        else:
            able.append(system)
    return able, failures


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
