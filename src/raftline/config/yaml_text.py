"""The part of YAML that settings are written in, read without a library.

Understood: nested mappings and lists by indentation, ``[a, b]`` and ``{a: b}`` on one line, quoted
and plain scalars, comments, one document. Everything else (anchors, tags, block scalars, several
documents, tabs) is refused with the number of its line: a setting is never guessed.
"""

import json
import re
from typing import Any

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
_FOREIGN = {"&": "anchors", "*": "aliases", "!": "tags", "|": "block text", ">": "block text"}
_BEFORE_QUOTE = ":-,[{"  # a quote elsewhere is part of a plain word
DEPTH_MAX = 20


class _Row:
    __slots__ = ("indent", "number", "text")

    def __init__(self, number: int, indent: int, text: str) -> None:
        self.number = number
        self.indent = indent
        self.text = text


def loads(text: str) -> Any:
    """Return what ``text`` holds.

    Raises:
        ValueError: with the line that is not understood.
    """
    rows = [row for number, line in enumerate(text.splitlines(), 1) if (row := _row(number, line))]
    if rows and rows[0].text == "---":
        del rows[0]
    if not rows:
        return None
    reader = _Reader(rows)
    value = reader.block(rows[0].indent, 0)
    if reader.row is not None:
        raise _wrong(reader.row, "is indented in a way that fits nothing above")
    return value


class _Reader:
    """Goes through the lines once."""

    __slots__ = ("_at", "_rows")

    def __init__(self, rows: list[_Row]) -> None:
        self._rows = rows
        self._at = 0

    @property
    def row(self) -> _Row | None:
        """The line to read next."""
        return self._rows[self._at] if self._at < len(self._rows) else None

    def block(self, indent: int, depth: int) -> Any:
        """Read everything at ``indent``."""
        row = self.row
        assert row is not None
        if depth > DEPTH_MAX:
            raise _wrong(row, "is nested too deep")
        if _is_item(row.text):
            return self._list(indent, depth)
        if _key_of(row) is not None:
            return self._mapping(indent, depth)
        self._at += 1
        return _scalar(row, row.text)

    def _list(self, indent: int, depth: int) -> list[Any]:
        items: list[Any] = []
        while (row := self.row) is not None and row.indent == indent and _is_item(row.text):
            rest = row.text[1:].lstrip()
            inner = _Row(row.number, indent + len(row.text) - len(rest), rest)
            if rest and (_is_item(rest) or _key_of(inner) is not None):
                self._rows[self._at] = inner
                items.append(self.block(inner.indent, depth + 1))
            else:
                self._at += 1
                items.append(_scalar(row, rest) if rest else self._below(indent, depth))
        return items

    def _mapping(self, indent: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while (row := self.row) is not None and row.indent == indent:
            pair = _key_of(row)
            if pair is None:
                raise _wrong(row, "has no `name: value`")
            key, rest = pair
            if key in found:
                raise _wrong(row, f"sets {key} a second time")
            self._at += 1
            found[key] = _scalar(row, rest) if rest else self._below(indent, depth, lists=True)
        return found

    def _below(self, indent: int, depth: int, *, lists: bool = False) -> Any:
        """Read what belongs to the line before: deeper, or a list at the same depth."""
        row = self.row
        if row is None:
            return None
        if row.indent > indent or (lists and row.indent == indent and _is_item(row.text)):
            return self.block(row.indent, depth + 1)
        return None


def _row(number: int, line: str) -> _Row | None:
    text = _without_comment(line).rstrip()
    bare = text.lstrip(" ")
    if not bare:
        return None
    row = _Row(number, len(text) - len(bare), bare)
    if "\t" in line[: len(line) - len(line.lstrip())]:
        raise _wrong(row, "is indented with a tab; use spaces")
    return row


def _without_comment(line: str) -> str:
    quote, before, escaped = "", "-", False
    for at, letter in enumerate(line):
        if quote:
            if letter == quote and not escaped:
                quote, before = "", letter
            escaped = quote == '"' and letter == "\\" and not escaped
        elif letter in "\"'" and before in _BEFORE_QUOTE:
            quote = letter
        elif letter == "#" and (at == 0 or line[at - 1] in " \t"):
            return line[:at]
        elif letter not in " \t":
            before = letter
    return line


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _key_of(row: _Row) -> tuple[str, str] | None:
    """Split ``key: rest``; None where the line is no such pair."""
    text = row.text
    if text[0] in "\"'":
        key, end = _quoted(row, text)
        rest = text[end:].lstrip()
        if not rest.startswith(":"):
            return None
        return key, rest[1:].strip()
    if text[0] in "[{":
        return None
    if text.startswith("? "):
        raise _wrong(row, "has a key that is not understood")
    key, colon, rest = text.partition(": ")
    if not colon and text.endswith(":"):
        key, rest = text[:-1], ""
    elif not colon:
        return None
    return key.strip(), rest.strip()


def _scalar(row: _Row, text: str) -> Any:
    value, end = _value(row, text, 0, "")
    if text[end:].strip():
        raise _wrong(row, f"goes on behind its value: {text[end:].strip()[:40]!r}")
    return value


def _value(row: _Row, text: str, depth: int, ends: str) -> tuple[Any, int]:
    """Read one value; a plain one ends at a character of ``ends``. Returns it and its length."""
    if depth > DEPTH_MAX:
        raise _wrong(row, "is nested too deep")
    first = text[:1]
    if first and first in "\"'":
        return _quoted(row, text)
    if first == "[":
        return _flow(row, text, depth, "]")
    if first == "{":
        return _flow(row, text, depth, "}")
    if first in _FOREIGN:
        raise _wrong(row, f"uses {_FOREIGN[first]}, which settings do not need")
    end = next((at for at, letter in enumerate(text) if letter in ends), len(text))
    return _plain(text[:end].strip()), end


def _flow(row: _Row, text: str, depth: int, close: str) -> tuple[Any, int]:
    items: list[Any] = []
    pairs: dict[str, Any] = {}
    at = 1
    while True:
        at = _skip(text, at)
        if text[at : at + 1] == close:
            return (items if close == "]" else pairs), at + 1
        if close == "}":
            key, length = _value(row, text[at:], depth + 1, ":,}")
            at = _skip(text, at + length)
            if text[at : at + 1] != ":":
                raise _wrong(row, "has a { } without `name: value`")
            at = _skip(text, at + 1)
            pairs[str(key)], length = _value(row, text[at:], depth + 1, ",}")
        else:
            value, length = _value(row, text[at:], depth + 1, ",]")
            items.append(value)
        at = _skip(text, at + length)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != close:
            raise _wrong(row, f"has no {close} at its end; write it on one line")


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] == " ":
        at += 1
    return at


def _quoted(row: _Row, text: str) -> tuple[str, int]:
    if text[0] == '"':
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except ValueError as error:
            raise _wrong(row, f"has quotes that are not understood: {error}") from error
        return str(value), end
    parts: list[str] = []
    at = 1
    while True:
        end = text.find("'", at)
        if end < 0:
            raise _wrong(row, "has no closing quote")
        parts.append(text[at:end])
        if text[end : end + 2] != "''":
            return "".join(parts), end + 1
        parts.append("'")
        at = end + 2


def _plain(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _wrong(row: _Row, why: str) -> ValueError:
    return ValueError(f"line {row.number} {why}: {row.text[:60]!r}")
