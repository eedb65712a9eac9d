"""``raftline pipeline report``: how messages fared, from traces; as tables, Parquet and a page."""

# pyright: basic
# Spark says too little of its types for more.

from pathlib import Path
from typing import TYPE_CHECKING, Any

from raftline.client import clock
from raftline.model.errors import Conflict, InvalidArgument
from raftline.model.names import is_dead_letter_topic
from raftline.pipeline.job import Job
from raftline.pipeline.report_frames import HOUR_S, PERCENTILES, Frames, Window
from raftline.pipeline.report_page import page_of
from raftline.pipeline.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POINTS = 60  # of a line over time, about
BUCKETS_S = (1, 5, 10, 30, 60, 300, 900, 1800, HOUR_S, 3 * HOUR_S, 6 * HOUR_S, 24 * HOUR_S)
STEPS = 5

Data = dict[str, Any]


def run(
    job: Job,
    *,
    topics: list[str] | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    archive: str = "",
    html: str = "",
    parquet: str = "",
) -> Data:
    """Make a report and return its data; write it as a page or as Parquet where asked.

    Args:
        job: whose session and servers are used.
        topics: which; None or empty: all but those of dead letters.
        from_ms: what happened since; None: as long as there are traces.
        to_ms: what happened before.
        archive: directory of the archive, for messages that the log no longer has.
        html: a file for the page.
        parquet: a directory for the tables.
    """
    _check_outputs(html, parquet)
    tables = Tables(job.spark, job.servers, archive=archive)
    try:
        chosen = _topics(tables, topics or [])
        with job.progress("steps", STEPS, f"report on {', '.join(chosen[:3])}") as bar:
            frames = Frames(tables, chosen, Window(from_ms, to_ms))
            try:
                data = _gather(frames, bar)
                data |= {"topics": chosen, "servers": job.servers, "made_ms": clock.wall_ms()}
                if parquet:
                    _write_parquet(frames, job.place(parquet), data["bucket_s"])
                    data["parquet"] = parquet
                bar.advance()
            finally:
                frames.close()
    finally:
        tables.close()
    if html:
        Path(html).write_text(page_of(data), encoding="utf-8")
        data["html"] = html
    return data


def _topics(tables: Tables, wanted: list[str]) -> list[str]:
    for name in wanted:
        tables.check_topic(name)
    found = wanted or [name for name in tables.topic_names() if not is_dead_letter_topic(name)]
    if not found:
        raise InvalidArgument("there are no topics to report on", "raftline topic list")
    return found


def _check_outputs(html: str, parquet: str) -> None:
    if html and not Path(html).resolve().parent.is_dir():
        raise InvalidArgument(f"{html}: there is no such directory", "make it first")
    if parquet and "://" not in parquet and Path(parquet).exists():
        raise Conflict(f"{parquet} is there already", "remove it, or take another name")


def _gather(frames: Frames, bar: Any) -> Data:
    first, last = frames.bounds()
    bucket_s = bucket_of(first, last)
    bar.advance()
    cube = [_plain(row) for row in frames.latencies(bucket_s).collect()]
    hours = [{**row, "at": row["hour"]} for row in cube if row["hour"] is not None]
    cube = [row for row in cube if row["hour"] is None]
    bar.advance()
    flow = [_plain(row) for row in frames.throughput(bucket_s).collect()]
    flow = [row for row in flow if first is None or row["at"] >= first - bucket_s * 1000]
    bar.advance()
    troubles = [_plain(row) for row in frames.troubles(bucket_s).collect()]
    slowest = sorted(
        (_plain(row) for row in frames.slowest().collect()), key=lambda row: -row["took_ms"]
    )
    bar.advance()
    return {
        "first_ms": first,
        "last_ms": last,
        "bucket_s": bucket_s,
        "percentiles": list(PERCENTILES),
        "totals": _sorted(row for row in cube if row["at"] is None),
        "series": _sorted(row for row in cube if row["at"] is not None),
        "hours": _sorted(hours),
        "flow": _sorted(flow),
        "troubles": _sorted(troubles),
        "slowest": slowest,
        "hot_keys": _by_count(_plain(row) for row in frames.hot_keys().collect()),
    }


def bucket_of(first_ms: int | None, last_ms: int | None) -> int:
    """Return how many seconds one point of a line over time stands for."""
    if first_ms is None or last_ms is None:
        return HOUR_S
    span_s = (last_ms - first_ms) / 1000
    return next((step for step in BUCKETS_S if span_s / step <= POINTS), BUCKETS_S[-1])


def _write_parquet(frames: Frames, directory: str, bucket_s: int) -> None:
    tables: dict[str, DataFrame] = {
        "hours": frames.latencies(bucket_s).where("hour is not null").drop("at"),
        "throughput": frames.throughput(bucket_s),
        "troubles": frames.troubles(bucket_s),
        "slowest": frames.slowest(),
        "hot_keys": frames.hot_keys(),
    }
    for name, table in tables.items():
        table.coalesce(1).write.mode("errorifexists").parquet(f"{directory}/{name}.parquet")


def _plain(row: Any) -> Data:
    told = row.asDict()
    for name in ("at", "hour", "since"):
        if told.get(name) is not None:
            told[name] = round(told[name].timestamp() * 1000)
    return told


def _sorted(rows: Any) -> list[Data]:
    return sorted(rows, key=lambda row: (row["topic"] or "", row["group"] or "", row["at"] or 0))


def _by_count(rows: Any) -> list[Data]:
    return sorted(rows, key=lambda row: (row["topic"], -row["count"], row["key"]))
