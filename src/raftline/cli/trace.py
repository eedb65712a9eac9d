"""``raftline trace``: what happened to one message, in the order it happened."""

from typing import Annotated, Any, cast
from urllib.parse import quote

import typer

from raftline.cli.session import Session, console
from raftline.cli.times import show_time
from raftline.config.quantities import show_duration

COLOURS = {
    "ACKNOWLEDGED": "green", "REDELIVERED": "yellow", "NACKED": "yellow", "REJECTED": "red",
    "DEAD_LETTERED": "red", "DELIVERED": "cyan", "RETAINED": "dim", "CANCELLED": "red",
}  # fmt: skip
WORD_WIDTH = 13
_ENDS = {"ACKNOWLEDGED": "final ack", "DEAD_LETTERED": "dead letter"}
_HIDDEN = ("event", "at_ms")
_NAMES = {"member": "consumer", "due_ms": "due", "until_ms": "expires"}


def trace(
    context: typer.Context,
    message: Annotated[
        str, typer.Argument(metavar="MESSAGE_ID", help="an id, or topic/partition@offset")
    ],
) -> None:
    """Show the timeline of a message: published, replicated, delivered, acknowledged.

    For example:

      raftline trace orders.2.45678
      raftline trace orders/2@45678
    """
    session: Session = context.obj
    reply = session.call("GET", f"/v1/messages/{quote(message, safe='')}/trace")
    if session.json:
        session.answer(reply, "")
        return
    _draw(reply)


def detail(line: dict[str, Any]) -> str:
    """Return what a line of the timeline says besides its word: ``name=value …``."""
    return "  ".join(
        f"{_NAMES.get(name, name)}={_shown(name, value)}"
        for name, value in line.items()
        if name not in _HIDDEN and value not in (None, "")
    )


def _draw(reply: dict[str, Any]) -> None:
    from rich.text import Text

    out = console()
    for name in ("id", "topic", "partition", "offset"):
        label = "Message" if name == "id" else name.capitalize()
        value = "none: it waits" if name == "offset" and reply[name] < 0 else reply[name]
        out.print(f"{label}: {value}")
    for group, state in reply["groups"].items():
        out.print(f"Group {group}: {state}")
    out.print("\nTimeline:")
    lines = reply["timeline"]
    for line in lines:
        text = Text()
        text.append("└─ " if line is lines[-1] else "├─ ", style="dim")
        text.append(f"{show_time(line['at_ms'])}  ")
        text.append(f"{line['event']:<{WORD_WIDTH}} ", style=COLOURS.get(line["event"], ""))
        text.append(detail(line))
        out.print(text, soft_wrap=True)
    if not reply["traced"]:
        out.print("(its deliveries are not traced: topic setting trace_percent)")
    if not reply["complete"]:
        out.print("(older events are not shown)")
    out.print()
    _sum_up(reply)


def _sum_up(reply: dict[str, Any]) -> None:
    out = console()
    attempts, latencies = reply["attempts"], reply["latencies_ms"]
    for group, count in attempts.items():
        of = f" ({group})" if len(attempts) > 1 else ""
        out.print(f"Delivery Attempts{of}: {count}")
        end_ms = latencies.get(group, {}).get("to_end")
        if end_ms is not None:
            ends = [_ENDS[e] for e in _events(reply, group) if e in _ENDS]
            end = ends[-1] if ends else "end"
            out.print(f"Total Latency{of}: {end_ms / 1000:.3f}s (publish to {end})")
    if not attempts:
        out.print("Delivery Attempts: 0")


def _events(reply: dict[str, Any], group: str) -> list[str]:
    return [line["event"] for line in reply["timeline"] if line.get("group") == group]


def _shown(name: str, value: Any) -> str:
    if name in ("due_ms", "until_ms"):
        return show_time(value)
    if name.endswith("_ms"):
        return show_duration(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(str, cast("list[Any]", value))) + "]"
    text = str(value)
    return f'"{text}"' if " " in text else text
