"""``raftline scheduled``: messages that wait for their time."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from raftline.cli import words
from raftline.cli.session import Session, coloured, console, table
from raftline.cli.times import show_span
from raftline.gateways.message_ids import parse_any_id

commands = typer.Typer(
    help="Messages that wait for their time: list, show, cancel, move.", no_args_is_help=True
)
PAGE_MAX = 1000
Waiting = Annotated[
    str, typer.Argument(metavar="MESSAGE_ID", help="as the send returned it: orders.2.w17")
]


@commands.command("list")
def list_scheduled(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="name of the topic")],
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="only this one")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="at most so many")] = 100,
) -> None:
    """List waiting messages in the order in which they are due."""
    session: Session = context.obj
    found: list[dict[str, Any]] = []
    total, after = 0, None
    while len(found) < count:
        query = {"partition": partition, "limit": min(PAGE_MAX, count - len(found)), "after": after}
        page = session.call("GET", f"{_topic(topic)}/delayed", query=query)
        found += page["messages"]
        total, after = max(total, page["count"]), page["next"]
        if after is None:
            break
    rows = table("id", "due", ">in", ">priority", title=f"{total} wait in {topic}")
    for row in found:
        rows.add_row(
            row["id"],
            row["deliverAt"],
            show_span(row["in_ms"]),
            str(row["priority"]),
        )
    session.table({"messages": found, "count": total}, rows, f"nothing waits in {topic}")


@commands.command()
def show(context: typer.Context, message: Waiting) -> None:
    """Show a message: what it holds while it waits, where it is after that."""
    session: Session = context.obj
    reply = session.call("GET", _path(message))
    if session.json:
        session.answer(reply, "")
        return
    out = console()
    for name, value in reply.items():
        if name == "state":
            out.print("state:", coloured(value))
        elif value not in (None, {}):
            out.print(f"{name}: {value}", soft_wrap=True)


@commands.command()
def cancel(
    context: typer.Context,
    messages: Annotated[list[str], typer.Argument(metavar="MESSAGE_ID…")],
) -> None:
    """Cancel waiting messages: once this is done they are never delivered."""
    session: Session = context.obj
    for message in messages:
        reply = session.call("DELETE", _path(message))
        session.answer(reply, f"cancelled {message}")


@commands.command()
def move(
    context: typer.Context,
    message: Waiting,
    delay: Annotated[str, typer.Option("--delay", "-d", help="due in 30s, 5m, 2h …")] = "",
    deliver_at: Annotated[str, typer.Option(help="due at an RFC 3339 time, a date, +1h")] = "",
) -> None:
    """Let a waiting message be due at another time.

    For example: raftline scheduled move orders.2.w17 --delay 10m
    """
    session: Session = context.obj
    words.only_one(delay=delay, deliver_at=deliver_at)
    delay_ms = words.duration_ms(delay, "--delay")
    due_ms = words.moment_ms(deliver_at, "--deliver-at")
    if delay_ms is None and due_ms is None:
        raise typer.BadParameter("say when: --delay 5m or --deliver-at TIME")
    body = {"delay": delay_ms} if due_ms is None else {"deliverAt": due_ms}
    reply = session.call("POST", f"{_path(message)}/move", body)
    session.answer(reply, f"{message} is due {reply['deliverAt']}")


def _path(message: str) -> str:
    topic, *_ = parse_any_id(message)
    return f"{_topic(topic)}/delayed/{quote(message, safe='')}"


def _topic(name: str) -> str:
    return f"/v1/topics/{quote(name, safe='')}"
