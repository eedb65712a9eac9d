"""The comparison as a table on the terminal, and as a page with plots.

Every cell has the median, the spread over all rounds, and how Raftline stands to that system:
above 1 Raftline is better, whichever way the metric goes.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.figures import number
from bench.peers import plots
from bench.peers.adapters import SYSTEMS
from bench.peers.notes import REASONS
from bench.peers.results import Key, Piece, Row, rows

OURS = "raftline"
CAUTIONS = (
    "Read with care:\n",
    "- Raftline and its client are Python; the servers beside it are C, Go, Erlang",
    "  and Java, and Kafka's client is C. The row *Raftline by Kafka's client* has Kafka's load.",
    "- Only Raftline, Redis (AOF always) and beanstalkd (-f0) also sync each ack of a worker.",
    "- Systems on a JVM are measured in their first minute, after one second of warm-up each.",
    "- The machine is virtual and changes its speed: factors near 1 are a tie.",
    "- Kafka's outage is its session timeout (9 s by default), NATS' its election and its client.",
)
BEHIND = 0.95  # below it we say that we are behind
INTRODUCTION = """\
Made by `make bench-peers` ([bench/peers](../../bench/peers)); do not edit. The systems take turns
on an otherwise idle machine: a turn is a fresh start on an empty directory and all workloads, a
round is one turn of each, and each round begins with another system. Load is one form of Python
process for all, with the best Python client of each; its CPU is shown beside that of the servers.
Servers, load and the disk share the machine. In a turn a, b and c are measured three times.

A cell is the median of all measurements (lowest to highest), and **x** how many times better
Raftline is than that system: below 1 Raftline is behind. CPU of a worker's process counts as load.
"""


class Column(msgspec.Struct, frozen=True):
    """One metric."""

    workload: str
    metric: str
    title: str
    more_is_better: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One section of the page."""

    name: str
    nodes: int
    title: str
    text: str
    columns: tuple[Column, ...]
    plotted: tuple[str, ...]  # titles of columns


def _cpu(workload: str) -> tuple[Column, Column]:
    return (
        Column(workload, "server_cpu_us", "server CPU, µs/message"),
        Column(workload, "load_cpu_us", "load CPU, µs/message"),
    )


def _latency(workload: str) -> tuple[Column, Column]:
    return Column(workload, "p50_ms", "p50, ms"), Column(workload, "p99_ms", "p99, ms")


def _rate(workload: str) -> Column:
    return Column(workload, "per_s", "messages/s", more_is_better=True)


TABLES = (
    Table(
        name="single",
        nodes=1,
        title="a. One publish at a time",
        text="100 B, one on its way, each acknowledged before the next one leaves.",
        columns=(*_latency("single"), _rate("single"), *_cpu("single")),
        plotted=("p50, ms", "p99, ms"),
    ),
    Table(
        name="window",
        nodes=1,
        title="b. 64 publishes on their way",
        text="64 callers in one process, each waits for its own acknowledgement.",
        columns=(_rate("window"), *_latency("window"), *_cpu("window")),
        plotted=("messages/s",),
    ),
    Table(
        name="bulk",
        nodes=1,
        title="c. Bulk publish",
        text="One process, 100 B, the best batch form of each client, everything acknowledged.",
        columns=(_rate("bulk"), *_cpu("bulk")),
        plotted=("messages/s",),
    ),
    Table(
        name="consume",
        nodes=1,
        title="d. Bulk consume",
        text="One process reads what c stored. Where there is no log to read (RabbitMQ's quorum "
        "queues, beanstalkd, ElasticMQ) messages are consumed and acked in the largest form.",
        columns=(_rate("consume"), *_cpu("consume")),
        plotted=("messages/s",),
    ),
    Table(
        name="work",
        nodes=1,
        title="e. Work queue",
        text="8 worker processes lease and ack each message of a filled queue.",
        columns=(_rate("work"), *_cpu("work")),
        plotted=("messages/s",),
    ),
    Table(
        name="paced",
        nodes=1,
        title="f. From send to worker, 500 messages a second",
        text="One process publishes at a steady rate, one worker leases and acks; from before the "
        "send to the message in the worker's hands.",
        columns=(*_latency("paced"), Column("paced", "max_ms", "max, ms"), *_cpu("paced")),
        plotted=("p50, ms", "p99, ms"),
    ),
    Table(
        name="start",
        nodes=1,
        title="g. Start and memory",
        text="From the start of the process to the first acknowledged publish, on an empty "
        "directory and after `kill -9` with the data of all workloads; resident memory two "
        "seconds after the start, after the bulk publish (its messages in brackets: not the same "
        "number everywhere), and after everything.",
        columns=(
            Column("start", "start_ms", "start, ms"),
            Column("start", "restart_ms", "restart, ms"),
            Column("memory", "idle_mb", "idle, MB"),
            Column("memory", "loaded_mb", "after bulk, MB"),
            Column("memory", "worked_mb", "after all, MB"),
        ),
        plotted=("restart, ms", "idle, MB"),
    ),
    Table(
        name="single-3",
        nodes=3,
        title="h. Three nodes: one publish at a time",
        text="Three replicas on one machine with two cores and one disk.",
        columns=(*_latency("single"), _rate("single"), *_cpu("single")),
        plotted=("p50, ms", "p99, ms"),
    ),
    Table(
        name="window-3",
        nodes=3,
        title="h. Three nodes: 64 publishes on their way",
        text="As b.",
        columns=(_rate("window"), *_latency("window"), *_cpu("window")),
        plotted=("messages/s",),
    ),
    Table(
        name="work-3",
        nodes=3,
        title="h. Three nodes: work queue",
        text="As e.",
        columns=(_rate("work"), *_cpu("work")),
        plotted=("messages/s",),
    ),
    Table(
        name="failover",
        nodes=3,
        title="h. Three nodes: failover",
        text="`kill -9` of the leader to the next acknowledged publish that was sent after it; the "
        "client knows all nodes. And what three nodes take to start, and in memory.",
        columns=(
            Column("failover", "outage_ms", "outage, ms"),
            Column("start", "start_ms", "start, ms"),
            Column("memory", "idle_mb", "idle, MB"),
        ),
        plotted=("outage, ms",),
    ),
)


