"""What every command shares: the cluster it talks to, and whether people or programs read it."""

import json
import sys
from typing import TYPE_CHECKING, Any

from raftline.client.client import Client

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 160  # columns of a table that goes to a file


class Session:
    """The client and the output of one command."""

    __slots__ = ("_client", "json", "servers", "timeout_ms")

    def __init__(self, servers: str, *, timeout_ms: int, as_json: bool) -> None:
        self.servers = servers
        self.timeout_ms = timeout_ms
        self.json = as_json
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The connection to the cluster, made on first use."""
        if self._client is None:
            self._client = Client(self.servers, timeout_ms=self.timeout_ms)
        return self._client

    def close(self) -> None:
        """Hang up."""
        if self._client is not None:
            self._client.close()

    def answer(self, reply: Any, text: str) -> None:
        """Print the reply for programs or one sentence for people."""
        sys.stdout.write((json.dumps(reply, ensure_ascii=False) if self.json else text) + "\n")

    def table(self, reply: Any, table: "Table") -> None:
        """Print the reply for programs or a table for people."""
        if self.json:
            self.answer(reply, "")
        else:
            console().print(table)


def console() -> "Console":
    """Return the terminal; a file gets wide plain lines."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def table(*columns: str, title: str | None = None) -> "Table":
    """Return an empty table; a column that starts with ``>`` is right-aligned."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        made.add_column(column.lstrip(">"), justify="right" if right else "left", no_wrap=True)
    return made
