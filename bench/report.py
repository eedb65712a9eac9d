"""The figures of a run as a table, as JSON and as a page."""

from bench.figures import Figure, Report, number

PAGE_HEAD = """\
# Benchmarks

Made by `{command}`; how is described in [bench/](../bench). Servers, load process and one disk
share the machine. Appends are sealed record batches over the HTTP batch route, sent to the leader;
an append is acknowledged when a majority has it on disk (fdatasync). CPU is that of all threads of
a process by the kernel's account, divided by the appends acknowledged meanwhile.

Sections that say JSON are `POST /v1/topics/{{topic}}/messages`, sent to the leader by a load
process that encodes its request once; CPU is by the message there. "8 threads" are 8 connections
that each wait for their reply; batches go one after the other unless connections are named.

Goals are for 2 cores and a disk whose fdatasync takes 0.2 ms. *Plain loop* is what one step of
`for n in range(N): total += n` took just before and after a figure was made: virtual machines
change their speed, and figures of minutes with another loop cannot be compared. *Rounds* are the
values of what was measured several times, with other sections in between; their median counts.
"bare" are the same machine's disk, processor and loopback without Raftline.
"""


def table(report: Report) -> str:
    """Return all figures as text in columns."""
    lines: list[str] = []
    section = ""
    for figure in report.figures:
        if figure.section != section:
            section = figure.section
            lines.append(f"\n{section}")
        goal, verdict = _judged(figure, report)
        value = f"{number(figure.value)} {figure.unit}"
        lines.append(f"  {figure.name:42} {value:>22}  {goal:20} {verdict}".rstrip())
    return "\n".join(lines)


def page(report: Report) -> str:
    """Return the Markdown page."""
    parts = [PAGE_HEAD.format(command=report.command), "## Machine\n", "| | |", "|---|---|"]
    parts += [f"| {name} | {value} |" for name, value in report.machine.items()]
    sync = f"p50 {report.sync_p50_ms:.2f} ms, p99 {report.sync_p99_ms:.2f} ms"
    parts.append(f"| fdatasync of 512 B in the same run | {sync} |")
    parts.append(f"| load after | {report.load_after} |")
    parts.append(f"| length of the run | {report.seconds:.0f} s |\n")
    parts.append("## Goals\n")
    parts += [
        "| figure | value | rounds | goal | verdict | plain loop |",
        "|---|---|---|---|---|---|",
    ]
    for figure in report.figures:
        if figure.goal is not None:
            goal, verdict = _judged(figure, report)
            value = f"{number(figure.value)} {figure.unit}"
            name, rounds = f"{figure.section}; {figure.name}", _rounds(figure)
            row = (name, value, rounds, goal, verdict, _loop(figure))
            parts.append(f"| {' | '.join(row)} |")
    parts.append("\n## All figures")
    section = ""
    for figure in report.figures:
        if figure.section != section:
            section = figure.section
            parts += [f"\n### {section}\n", "| figure | value | note |", "|---|---|---|"]
        note = "; ".join(filter(None, (figure.note, _rounds(figure))))
        parts.append(f"| {figure.name} | {number(figure.value)} {figure.unit} | {note} |")
    return "\n".join(parts) + "\n"


def _rounds(figure: Figure) -> str:
    """Return the values of all rounds, in their order."""
    return " / ".join(map(number, figure.rounds))


def _loop(figure: Figure) -> str:
    return f"{figure.loop_ns:.0f} ns" if figure.loop_ns else ""


def _judged(figure: Figure, report: Report) -> tuple[str, str]:
    if figure.goal is None or report.quick:
        return "", ""
    return figure.goal.text(figure.unit), figure.verdict(report.sync_p50_ms)