def table(pieces: list[Piece]) -> str:
    """Return medians and factors as text in columns."""
    found = rows(pieces)
    lines: list[str] = []
    for section in TABLES:
        names = _systems(section, found)
        if not names:
            continue
        lines.append(f"\n{section.title} ({section.nodes} node{'s' * (section.nodes > 1)})")
        lines.append(" " * 16 + "".join(f"{c.title:>24}" for c in section.columns))
        for name in names:
            cells = [_cell(section, column, name, found) for column in section.columns]
            lines.append(f"{name:16}" + "".join(_short(row, by) for row, by in cells))
    return "\n".join(lines)


def write(pieces: list[Piece], page: Path) -> None:
    """Write the page and its plots."""
    found = rows(pieces)
    page.parent.mkdir(parents=True, exist_ok=True)
    parts = [*_head(pieces), *_verdict(found)]
    for section in TABLES:
        names = _systems(section, found)
        if not names:
            continue
        parts += [f"\n## {section.title}\n", section.text, ""]
        for title in section.plotted:
            column = next(c for c in section.columns if c.title == title)
            image = f"peers-{section.name}-{column.metric.replace('_', '-')}.svg"
            drawn = _plot(section, column, names, found)
            if drawn:
                (page.parent / image).write_text(drawn)
                parts.append(f"![{section.title}: {column.title}]({image})")
        parts += ["", *_markdown(section, names, found)]
        parts += _reasons(section, found)
    parts += _missing(pieces)
    page.write_text("\n".join(parts) + "\n")


def _head(pieces: list[Piece]) -> Iterator[str]:
    last = pieces[-1]
    yield "# Raftline and the systems people would use instead\n"
    yield INTRODUCTION
    yield "| | |\n|---|---|"
    for name, value in last.machine.items():
        if name != "load before":
            yield f"| {name} | {value} |"
    syncs = [piece.sync_p50_ms for piece in pieces]
    worst = max(piece.sync_p99_ms for piece in pieces)
    yield (
        f"| fdatasync of 512 B before each run | p50 {min(syncs):.2f} to {max(syncs):.2f} ms, "
        f"p99 up to {worst:.2f} ms |"
    )
    loads = ", ".join(piece.load_before.split()[0] for piece in pieces)
    yield f"| load average before each run | {loads} |"
    yield f"| runs | {', '.join(f'{p.at} ({p.seconds:.0f} s)' for p in pieces)} |"
    yield f"| rounds | {_rounds(pieces)} |"
    yield f"| commit | {', '.join(dict.fromkeys(p.commit for p in pieces))} |\n"
    yield "| system | version | a publish is acknowledged when | an ack of a worker | client |"
    yield "|---|---|---|---|---|"
    versions = {name: text for piece in pieces for name, text in piece.versions.items()}
    for system in SYSTEMS.values():
        version = versions.get(system.adapter, "not measured")
        yield f"| {system.title} | {version} | {system.durable} | {system.acks} | {system.client} |"
    yield (
        "\n`kill -9` does not lose what is in the page cache: what is not synced is lost only when "
        "the machine goes down."
    )


