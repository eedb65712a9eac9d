"""``raftline worker``: run tasks.

``worker MODULE:APP`` runs the functions of a ``raftline.App``. ``worker --exec CMD`` runs a command
per task (payload on standard input, exit 0 = ack); without a command tasks are logged and acked.
"""

import os
import signal
import socket
import traceback
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from raftline.cli import words
from raftline.cli.crew import Crew, Plan
from raftline.cli.sources import Source, TaskSource, TopicSource
from raftline.model.errors import InvalidArgument, RaftlineError

if TYPE_CHECKING:
    from raftline.cli.session import Session

LEASE_MS = 30_000
GROUP = "workers"


def worker(
    context: typer.Context,
    app: Annotated[
        str, typer.Argument(metavar="[MODULE:APP]", help="a raftline.App, as module:name")
    ] = "",
    command: Annotated[
        str | None, typer.Option("--exec", help="command per task; exit code 0 = ack, else nack")
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=1, max=1000, help="tasks at the same time")
    ] = 1,
    worker_id: Annotated[str, typer.Option(help="this worker's name (host-pid)")] = "",
    lease: Annotated[str, typer.Option(help="renewed while a task runs (30s)")] = "",
    grace: Annotated[str, typer.Option(help="time for running tasks after SIGTERM")] = "30s",
    topic: Annotated[str, typer.Option(help="messages of this topic instead of tasks")] = "",
    group: Annotated[str, typer.Option("--group", "-g", help="with --topic")] = GROUP,
    drain: Annotated[bool, typer.Option("--drain", help="end when nothing is left")] = False,
) -> int:
    """Run tasks until told to stop (SIGTERM, Ctrl-C: running tasks may finish).

    Without MODULE:APP and without --exec nothing is run: each task is printed and acked.

    A command gets the payload on standard input and RAFTLINE_ID, RAFTLINE_TYPE (with --topic the
    key) and RAFTLINE_ATTEMPT in its environment.

    For example:

      raftline worker shop.tasks:app --concurrency 8
      raftline worker --server http://localhost:8081
      raftline worker --exec './send-mail.sh' -c 4
      raftline worker --topic orders --group billing --exec 'python charge.py'
    """
    session: Session = context.obj
    lease_ms = words.duration_ms(lease, "--lease") or LEASE_MS
    name = worker_id or f"{socket.gethostname()}-{os.getpid()}"
    grace_ms = words.duration_ms(grace, "--grace") or 0
    if command is not None and not command.strip():  # would ack all, done or not
        raise typer.BadParameter("the command is empty", param_hint="--exec")
    if app:
        if command or topic:
            raise typer.BadParameter("give MODULE:APP, or --exec and --topic, not both")
        return _run_app(
            session, app, concurrency, name, words.duration_ms(lease, "--lease"), grace_ms, drain
        )
    source: Source = TaskSource(name, lease_ms)
    if topic:
        source = TopicSource(topic, group, name, lease_ms)
    plan = Plan(
        command=command or "",
        concurrency=concurrency,
        lease_ms=lease_ms,
        grace_ms=grace_ms,
        is_draining=drain,
    )
    crew = Crew(session, source, plan)

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        crew.stop()

    before = [signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        acts = "" if command else ", printed and acked (no MODULE:APP, no --exec)"
        session.note(f"{name}: {topic or 'tasks'}, {concurrency} at a time{acts}")
        return crew.run()
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)


def _run_app(
    session: "Session",
    place: str,
    concurrency: int,
    name: str,
    lease_ms: int | None,
    grace_ms: int,
    drain: bool,
) -> int:
    """Run the functions of an app. What its own module does wrong is told as such."""
    from raftline.tasks.worker import load_app, run_worker

    try:
        load_app(place)
    except RaftlineError:
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise InvalidArgument(
            f"{place} cannot be loaded: {error!r}", f"see {where.filename}, line {where.lineno}"
        ) from error
    session.note(f"{name}: {place}, {concurrency} at a time")
    worked = run_worker(
        place,
        servers=session.named_servers,
        concurrency=concurrency,
        name=name,
        lease=None if lease_ms is None else lease_ms / 1000,
        grace=grace_ms / 1000,
        drain=drain,
    )
    session.answer(
        {"worker": name, "done": worked.done, "failed": worked.failed},
        f"{worked.done} done, {worked.failed} failed",
    )
    return 0
