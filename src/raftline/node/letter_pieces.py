"""A piece of dead letters: the originals read from the log, told of, and sealed into one batch.

The log is read on the loop where it is in memory, else in the lane. Batches are opened and the
piece is sealed in the lane: that is work per message.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.delivery.outbox import Dying
from raftline.model.batch import split_batches
from raftline.model.calls import ReadReply
from raftline.model.dead_letter import Story, dead_letter
from raftline.model.errors import (
    Damaged,
    Internal,
    OffsetOutOfRange,
    RaftlineError,
    StorageFault,
    TooLarge,
)
from raftline.model.intervals import IntervalSet
from raftline.model.limits import MIB, PIECE_BYTES_MAX
from raftline.model.message import Message, NewMessage
from raftline.model.records import open_batch, seal_batch, seal_plain

if TYPE_CHECKING:
    from raftline.node.node import Node
    from raftline.node.partition import PartitionHost

PIECE_MESSAGES_MAX = 500
PIECE_BYTES = 1 * MIB  # a piece is cut here, after one message at least
READ_BYTES = 256 * 1024
GATHERED_BYTES_MAX = 16 * MIB  # of originals; then the piece is cut
MESSAGE_BYTES = 32  # what a message weighs besides key, value and headers

NO_PRODUCER = (-1, -1, -1)


class Place(msgspec.Struct, frozen=True):
    """Where originals are."""

    topic: str
    partition: int
    topic_uuid: str


class Letter(msgspec.Struct, frozen=True):
    """One message to be sent: its number in the stream, where it is, what became of it."""

    number: int
    offset: int
    place: Place
    dying: Dying

    def story(self, lost: str) -> Story:
        """Return what became of the message."""
        dying, place = self.dying, self.place
        return Story(
            topic=place.topic,
            partition=place.partition,
            offset=self.offset,
            topic_uuid=place.topic_uuid,
            group=dying.group,
            generation=dying.generation,
            reason=dying.reason.upper(),
            attempts=dying.attempts,
            first_ms=dying.first_ms,
            last_ms=dying.last_ms,
            dead_ms=dying.last_ms,
            member=dying.member,
            error=dying.error,
            lost=lost,
        )


class PieceBuilt(msgspec.Struct, frozen=True):
    """A piece ready to be sent."""

    batch: bytes
    number: int  # of its last letter


Built = Callable[[PieceBuilt | RaftlineError], None]


class Gathering:
    """The originals of one piece on their way from the log."""

    __slots__ = (
        "_bytes",
        "_covered",
        "_done",
        "_found",
        "_host",
        "_lost",
        "_node",
        "_offsets",
        "_wanted",
        "give_up",
    )

    def __init__(
        self, node: "Node", host: "PartitionHost", wanted: list[Letter], done: Built
    ) -> None:
        self._node = node
        self._host = host
        self._wanted = wanted
        self._offsets = IntervalSet((letter.offset, letter.offset + 1) for letter in wanted)
        self._done = done
        self._covered = IntervalSet()
        self._found: list[bytes] = []  # batches that hold something we want
        self._lost: dict[int, str] = {}  # offset -> why it cannot be read
        self._bytes = 0
        self.give_up = False  # on what cannot be read

    def next(self) -> None:
        """Read on until everything wanted is covered, or enough is here."""
        for at, letter in enumerate(self._wanted):
            if letter.offset in self._covered or letter.offset in self._lost:
                continue
            if self._bytes >= GATHERED_BYTES_MAX:
                del self._wanted[at:]
                break
            self._read(letter.offset)
            return
        self._build()

    def _read(self, offset: int) -> None:
        now = self._node.clock.mono_ms()
        self._host.readers.read(
            offset,
            READ_BYTES,
            now,
            now,
            lambda reply: self._took(offset, reply),
            is_ours=True,
        )

    def _took(self, offset: int, reply: ReadReply | RaftlineError) -> None:
        if isinstance(reply, OffsetOutOfRange):
            self._lost[offset] = "trimmed"
        elif isinstance(reply, Damaged | StorageFault) and self.give_up:
            self._lost[offset] = reply.code
        elif isinstance(reply, RaftlineError):
            self._done(reply)
            return
        else:
            self._keep(offset, reply.batches)
        self._node.clock.call_soon(self.next)  # a read from memory answers before it returns

    def _keep(self, offset: int, batches: bytes) -> None:
        """Keep the batches that hold something wanted."""
        for start, length in split_batches(batches):
            base = int.from_bytes(batches[start : start + 8], "big")
            end = base + int.from_bytes(batches[start + 23 : start + 27], "big") + 1
            self._covered.add(base, end)
            if self._offsets.overlaps(base, end):
                self._found.append(batches[start : start + length])
                self._bytes += length
        if offset not in self._covered:
            self._lost[offset] = "missing"

    def _build(self) -> None:
        wanted, found, lost = self._wanted, self._found, self._lost

        def built(piece: PieceBuilt | None, error: BaseException | None) -> None:
            if piece is not None:
                self._done(piece)
            else:
                self._done(Internal(f"dead letters of {self._host.name}: {error!r}"))

        self._node.segments.run(lambda: build_piece(wanted, found, lost), built)


def build_piece(
    wanted: Sequence[Letter], batches: Sequence[bytes], lost: dict[int, str]
) -> PieceBuilt:
    """Return as many of the letters as fit a piece, sealed. Work for a lane."""
    offsets = {letter.offset for letter in wanted}
    originals: dict[int, Message] = {}
    for batch in batches:
        for message in _opened(batch):
            if message.offset in offsets:
                originals[message.offset] = message
    messages: list[NewMessage] = []
    size = 0
    last = wanted[0]
    for letter in wanted:
        original = originals.get(letter.offset)
        why = "" if original is not None else lost.get(letter.offset, "unreadable")
        message = dead_letter(original, letter.story(why))
        size += _size_of(message)
        if messages and size > PIECE_BYTES:
            break
        messages.append(message)
        last = letter
    return PieceBuilt(_seal(messages, wanted[0]), last.number)


def _opened(batch: bytes) -> list[Message]:
    try:
        return open_batch(batch)
    except RaftlineError:  # sound outside, not inside: nobody can read it
        return []


def _seal(messages: list[NewMessage], first: Letter) -> bytes:
    """Seal a piece; a message of its own that is too large is compressed, or sent without value."""
    try:
        sealed = seal_batch(messages)
    except TooLarge:  # the original's headers and ours together: taken from us
        sealed = seal_plain(messages, NO_PRODUCER)
    if len(sealed) <= PIECE_BYTES_MAX:
        return sealed
    with suppress(TooLarge):
        sealed = seal_batch(messages, compression="gzip")
    if len(sealed) <= PIECE_BYTES_MAX:
        return sealed
    return seal_batch([dead_letter(None, first.story("too_large"))])


def _size_of(message: NewMessage) -> int:
    key, value, headers, _ = message
    size = MESSAGE_BYTES + len(key or b"") + len(value or b"")
    return size + sum(len(name) + len(content or b"") + 10 for name, content in headers)
