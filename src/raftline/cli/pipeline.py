"""``raftline pipeline``: jobs on Spark."""

import base64
import datetime
import decimal
import json
import math
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from raftline.cli import words
from raftline.cli.pipeline_archive import archive, optimize, restore
from raftline.cli.pipeline_options import Conf, Master, Servers, need_spark, pipeline_job
from raftline.cli.pipeline_redrive import redrive
from raftline.cli.pipeline_report import report
from raftline.cli.session import console, short, table
from raftline.model.errors import InvalidArgument

if TYPE_CHECKING:
    from rich.console import Console

    from raftline.cli.session import Session
    from raftline.pipeline.sql import Result

commands = typer.Typer(
    help="Jobs on Spark: archive, restore, optimize, report, redrive, sql.", no_args_is_help=True
)
for command in (archive, restore, optimize, report, redrive):
    commands.command()(command)

CELL_CHARS_MAX = 120
Archive = Annotated[
    str, typer.Option(help="directory of the archive, read with the log; or: true, as topics say")
]


@commands.command()
def sql(
    context: typer.Context,
    query: Annotated[
        str, typer.Argument(help="a SELECT; topics are tables; - reads it from stdin")
    ],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="rows to show")] = 100,
    output: Annotated[
        str, typer.Option("--output", "-o", help="write all rows: NAME.parquet, .csv or .json")
    ] = "",
    archive: Archive = "",
    decode: Annotated[str, typer.Option(help="keys and values as text or binary")] = "text",
    from_time: Annotated[str, typer.Option(help="only messages since: RFC 3339, -1h")] = "",
    to_time: Annotated[str, typer.Option(help="only messages before")] = "",
    servers: Servers = "",
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Ask topics, dead letters, traces and groups in SQL.

    Tables: orders, "orders.dlq", "orders.trace", "orders.archive", raftline.topics,
    raftline.groups, raftline.nodes.

    For example:

      raftline pipeline sql "select partition, count(*) from orders group by 1"
      raftline pipeline sql "select key, json(value, 'total') from orders limit 5"
      raftline pipeline sql "select reason, count(*) from orders.dlq group by reason"
    """
    session: Session = context.obj
    if query == "-":
        query = sys.stdin.read()
    options = {
        name: str(moment)
        for name, moment in (
            ("startingTimestamp", words.moment_ms(from_time, "--from-time")),
            ("endingTimestamp", words.moment_ms(to_time, "--to-time")),
        )
        if moment is not None
    }
    if not query.strip():
        raise InvalidArgument("the query is empty", "for example: select * from orders limit 5")
    with pipeline_job(context, "sql", servers, master, conf, in_steps=False) as job:
        need_spark()
        from raftline.pipeline import sql as module

        result = module.run(
            job,
            query=query.strip().rstrip(";"),
            limit=limit,
            output=output,
            archive=archive,
            decode=decode,
            source_options=options,
        )
    show_result(session, result)


def show_result(session: "Session", result: "Result") -> None:
    """Print rows: one JSON object a line for programs, a table for people."""
    if result.written:
        session.answer({"written": result.written}, f"written to {result.written}")
        return
    if session.json:
        for row in result.rows:
            cells = zip(result.columns, (plain(cell) for cell in row), strict=True)
            sys.stdout.write(json.dumps(dict(cells), ensure_ascii=False) + "\n")
        return
    cells = [[short(_cell(cell), CELL_CHARS_MAX) for cell in row] for row in result.rows]
    widths = [max(map(len, column)) for column in zip(result.columns, *cells, strict=True)]
    out = console()
    if cells and sum(widths) + 3 * len(widths) > out.width:
        _show_upright(out, result, max(map(len, result.columns)))
    else:
        rows = table(*_heads(result))
        for row in cells:
            rows.add_row(*row)
        session.table(None, rows, "no rows")
    if result.is_cut:
        session.note(f"… there are more than {len(result.rows)} rows: --limit, or --output FILE")


def _show_upright(out: "Console", result: "Result", width: int) -> None:
    """Print one line per column: the rows are too wide for the terminal."""
    for number, row in enumerate(result.rows, 1):
        out.print(f"── {number} " + "─" * 40)
        for name, cell in zip(result.columns, row, strict=True):
            out.print(f"{name:>{width}}  {short(_cell(cell), CELL_CHARS_MAX * 8)}", soft_wrap=True)


def _heads(result: "Result") -> list[str]:
    """Return the heads of columns; those of numbers are aligned to the right."""
    kinds = int | float | decimal.Decimal | None
    return [
        f">{name}" if all(isinstance(row[at], kinds) for row in result.rows) else name
        for at, name in enumerate(result.columns)
    ]


def plain(value: Any) -> Any:
    """Return a value of Spark as JSON knows it."""
    match value:
        case bytes() | bytearray():
            try:
                return bytes(value).decode()
            except UnicodeDecodeError:
                return "base64:" + base64.b64encode(value).decode()
        case datetime.datetime():
            utc = value.astimezone(datetime.UTC)
            return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case datetime.date() | datetime.timedelta():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)  # JSON has no word for it
        case decimal.Decimal():
            return _number(value)
        case dict():
            entries = cast("dict[Any, Any]", value).items()
            return {str(plain(key)): plain(one) for key, one in entries}
        case _ if hasattr(value, "asDict"):
            return {name: plain(one) for name, one in value.asDict().items()}
        case list() | tuple():
            return [plain(one) for one in cast("list[Any]", value)]
        case _:
            return value


def _number(value: decimal.Decimal) -> int | float | str:
    """Return a number that says the same; text where no number of JSON does."""
    if value == value.to_integral_value():
        return int(value)
    nearest = float(value)
    return nearest if decimal.Decimal(repr(nearest)) == value else str(value)


def _cell(value: Any) -> str:
    found = plain(value)
    if found is None:
        return "-"
    if isinstance(found, float):
        return f"{found:,.3f}".rstrip("0").rstrip(".")
    return json.dumps(found, ensure_ascii=False) if isinstance(found, dict | list) else str(found)
