"""The comparison in pieces, each short enough to have the machine alone for it.

A piece lets the sides take turns, round after round, each round on topics of its own, and keeps
every value of every figure, so that pieces of different hours make one page.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from bench.figures import Figure
from bench.kafka_gateway import arrays, pair, produce, run, tasks
from bench.machine import describe, measure_sync
from bench.peers.kafka.failover import outage
from bench.peers.kafka.sides import Side, Target, both, by_syncing, spec
from bench.peers.kafka.sink import sink
from bench.peers.kafka.spark import spark_rounds

SUSTAINED = 12_000_000
NOTHING = "a server that keeps nothing"

S_contra = TypeVar("S_contra", contravariant=True)
T = TypeVar("T")


class Round(Protocol[S_contra]):
    """One side's turn on a topic of its own."""

    def __call__(self, topic: str, side: S_contra, *, quick: bool) -> list[Figure]: ...


class Series(msgspec.Struct):
    """One figure of one side, round by round."""

    unit: str
    values: list[float] = []


class Piece(msgspec.Struct, kw_only=True):
    """What one run of a piece found."""

    name: str
    title: str
    rounds: int
    quick: bool
    at: str
    machine: dict[str, str]
    sync_p50_ms: list[float]
    sync_p99_ms: list[float]
    seconds: float = 0.0
    load_after: str = ""
    sides: dict[str, dict[str, Series]] = {}


TITLES = {
    "one": "1 node",
    "three": "3 nodes, 3 replicas",
    "limit": "3 nodes, and the client's own limit",
    "syncing": "3 nodes, with and without syncing",
    "sustained": "3 nodes, sustained",
    "failover": "3 nodes, kill -9 of the leader",
    "spark": "1 node, Spark reads the same topic",
}


def measure(
    name: str, work: Path, rounds: int, save: Callable[[Piece], None], *, quick: bool
) -> None:
    """Run one piece; ``save`` what is known after every round."""
    work.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    sync = measure_sync(work, 0.2 if quick else 2.0)
    piece = Piece(
        name=name,
        title=TITLES[name],
        rounds=rounds,
        quick=quick,
        at=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        machine=describe(work),
        sync_p50_ms=[sync.p50_ms],
        sync_p99_ms=[sync.p99_ms],
    )
    if name == "spark":
        _note(piece, spark_rounds(work, rounds, quick=quick))
    elif name == "limit":
        with both(work, 3) as sides, sink() as nothing:
            targets: dict[str, Target] = {**sides, NOTHING: nothing}
            _take_turns(piece, targets, _limit, rounds, save, quick=quick)
    else:
        clusters = by_syncing if name == "syncing" else both
        with clusters(work, 1 if name == "one" else 3) as sides:
            _take_turns(piece, sides, ROUNDS[name], rounds, save, quick=quick)
    sync = measure_sync(work, 0.2 if quick else 2.0)
    piece.sync_p50_ms.append(sync.p50_ms)
    piece.sync_p99_ms.append(sync.p99_ms)
    piece.seconds = time.perf_counter() - began
    piece.load_after = " ".join(f"{value:.2f}" for value in os.getloadavg())
    save(piece)


def merge(before: Piece, after: Piece) -> Piece:
    """Return both as one piece: the rounds of one after those of the other."""
    sides: dict[str, dict[str, Series]] = {}
    for side, rows in before.sides.items():
        for name, row in rows.items():
            more = after.sides.get(side, {}).get(name)
            values = [*row.values, *(more.values if more else [])]
            sides.setdefault(side, {})[name] = Series(row.unit, values)
    return msgspec.structs.replace(
        before,
        rounds=before.rounds + after.rounds,
        at=f"{before.at}, {after.at}",
        seconds=before.seconds + after.seconds,
        sync_p50_ms=before.sync_p50_ms + after.sync_p50_ms,
        sync_p99_ms=before.sync_p99_ms + after.sync_p99_ms,
        load_after=after.load_after,
        sides=sides,
    )


def _take_turns(
    piece: Piece,
    sides: dict[str, T],
    one: Round[T],
    rounds: int,
    save: Callable[[Piece], None],
    *,
    quick: bool,
) -> None:
    began = time.perf_counter()
    for turn in range(rounds):
        named = list(enumerate(sides.items()))
        for number, (name, side) in named if turn % 2 == 0 else reversed(named):
            os.sync()  # or whoever syncs waits for what the one before did not
            _note(piece, {name: one(f"round-{turn}-{number}", side, quick=quick)})
        piece.rounds = turn + 1
        piece.seconds = time.perf_counter() - began
        save(piece)


def _note(piece: Piece, found: dict[str, list[Figure]]) -> None:
    for side, figures in found.items():
        for figure in figures:
            series = piece.sides.setdefault(side, {}).setdefault(figure.name, Series(figure.unit))
            series.values.append(figure.value)


def _all(topic: str, side: Side, *, quick: bool) -> list[Figure]:
    one_kib = f"{topic}-1k"
    side.create(one_kib)
    leader = side.create(topic)
    found = tasks(spec(side, topic, leader), "", None, quick=quick)
    side.delete(topic)
    side.delete(one_kib)
    return found


def _limit(topic: str, side: Target, *, quick: bool) -> list[Figure]:
    base, count = spec(side, topic, side.create(topic)), 50_000 if quick else 2_000_000
    found = produce(base, "", count, 100, None) + arrays(base, "", count)
    side.delete(topic)
    return found


def _syncing(topic: str, side: Side, *, quick: bool) -> list[Figure]:
    base = spec(side, topic, side.create(topic))
    found = produce(base, "", 50_000 if quick else 2_000_000, 100, None)
    result = run(base, task="latency", count=100 if quick else 1_000)
    for name, value in (("p50", result.p50_ms), ("p99", result.p99_ms)):
        found.append(Figure(section="", name=f"100 B at 200/s: {name}", value=value, unit="ms"))
    side.delete(topic)
    return found


def _sustained(topic: str, side: Side, *, quick: bool) -> list[Figure]:
    leader = side.create(topic)
    base, count = spec(side, topic, leader), 200_000 if quick else SUSTAINED
    found = pair(base, "", count, 100, None) + arrays(base, "", count)
    side.delete(topic)
    return found


def _failover(topic: str, side: Side, *, quick: bool) -> list[Figure]:
    found = outage(side, topic)
    side.delete(topic)
    return [
        Figure(section="", name="longest time without an ack", value=found.seconds, unit="s"),
        Figure(section="", name="acknowledged, then lost", value=found.lost, unit="messages"),
        Figure(section="", name="stored twice", value=found.twice, unit="messages"),
    ]


ROUNDS: dict[str, Round[Side]] = {
    "one": _all,
    "three": _all,
    "syncing": _syncing,
    "sustained": _sustained,
    "failover": _failover,
}
