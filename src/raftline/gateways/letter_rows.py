"""Dead letters as a node tells them (question ``letters.list``), for every gateway."""

import msgspec

from raftline.model.dead_letter import Story
from raftline.model.message import Header

PARTITION = 0  # of a dead-letter topic: all letters are there


class Row(msgspec.Struct, frozen=True):
    """One letter as the node tells it."""

    offset: int
    state: str
    story: Story
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp_ms: int
