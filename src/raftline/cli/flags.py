"""Flags as people and older programs write them, brought into the one form the parser knows.

``--server``, ``--timeout`` and ``--json`` may stand anywhere; ``-partitions 3`` is ``--partitions
3``; ``--follow=true`` is ``--follow``. What follows ``--`` is left alone.
"""

from collections.abc import Iterator, Mapping

from raftline.model.errors import InvalidArgument

GLOBAL_VALUES = ("--server", "--timeout")
GLOBAL_SWITCHES = ("--json",)
_TRUE = ("true", "1", "yes")
_FALSE = ("false", "0", "no")


def globals_first(words: list[str]) -> list[str]:
    """Move the flags that belong to every command to the front."""
    front: list[str] = []
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        name, equals, value = word.partition("=")
        plain = f"--{name.lstrip('-')}" if name.startswith("-") else name
        if word == "--":
            rest += [word, *waiting]
        elif plain in GLOBAL_VALUES and name.startswith("-"):
            given = value if equals else next(waiting, "")
            if not given:  # an empty variable of a script; without it the default would be meant
                raise InvalidArgument(f"{plain} needs a value", "raftline --help")
            front += [plain, given]
        elif plain in GLOBAL_SWITCHES and name.startswith("-"):
            front += [plain] if not equals or value.lower() in _TRUE else []
        else:
            rest.append(word)
    return front + rest


def one_form(words: list[str], options: Mapping[str, bool]) -> list[str]:
    """Rewrite ``words`` for a command whose ``options`` map each flag to "is a switch"."""
    made: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word == "--":
            made += [word, *waiting]
            break
        name, equals, value = word.partition("=")
        if name.startswith("-") and name not in options and f"-{name}" in options:
            name = f"-{name}"
        if name not in options:
            made.append(word)
        elif not options[name]:
            made += [f"{name}={value}"] if equals else [name, *_next(waiting)]
        elif not equals or value.lower() in _TRUE:
            made.append(name)
        elif value.lower() not in _FALSE:
            made.append(word)  # the parser says what is wrong with it
    return made


def _next(waiting: Iterator[str]) -> list[str]:
    """Take the value of a flag as it is, whatever it looks like."""
    value = next(waiting, None)
    return [] if value is None else [value]
