"""Measure everything the order names a goal for: ``make bench``.

    python -m bench.run [--quick] [--only NAME]... [--rounds N] [--page FILE]

Results: a table on standard output, .work/bench/result.json, and docs/BENCHMARKS.md after a full
run. What varies most from minute to minute is measured in rounds with everything else in between;
the median counts, the spread is shown. ``--quick`` takes about two minutes and judges nothing: it
shows that the harness works.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench import (
    appends,
    archive,
    client,
    deliveries,
    failover,
    kafka_gateway,
    latency,
    publish,
    spark_rates,
    standing,
)
from bench.figures import Figure, Report, median_of
from bench.machine import describe, measure_echo, measure_loop, measure_sync, start_compiled
from bench.report import page, table

ROOT = Path(__file__).parent.parent
WORK = ROOT / ".work" / "bench"
PAGE = ROOT / "docs" / "BENCHMARKS.md"

Scenario = Callable[..., list[Figure]]
SCENARIOS: dict[str, Scenario] = {
    "appends": appends.matrix,
    "connections": appends.connections,
    "batches": appends.batches,
    "sustained": appends.sustained,
    "publish": publish.tables,
    "far": publish.far,
    "held": publish.held,
    "workers": deliveries.workers,
    "client": client.client,
    "kafka": kafka_gateway.kafka,
    "traces": deliveries.traces,
    "latency": latency.end_to_end,
    "delayed": latency.delayed,
    "failover": failover.failover,
    "idle": standing.idle,
    "start": standing.cold_start,
    "spark": spark_rates.spark,
    "archive": archive.archive,
}
REPEATED = ("appends", "connections", "batches", "workers", "latency")  # the noisiest, with goals
ROUNDS = 3
SLOW_TO_START = ("spark", "archive")  # not in the quick run, unless asked for


def main(words: list[str] | None = None) -> int:
    """Run the scenarios asked for; 0 unless one could not be run."""
    asked = _parse(words)
    start_compiled()
    work = Path(asked.work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    names = [name for name in SCENARIOS if not (asked.quick and name in SLOW_TO_START)]
    rounds = 1 if asked.quick else asked.rounds
    report = measure(work / "data", asked.only or names, quick=asked.quick, rounds=rounds)
    print(table(report))
    (work / "result.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    )
    is_full = not asked.quick and not asked.only
    if asked.page or is_full:
        (Path(asked.page) if asked.page else PAGE).write_text(page(report))
    return 0


def measure(work: Path, names: list[str], *, quick: bool, rounds: int = 1) -> Report:
    """Run scenarios by name, some in rounds; the disk's own speed before and after them."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    begun = time.perf_counter()
    command = f"python -m bench.run{' --quick' * quick}"
    machine = describe(work)
    sync = [measure_sync(work, 0.2 if quick else 2.0)]
    echo_ms = measure_echo(0.2 if quick else 1.0)
    loops: list[float] = []
    report = Report(
        machine=machine, command=command, sync_p50_ms=0, sync_p99_ms=0, figures=[], quick=quick
    )
    found: dict[str, list[list[Figure]]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names:
            if number and name not in REPEATED:
                continue
            started = time.perf_counter()
            loop_ns = measure_loop()
            figures = SCENARIOS[name](work, quick=quick)
            loop_ns = (loop_ns + measure_loop()) / 2
            for figure in figures:
                figure.loop_ns = loop_ns
            loops.append(loop_ns)
            found[name].append(figures)
            print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    for same in found.values():
        report.figures += median_of(same)
    sync.append(measure_sync(work, 0.2 if quick else 2.0))
    report.sync_p50_ms = max(one.p50_ms for one in sync)
    report.sync_p99_ms = max(one.p99_ms for one in sync)
    report.seconds = time.perf_counter() - begun
    report.load_after = " ".join(f"{value:.2f}" for value in os.getloadavg())
    report.figures = [
        Figure(section="bare", name="fdatasync of 512 B: p50", value=report.sync_p50_ms, unit="ms"),
        Figure(section="bare", name="fdatasync of 512 B: p99", value=report.sync_p99_ms, unit="ms"),
        Figure(section="bare", name="100 B to a process and back: p50", value=echo_ms, unit="ms"),
        Figure(section="bare", name="step of a plain loop: least", value=min(loops), unit="ns"),
        Figure(section="bare", name="step of a plain loop: most", value=max(loops), unit="ns"),
        *report.figures,
    ]
    shutil.rmtree(work, ignore_errors=True)
    return report


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.run", description="Measure Raftline.")
    parser.add_argument("--quick", action="store_true", help="about two minutes, judges nothing")
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), help="repeatable")
    text = f"how often to measure what varies most ({', '.join(REPEATED)}); default {ROUNDS}"
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=text)
    parser.add_argument("--work", default=str(WORK), help="where data and results go")
    parser.add_argument("--page", default="", help="write the Markdown page here")
    asked = parser.parse_args(words)
    if asked.rounds < 1:
        parser.error(f"--rounds {asked.rounds}: at least 1")
    return asked


if __name__ == "__main__":
    sys.exit(main())
