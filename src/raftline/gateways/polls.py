"""One poll of a stream group's member: its partitions are read from where it stopped.

Every round asks the coordinator first, so a poll is a heartbeat, and a change of the assignment is
heard within a round. The positions are moved before the messages go out.

Rules
    P1  A round reads all partitions without waiting; only if none has anything does it wait on
        all. So a busy partition starves no other.
    P2  When the assignment changed, the answer goes out at once: the member may have to give
        something up.
    P3  A position that is no longer kept goes on at the start of what is.
    P4  A member that says which answer came last has one poll at a time. If another of its polls
        took messages meanwhile (its client hung up on it, or our own word was said twice), this
        one ends without any, under the number it began with: the next brings them again.
    P5  A poll that nobody waits for any more takes nothing, and keeps no member alive.
    P6  A batch that nobody can read (only its head and checksum were checked when it came) stops
        its partition alone; the poll is refused where the others have nothing.
"""

from collections.abc import Callable

import msgspec

from raftline.gateways.fan import Fan
from raftline.gateways.ports import Calls
from raftline.model.batch import end_of_batch, split_batches
from raftline.model.calls import ReadReply
from raftline.model.errors import NotReady, OffsetOutOfRange, RaftlineError
from raftline.model.groups import (
    Advanced,
    AdvanceGroup,
    Answer,
    MemberView,
    Polled,
    PollGroup,
    Positions,
)
from raftline.model.message import Message
from raftline.model.records import open_batch
from raftline.node.counter import always
from raftline.node.ports import Clock

ROUND_MS = 200  # a waiting round; then the coordinator is asked again
READ_BYTES_MIN = 16 * 1024
PLACES_MAX = 256  # partitions read in one round; the others have their turn next
TRIES = 4

Place = tuple[str, int, int]  # topic, partition, next offset


class PolledMessages(msgspec.Struct, frozen=True):
    """What a poll brought."""

    view: MemberView
    number: int  # of this poll
    messages: list[tuple[str, int, Message]]  # topic, partition, message
    positions: Positions  # where each partition with messages goes on


class PollWish(msgspec.Struct, frozen=True):
    """What a member asks for."""

    group: str
    member: str
    generation: int
    number: int = -1  # of the last poll whose answer arrived
    count_max: int = 100
    bytes_max: int = 1 << 20
    wait_ms: int = 0


