"""The id of a message, as every gateway returns it: opaque to users, ``[A-Za-z0-9._-]`` only."""

from raftline.model.errors import InvalidArgument


def message_id(topic: str, partition: int, offset: int) -> str:
    """Return the id of the message at ``topic/partition@offset``."""
    return f"{topic}.{partition}.{offset}"


def waiting_id(topic: str, partition: int, number: int) -> str:
    """Return the id of the waiting message ``number``; it keeps it when it is released."""
    return f"{topic}.{partition}.w{number}"


def parse_message_id(text: str) -> tuple[str, int, int]:
    """Return topic, partition and offset of an id, or of ``topic/partition@offset``.

    Raises InvalidArgument.
    """
    parts = text.replace("/", ".").replace("@", ".").rsplit(".", 2)
    if len(parts) != 3 or not (parts[0] and _is_number(parts[1]) and _is_number(parts[2])):
        raise InvalidArgument(
            f"{text[:100]!r} is not the id of a message",
            "use an id that a send returned, or topic/partition@offset",
        )
    return parts[0], int(parts[1]), int(parts[2])


def parse_any_id(text: str) -> tuple[str, int, int, int]:
    """Return topic, partition, offset and number of an id: a waiting message has offset -1.

    Raises InvalidArgument.
    """
    head, dot, last = text.rpartition(".w")
    if dot and _is_number(last):
        topic, partition, _ = parse_message_id(f"{head}.0")
        return topic, partition, -1, int(last)
    return (*parse_message_id(text), 0)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19
