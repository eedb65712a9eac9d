"""Slots: who reads one partition for a group, and how long nobody did when it moved.

Life of a slot
    free      nobody reads it; its target, if it has one, is given it at once
    given     ``owner`` may read it, and was not told yet
    taken     ``owner`` was told. If ``target`` is another, the owner is asked to give it up, and
              goes on reading until it does

Rules
    S1  A slot has at most one owner, and changes it only by being free in between.
    S2  The pause of a move is log time from the release by one owner until the next is told. A
        slot nobody is there for does not pause, and neither does one that was never owned.
"""

import msgspec

NEVER = -1


class Pauses(msgspec.Struct, frozen=True, array_like=True):
    """How long moved partitions of a group stood still."""

    count: int = 0
    last_ms: int = 0
    max_ms: int = 0
    total_ms: int = 0

    def with_one(self, pause_ms: int) -> "Pauses":
        """Return the sums with one more pause."""
        longest = max(self.max_ms, pause_ms)
        return Pauses(self.count + 1, pause_ms, longest, self.total_ms + pause_ms)


class SlotRow(msgspec.Struct, frozen=True, array_like=True):
    """A slot in a snapshot."""

    owner: str
    target: str
    given_epoch: int
    is_taken: bool
    released_ms: int
    pause_ms: int


class Slot:
    """One partition of a topic, as a group shares it out."""

    __slots__ = ("given_epoch", "is_taken", "owner", "pause_ms", "released_ms", "target")

    def __init__(self) -> None:
        self.owner = ""
        self.target = ""
        self.given_epoch = 0  # of the group when the owner was given it: fences older words
        self.is_taken = False
        self.released_ms = NEVER  # since when it pauses
        self.pause_ms = NEVER  # the last one

    @classmethod
    def of(cls, row: SlotRow) -> "Slot":
        """Return the slot of a snapshot."""
        slot = cls()
        slot.owner, slot.target, slot.given_epoch = row.owner, row.target, row.given_epoch
        slot.is_taken, slot.released_ms, slot.pause_ms = row.is_taken, row.released_ms, row.pause_ms
        return slot

    def row(self) -> SlotRow:
        """Return the slot for a snapshot."""
        return SlotRow(
            self.owner,
            self.target,
            self.given_epoch,
            self.is_taken,
            self.released_ms,
            self.pause_ms,
        )

    @property
    def is_revoked(self) -> bool:
        """Say whether the owner is asked to give it up."""
        return bool(self.owner) and self.owner != self.target

    def is_given_up_by(self, member: str, generation: int) -> bool:
        """Say whether a member's word to give it up counts: it was asked for, and is not old."""
        return self.owner == member != self.target and self.given_epoch <= generation

    def release(self, at_ms: int) -> None:
        """The owner reads it no more. S1, S2."""
        if self.is_taken:
            self.released_ms = at_ms  # else the pause of the move before goes on
        self.owner = ""
        self.is_taken = False

    def give(self, epoch: int) -> bool:
        """Give a free slot to its target; say whether there was one to give it to. S1."""
        if self.owner:
            return False
        if not self.target:
            self.released_ms = NEVER  # S2
            return False
        self.owner, self.given_epoch, self.is_taken = self.target, epoch, False
        return True

    def take(self, at_ms: int) -> int:
        """The owner is told of it; return how long nobody read it, NEVER if that does not count."""
        self.is_taken = True
        if self.released_ms == NEVER:
            return NEVER
        self.pause_ms = at_ms - self.released_ms
        self.released_ms = NEVER
        return self.pause_ms
