"""``raftline topic``: create, list, show, set, delete; what can be set."""

from typing import Annotated, Any

import msgspec
import typer

from raftline.cli.session import Session, table
from raftline.cli.times import show_time
from raftline.config.quantities import (
    has_unit,
    parse_bytes,
    parse_duration_ms,
    parse_span_ms,
    show_bytes,
    show_duration,
)
from raftline.model.settings import SETTINGS

commands = typer.Typer(help="Topics: create, list, show, set, delete.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="name of the topic")]
Retention = Annotated[str, typer.Option(help="age (7d) or size (10GB) from which messages go")]
Pairs = Annotated[list[str] | None, typer.Option("--set", help="key=value, repeatable")]


@commands.command()
def create(
    context: typer.Context,
    name: Name,
    partitions: Annotated[int, typer.Option(min=0, help="0: the cluster's default")] = 0,
    replication_factor: Annotated[int, typer.Option(min=0, help="0: min(3, nodes)")] = 0,
    retention: Retention = "",
    pairs: Pairs = None,
) -> None:
    """Create a topic.

    For example:

      raftline topic create orders --partitions 6 --retention 7d
      raftline topic create jobs --set lease_ms=2m --set max_retries=5   (raftline topic settings)
    """
    session: Session = context.obj
    reply = session.client.create_topic(
        name,
        partitions=partitions,
        replication_factor=replication_factor,
        settings=read_settings(pairs or [], retention),
    )
    session.answer(reply, f"created {name}")


@commands.command("list")
def list_topics(context: typer.Context) -> None:
    """List all topics."""
    session: Session = context.obj
    topics = session.client.topics()
    rows = table("topic", ">partitions", ">replicas", "retention", "created")
    for topic in topics:
        rows.add_row(
            topic["name"],
            str(topic["num_partitions"]),
            str(topic["replication_factor"]),
            _retention(topic["settings"]),
            show_time(topic["created_ms"]),
        )
    session.table({"topics": topics}, rows)


@commands.command()
def show(context: typer.Context, name: Name) -> None:
    """Show one topic: settings, and where its partitions are."""
    session: Session = context.obj
    topic = session.client.topic(name)
    rows = table(
        ">partition", ">leader", "replicas", ">log_start", ">commit_end", ">archived", ">bytes",
        "state",
    )  # fmt: skip
    for row in topic["partitions"]:
        rows.add_row(
            str(row["partition"]),
            str(row["leader"] or "none"),
            ",".join(str(node) for node in row["replicas"]),
            *(_known(row.get(field, -1)) for field in ("log_start", "commit_end", "archived")),
            show_bytes(row["bytes"]) if row["bytes"] >= 0 else "?",
            row["state"],
        )
    if not session.json:
        settings = sorted(topic["settings"].items())
        given = ", ".join(f"{key}={_shown(value)}" for key, value in settings)
        session.answer(None, f"{name}: {given}")
    session.table(topic, rows)


@commands.command("set")
def set_settings(
    context: typer.Context,
    name: Name,
    settings: Annotated[list[str] | None, typer.Argument(help="key=value …")] = None,
    retention: Retention = "",
    pairs: Pairs = None,
    partitions: Annotated[
        int | None, typer.Option(help="partitions in all: there can only be more of them", min=1)
    ] = None,
) -> None:
    """Change settings of a topic, or give it more partitions.

    For example: raftline topic set orders --retention 10GB lease_ms=45s

    More partitions mean that new messages of a key may go to another partition than earlier ones.
    """
    session: Session = context.obj
    wanted = read_settings([*(settings or []), *(pairs or [])], retention)
    if not wanted and partitions is None:
        raise typer.BadParameter("nothing to set; write key=value or --retention 7d")
    reply = session.client.set_topic(name, wanted, partitions)
    changed = sorted(wanted) + ([f"{partitions} partitions"] if partitions is not None else [])
    session.answer(reply, f"changed {name}: {', '.join(changed)}")


@commands.command()
def delete(context: typer.Context, name: Name) -> None:
    """Delete a topic with all its messages."""
    session: Session = context.obj
    reply = session.client.delete_topic(name)
    session.answer(reply, f"deleted {name}")


@commands.command("settings")
def list_settings(context: typer.Context) -> None:
    """List what can be set on a topic (--set key=value)."""
    session: Session = context.obj
    known = {name: msgspec.to_builtins(setting) for name, setting in SETTINGS.items()}
    rows = table("setting", ">default", "what")
    for name, setting in SETTINGS.items():
        default = setting.default
        if name.endswith("_ms") or "_ms_" in name:
            default = show_duration(int(default))
        elif "bytes" in name:
            default = show_bytes(int(default))
        rows.add_row(name, _shown(default), setting.help)
    session.table(known, rows)


commands.command("describe", hidden=True)(show)


def read_settings(pairs: list[str], retention: str) -> dict[str, Any]:
    """Turn ``key=value`` words and ``--retention`` into settings of a topic."""
    wanted: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r}: write key=value")
        wanted[key] = read_value(key, text)
    if retention:
        name, value = _read_retention(retention)
        wanted[name] = value
    return wanted


def read_value(key: str, text: str) -> str | int | bool:
    """Read a value by the unit in its key: ``retention_ms=7d``, ``segment_bytes=64MiB``."""
    try:
        if key.endswith("_ms") or "_ms_" in key:
            return parse_duration_ms(text)
        if "bytes" in key:
            return parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(f"{key}: {error}") from error
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.removeprefix("-").isdecimal() else text


def _read_retention(text: str) -> tuple[str, int]:
    """Return the setting that ``7d`` or ``10GB`` is meant for. A bare number could be either."""
    try:
        return "retention_ms", parse_span_ms(text)
    except ValueError:
        pass
    try:
        if has_unit(text):
            return "retention_bytes", parse_bytes(text)
    except ValueError:
        pass
    message = f"{text!r} is neither an age (7d, 12h) nor a size (10GB)"
    raise typer.BadParameter(message, param_hint="--retention")


def _retention(settings: dict[str, Any]) -> str:
    parts: list[str] = []
    if "retention_ms" in settings:
        parts.append(show_duration(int(settings["retention_ms"])))
    if "retention_bytes" in settings:
        parts.append(show_bytes(int(settings["retention_bytes"])))
    return " or ".join(parts)


def _shown(value: Any) -> str:
    """Return a value as it is set: ``true``, not ``True``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _known(number: int) -> str:
    return str(number) if number >= 0 else "?"
