"""The archived mark of a partition: everything below it is in the archive.

State
    One offset. Whoever archives (the pipeline) raises it; retention and trims of a topic whose
    setting ``archive`` is ``required`` do not pass it (node/log_questions.py, node/upkeep.py).

Invariants
    Z1  The mark never goes back and never passes the end of the log. So a leader that compares a
        trim with the mark it knows never lets go of what is not archived.
"""

import msgspec

from raftline.machines.partition.parts import Freeze


class Archive:
    """How far one partition is archived."""

    __slots__ = ("archived",)

    def __init__(self) -> None:
        self.archived = 0

    def mark(self, offset: int, next_offset: int) -> int:
        """Everything below ``offset`` is archived; return the mark that stands. Z1."""
        self.archived = max(self.archived, min(offset, next_offset))
        return self.archived

    def freeze(self) -> Freeze:
        """Hold the state as it is now."""
        archived = self.archived
        return (lambda: msgspec.msgpack.encode(archived)) if archived else bytes

    def restore(self, data: bytes) -> None:
        """Replace the state."""
        self.archived = msgspec.msgpack.decode(data, type=int) if data else 0

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert self.archived >= 0
