"""Log events: a name and fields, one line each on standard error.

An event is ``noun.past_verb`` (``leader.elected``); what varies is in the fields, never in the
name. Levels: ``error`` a person must act; ``warning`` degraded and mending itself; ``info`` the
state changed; ``debug`` per request. Nothing is logged per message.
"""

import sys
import time
from collections.abc import Callable
from typing import Protocol, TextIO

import msgspec

LEVELS = ("debug", "info", "warning", "error")
_COLOURS = {"debug": "\x1b[2m", "info": "", "warning": "\x1b[33m", "error": "\x1b[31m"}
_PLAIN_AT_ONCE = str | int | float | bool | None


class LogEvent(Protocol):
    """The call that code which has something to say is given."""

    def __call__(self, level: str, event: str, **fields: object) -> None:
        """Write one event, if ``level`` is wanted."""
        ...


class Log:
    """Writes events of ``level`` and above as JSON lines or as text for people."""

    __slots__ = ("_encode", "_least", "_now_ms", "_stream")

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        level: str = "info",
        form: str = "json",
        stream: TextIO | None = None,
    ) -> None:
        self._now_ms = now_ms
        self._least = LEVELS.index(level)
        self._stream = sys.stderr if stream is None else stream
        self._encode = _json_line if form == "json" else self._console_line

    def __call__(self, level: str, event: str, **fields: object) -> None:
        """Write one event, if ``level`` is wanted.

        A reader that went away, or a full disk under the file it goes to, costs its lines only.
        """
        if LEVELS.index(level) < self._least:
            return
        try:
            self._stream.write(self._encode(self._now_ms(), level, event, fields) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return

    def _console_line(self, at_ms: int, level: str, event: str, fields: dict[str, object]) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))
        shown = " ".join(f"{name}={_plain(value)}" for name, value in fields.items())
        line = f"{clock}.{at_ms % 1000:03d} {level:<7} {event} {shown}".rstrip()
        colour = _COLOURS[level] if self._stream.isatty() else ""
        return f"{colour}{line}\x1b[0m" if colour else line


def no_log(level: str, event: str, **fields: object) -> None:
    """Write nothing: for parts that run without an operator."""
    del level, event, fields


def _json_line(at_ms: int, level: str, event: str, fields: dict[str, object]) -> str:
    row = {"at_ms": at_ms, "level": level, "event": event}
    row |= {name: _plain(value) for name, value in fields.items()}
    return msgspec.json.encode(row).decode()


def _plain(value: object) -> object:
    """Return what any encoder takes; an odd value in a log line must never stop a node."""
    return value if isinstance(value, _PLAIN_AT_ONCE) else str(value)
