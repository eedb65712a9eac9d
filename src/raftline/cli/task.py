"""``raftline task``: enqueue, get, list. Tasks are messages of the topic ``tasks``."""

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from raftline.cli import words
from raftline.cli.session import Session, coloured, console, short, table
from raftline.model.errors import InvalidArgument

commands = typer.Typer(help="Tasks for workers: enqueue, get, list.", no_args_is_help=True)
PAGE_MAX = 500


@commands.command()
def enqueue(
    context: typer.Context,
    kind: Annotated[str, typer.Option("--type", "-t", help="what is to be done")],
    payload: Annotated[str, typer.Option("--payload", "-p", help="JSON")] = "",
    file: Annotated[Path | None, typer.Option("--file", "-f", help="payload from a file")] = None,
    priority: Annotated[str, typer.Option(help="-128 to 127, higher first, or a name")] = "",
    max_retries: Annotated[
        int | None, typer.Option(min=0, help="deliveries after the first (3)")
    ] = None,
    idempotency_key: Annotated[
        str, typer.Option("--idempotency-key", "--key", "-k", help="the same key, the same task")
    ] = "",
    delay: Annotated[str, typer.Option("--delay", "-d", help="not before 30s, 5m, 2h …")] = "",
    run_at: Annotated[str, typer.Option(help="not before an RFC 3339 time, a date, +1h")] = "",
) -> None:
    """Enqueue a task and print its id.

    For example:

      raftline task enqueue -type email -payload '{"to":"user@example.com"}'
      raftline task enqueue --type report --priority high --idempotency-key r-7 --delay 5m
    """
    session: Session = context.obj
    words.only_one(payload=payload, file=file)
    words.only_one(delay=delay, run_at=run_at)
    body: dict[str, Any] = {"type": kind, "payload": _payload(payload, file)}
    given = {
        "priority": words.priority(priority),
        "max_retries": max_retries,
        "idempotency_key": idempotency_key or None,
        "delay": words.duration_ms(delay, "--delay"),
        "run_at": words.moment_ms(run_at, "--run-at"),
    }
    body |= {name: value for name, value in given.items() if value is not None}
    task = session.call("POST", "/tasks", body)
    session.answer(task, task["id"])


@commands.command()
def get(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TASK_ID", help="as enqueue printed it")],
) -> None:
    """Show a task: its state, attempts, worker, and what went wrong last."""
    session: Session = context.obj
    found = session.call("GET", f"/tasks/{quote(task, safe='')}")
    if session.json:
        session.answer(found, "")
        return
    out = console()
    for name, value in found.items():
        if name == "status":
            out.print("status:", coloured(value))
        elif value is not None:
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            out.print(f"{name}: {shown}", soft_wrap=True)


@commands.command("list")
def list_tasks(
    context: typer.Context,
    status: Annotated[str, typer.Option("--status", help="pending, leased, done, dead")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="at most so many")] = 100,
) -> None:
    """List tasks, oldest first."""
    session: Session = context.obj
    found: list[dict[str, Any]] = []
    after = None
    while len(found) < count:
        query = {"status": status, "limit": min(PAGE_MAX, count - len(found)), "after": after}
        page = session.call("GET", "/tasks", query=query)
        found += page["tasks"]
        after = page["next"]
        if after is None:
            break
    rows = table(
        "id", "type", "status", ">priority", ">attempts", "created", "worker", "last error"
    )
    for row in found:
        rows.add_row(
            row["id"],
            row["type"],
            coloured(row["status"]),
            str(row["priority"]),
            f"{row['attempts']}/{row['max_retries'] + 1}" if row["attempts"] else "",
            row["created_at"],
            short(row["worker_id"], 24),
            short(row["last_error"], 40),
        )
    session.table({"tasks": found}, rows, f"there are no {'such ' if status else ''}tasks")


@commands.command()
def stats(context: typer.Context) -> None:
    """Count tasks by state."""
    session: Session = context.obj
    reply = session.call("GET", "/stats")
    rows = table(*(f">{name}" for name in reply))
    rows.add_row(*(str(value) for value in reply.values()))
    session.table(reply, rows)


def _payload(text: str, file: Path | None) -> Any:
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{file} cannot be read: {error}") from None
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(
            f"it is no JSON: {error} (text goes in double quotes)", param_hint="--payload"
        ) from None