class Poll:
    """One poll on its way."""

    __slots__ = (
        "_calls",
        "_clock",
        "_deadline",
        "_done",
        "_is_over",
        "_is_wanted",
        "_polled",
        "_round",
        "_timeout_ms",
        "_tries",
        "_wish",
    )

    def __init__(
        self,
        clock: Clock,
        calls: Calls,
        wish: PollWish,
        timeout_ms: int,
        done: Callable[[PolledMessages | RaftlineError], None],
        *,
        is_wanted: Callable[[], bool] = always,
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._wish = wish
        self._timeout_ms = timeout_ms
        self._done = done
        self._deadline = clock.mono_ms() + wish.wait_ms
        self._polled: Polled | None = None
        self._round = self._tries = 0
        self._is_over = False
        self._is_wanted = is_wanted

    def start(self) -> None:
        """Ask the coordinator where to read."""
        wish = self._wish
        number = wish.number if self._round == 0 else -1
        self._round += 1
        request = PollGroup(wish.group, wish.member, wish.generation, number)
        self._calls.group(request, self._timeout_ms, self._told)

    def _told(self, answer: Answer | RaftlineError) -> None:
        if not isinstance(answer, Polled):
            assert isinstance(answer, RaftlineError), answer
            self._done(answer)
            return
        wish = self._wish
        before, self._polled = self._polled, answer
        if before is not None and wish.number >= 0 and answer.number != before.number:
            self._end_overtaken(answer.view, before.number)
            return
        places = self._places(answer)
        if places:
            self._read(places, 0, lambda replies: self._looked(places, replies))
        else:
            self._looked([], [])

    def _places(self, polled: Polled) -> list[Place]:
        """Return what to read, another partition first each time."""
        places = [
            (topic, partition, max(0, offset))
            for topic, rows in sorted(polled.positions.items())
            for partition, offset in sorted(rows.items())
        ]
        turn = (polled.number + self._round) % len(places) if places else 0
        return (places[turn:] + places[:turn])[:PLACES_MAX]

    def _read(
        self,
        places: list[Place],
        wait_ms: int,
        done: Callable[[list[ReadReply | RaftlineError]], None],
    ) -> None:
        bytes_max = max(READ_BYTES_MIN, self._wish.bytes_max // len(places))

        def reading(place: Place) -> Callable[[Callable[[ReadReply | RaftlineError], None]], None]:
            topic, partition, offset = place
            return lambda take: self._calls.read(
                topic, partition, offset, bytes_max, wait_ms, self._timeout_ms, take
            )

        Fan([reading(place) for place in places], done).start()

    def _looked(self, places: list[Place], replies: list[ReadReply | RaftlineError]) -> None:
        """Answer with what there is, or wait for something."""
        polled = self._polled
        assert polled is not None
        moved = _moved(places, replies)
        if moved and self._tries < TRIES:  # P3
            self._tries += 1
            again = [moved.get(place, place) for place in places]
            self._read(again, 0, lambda got: self._looked(again, got))
            return
        messages, positions, fault = _open(places, replies, self._wish.count_max)
        changed = polled.view.generation != self._wish.generation or bool(polled.view.revoke)
        left = self._deadline - self._clock.mono_ms()
        is_wanted = self._is_wanted()
        if positions and is_wanted:
            self._advance(polled, messages, positions)
        elif fault is not None and is_wanted and not changed:  # P6
            self._done(fault)
        elif changed or left <= 0 or not is_wanted:  # P2, P5
            self._finish(PolledMessages(polled.view, polled.number, [], {}))
        else:
            self._wait(places, int(min(left, ROUND_MS)) or 1)

    def _wait(self, places: list[Place], wait_ms: int) -> None:
        """Begin the next round when something comes, or when the round is over. P1."""
        is_next = False

        def next_round() -> None:
            nonlocal is_next
            if not is_next:
                is_next = True
                self._clock.call_soon(self._next_round)

        def read(reply: ReadReply | RaftlineError) -> None:
            if isinstance(reply, ReadReply) and reply.batches:
                next_round()

        for topic, partition, offset in places:
            self._calls.read(topic, partition, offset, 1, wait_ms, self._timeout_ms, read)
        self._clock.call_later(wait_ms, next_round)

    def _next_round(self) -> None:
        if self._is_wanted():
            self.start()
        elif self._polled is not None:  # P5
            self._finish(PolledMessages(self._polled.view, self._polled.number, [], {}))

    def _advance(
        self, polled: Polled, messages: list[tuple[str, int, Message]], positions: Positions
    ) -> None:
        wish = self._wish
        generation = polled.view.generation

        def advanced(answer: Answer | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                self._done(answer)
            elif isinstance(answer, Advanced) and answer.number >= 0:
                self._finish(PolledMessages(polled.view, answer.number, messages, positions))
            elif wish.number >= 0:
                self._end_overtaken(polled.view, polled.number)
            elif self._tries < TRIES:
                self._tries += 1
                self.start()
            else:
                self._done(NotReady(f"member {wish.member} polls more than once at a time"))

        request = AdvanceGroup(wish.group, wish.member, generation, polled.number, positions)
        self._calls.group(request, self._timeout_ms, advanced)

    def _end_overtaken(self, view: MemberView, number: int) -> None:
        """Another poll of the member took messages since the round before. P4."""
        self._finish(PolledMessages(view, number, [], {}))

    def _finish(self, polled: PolledMessages) -> None:
        if not self._is_over:
            self._is_over = True
            self._done(polled)


def _moved(places: list[Place], replies: list[ReadReply | RaftlineError]) -> dict[Place, Place]:
    """Return the places that are not kept any more, and where to go on instead. P3."""
    moved: dict[Place, Place] = {}
    for place, reply in zip(places, replies, strict=True):
        if isinstance(reply, OffsetOutOfRange):
            moved[place] = (place[0], place[1], int(reply.extras["log_start"]))
    return moved


def _open(
    places: list[Place], replies: list[ReadReply | RaftlineError], count_max: int
) -> tuple[list[tuple[str, int, Message]], Positions, RaftlineError | None]:
    """Open as many batches as are asked for; of a partition up to one that nobody can read. P6."""
    found: list[tuple[str, int, Message]] = []
    positions: Positions = {}
    fault: RaftlineError | None = None
    for (topic, partition, offset), reply in zip(places, replies, strict=True):
        if not isinstance(reply, ReadReply) or len(found) >= count_max:
            continue
        view = memoryview(reply.batches)
        at = offset
        for start, length in split_batches(reply.batches):
            batch = view[start : start + length]
            try:
                opened = open_batch(batch)
            except RaftlineError as error:
                fault = error
                break
            for message in opened:
                if message.offset >= offset and len(found) < count_max:
                    found.append((topic, partition, message))
                    at = message.offset + 1
            if len(found) == count_max:
                break
            at = max(at, end_of_batch(batch))  # a batch may end in offsets without a message
        if at > offset:
            positions.setdefault(topic, {})[partition] = at
    return found, positions, fault
