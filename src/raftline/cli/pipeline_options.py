"""What every ``raftline pipeline …`` takes, and how its summary is shown."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from raftline.cli import words
from raftline.cli.session import Session, console

if TYPE_CHECKING:
    from raftline.pipeline.job import Job

Servers = Annotated[
    str, typer.Option("--servers", help="URLs of nodes, with commas (or --server, RAFTLINE_SERVER)")
]
Master = Annotated[
    str, typer.Option(help="where Spark runs: local[*], spark://host:7077, yarn, k8s://…")
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="K=V", help="a setting of Spark; repeatable")
]


def need_spark() -> None:
    """Say what to install before a job is imported. Raises NoSpark."""
    from raftline.pipeline.session import require_spark

    require_spark()


@contextmanager
def pipeline_job(
    context: typer.Context,
    name: str,
    servers: str,
    master: str,
    conf: list[str] | None,
    *,
    in_steps: bool = True,
) -> Generator["Job"]:
    """Run a job: what it opens is closed, and Spark's errors are told in a sentence."""
    from raftline.pipeline.job import Job

    session: Session = context.obj
    job = Job(
        name,
        servers or session.servers,
        master=master,
        conf=words.pairs(conf, "--conf"),
        as_json=session.json,
        in_steps=in_steps,
    )
    with job:
        yield job


def finish(context: typer.Context, job: "Job", summary: dict[str, Any]) -> None:
    """Show what a job did."""
    session: Session = context.obj
    told = {**summary, "seconds": job.seconds}
    if session.json:
        session.answer(told, "")
        return
    out = console()
    width = max(len(name) for name in told)
    for name, value in told.items():
        out.print(f"{name.replace('_', ' '):{width}}  {_shown(value)}", soft_wrap=True)


def _shown(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list():
            return ", ".join(str(one) for one in cast("list[Any]", value)) or "-"
        case dict():
            pairs = cast("dict[str, Any]", value).items()
            return ", ".join(f"{key} {_shown(one)}" for key, one in pairs) or "-"
        case None:
            return "-"
        case _:
            return str(value)
