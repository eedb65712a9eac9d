"""Reads and writes dialogues: a command, a line of dashes, the expected output.

A step is ``verb arg key=value key=(v1,v2)``, perhaps lines of input, ``----``, and the output up
to an empty line. Output that holds empty lines stands between two pairs of dashes. Lines that
begin with ``#`` are for the reader.
"""

import re
from collections.abc import Iterator

import msgspec

DASHES = "----"
ARGUMENT = re.compile(r"([^\s=]+)(?:=(\([^)]*\)|\S*))?")
LOG_LINE = re.compile(r"\s*(DEBUG|INFO|WARN|ERROR|FATAL|PANIC)\b")


class Argument(msgspec.Struct, frozen=True):
    """A bare word (``key`` only), or a key with one value or several."""

    key: str
    values: tuple[str, ...] = ()


class Step(msgspec.Struct):
    """One command with what is expected of it."""

    line: int
    verb: str
    arguments: list[Argument]
    text: list[str]  # lines of input after the command
    expected: list[str]
    head: list[str]  # the lines of the file up to and with the dashes

    def words(self) -> list[str]:
        """Return the bare words."""
        return [argument.key for argument in self.arguments if not argument.values]

    def options(self) -> Iterator[tuple[str, str]]:
        """Yield every key with each of its values."""
        for argument in self.arguments:
            for value in argument.values:
                yield argument.key, value


def parse(text: str) -> tuple[list[Step], list[str]]:
    """Return the steps of a dialogue, and the lines that follow the last."""
    lines = text.splitlines()
    steps: list[Step] = []
    head: list[str] = []
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].lstrip().startswith("#"):
            head.append(lines[at])
            at += 1
            continue
        step, at = _parse_step(lines, at, head)
        steps.append(step)
        head = []
    return steps, head


def render(steps: list[Step], outputs: list[list[str]], tail: list[str]) -> str:
    """Return the dialogue with ``outputs`` in place of what was expected."""
    lines: list[str] = []
    for step, output in zip(steps, outputs, strict=True):
        lines += step.head
        lines += [DASHES, *output, DASHES, DASHES] if "" in output else output
    return "\n".join([*lines, *tail]) + "\n"


def without_log(output: list[str]) -> list[str]:
    """Return ``output`` without free-text log lines; nothing left means all went well."""
    kept = [line.rstrip() for line in output if not LOG_LINE.match(line)]
    return kept or ["ok"]


def _parse_step(lines: list[str], at: int, head: list[str]) -> tuple[Step, int]:
    start = at
    command = lines[at].strip()
    while command.endswith("\\"):
        at += 1
        command = command[:-1] + " " + lines[at].strip()
    dashes = lines.index(DASHES, at)
    verb, _, rest = command.partition(" ")
    text = lines[at + 1 : dashes]
    expected, end = _parse_output(lines, dashes + 1)
    step = Step(
        start + 1, verb, _parse_arguments(rest), text, expected, head + lines[start : dashes + 1]
    )
    return step, end


def _parse_output(lines: list[str], at: int) -> tuple[list[str], int]:
    if at < len(lines) and lines[at] == DASHES:
        end = at + 1
        while lines[end : end + 2] != [DASHES, DASHES]:
            end += 1
        return lines[at + 1 : end], end + 2
    end = at
    while end < len(lines) and lines[end].strip():
        end += 1
    return lines[at:end], end


def _parse_arguments(text: str) -> list[Argument]:
    arguments: list[Argument] = []
    for match in ARGUMENT.finditer(text):
        key, value = match[1], match[2]
        if value is None:
            arguments.append(Argument(key))
        elif value.startswith("("):
            values = [part.strip() for part in value[1:-1].split(",")]
            arguments.append(Argument(key, tuple(part for part in values if part)))
        else:
            arguments.append(Argument(key, (value,)))
    return arguments
