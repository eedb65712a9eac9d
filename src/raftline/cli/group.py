"""``raftline group``: list, show, reset, delete. Work groups and stream groups alike."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from raftline.cli import words
from raftline.cli.session import Session, table
from raftline.cli.times import show_time
from raftline.model.errors import UnknownGroup

commands = typer.Typer(
    help="Groups: list, show, reset, delete. Work groups lease messages, stream groups read on.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="name of the group")]
Topic = Annotated[str, typer.Option("--topic", "-t", help="only on this topic")]


@commands.command("list")
def list_groups(context: typer.Context, topic: Topic = "") -> None:
    """List groups of both kinds, and how far behind they are."""
    session: Session = context.obj
    reply = session.call("GET", "/v1/groups", query={"topic": topic})
    rows = table("group", "kind", "topics", ">members", ">lag", "state")
    for row in reply["groups"]:
        rows.add_row(
            row["group"],
            row["kind"],
            ", ".join(row["topics"]),
            _number(row.get("members")),
            _number(row.get("lag")),
            row.get("state", ""),
        )
    session.table(reply, rows, "there are no groups")


@commands.command()
def show(context: typer.Context, name: Name, topic: Topic = "") -> None:
    """Show one group: members, and each partition with its lag and leases."""
    session: Session = context.obj
    reply = session.call("GET", _path(name), query={"topic": topic})
    if session.json:
        session.answer(reply, "")
        return
    for topic_name, partitions in reply["work"].items():
        rows = table(
            ">partition", ">floor", ">next", ">lag", ">fresh", ">leased", ">resting", ">ready",
            ">dying", ">dead", title=f"{name}: work group on {topic_name}",
        )  # fmt: skip
        for row in partitions:
            fields = (
                "partition", "floor", "next_offset", "lag", "fresh", "leased", "resting", "ready",
                "dying", "dead",
            )  # fmt: skip
            rows.add_row(*(_number(row.get(field)) for field in fields))
        session.table(None, rows)
        _show_queries(session, f"{name} on {topic_name}", partitions)
    if reply["stream"] is not None:
        _show_stream(session, name, reply["stream"])


@commands.command()
def reset(
    context: typer.Context,
    name: Name,
    topic: Annotated[str, typer.Option("--topic", "-t", help="on this topic")],
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, an offset, or a time (RFC 3339, -1h)")
    ],
    partition: Annotated[list[int] | None, typer.Option(min=0, help="only these")] = None,
    kind: Annotated[str, typer.Option(help="work or stream, where there are both")] = "",
    create: Annotated[
        bool, typer.Option("--create", help="make the group if it is not there")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show where it would go")] = False,
) -> None:
    """Set where a group goes on: everything from there is delivered again.

    For example:

      raftline group reset billing --topic orders --to earliest --dry-run
      raftline group reset billing --topic orders --to -1h
      raftline group reset billing --topic orders --to 1700 --partition 2
    """
    session: Session = context.obj
    body: dict[str, Any] = {
        "topic": topic,
        **target(to),
        "dry_run": dry_run,
        "kind": kind or _kind(session, name, topic, create=create),
        "create": create,
    }
    if partition:
        body["partitions"] = partition
    reply = session.call("POST", f"{_path(name)}/reset", body)
    rows = table(
        ">partition", ">from", ">to", ">log_start", ">commit_end",
        title=f"{name} ({reply['kind']}) on {topic}" + (": would go" if dry_run else ": goes on"),
    )  # fmt: skip
    for row in reply["partitions"]:
        fields = ("partition", "from", "to", "log_start", "commit_end")
        rows.add_row(*(_number(row.get(field)) for field in fields))
    session.table(reply, rows)


@commands.command()
def delete(context: typer.Context, name: Name, topic: Topic = "") -> None:
    """Forget a group: its cursors and its work, on all topics or on one."""
    session: Session = context.obj
    reply = session.call("DELETE", _path(name), query={"topic": topic})
    session.answer(reply, f"deleted {name}" + (f" on {topic}" if topic else ""))


commands.command("describe", hidden=True)(show)
commands.command("reset-offsets", hidden=True)(reset)


def target(text: str) -> dict[str, Any]:
    """Return where a reset goes, as the API says it."""
    if text in ("earliest", "latest"):
        return {"to": text}
    if text.isdecimal():
        return {"offset": int(text)}
    return {"time": words.moment_ms(text, "--to")}


def _kind(session: Session, name: str, topic: str, *, create: bool) -> str:
    """Return the kind of a group that is only one of them."""
    try:
        shown = session.call("GET", _path(name))
    except UnknownGroup:
        if create:
            return "work"
        raise
    has_work, has_stream = topic in shown["work"], shown["stream"] is not None
    if has_work and has_stream:
        raise typer.BadParameter(f"{name} is both: add --kind work or --kind stream")
    if not has_work and not has_stream and not create:
        raise UnknownGroup(name)
    return "stream" if has_stream else "work"


def _show_queries(session: Session, where: str, partitions: list[dict[str, Any]]) -> None:
    """Show what queries hold, where there are some."""
    found = [(row["partition"], query) for row in partitions for query in row.get("queries", ())]
    if not found:
        return
    rows = table(
        ">partition", "query", ">n", ">held", ">rejected", ">lost", "state", "heard of",
        title=f"{where}: leased to queries",
    )  # fmt: skip
    for partition, query in found:
        rows.add_row(
            str(partition),
            query["query"],
            str(query["n"]),
            *(_number(query[field]) for field in ("held", "rejected", "lost")),
            "acked" if query["acked"] else "held",
            show_time(query["used_ms"]),
        )
    session.table(None, rows)


def _show_stream(session: Session, name: str, stream: dict[str, Any]) -> None:
    title = f"{name}: {stream['kind']} group, {stream['state']}, generation {stream['generation']}"
    rows = table("member", "topics", title=title)
    for member in stream["members"]:
        rows.add_row(member["member"], ", ".join(member.get("topics", ())))
    session.table(None, rows, f"{title}, no members")
    rows = table("topic", ">partition", ">cursor", ">end", ">lag", "owner", "committed")
    for row in stream["partitions"]:
        at_ms = row.get("at_ms") or 0
        rows.add_row(
            row["topic"],
            str(row["partition"]),
            _number(row["offset"]),
            _number(row["commit_end"]),
            _number(row["lag"]),
            row.get("owner") or "",
            show_time(at_ms) if at_ms > 0 else "",
        )
    session.table(None, rows, "no cursors")


def _number(value: Any) -> str:
    return "" if value is None or value == -1 else str(value)


def _path(name: str) -> str:
    return f"/v1/groups/{quote(name, safe='')}"
