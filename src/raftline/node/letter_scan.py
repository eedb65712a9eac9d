"""Looking through a dead-letter topic for the letters somebody means.

On the leader of the dead-letter partition. The log is read in pieces; opening them is the lane's
work. A scan ends with as many letters as were asked for, after ``SCAN_BYTES_MAX``, or at the end;
it says where to go on.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.machines.partition.commands import LETTERS_PURGED
from raftline.model.calls import ReadReply
from raftline.model.dead_letter import DeadLetter, read_letter
from raftline.model.errors import InvalidArgument, OffsetOutOfRange, RaftlineError, StorageFault
from raftline.model.limits import LETTERS_PER_CALL_MAX, MIB
from raftline.model.records import open_or_count

if TYPE_CHECKING:
    from raftline.node.node import Node
    from raftline.node.partition import PartitionHost

SCAN_BYTES_MAX = 32 * MIB  # looked through for one call
READ_BYTES = 1 * MIB
FOUND_BYTES_MAX = 8 * MIB  # of letters in one answer
LETTER_BYTES = 1_000  # what a letter weighs besides its message and the texts of its story
END = -1


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are meant. Without ``offsets`` all that fit."""

    after: int = -1  # offsets of the dead-letter partition up to here are left out
    limit: int = 100
    offsets: list[int] | None = None  # in order
    group: str | None = None
    reason: str | None = None
    key: bytes | None = None
    from_ms: int = 0  # when it was given up on
    to_ms: int = 1 << 62
    purged: bool = False  # those too

    def fits(self, letter: DeadLetter) -> bool:
        """Say whether a letter is meant."""
        story = letter.story
        return (
            (self.offsets is None or _holds(self.offsets, letter.offset))
            and (self.group is None or story.group == self.group)
            and (self.reason is None or story.reason == self.reason)
            and (self.key is None or letter.message[0] == self.key)
            and self.from_ms <= story.dead_ms < self.to_ms
        )


def _holds(offsets: list[int], offset: int) -> bool:
    place = bisect_left(offsets, offset)
    return place < len(offsets) and offsets[place] == offset


def wanted_of(asked: dict[str, Any]) -> Wanted:
    """Return what a question asks for. Raises InvalidArgument."""
    try:
        return msgspec.convert(asked.get("wanted", {}), Wanted)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"which dead letters: {error}") from error


class Found(msgspec.Struct, frozen=True):
    """Letters in the order of the log, and the last offset looked at (END: all were)."""

    letters: list[DeadLetter]
    next: int


Done = Callable[[Found | RaftlineError], None]


class Scan:
    """One look through the log."""

    __slots__ = ("_at", "_bytes", "_done", "_found", "_host", "_node", "_size", "_wanted")

    def __init__(self, node: "Node", host: "PartitionHost", wanted: Wanted, done: Done) -> None:
        self._node = node
        self._host = host
        self._wanted = msgspec.structs.replace(
            wanted,
            limit=max(1, min(wanted.limit, LETTERS_PER_CALL_MAX)),
            offsets=None if wanted.offsets is None else sorted(wanted.offsets),
        )
        self._done = done
        self._at = max(wanted.after + 1, host.log.log_start)
        self._found: list[DeadLetter] = []
        self._bytes = self._size = 0

    def next(self) -> None:
        """Read on, or end."""
        offsets = self._wanted.offsets
        if offsets is not None:  # from one to the next
            place = bisect_left(offsets, self._at)
            self._at = offsets[place] if place < len(offsets) else self._host.log.log_end
        if self._at >= self._host.log.log_end:
            self._done(Found(self._found, END))
        elif (
            len(self._found) >= self._wanted.limit
            or self._bytes >= SCAN_BYTES_MAX
            or self._size >= FOUND_BYTES_MAX
        ):
            self._done(Found(self._found, self._at - 1))
        else:
            now = self._node.clock.mono_ms()
            self._host.readers.read(self._at, READ_BYTES, now, now, self._took, is_ours=True)

    def _took(self, reply: ReadReply | RaftlineError) -> None:
        if isinstance(reply, OffsetOutOfRange) and self._at < self._host.log.log_start:
            self._at = self._host.log.log_start  # trimmed meanwhile
            self._node.clock.call_soon(self.next)
            return
        if isinstance(reply, RaftlineError):
            self._done(reply)
            return
        at, wanted, batches = self._at, self._wanted, reply.batches
        self._bytes += len(batches)
        self._node.segments.run(lambda: letters_in(batches, at, wanted), self._opened)

    def _opened(
        self, opened: tuple[list[DeadLetter], int] | None, error: BaseException | None
    ) -> None:
        if opened is None:
            reason = f"reading dead letters: {error}"
            self._done(
                error if isinstance(error, RaftlineError) else StorageFault(self._host.name, reason)
            )
            return
        letters, end = opened
        self._at = max(self._at + 1, end)
        marks = self._host.machine.letters
        for letter in letters:
            if marks.state(letter.offset) == LETTERS_PURGED and not self._wanted.purged:
                continue
            self._found.append(letter)
            self._size += _size_of(letter)
            if len(self._found) >= self._wanted.limit or self._size >= FOUND_BYTES_MAX:
                self._at = letter.offset + 1
                break
        self.next()


def _size_of(letter: DeadLetter) -> int:
    """Return about how many bytes a letter has in an answer."""
    key, value, headers, _ = letter.message
    texts = [told for told in msgspec.structs.astuple(letter.story) if isinstance(told, str)]
    size = LETTER_BYTES + len(key or b"") + len(value or b"") + sum(map(len, texts))
    return size + sum([len(name) + len(content or b"") for name, content in headers])


def letters_in(batches: bytes, start: int, wanted: Wanted) -> tuple[list[DeadLetter], int]:
    """Return what is meant in ``batches`` from ``start`` on, and where they end."""
    found: list[DeadLetter] = []
    end = start
    for message in open_or_count(batches):
        end = message.offset + 1
        letter = read_letter(message) if message.offset >= start else None
        if letter is not None and wanted.fits(letter):
            found.append(letter)
    return found, end
