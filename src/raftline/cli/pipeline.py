"""``raftline pipeline``: jobs on Spark."""

from typing import TYPE_CHECKING, Annotated

import typer

from raftline.cli.pipeline_archive import archive, optimize, restore
from raftline.cli.pipeline_options import Conf, Master, Servers, pipeline_job

if TYPE_CHECKING:
    from raftline.cli.session import Session

commands = typer.Typer(
    help="Jobs on Spark: archive, restore, optimize, report, redrive, sql.", no_args_is_help=True
)
for command in (archive, restore, optimize):
    commands.command()(command)


@commands.command()
def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="a SELECT; topics are tables")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="rows to show")] = 100,
    servers: Servers = "",
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Ask topics, dead letters, traces and groups in SQL.

    For example: raftline pipeline sql "select partition, count(*) from orders group by 1"
    """
    session: Session = context.obj
    with pipeline_job(context, "sql", servers, master, conf) as job:
        from raftline.pipeline import sql as module

        rows = module.run(job, query=query, limit=limit)
    session.answer(rows, "\n".join(str(row) for row in rows))
