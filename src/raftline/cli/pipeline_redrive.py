"""``raftline pipeline redrive``: dead letters chosen in SQL; a dry run shows what would change."""

import contextlib
import difflib
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftline.cli.pipeline_options import Conf, Master, Servers, finish, need_spark, pipeline_job
from raftline.cli.session import Session, console, short

if TYPE_CHECKING:
    from rich.console import Console

    from raftline.pipeline.redrive_letters import Content, Letter

LINE_CHARS_MAX = 200
COLOURS = {"+": "green", "-": "red"}


def redrive(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="the topic they come from")],
    where: Annotated[
        str, typer.Option(help="a predicate of SQL over dead letters: \"reason = 'REJECTED'\"")
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="every dead letter")] = False,
    value: Annotated[str, typer.Option(help="an expression of SQL: the new value")] = "",
    key: Annotated[str, typer.Option(help="an expression of SQL: the new key")] = "",
    headers: Annotated[str, typer.Option(help="an expression of SQL: a map of new headers")] = "",
    rate: Annotated[int, typer.Option(min=0, help="letters a second; 0: at once")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="at most; 0: all")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show what would change")] = False,
    shown: Annotated[int, typer.Option(min=0, help="letters that a dry run shows")] = 20,
    servers: Servers = "",
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Deliver dead letters again, chosen in SQL and changed if wanted; each origin once.

    Columns: key, value, headers['name'], reason, group, attempts, error, member, origin, dead …
    (raftline pipeline sql "describe orders.dlq"). A letter that is not changed is delivered again
    where it was, in its group; a changed one is a new message of the topic.

    For example:

      raftline pipeline redrive orders --where "reason = 'MAX_RETRIES'" --rate 50
      raftline pipeline redrive orders --where "json(value, 'currency') = 'USD'" --dry-run
      raftline pipeline redrive orders --all --value "replace(value, 'USD', 'EUR')" --dry-run
    """
    session: Session = context.obj
    if bool(where.strip()) == everything:
        raise typer.BadParameter("say which: --where PREDICATE, or --all")
    with pipeline_job(context, "redrive", servers, master, conf) as job:
        need_spark()
        from raftline.pipeline import redrive as module

        summary = module.run(
            job,
            topic=topic,
            where=where,
            transform={"key": key, "value": value, "headers": headers},
            rate_per_s=rate,
            limit=limit,
            dry_run=dry_run,
            shown=shown,
        )
        letters: list[Letter] = summary.pop("letters", [])
        if session.json and dry_run:
            summary["letters"] = [_told(letter) for letter in letters]
        elif letters:
            _show(console(), letters, summary["matched"])
        finish(context, job, summary)


def _show(out: "Console", letters: "list[Letter]", matched: int) -> None:
    for letter in letters:
        head = f"{letter.origin}  {letter.group}  {letter.reason}  letter {letter.offset}"
        out.print(head + ("" if letter.is_changed else "  as it was"), style="bold")
        for line in changes(letter.before, letter.after):
            out.print("  " + short(line, LINE_CHARS_MAX), style=COLOURS.get(line[:1], ""))
    if matched > len(letters):
        out.print(f"… and {matched - len(letters):,} more")
    out.print("")


def changes(before: "Content", after: "Content") -> list[str]:
    """Return the lines by which two messages differ, with a line of context."""
    first, second = _lines(before), _lines(after)
    found = difflib.unified_diff(first, second, lineterm="", n=1)
    return [line for line in found if not line.startswith(("---", "+++", "@@"))]


def _lines(content: "Content") -> list[str]:
    lines = [f"key: {_text(content.key)}"]
    lines += [f"header {name}: {_text(value)}" for name, value in content.headers]
    text = _text(content.value)
    with contextlib.suppress(ValueError):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return [*lines, *(f"value: {text}".splitlines())]


def _text(value: bytes | None) -> str:
    return "(none)" if value is None else value.decode("utf-8", "backslashreplace")


def _told(letter: "Letter") -> dict[str, Any]:
    def content(one: "Content") -> dict[str, Any]:
        headers = {name: _text(value) for name, value in one.headers}
        key, value = (None if v is None else _text(v) for v in (one.key, one.value))
        return {"key": key, "value": value, "headers": headers}

    told: dict[str, Any] = {
        "letter": letter.offset,
        "origin": letter.origin,
        "group": letter.group,
        "reason": letter.reason,
        "before": content(letter.before),
    }
    return {**told, "after": content(letter.after)} if letter.is_changed else told
