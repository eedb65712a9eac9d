"""Walk the axes along which cost grows: ``make bench-scaling``.

    python -m bench.scaling.run [--quick] [--only AXIS]... [--page FILE] [--work DIR]

A run replaces the curves it measured on docs/benchmarks/scaling.md and keeps the others, so that
each axis can be measured by itself. ``--quick`` walks two short steps of each axis and writes no
page unless one is named: it shows that the harness works.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path
from types import ModuleType

import msgspec

from bench.machine import describe, measure_sync, start_compiled
from bench.scaling import connections, groups, leased, log_size, partitions, sizes, waiting
from bench.scaling.curve import Curve
from bench.scaling.page import NAMES, read, table, write

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".work" / "scaling"
PAGE = ROOT / "docs" / "benchmarks" / "scaling.md"

AXES: dict[str, ModuleType] = {
    "sizes": sizes,
    "partitions": partitions,
    "groups": groups,
    "leased": leased,
    "waiting": waiting,
    "log": log_size,
    "connections": connections,
}
assert tuple(AXES) == NAMES


def main(words: list[str] | None = None) -> int:
    """Measure what was asked for; 0 unless an axis could not be walked."""
    parser = argparse.ArgumentParser(prog="python -m bench.scaling.run")
    parser.add_argument("--quick", action="store_true", help="two short steps, no page")
    parser.add_argument("--only", action="append", choices=list(AXES), metavar="AXIS")
    parser.add_argument("--page", type=Path, help="write this page")
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--write-only", action="store_true", help="only the texts anew")
    asked = parser.parse_args(words)
    page = asked.page or PAGE
    if asked.write_only:
        found = read(page)
        for name, curve in found.curves.items():
            curve.how, curve.reading = AXES[name].HOW, AXES[name].READING
        write(found, page)
        return 0
    start_compiled()
    for name in asked.only or AXES:
        curve = measure(asked.work.resolve() / name, name, quick=asked.quick)
        print(f"\n{curve.title} ({curve.seconds:.0f} s)\n\n{table(curve)}", flush=True)
        if asked.page or not asked.quick:
            found = read(page)
            found.curves[name] = curve
            page.parent.mkdir(parents=True, exist_ok=True)
            write(found, page)
    return 0


def measure(work: Path, name: str, *, quick: bool) -> Curve:
    """Walk one axis in a directory of its own, which is gone afterwards."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        machine, sync = describe(work), measure_sync(work, 0.2 if quick else 1.0)
        begun = time.perf_counter()
        curve = AXES[name].walk(work, quick=quick)
        return msgspec.structs.replace(
            curve,
            machine=machine,
            sync_p50_ms=sync.p50_ms,
            seconds=time.perf_counter() - begun,
            quick=quick,
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
