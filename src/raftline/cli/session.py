"""What every command shares: the cluster it talks to, and whether people or programs read it."""

import json
import sys
from typing import TYPE_CHECKING, Any

from raftline.client.caller import DEFAULT_SERVER, Caller, Reply
from raftline.client.client import Client

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table
    from rich.text import Text

PIPE_WIDTH = 160  # columns of a table that goes to a file
STATE_COLOURS = {
    "live": "green", "ok": "green", "settled": "green", "done": "green", "redriven": "green",
    "leased": "cyan", "resting": "yellow", "ready": "yellow", "waiting": "yellow",
    "pending": "yellow", "silent": "red", "dying": "red", "dead": "red", "leaving": "yellow",
}  # fmt: skip


class Session:
    """The client and the output of one command."""

    __slots__ = ("_caller", "_client", "json", "named_servers", "servers", "timeout_ms")

    def __init__(self, servers: str, *, timeout_ms: int, as_json: bool) -> None:
        self.servers = servers or DEFAULT_SERVER
        self.named_servers = servers  # empty: nobody named any
        self.timeout_ms = timeout_ms
        self.json = as_json
        self._client: Client | None = None
        self._caller: Caller | None = None

    @property
    def client(self) -> Client:
        """The connection to the cluster, made on first use."""
        if self._client is None:
            self._client = Client(self.servers, timeout_ms=self.timeout_ms)
        return self._client

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: dict[str, Any] | None = None,
        wait_ms: int = 0,
    ) -> Reply:
        """Make one call of the HTTP API. Raises RaftlineError."""
        if self._caller is None:
            self._caller = self.new_caller()
        given = {key: value for key, value in (query or {}).items() if value not in (None, "")}
        return self._caller.call(method, path, body, query=given, wait_ms=wait_ms)

    def new_caller(self) -> Caller:
        """Return a connection of its own, for a thread or a long wait."""
        return Caller(self.servers, timeout_ms=self.timeout_ms)

    def close(self) -> None:
        """Hang up."""
        for connection in (self._client, self._caller):
            if connection is not None:
                connection.close()

    def answer(self, reply: Any, text: str) -> None:
        """Print the reply for programs or one sentence for people."""
        sys.stdout.write((json.dumps(reply, ensure_ascii=False) if self.json else text) + "\n")

    def table(self, reply: Any, table: "Table", empty: str = "") -> None:
        """Print the reply for programs or a table for people; ``empty`` if it has no rows."""
        if self.json or (empty and not table.row_count):
            self.answer(reply, empty)
        else:
            console().print(table)

    def note(self, text: str) -> None:
        """Tell people something beside the answer."""
        if not self.json:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def progress(self, unit: str) -> "Progress":
        """Return a progress bar on standard error; it shows nothing where nobody looks."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        is_shown = sys.stderr.isatty() and not self.json
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            Remaining(),
            console=Console(stderr=True),
            disable=not is_shown,
            transient=True,
        )


def console() -> "Console":
    """Return the terminal; a file gets wide plain lines."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width)


def table(*columns: str, title: str | None = None) -> "Table":
    """Return an empty table; a column that starts with ``>`` is right-aligned.

    On a narrow terminal the first column and numbers stay whole, the others wrap.
    """
    from rich import box
    from rich.table import Table

    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for number, column in enumerate(columns):
        right = column.startswith(">")
        made.add_column(
            column.lstrip(">"),
            justify="right" if right else "left",
            no_wrap=right or number == 0,
            overflow="fold",
        )
    return made


def coloured(state: str) -> "Text":
    """Return a state in its colour."""
    from rich.text import Text

    return Text(state, style=STATE_COLOURS.get(state, ""))


def short(text: object, length: int = 60) -> str:
    """Return a value in one line of a table."""
    shown = "" if text is None else str(text)
    shown = "".join(letter if letter.isprintable() else "·" for letter in shown)
    return shown if len(shown) <= length else shown[: length - 1] + "…"