def _rounds(pieces: list[Piece]) -> str:
    """Say how often each number of nodes was measured on Raftline."""
    found = rows(pieces)
    counts = {n: found.get((OURS, n, "start", "start_ms")) for n in (1, 3)}
    return ", ".join(
        f"{row.count} with {n} node{'s' * (n > 1)}" for n, row in counts.items() if row is not None
    )


def _verdict(found: dict[Key, Row]) -> Iterator[str]:
    """Show how Raftline stands in the figure that matters most of each workload."""
    yield "\n## In short\n"
    yield "How many times better Raftline is; **bold** where it is behind.\n"
    others = [name for name, system in SYSTEMS.items() if system.adapter != OURS]
    yield "| | " + " | ".join(SYSTEMS[name].title for name in others) + " |"
    yield "|---|" + "---|" * len(others)
    for section in TABLES:
        for column in section.columns:
            if column.title not in section.plotted:
                continue
            cells = [_cell(section, column, name, found)[1] for name in others]
            if any(cells):
                label = f"{section.title}: {column.title}"
                yield f"| {label} | " + " | ".join(_factor(by) for by in cells) + " |"
    ahead = total = 0
    for section in TABLES:
        for name in others:
            for column in section.columns:
                by = _cell(section, column, name, found)[1]
                total += bool(by)
                ahead += by >= BEHIND
    yield f"\nWith CPU and all quantiles: ahead or level in {ahead} of {total} cells.\n"
    yield from CAUTIONS


def _factor(by: float) -> str:
    if not by:
        return "-"
    return f"x{number(by)}" if by >= BEHIND else f"**x{number(by)}**"


def _reasons(section: Table, found: dict[Key, Row]) -> list[str]:
    """Say why, where Raftline is behind and a profile told."""
    names = _systems(section, found)
    is_behind = any(
        0 < _cell(section, column, name, found)[1] < BEHIND
        for name in names
        if SYSTEMS[name].adapter != OURS
        for column in section.columns
    )
    return ["", f"*{REASONS[section.name]}*"] if is_behind and section.name in REASONS else []


def _markdown(section: Table, names: list[str], found: dict[Key, Row]) -> Iterator[str]:
    yield "| | " + " | ".join(column.title for column in section.columns) + " |"
    yield "|---|" + "---|" * len(section.columns)
    for name in names:
        cells: list[str] = []
        for column in section.columns:
            row, by = _cell(section, column, name, found)
            cells.append(_long(row, by, _stored(column, name, found)))
        yield f"| {SYSTEMS[name].title} | " + " | ".join(cells) + " |"


def _missing(pieces: list[Piece]) -> Iterator[str]:
    failures = list(dict.fromkeys(text for piece in pieces for text in piece.failures))
    if failures:
        yield "\n## What did not work\n"
        yield from (f"- {text}" for text in failures)


def _systems(section: Table, found: dict[Key, Row]) -> list[str]:
    have = {
        (key[0], column.metric)
        for key in found
        for column in section.columns
        if key[1:] == (section.nodes, column.workload, column.metric)
    }
    first = section.columns[0].metric
    return [name for name in SYSTEMS if (name, first) in have]


def _cell(
    section: Table, column: Column, name: str, found: dict[Key, Row]
) -> tuple[Row | None, float]:
    """Return a cell, and how many times Raftline is better (0: not to be said)."""
    row = found.get((name, section.nodes, column.workload, column.metric))
    ours = found.get((OURS, section.nodes, column.workload, column.metric))
    if row is None or ours is None or not row.median or not ours.median:
        return row, 0.0
    by = row.median / ours.median
    return row, 1 / by if column.more_is_better else by


def _stored(column: Column, name: str, found: dict[Key, Row]) -> str:
    row = found.get((name, 1, "memory", "stored"))
    if column.metric != "loaded_mb" or row is None:
        return ""
    return f" [{number(row.median)}]"


def _long(row: Row | None, by: float, more: str) -> str:
    if row is None:
        return "-"
    factor = f" **x{number(by)}**" if by else ""
    return f"{number(row.median)}{more} ({number(row.low)} to {number(row.high)}){factor}"


def _short(row: Row | None, by: float) -> str:
    if row is None:
        return f"{'-':>24}"
    return f"{number(row.median):>14} {f'x{by:.2f}' if by else '':>9}"


def _plot(section: Table, column: Column, names: list[str], found: dict[Key, Row]) -> str:
    bars: list[plots.Bar] = []
    for name in names:
        row = found.get((name, section.nodes, column.workload, column.metric))
        if row is not None:
            bar = plots.Bar(
                label=SYSTEMS[name].title,
                value=row.median,
                low=row.low,
                high=row.high,
                ours=name == OURS,
            )
            bars.append(bar)
    better = "more is better" if column.more_is_better else "less is better"
    return plots.bars(f"{section.title}: {column.title} ({better})", bars) if bars else ""
