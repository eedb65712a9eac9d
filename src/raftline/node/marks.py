"""Marks: digests every replica takes at the same index, so that they can be compared.

A command that changes nothing is put through the log; applying it, each replica notes the digest of
its state and the bounds of its log at that index.
"""

import msgspec

MARKS_MAX = 8


class Mark(msgspec.Struct, frozen=True):
    """One replica's state at one index."""

    index: int
    state: str
    log_start: int
    log_end: int
    side: dict[str, tuple[int, int]] = {}  # bounds of the side logs


class Marks:
    """The latest marks of one replica."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: dict[int, Mark] = {}

    def put(
        self,
        index: int,
        state: str,
        log_start: int,
        log_end: int,
        side: dict[str, tuple[int, int]] | None = None,
    ) -> None:
        """Note a mark; the oldest goes."""
        self._marks[index] = Mark(index, state, log_start, log_end, side or {})
        if len(self._marks) > MARKS_MAX:
            del self._marks[next(iter(self._marks))]

    def get(self, index: int) -> Mark | None:
        """Return the mark at ``index``, if it was taken and is still kept."""
        return self._marks.get(index)
