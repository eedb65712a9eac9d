"""Which names are good, and how a place is written for people: ``topic/partition@offset``."""

import re

from crc32c import crc32c

from raftline.model.errors import InvalidArgument, InvalidTopic
from raftline.model.limits import GROUP_NAME_CHARS_MAX, NODE_NAME_CHARS_MAX, TOPIC_NAME_CHARS_MAX

DEAD_LETTERS = ".dlq"
TRACES = ".trace"

_CHARS = re.compile(r"[A-Za-z0-9._-]*", re.ASCII)


def check_topic_name(name: str) -> None:
    """Refuse what cannot be the name of a topic.

    Raises:
        InvalidTopic: why not.
    """
    if not 0 < len(name) <= TOPIC_NAME_CHARS_MAX:
        raise InvalidTopic(name, f"it has {len(name)} characters")
    if name in {".", ".."}:
        raise InvalidTopic(name, "it means a directory")
    if not _CHARS.fullmatch(name):
        bad = next(char for char in name if not _CHARS.fullmatch(char))
        raise InvalidTopic(name, f"{bad!r} is not allowed")


def check_node_name(name: str) -> None:
    """Refuse what cannot be the name of a node.

    Raises:
        InvalidArgument: why not.
    """
    if not 0 < len(name) <= NODE_NAME_CHARS_MAX or not _CHARS.fullmatch(name):
        raise InvalidArgument(
            f"{name[:300]!r} cannot be the name of a node",
            f"use 1 to {NODE_NAME_CHARS_MAX} letters, digits, '.', '_' or '-'",
        )


def check_group_name(name: str) -> None:
    """Refuse what cannot be the name of a group.

    Raises:
        InvalidArgument: why not.
    """
    hint = f"use 1 to {GROUP_NAME_CHARS_MAX} printable characters"
    if len(name) > GROUP_NAME_CHARS_MAX:
        raise InvalidArgument(f"a group's name has {len(name)} characters", hint)
    if not name or not name.isprintable():
        raise InvalidArgument(f"{name!r} cannot be the name of a group", hint)


def place(topic: str, partition: int, offset: int | None = None) -> str:
    """Write coordinates the one way people see them."""
    return f"{topic}/{partition}" if offset is None else f"{topic}/{partition}@{offset}"


def dead_letter_topic(topic: str) -> str:
    """Return the name of the topic that takes the dead letters of ``topic``.

    A name that would get too long is cut and told apart by a checksum.
    """
    if len(topic) + len(DEAD_LETTERS) <= TOPIC_NAME_CHARS_MAX:
        return topic + DEAD_LETTERS
    mark = f".{crc32c(topic.encode()):08x}{DEAD_LETTERS}"
    return topic[: TOPIC_NAME_CHARS_MAX - len(mark)] + mark


def is_dead_letter_topic(topic: str) -> bool:
    """Say whether ``topic`` takes dead letters. It has none of its own."""
    return topic.endswith(DEAD_LETTERS)


def traced_topic(topic: str) -> str:
    """Return the topic whose trace a name like ``orders.trace`` means; empty: none."""
    return topic.removesuffix(TRACES) if topic.endswith(TRACES) else ""
