"""Priorities by number and by name. Higher goes first; 0 is normal."""

import re

from raftline.model.errors import InvalidArgument
from raftline.model.limits import PRIORITY_MAX, PRIORITY_MIN

PRIORITY_NAMES = {"critical": 20, "high": 10, "normal": 0, "low": -10, "background": -20}
THREE_NAMES = ("high", "normal", "low")  # of topics with the setting lanes = 3

_NUMBER = re.compile(r"[+-]?[0-9]{1,4}", re.ASCII)


def parse_priority(value: int | str, lanes: int = len(PRIORITY_NAMES)) -> int:
    """Return the priority that ``value`` says: a number in bounds, or a name the topic has.

    Raises:
        InvalidArgument: it is neither.
    """
    if isinstance(value, str):
        names = THREE_NAMES if lanes == len(THREE_NAMES) else tuple(PRIORITY_NAMES)
        name = value.strip().lower()
        if name in names:
            return PRIORITY_NAMES[name]
        if not _NUMBER.fullmatch(name):
            raise InvalidArgument(
                f"priority {value[:40]!r} is not known",
                f"use {PRIORITY_MIN} to {PRIORITY_MAX}, or one of: " + ", ".join(names),
            )
        value = int(name)
    if not PRIORITY_MIN <= value <= PRIORITY_MAX:
        raise InvalidArgument(
            f"priority {value} is out of bounds", f"use {PRIORITY_MIN} to {PRIORITY_MAX}"
        )
    return value
