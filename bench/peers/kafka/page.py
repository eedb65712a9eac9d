"""The comparison with Apache Kafka as a page: goals first, then every figure with its spread."""

import statistics
from collections.abc import Iterable
from pathlib import Path

from bench.figures import number
from bench.peers.kafka.pieces import Piece, Series

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "benchmarks" / "kafka.md"

HEAD = """\
# Beside Apache Kafka 4.3

Made by `python -m bench.peers.kafka.compare` ([bench/peers/kafka](../../bench/peers/kafka)). Both
clusters run on the same machine at the same time; one idles while the other is measured, turn by
turn, on topics of one partition. Figures are medians over the rounds; least and greatest beside
them. Servers, clients and one disk share the processors, so rates are those of all together.

The clients are the same for both: librdkafka (`acks=all`, idempotent, `linger.ms=5`, otherwise its
defaults) for produce, consume and latency; a plain socket for single messages. **Raftline syncs
every acknowledged batch to the disks of a majority; Kafka does not sync** (its default), except
where `flush.messages=1` is named. Server CPU is that of all threads of all servers by the kernel's
account. Kafka runs in KRaft mode, G1, 512 MB of heap a broker (1 GB if it is alone).

The client takes more of the two cores than the servers do, so rates understate the difference that
server CPU shows. Where it says "from C" messages were handed to librdkafka by the array
(`rd_kafka_produce_batch`), without Python's work on each of them. Brokers are started anew for each
piece: the first round warms the JVM up, and counts. The time without an acknowledgement has
librdkafka's own pauses in it (it waits 100 ms before it tries again or asks who leads); after every
kill all that was acknowledged is read back. Every value of every round: [kafka.json](kafka.json).
"""

THREE, ONE = "three", "one"
RATIOS = (  # piece, figure, at least so many times better
    (THREE, "produce 2,000,000 x 100 B: rate", 1.5),
    (THREE, "produce 2,000,000 x 100 B, from C: rate", 1.5),
    (THREE, "produce 500,000 x 1 KiB: rate", 1.5),
    ("sustained", "produce 12,000,000 x 100 B: rate", 1.5),
    ("sustained", "produce 12,000,000 x 100 B, from C: rate", 1.5),
    (ONE, "100 B at 200/s: p99", 1.0),
    (THREE, "100 B at 200/s: p99", 1.0),
    (THREE, "single messages, 1 in flight: p99", 1.0),
    (THREE, "single messages, 8 in flight: p99", 1.0),
    (THREE, "single messages, 64 in flight: p99", 1.0),
    ("failover", "longest time without an ack", 10.0),
    ("spark", "batch read, 100 B: rate", 1.0),
    ("spark", "batch read, 1 KiB: rate", 1.0),
)
BOUNDS = (  # piece, figure, at most
    (THREE, "produce 2,000,000 x 100 B: server CPU", 1.2),
    (THREE, "produce 2,000,000 x 100 B, from C: server CPU", 1.2),
    ("sustained", "produce 12,000,000 x 100 B: server CPU", 1.2),
    ("sustained", "produce 12,000,000 x 100 B, from C: server CPU", 1.2),
    ("failover", "acknowledged, then lost", 0.0),
)


def page(pieces: list[Piece], notes: str = "") -> str:
    """Return the Markdown page; ``notes`` say how the run went."""
    by_name = {piece.name: piece for piece in pieces}
    parts = [HEAD, "## Machine\n", "| | |", "|---|---|"]
    machine = _lasting(pieces[0])
    parts += [f"| {name} | {value} |" for name, value in machine.items()]
    parts += ["\n## Goals\n", "| figure | Raftline | Kafka | goal | |", "|---|---|---|---|---|"]
    parts += _judged(by_name)
    if notes:
        parts += ["\n## How this run went\n", notes.rstrip()]
    for piece in pieces:
        parts += _section(piece, machine)
    return "\n".join(parts) + "\n"


def _lasting(piece: Piece) -> dict[str, str]:
    return {name: value for name, value in piece.machine.items() if name != "load before"}


def _judged(pieces: dict[str, Piece]) -> Iterable[str]:
    for name, figure, least in RATIOS:
        if name in pieces and (both := _pair(pieces[name], figure)):
            ours, theirs, unit = both
            factor = _factor(ours, theirs, unit)
            verdict = "met" if factor >= least else "**missed**"
            yield (
                f"| {pieces[name].title}; {figure} | {number(ours)} {unit} "
                f"| {number(theirs)} {unit} | {least:g}x better | {factor:.2f}x, {verdict} |"
            )
    for name, figure, most in BOUNDS:
        if name in pieces and (both := _pair(pieces[name], figure)):
            ours, theirs, unit = both
            verdict = "met" if ours <= most else "**missed**"
            yield (
                f"| {pieces[name].title}; {figure} | {number(ours)} {unit} "
                f"| {number(theirs)} {unit} | at most {most:g} | {verdict} |"
            )


def _pair(piece: Piece, figure: str) -> tuple[float, float, str] | None:
    """Return the medians of our side and theirs: the first, and the first that is not ours."""
    ours, *others = piece.sides
    theirs = next(name for name in others if not name.startswith("Raftline"))
    one, other = piece.sides[ours].get(figure), piece.sides[theirs].get(figure)
    if one is None or other is None:
        return None
    return statistics.median(one.values), statistics.median(other.values), one.unit


def _factor(ours: float, theirs: float, unit: str) -> float:
    return ours / theirs if unit.endswith("/s") else theirs / ours


def _section(piece: Piece, machine: dict[str, str]) -> Iterable[str]:
    yield f"\n## {piece.title}\n"
    sync = ", ".join(
        f"p50 {p50:.2f} ms p99 {p99:.2f} ms"
        for p50, p99 in zip(piece.sync_p50_ms, piece.sync_p99_ms, strict=True)
    )
    load = f"load {piece.machine['load before']} before, {piece.load_after} after"
    other = [
        f"{name} {value}" for name, value in _lasting(piece).items() if machine.get(name) != value
    ]
    elsewhere = f"; on another machine: {', '.join(other)}" if other else ""
    yield (
        f"Median of {piece.rounds}; {piece.at}, {piece.seconds:.0f} s; fdatasync of 512 B before "
        f"and after: {sync}; {load}{elsewhere}.\n"
    )
    yield f"| figure | {' | '.join(piece.sides)} |"
    yield "|---" * (1 + len(piece.sides)) + "|"
    for name, series in next(iter(piece.sides.values())).items():
        cells = [_cell(rows[name]) for rows in piece.sides.values()]
        yield f"| {name}, {series.unit} | {' | '.join(cells)} |"


def _cell(series: Series) -> str:
    values = series.values
    middle = number(statistics.median(values))
    return f"{middle} ({number(min(values))} to {number(max(values))})"
