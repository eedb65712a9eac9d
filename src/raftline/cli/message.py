"""``raftline message``: get one, peek at some, search for some. Nothing is settled."""

from collections.abc import Iterator
from typing import Annotated, Any, cast
from urllib.parse import quote

import typer

from raftline.cli import words
from raftline.cli.session import Session, console, short, table
from raftline.cli.times import show_time
from raftline.gateways.message_ids import parse_any_id
from raftline.model.errors import UnknownMessage

commands = typer.Typer(help="Messages: get, peek, search.", no_args_is_help=True)
COUNT = 10
PAGE_MAX = 1000


@commands.command()
def get(
    context: typer.Context,
    message: Annotated[
        str, typer.Argument(metavar="MESSAGE_ID", help="an id, or topic/partition@offset")
    ],
) -> None:
    """Show one message with everything it carries.

    For example: raftline message get orders.2.45678
    """
    session: Session = context.obj
    found = find_message(session, message)
    if session.json:
        session.answer(found, "")
        return
    out = console()
    value = found.pop("value", None)
    for name, content in found.items():
        if content not in (None, {}, ""):
            out.print(f"{name}: {_shown(name, content)}", soft_wrap=True)
    out.print(f"\n{value}" if value is not None else "", soft_wrap=True)


@commands.command()
def peek(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="name of the topic")],
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="only this one")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="from this offset; without: the latest")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=PAGE_MAX, help="of each partition")
    ] = COUNT,
) -> None:
    """Show messages of the log without touching them.

    For example: raftline message peek orders --offset 0 -n 5
    """
    session: Session = context.obj
    places = session.call("GET", _topic(topic))["partitions"]
    numbers = [row["partition"] for row in places] if partition is None else [partition]
    found: list[dict[str, Any]] = []
    for number in numbers:
        path = f"{_topic(topic)}/partitions/{number}"
        start = offset
        if start is None or partition is None:  # of several logs some begin later, or end before
            bounds = session.call("GET", f"{path}/offsets")
            first, end = bounds["log_start"], bounds["commit_end"]
            start = max(first, end - count) if start is None else min(max(start, first), end)
        page = session.call("GET", f"{path}/messages", query={"offset": start, "limit": count})
        found += [{"topic": topic, "partition": number, **row} for row in page["messages"]]
    rows = table("id", "time", "key", ">priority", "value")
    for row in found:
        rows.add_row(
            row["id"],
            show_time(row["timestamp"]),
            short(_bytes(row, "key"), 30),
            str(row.get("priority", 0)),
            short(_bytes(row, "value")),
        )
    session.table({"messages": found}, rows, f"{topic} has no such messages")


@commands.command()
def search(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="name of the topic")],
    key: Annotated[str | None, typer.Option("--key", "-k", help="with this key")] = None,
    from_time: Annotated[str, typer.Option(help="RFC 3339, a date, or -1h")] = "",
    to_time: Annotated[str, typer.Option(help="up to, and not including, this time")] = "",
    member: Annotated[str, typer.Option(help="delivered to this worker")] = "",
    group: Annotated[str, typer.Option("--group", "-g", help="what it is to this group")] = "",
    state: Annotated[
        str, typer.Option(help="fresh, leased, resting, ready, settled, dying, dead")
    ] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="at most so many")] = 100,
) -> None:
    """Find messages by key, time, worker, group and state.

    For example: raftline message search orders --group billing --state leased --from-time -1h
    """
    session: Session = context.obj
    query = {
        "topic": topic,
        "key": key,
        "from": words.moment_ms(from_time, "--from-time"),
        "to": words.moment_ms(to_time, "--to-time"),
        "member": member,
        "group": group,
        "state": state,
    }
    found: list[dict[str, Any]] = []
    for row in _search(session, query):
        found.append(row)
        if len(found) == count:
            break
    rows = table("id", "time", "key", "groups")
    for row in found:
        groups = ", ".join(f"{name}: {state}" for name, state in row["groups"].items())
        rows.add_row(row["id"], show_time(row["timestamp"]), short(row["key"], 30), short(groups))
    session.table({"messages": found}, rows, "nothing found")


def find_message(session: Session, name: str) -> dict[str, Any]:
    """Return a message by its id, whether it waits or is in the log. Raises UnknownMessage."""
    topic, partition, offset, number = parse_any_id(name)
    if offset < 0:
        waiting = session.call("GET", f"{_topic(topic)}/delayed/{quote(name, safe='')}")
        if "offset" not in waiting:
            return {"topic": topic, **waiting}
        offset = waiting["offset"]
    path = f"{_topic(topic)}/partitions/{partition}/messages"
    page = session.call("GET", path, query={"offset": offset, "limit": 1})
    row = next((row for row in page["messages"] if row["offset"] == offset), None)
    if row is None:
        raise UnknownMessage(name, "it is not written yet, or retention took it")
    del number
    return {"topic": topic, "partition": partition, **row}


def _search(session: Session, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    after = None
    while True:
        page = {**query, "limit": PAGE_MAX, "after": after}
        reply = session.call("GET", "/v1/traces/search", query=page)
        yield from reply["messages"]
        after = reply["next"]
        if not reply.get("complete", True):
            session.note("deliveries that are no longer traced were not searched")
        if after is None:
            return


def _shown(name: str, content: Any) -> str:
    if name == "timestamp":
        return show_time(content)
    if isinstance(content, dict):
        pairs = cast("dict[str, Any]", content).items()
        return ", ".join(f"{key}={value}" for key, value in pairs)
    return str(content)


def _bytes(row: dict[str, Any], name: str) -> Any:
    coded = row.get(f"{name}_base64")
    return f"base64:{coded}" if coded is not None else row.get(name)


def _topic(name: str) -> str:
    return f"/v1/topics/{quote(name, safe='')}"
