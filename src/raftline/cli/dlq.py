"""``raftline dlq``: dead letters, what a work group gave up on."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from raftline.cli import words
from raftline.cli.session import Session, coloured, console, short, table
from raftline.cli.times import show_time
from raftline.gateways.message_ids import parse_message_id
from raftline.model.names import DEAD_LETTERS

commands = typer.Typer(help="Dead letters: list, show, redrive, purge.", no_args_is_help=True)
REASONS = ("REJECTED", "MAX_RETRIES", "EXPIRED")
STATES = ("dead", "redriven", "purged")
PAGE_MAX = 1000
WORK_MAX = 200  # letters of one call, so that progress is seen
SKIPPED_SHOWN = 10

Topic = Annotated[str, typer.Argument(help="the topic they come from")]
Group = Annotated[str, typer.Option("--group", "-g", help="given up on by this group")]
Reason = Annotated[str, typer.Option(help="REJECTED, MAX_RETRIES or EXPIRED")]
Key = Annotated[str | None, typer.Option("--key", "-k", help="with this key")]
FromTime = Annotated[str, typer.Option(help="given up on since: RFC 3339, a date, or -1h")]
ToTime = Annotated[str, typer.Option(help="given up on before")]
Letters = Annotated[
    list[str] | None, typer.Argument(metavar="[LETTER_ID]…", help="ids or offsets of letters")
]
Everything = Annotated[bool, typer.Option("--all", help="every letter of the topic")]
Rate = Annotated[int, typer.Option(min=0, help="letters a second; 0: at once")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only say which")]


@commands.command("list")
def list_letters(
    context: typer.Context,
    topic: Topic,
    group: Group = "",
    reason: Reason = "",
    key: Key = None,
    from_time: FromTime = "",
    to_time: ToTime = "",
    state: Annotated[str, typer.Option(help="dead, redriven or purged")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="at most so many")] = 100,
) -> None:
    """List dead letters, oldest first.

    For example: raftline dlq list orders --reason REJECTED --from-time -1d
    """
    session: Session = context.obj
    query = {
        **_filter(group, reason, key, from_time, to_time),
        "state": words.one_of(state, "--state", STATES),
    }
    found: list[dict[str, Any]] = []
    after = None
    while len(found) < count:
        page = {**query, "limit": min(PAGE_MAX, count - len(found)), "after": after}
        reply = session.call("GET", _path(topic), query=page)
        found += reply["letters"]
        after = reply["next"]
        if after is None:
            break
    rows = table(
        "id", "state", "origin", "group", "reason", ">attempts", "given up", "key", "error"
    )
    for row in found:
        rows.add_row(
            row["id"],
            coloured(row["state"]),
            row["origin"]["id"],
            row["group"],
            row["reason"],
            str(row["attempts"]),
            show_time(row["dead_ms"]),
            short(row.get("key"), 20),
            short(row.get("error"), 40),
        )
    such = "such " if any(value not in (None, "") for value in query.values()) else ""
    session.table({"letters": found}, rows, f"{topic} has no {such}dead letters")


@commands.command()
def show(
    context: typer.Context,
    letter: Annotated[str, typer.Argument(metavar="LETTER_ID", help="orders.dlq.0.7")],
) -> None:
    """Show one dead letter: its story, and the message as it was sent."""
    session: Session = context.obj
    topic, _, _ = parse_message_id(letter)
    source = topic.removesuffix(DEAD_LETTERS)
    reply = session.call("GET", f"{_path(source)}/{quote(letter, safe='')}")
    if session.json:
        session.answer(reply, "")
        return
    out = console()
    for name, value in reply.items():
        if name.endswith("_ms") or name == "timestamp":
            out.print(f"{name.removesuffix('_ms')}: {show_time(value)}")
        elif name == "origin":
            out.print(f"origin: {value['topic']}/{value['partition']}@{value['offset']}")
        elif value not in (None, "", {}):
            out.print(f"{name}: {value}", soft_wrap=True)


@commands.command()
def redrive(
    context: typer.Context,
    topic: Topic,
    letters: Letters = None,
    everything: Everything = False,
    group: Group = "",
    reason: Reason = "",
    key: Key = None,
    from_time: FromTime = "",
    to_time: ToTime = "",
    rate: Rate = 0,
    dry_run: DryRun = False,
) -> None:
    """Deliver dead letters again, in the group that gave up on them.

    For example:

      raftline dlq redrive orders --all --rate 50
      raftline dlq redrive orders orders.dlq.0.7
      raftline dlq redrive orders --group billing --reason EXPIRED --dry-run
    """
    chosen = _chosen(letters, everything, _filter(group, reason, key, from_time, to_time))
    _work(context.obj, topic, "redrive", "redriven", {**chosen, "rate_per_s": rate}, dry=dry_run)


@commands.command()
def purge(
    context: typer.Context,
    topic: Topic,
    letters: Letters = None,
    everything: Everything = False,
    group: Group = "",
    reason: Reason = "",
    key: Key = None,
    from_time: FromTime = "",
    to_time: ToTime = "",
    rate: Rate = 0,
    dry_run: DryRun = False,
) -> None:
    """Be done with dead letters for good.

    For example: raftline dlq purge orders --reason REJECTED --to-time -7d
    """
    chosen = _chosen(letters, everything, _filter(group, reason, key, from_time, to_time))
    _work(context.obj, topic, "purge", "purged", {**chosen, "rate_per_s": rate}, dry=dry_run)


def _work(
    session: Session, topic: str, verb: str, done: str, body: dict[str, Any], *, dry: bool
) -> None:
    """Go through the letters page by page; people see how far it is."""
    total = _count(session, topic, verb, body) if session.progress("").disable is False else 0
    sums = {"matched": 0, done: 0}
    skipped: list[dict[str, Any]] = []
    after = None
    with session.progress("letters") as bar:
        line = bar.add_task(verb, total=total or None)
        while True:
            page = {**body, "dry_run": dry, "limit": WORK_MAX}
            if after is not None:
                page["after"] = after
            reply = session.call("POST", f"{_path(topic)}/{verb}", page)
            for name in sums:
                sums[name] += reply[name]
            skipped += reply["skipped"]
            bar.update(line, completed=sums["matched"])
            after = reply["next"]
            if after is None:
                break
    word = f"would be {done}" if dry else done
    count = sums["matched"] - len(skipped) if dry else sums[done]
    session.answer({**sums, "skipped": skipped, "dry_run": dry}, f"{count} {word}")
    if len(body.get("ids", ())) > sums["matched"]:
        missing = len(body["ids"]) - sums["matched"]
        session.note(f"{missing} of the ids are no dead letters of {topic}")
    for row in skipped[:SKIPPED_SHOWN]:
        session.note(f"skipped {row['id']}: {row['why']}")
    if len(skipped) > SKIPPED_SHOWN:
        session.note(f"… and {len(skipped) - SKIPPED_SHOWN} more; --json lists them all")


def _count(session: Session, topic: str, verb: str, body: dict[str, Any]) -> int:
    total, after = 0, None
    while True:
        page = {**body, "dry_run": True, "limit": PAGE_MAX}
        if after is not None:
            page["after"] = after
        reply = session.call("POST", f"{_path(topic)}/{verb}", page)
        total += reply["matched"]
        after = reply["next"]
        if after is None:
            return total


def _filter(group: str, reason: str, key: str | None, since: str, to: str) -> dict[str, Any]:
    given = {
        "group": group or None,
        "reason": words.one_of(reason.upper(), "--reason", REASONS) or None,
        "key": key,
        "from": words.moment_ms(since, "--from-time"),
        "to": words.moment_ms(to, "--to-time"),
    }
    return {name: value for name, value in given.items() if value is not None}


def _chosen(letters: list[str] | None, everything: bool, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return which letters are meant: nothing is done to all of them by accident."""
    if sum([bool(letters), everything, bool(chosen)]) != 1:
        raise typer.BadParameter("say which: ids, filters (--group, --reason …), or --all")
    if letters:
        return {"ids": letters}
    return {"all": True} if everything else {"filter": chosen}


def _path(topic: str) -> str:
    source = topic.removesuffix(DEAD_LETTERS)
    return f"/v1/topics/{quote(source, safe='')}/dlq"
