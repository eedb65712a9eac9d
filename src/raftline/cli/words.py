"""Values as people type them on the command line, checked; a mistake names its flag."""

from collections.abc import Callable
from typing import Any, TypeVar

import typer

from raftline.cli.times import parse_time_ms
from raftline.client import clock
from raftline.config.quantities import parse_bytes, parse_span_ms

T = TypeVar("T")


def moment_ms(text: str, flag: str) -> int | None:
    """Return Unix milliseconds of RFC 3339, a date, ``-1h`` or ``+1h``; None of nothing."""
    return _read(lambda given: parse_time_ms(given, now_ms=clock.wall_ms()), text, flag)


def duration_ms(text: str, flag: str) -> int | None:
    """Return milliseconds of ``30s``; None of nothing."""
    return _read(parse_span_ms, text, flag)


def size_bytes(text: str, flag: str) -> int:
    """Return bytes of ``64MiB``, at least one."""
    found = _read(parse_bytes, text, flag)
    if not found or found < 1:
        raise typer.BadParameter(f"{text!r} is too small", param_hint=flag)
    return found


def priority(text: str) -> int | str | None:
    """Return a number or a name; the node knows which names there are."""
    if not text:
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text


def one_of(text: str, flag: str, known: tuple[str, ...]) -> str:
    """Return a word of a list, or nothing: a typo would find nothing, and look like an answer."""
    if text and text not in known:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(known)}", param_hint=flag)
    return text


def pairs(given: list[str] | None, flag: str) -> dict[str, str]:
    """Read ``name=value`` words."""
    found: dict[str, str] = {}
    for pair in given or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r}: write name=value", param_hint=flag)
        found[name] = value
    return found


def only_one(**given: Any) -> None:
    """Refuse more than one of these flags."""
    named = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if len(named) > 1:
        raise typer.BadParameter(f"give one of {', '.join(named)}")


def _read(parse: Callable[[str], T], text: str, flag: str) -> T | None:
    if not text:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=flag) from error
