"""``raftline pipeline report``: how messages fared."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftline.cli import words
from raftline.cli.pipeline_options import Conf, Master, Servers, need_spark, pipeline_job
from raftline.cli.session import short, table
from raftline.cli.times import show_time

if TYPE_CHECKING:
    from raftline.cli.session import Session

SHOWN = 10  # slowest messages and hot keys, in a terminal
SHARES = (0, 2, 3)  # of the percentiles: the half, 95 and 99 of a hundred


def report(
    context: typer.Context,
    topics: Annotated[list[str] | None, typer.Argument(help="which (all)")] = None,
    from_time: Annotated[str, typer.Option(help="what happened since: RFC 3339, -1d")] = "",
    to_time: Annotated[str, typer.Option(help="what happened before")] = "",
    html: Annotated[str, typer.Option("--html", help="write a page for browsers")] = "",
    parquet: Annotated[str, typer.Option("--parquet", help="write tables to a directory")] = "",
    archive: Annotated[str, typer.Option(help="directory of the archive, or: true")] = "",
    servers: Servers = "",
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Report how messages fared: latencies, retries, dead letters, slowest messages, hot keys.

    From traces, which are kept for 72 hours (trace_retention_ms of a topic).

    For example:

      raftline pipeline report orders --from-time -1d --html report.html
      raftline pipeline report --parquet ./report
    """
    session: Session = context.obj
    window = {
        "from_ms": words.moment_ms(from_time, "--from-time"),
        "to_ms": words.moment_ms(to_time, "--to-time"),
    }
    with pipeline_job(context, "report", servers, master, conf, in_steps=False) as job:
        need_spark()
        from raftline.pipeline import report as module

        data = module.run(job, topics=topics, archive=archive, html=html, parquet=parquet, **window)
        seconds = job.seconds
    if session.json:
        session.answer({**data, "seconds": seconds}, "")
        return
    show_report(session, data)
    for name in ("html", "parquet"):
        if name in data:
            session.answer(None, f"written to {data[name]}")


def show_report(session: "Session", data: dict[str, Any]) -> None:
    """Print a report for people."""
    rows = table(
        "hour", "topic", "group", ">messages", ">acked", ">retries", ">dead", ">max attempts",
        ">deliver p50", ">p95", ">p99", ">ack p50", ">p95", ">p99",
        title="publish to deliver, publish to ack (ms)",
    )  # fmt: skip
    for row in data["hours"]:
        figures = ("messages", "acked", "retries", "dead", "attempts_max")
        rows.add_row(
            show_time(row["at"]),
            row["topic"],
            row["group"],
            *(f"{row[name] or 0:,}" for name in figures),
            *_shares(row["to_delivery_ms"]),
            *_shares(row["to_ack_ms"]),
        )
    session.table(None, rows, "no messages were delivered in that time")
    _show_troubles(session, data["troubles"])
    rows = table("message", "group", "key", ">attempts", ">took ms", "outcome", title="slowest")
    for row in data["slowest"][:SHOWN]:
        rows.add_row(
            f"{row['topic']}/{row['partition']}@{row['offset']}",
            row["group"],
            short(row["key"], 30),
            str(row["deliveries"]),
            f"{row['took_ms']:,}",
            row["outcome"],
        )
    if rows.row_count:
        session.table(None, rows)
    rows = table("key", "topic", ">messages", ">retries", ">dead", title="hot keys")
    for row in sorted(data["hot_keys"], key=lambda row: -row["count"])[:SHOWN]:
        figures = (row["count"], row["retries"] or 0, row["dead"] or 0)
        rows.add_row(short(row["key"], 40), row["topic"], *(f"{figure:,}" for figure in figures))
    if rows.row_count:
        session.table(None, rows)


def _show_troubles(session: "Session", troubles: list[dict[str, Any]]) -> None:
    counts: dict[tuple[str, str, str, str, str], int] = {}
    for row in troubles:
        name = (row["kind"], row["topic"], row["group"], row["reason"], row["error"] or "")
        counts[name] = counts.get(name, 0) + row["count"]
    rows = table(
        "what", "topic", "group", "reason", "error", ">count", title="retries, dead letters"
    )
    for name, count in sorted(counts.items(), key=lambda pair: (pair[0][0], -pair[1])):
        kind, topic, group, reason, error = name
        rows.add_row(kind, topic, group, reason, short(error, 40), f"{count:,}")
    if rows.row_count:
        session.table(None, rows)


def _shares(values: list[int] | None) -> list[str]:
    return ["-" if not values else f"{values[at]:,}" for at in SHARES]
