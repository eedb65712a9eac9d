"""Pages of waiting messages over all partitions, in the order of due time, partition, number."""

from raftline.model.errors import InvalidArgument
from raftline.model.limits import OFFSET_MAX

DIGITS_MAX = 19
Cursor = tuple[int, int, int]  # due_ms, partition, number


def parse_cursor(text: str) -> Cursor:
    """Read where a page ended. Raises InvalidArgument."""
    parts = text.split(".")
    is_sound = all(p.isascii() and p.isdigit() and len(p) <= DIGITS_MAX for p in parts)
    if len(parts) != 3 or not is_sound:
        raise InvalidArgument(f"after={text[:40]!r} is no place in the list", "use next of a page")
    return int(parts[0]), int(parts[1]), int(parts[2])


def after_in(cursor: Cursor | None, partition: int) -> list[int] | None:
    """Return behind which (due_ms, number) a partition goes on: the page was ordered by both."""
    if cursor is None:
        return None
    due_ms, last_partition, number = cursor
    if partition == last_partition:
        return [due_ms, number]
    return [due_ms, OFFSET_MAX if partition < last_partition else -1]
