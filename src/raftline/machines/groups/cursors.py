"""Cursors: how far a group has read each partition.

A cursor is the next offset the group wants. It belongs to a topic's uuid: a topic of the same name
later is another topic, and begins without cursors.
"""

import msgspec

from raftline.model.errors import InvalidArgument, TooLarge
from raftline.model.groups import Offset
from raftline.model.limits import CURSOR_TEXT_CHARS_MAX, GROUP_PARTITIONS_MAX, OFFSET_MAX


class Cursor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a group is in one partition, since when."""

    offset: int
    metadata: str
    term: int
    at_ms: int


def check_offsets(offsets: dict[str, dict[int, Offset]]) -> None:
    """Refuse offsets that cannot be. Raises InvalidArgument or TooLarge."""
    count = sum(map(len, offsets.values()))
    if count > GROUP_PARTITIONS_MAX:
        raise TooLarge("cursors in one request", count, GROUP_PARTITIONS_MAX)
    for topic, rows in offsets.items():
        for partition, row in rows.items():
            if not 0 <= row.offset <= OFFSET_MAX or partition < 0:
                raise InvalidArgument(f"{topic}/{partition}@{row.offset} cannot be a cursor")
            if len(row.metadata) > CURSOR_TEXT_CHARS_MAX:
                what = "characters kept with a cursor"
                raise TooLarge(what, len(row.metadata), CURSOR_TEXT_CHARS_MAX)


def cursor_of(row: Offset, at_ms: int) -> Cursor:
    """Return the cursor a commit sets."""
    return Cursor(row.offset, row.metadata, row.term, at_ms)
