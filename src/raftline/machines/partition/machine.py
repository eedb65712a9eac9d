"""A partition: offsets for batches, in the order of the log.

State
    ``next_offset`` and ``log_start`` (messages are ``[log_start, next_offset)``), log time
    ``at_ms``, ``feature_level``, the producers, and the parts (``parts``): see parts.py.

Commands
    Append (many batches), Trim, SetFeatureLevel, Noop, MarkLetters: see commands.py. A piece of a
    stream: see streams.py. Schedule, Cancel, Move, Release: see waiting_commands.py. Stage,
    Publish, Piece, Abandon, ForgetQuery: see staging_commands.py. A producer's batch that was taken
    apart: see parcels.py.

Invariants
    P1  Every stored batch takes the next ``count`` offsets; none is given twice.
    P2  ``log_start`` and ``at_ms`` never go back; ``log_start <= next_offset``.
    P3  A batch that repeats or is refused takes no offset and is not stored. That holds for the
        whole batch if one of its dedup keys is remembered.
    P4  Each batch of an entry is decided on its own: one refusal does not touch its neighbours.

Costs: about 0.3 us a batch without a producer, 1 us with one; nothing per message.
"""

from collections.abc import Sequence

import msgspec

from raftline.machines.delivery.commands import DELIVER_TAG, Deliver, decode_deliver
from raftline.machines.delivery.lanes import Lanes
from raftline.machines.delivery.machine import DeliveryMachine
from raftline.machines.delivery.outcomes import Outcome as DeliveryOutcome
from raftline.machines.machine import FEATURE_LEVEL, Refused, digest_of, refused, require_level
from raftline.machines.partition.archive import Archive
from raftline.machines.partition.commands import (
    APPEND_TAG,
    AppendView,
    Malformed,
    MarkArchived,
    MarkLetters,
    Noop,
    SetFeatureLevel,
    SetTrace,
    Trim,
    decode_append,
    decode_command,
)
from raftline.machines.partition.dedup import Dedup
from raftline.machines.partition.letters import Letters
from raftline.machines.partition.parcels import PARCEL_TAG, Parcel, ParcelTaken, decode_parcel
from raftline.machines.partition.parts import (
    Freeze,
    NamedParts,
    Section,
    freeze_parts,
    restore_parts,
)
from raftline.machines.partition.producers import Producers, ProducerState
from raftline.machines.partition.side_car import DEDUP_FLAG, SIDE_FLAGS, SideCar, decode_extension
from raftline.machines.partition.staging import Staging
from raftline.machines.partition.staging_commands import (
    STAGING_TAG,
    Abandon,
    ForgetQuery,
    Piece,
    Publish,
    Stage,
    decode_staging,
)
from raftline.machines.partition.staging_commands import Command as StagingCommand
from raftline.machines.partition.staging_words import StagingEvent
from raftline.machines.partition.streams import (
    STREAM_TAG,
    Streamed,
    Streams,
    decode_stream_append,
)
from raftline.machines.partition.trace import Trace
from raftline.machines.partition.waiting import Scheduled, Waiting, WaitingEvent, over_limit
from raftline.machines.partition.waiting_commands import (
    WAITING_TAG,
    Cancel,
    Move,
    Release,
    Schedule,
    decode_waiting,
)
from raftline.model.batch import NO_PRODUCER
from raftline.model.errors import CorruptBatch, InvalidArgument, NewerFormat, RaftlineError
from raftline.model.ids import Offset, TimeMs
from raftline.model.limits import OFFSET_MAX

SNAPSHOT_FORMAT = 2
KNOWN_FLAGS = {1: SIDE_FLAGS}  # feature level -> bits of Append.flags it knows


class StoredBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch that goes to the log: where its bytes are in the entry's data, and its place."""

    start: int
    length: int
    base_offset: int
    count: int
    max_timestamp: int


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """A repeat; the batch is in the log since the first time."""

    first_offset: int


Outcome = int | Duplicate | RaftlineError
"""What became of one batch: its base offset, the first offset of a repeat, or a refusal."""


class AppendedEntry(msgspec.Struct, frozen=True):
    """What became of an Append: one outcome per batch, and the batches to store."""

    index: int
    term: int
    at_ms: int  # log time, monotone: at least what the command was stamped with
    outcomes: list[Outcome]
    stored: list[StoredBatch]


class Trimmed(msgspec.Struct, frozen=True):
    """Messages below ``log_start`` are gone."""

    log_start: int


class FeatureLevelSet(msgspec.Struct, frozen=True):
    """Entries after this one are read at ``level``."""

    level: int


class Delivered(msgspec.Struct, frozen=True):
    """What became of delivery commands, one outcome each."""

    outcomes: list[DeliveryOutcome]


class TraceSet(msgspec.Struct, frozen=True):
    """So much is traced, and records are kept from ``log_start`` on."""

    percent: int
    log_start: int


class LettersMarked(msgspec.Struct, frozen=True):
    """So many dead letters are done with that were not before."""

    count: int


class ArchiveMarked(msgspec.Struct, frozen=True):
    """Everything below ``archived`` is in the archive."""

    archived: int


Event = (
    AppendedEntry
    | Delivered
    | Trimmed
    | FeatureLevelSet
    | LettersMarked
    | ArchiveMarked
    | TraceSet
    | Streamed
    | WaitingEvent
    | StagingEvent
    | ParcelTaken
    | Refused
)


class PartitionState(msgspec.Struct, array_like=True):
    """The canonical snapshot."""

    format: int
    next_offset: int
    log_start: int
    at_ms: int
    feature_level: int
    producers: tuple[int, list[ProducerState]]
    sections: list[Section] = []


class PartitionMachine:
    """The replicated state of one partition."""

    __slots__ = (
        "archive",
        "at_ms",
        "dedup",
        "delivery",
        "feature_level",
        "lanes",
        "letters",
        "log_start",
        "next_offset",
        "parts",
        "producers",
        "staging",
        "streams",
        "trace",
        "waiting",
    )

    def __init__(self, feature_level: int = 1) -> None:
        self.next_offset = Offset(0)
        self.log_start = Offset(0)
        self.at_ms = TimeMs(0)
        self.feature_level = feature_level
        self.producers = Producers()
        self.dedup = Dedup()
        self.lanes = Lanes()
        self.streams = Streams()
        self.letters = Letters()
        self.waiting = Waiting()
        self.delivery = DeliveryMachine()
        self.trace = Trace()
        self.staging = Staging()
        self.archive = Archive()
        self.parts: NamedParts = (  # the order is part of the snapshot's bytes
            ("dedup", self.dedup),
            ("lanes", self.lanes),
            ("streams", self.streams),
            ("letters", self.letters),
            ("waiting", self.waiting),
            ("delivery", self.delivery),
            ("trace", self.trace),
            ("staging", self.staging),
            ("archive", self.archive),
        )

    def apply(self, index: int, term: int, data: bytes) -> Sequence[Event]:
        """Apply one committed entry and say what happened."""
        if not data:
            return ()
        try:
            if data[0] == APPEND_TAG:
                return (self.apply_append(index, term, decode_append(data)),)
            if data[0] == STREAM_TAG:
                return self._apply_piece(index, term, data)
            if data[0] == WAITING_TAG:
                return self._apply_waiting(index, term, decode_waiting(data))
            if data[0] == STAGING_TAG:
                return self._apply_staging(index, term, decode_staging(data))
            if data[0] == DELIVER_TAG:
                return (Delivered(self.apply_deliver(index, term, decode_deliver(data))),)
            if data[0] == PARCEL_TAG:
                return self._apply_parcel(index, term, decode_parcel(data))
            command = decode_command(data)
        except Malformed as error:
            return (refused(CorruptBatch(str(error), f"in entry {index}")),)
        self._advance(command.at_ms)
        match command:
            case Trim():
                return (self._trim(command),)
            case SetFeatureLevel():
                return (self._set_feature_level(command),)
            case Noop():
                return ()
            case SetTrace():
                self.trace.set_percent(command.percent)
                self.trace.trim(command.log_start)
                return (TraceSet(self.trace.percent, self.trace.log_start),)
            case MarkLetters():
                marked = self.letters.mark(command, self.log_start, self.next_offset)
                return (LettersMarked(marked) if isinstance(marked, int) else refused(marked),)
            case MarkArchived():
                return (ArchiveMarked(self.archive.mark(command.offset, self.next_offset)),)

    def apply_append(self, index: int, term: int, view: AppendView) -> AppendedEntry:
        """Give every batch of a committed Append its outcome. P4."""
        at_ms = self._advance(view.at_ms)
        sides = self._sides(view) if view.flags or view.extension else None
        if isinstance(sides, RaftlineError):
            return AppendedEntry(index, term, at_ms, [sides for _ in view.rows], [])
        outcomes: list[Outcome] = []
        stored: list[StoredBatch] = []
        offset, start = self.next_offset, view.body
        for length, count, max_timestamp, producer, sequence, epoch in view.rows:
            if producer != NO_PRODUCER:
                verdict = self.producers.admit(producer, epoch, sequence, count)
                if verdict != -1:
                    outcomes.append(Duplicate(verdict) if isinstance(verdict, int) else verdict)
                    start += length  # P3
                    continue
                if not sides:
                    self.producers.stored(producer, epoch, sequence, count, offset, at_ms)
            if sides:
                refusal = self._take_side(sides.get(len(outcomes)), offset, at_ms)
                if refusal is not None:
                    outcomes.append(refusal)
                    start += length  # P3
                    continue
                if producer != NO_PRODUCER:
                    self.producers.stored(producer, epoch, sequence, count, offset, at_ms)
            outcomes.append(offset)
            stored.append(StoredBatch(start, length, offset, count, max_timestamp))
            offset += count  # P1
            start += length
        self.next_offset = Offset(offset)
        return AppendedEntry(index, term, at_ms, outcomes, stored)

    def _apply_piece(self, index: int, term: int, data: bytes) -> Sequence[Event]:
        """Store the piece of a stream that is next; say where the stream stands."""
        head, view = decode_stream_append(data)
        if view.flags or any(row[3] != NO_PRODUCER for row in view.rows):
            return (refused(InvalidArgument("a stream carries plain batches")),)
        if not self.streams.takes(head):
            self._advance(view.at_ms)
            return (Streamed(self.streams.last(head.stream), is_stored=False),)
        appended = self.apply_append(index, term, view)
        self.streams.stored(head)
        return (appended, Streamed(head.last, is_stored=True))

    def _apply_waiting(
        self, index: int, term: int, command: Schedule | Cancel | Move | Release
    ) -> Sequence[Event]:
        """Let messages wait, or not any more; released ones take offsets. P1."""
        at_ms = self._advance(command.at_ms)
        match command:
            case Schedule():
                return (self._schedule(command, at_ms),)
            case Release():
                refusal = self.waiting.refuse_release(command, at_ms)
                if refusal is not None:
                    return (refused(refusal),)
                offset, count = self.next_offset, len(command.numbers)
                self.next_offset = Offset(offset + count)
                if command.priority:
                    self.lanes.add(offset, offset + count, command.priority)
                batch = StoredBatch(
                    command.body, command.length, offset, count, command.max_timestamp
                )
                appended = AppendedEntry(index, term, at_ms, [offset], [batch])
                return (appended, self.waiting.release(command, offset))
            case Cancel():
                return (self.waiting.cancel(command),)
            case Move():
                moved = self.waiting.move(command, at_ms)
                return (refused(moved) if isinstance(moved, RaftlineError) else moved,)

    def _schedule(self, command: Schedule, at_ms: int) -> Event:
        """Give messages numbers; their dedup keys hold as those of an Append do."""
        if not command.flags and not command.extension:
            return self.waiting.schedule(command, at_ms)
        if command.flags != DEDUP_FLAG:
            return refused(NewerFormat("a Schedule's extension", command.flags, DEDUP_FLAG))
        try:
            sides = decode_extension(command.flags, command.extension, [1] * len(command.rows))
        except Malformed as error:
            return refused(CorruptBatch(str(error)))

        def admit(at: int, number: int) -> RaftlineError | None:
            return self._take_side(sides.get(at), -number, at_ms)

        return self.waiting.schedule(command, at_ms, admit)

    def _apply_parcel(self, index: int, term: int, parcel: Parcel) -> Sequence[Event]:
        """Store all of a producer's batch that was taken apart, or nothing (parcels.py: K1, K2)."""
        at_ms = self._advance(parcel.at_ms)
        source = (parcel.producer, parcel.epoch, parcel.sequence, parcel.count)
        verdict = self.producers.admit(*source)
        if isinstance(verdict, RaftlineError):
            return (refused(verdict),)
        if verdict != -1:
            return (ParcelTaken(verdict, is_repeat=True),)
        refusal = self._refuse_parcel(parcel, at_ms)
        if refusal is not None:
            return (refused(refusal),)
        offset, found = self.next_offset, list[Event]()
        if parcel.append is not None:
            found.append(self.apply_append(index, term, parcel.append))
        if parcel.schedule is not None:
            found.append(self._schedule(parcel.schedule, at_ms))
        self.producers.stored(*source, offset, at_ms)
        found.append(ParcelTaken(offset if self.next_offset > offset else -1))
        return found

    def _refuse_parcel(self, parcel: Parcel, at_ms: int) -> RaftlineError | None:
        """Say why some of it could not be stored, but for dedup keys that are remembered."""
        keys, append, schedule = 0, parcel.append, parcel.schedule
        if append is not None and (append.flags or append.extension):
            sides = self._sides(append)
            if isinstance(sides, RaftlineError):
                return sides
            for at, side in sides.items():
                if side.dedup and append.rows[at][1] != 1:
                    return InvalidArgument("a message with a dedup key is a batch of its own")
                keys += len(side.dedup)
        if schedule is not None:
            if schedule.flags & ~DEDUP_FLAG:
                return NewerFormat("a Schedule's extension", schedule.flags, DEDUP_FLAG)
            if schedule.extension and not schedule.flags:
                return InvalidArgument("a Schedule has an extension and no flag that names it")
            latest = max([due_ms for _, _, due_ms, _ in schedule.rows]) - at_ms
            if latest > schedule.delay_ms_max:
                return over_limit(latest, schedule.delay_ms_max)
            if schedule.flags:
                ones = [1] * len(schedule.rows)
                try:
                    keys += len(decode_extension(schedule.flags, schedule.extension, ones))
                except Malformed as error:
                    return CorruptBatch(str(error))
        self.dedup.expire(at_ms, 2 * keys)
        return self.dedup.full(keys) if keys else None

    def _apply_staging(self, index: int, term: int, command: StagingCommand) -> Sequence[Event]:
        """Keep chunks, decide on batches, move chunks into the log."""
        at_ms, staging = self._advance(command.at_ms), self.staging
        match command:
            case Stage():
                found = staging.stage(command, at_ms)
            case Piece():
                return self._apply_published(index, term, command, at_ms)
            case Publish():
                found = staging.publish(command, at_ms)
            case Abandon():
                found = staging.abandon(command, at_ms)
            case ForgetQuery():
                found = staging.forget(command)
        return (refused(found) if isinstance(found, RaftlineError) else found,)

    def _apply_published(
        self, index: int, term: int, command: Piece, at_ms: int
    ) -> Sequence[Event]:
        """Give the messages of a piece offsets, or let them wait, all of them or none. P1."""
        refusal = self.staging.refuse_piece(command)
        if refusal is not None:
            return (refused(refusal),)
        if command.append is not None:
            if any(row[3] != NO_PRODUCER for row in command.append.rows):
                return (refused(InvalidArgument("staged batches have no producer")),)
            if command.append.flags & DEDUP_FLAG and len(command.append.rows) > 1:
                return (refused(InvalidArgument("staged batches with dedup keys go one by one")),)
            offset = self.next_offset
            appended = self.apply_append(index, term, command.append)
            outcome = appended.outcomes[0]
            if isinstance(outcome, RaftlineError):
                return (refused(outcome),)
            moved = self.staging.moved(command, offset, self.next_offset - offset, 0)
            return (appended, moved)
        if command.schedule is None:
            return (self.staging.moved(command, -1, 0, 0),)
        scheduled = self._schedule(command.schedule, at_ms)
        if not isinstance(scheduled, Scheduled):
            return (scheduled,)
        return (scheduled, self.staging.moved(command, -1, 0, len(scheduled.stored)))

    def apply_deliver(self, index: int, term: int, entry: Deliver) -> list[DeliveryOutcome]:
        """Apply the delivery commands of one turn."""
        self._advance(entry.at_ms)
        return self.delivery.apply(term, index, entry, self.log_start, self.next_offset)

    def freeze(self) -> Freeze:
        """Hold the state as it is now; the callable joins its bytes, off the loop if need be."""
        join = freeze_parts(self.parts)
        state = PartitionState(
            SNAPSHOT_FORMAT,
            self.next_offset,
            self.log_start,
            self.at_ms,
            self.feature_level,
            self.producers.state(),
        )

        def encode() -> bytes:
            state.sections = join()
            return msgspec.msgpack.encode(state)

        return encode

    def snapshot(self) -> bytes:
        """Return the whole state, canonical."""
        return self.freeze()()

    def restore(self, snapshot: bytes) -> None:
        """Replace the state.

        Raises:
            NewerFormat: the snapshot is of a newer build.
        """
        state = _decoder.decode(snapshot)
        if state.format > SNAPSHOT_FORMAT:
            raise NewerFormat("a partition's snapshot", state.format, SNAPSHOT_FORMAT)
        require_level(state.feature_level)
        self.next_offset, self.log_start = Offset(state.next_offset), Offset(state.log_start)
        self.at_ms, self.feature_level = TimeMs(state.at_ms), state.feature_level
        self.producers.restore(state.producers)
        restore_parts(self.parts, state.sections, SNAPSHOT_FORMAT)

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert 0 <= self.log_start <= self.next_offset <= OFFSET_MAX  # P2
        assert self.at_ms >= 0
        assert 1 <= self.feature_level <= FEATURE_LEVEL
        self.producers.check()
        for _, _, last_ms, batches in self.producers.state()[1]:
            assert last_ms <= self.at_ms
            for _, _, base_offset in batches:
                assert base_offset <= self.next_offset  # P1; of a parcel maybe nothing is there
        for _, part in self.parts:
            part.check()
        self.delivery.check(self.log_start, self.next_offset)

    def digest(self) -> str:
        """Return a short text that is equal for equal states."""
        return digest_of(self.snapshot())

    def _advance(self, at_ms: int) -> TimeMs:
        if at_ms > self.at_ms:
            self.at_ms = TimeMs(at_ms)
            if self.producers:
                self.producers.expire(at_ms)
            if self.dedup:
                self.dedup.expire(at_ms)
            if self.staging:
                self.staging.expire(at_ms)
        return self.at_ms

    def _sides(self, view: AppendView) -> dict[int, SideCar] | RaftlineError:
        """Return the side cars of an Append, by batch."""
        unknown = view.flags & ~KNOWN_FLAGS[self.feature_level]
        if unknown:
            return NewerFormat("an Append's extension", unknown, self.feature_level)
        if not view.flags:
            return InvalidArgument("an Append has an extension section and no flag that names it")
        try:
            return decode_extension(view.flags, view.extension, [row[1] for row in view.rows])
        except Malformed as error:
            return CorruptBatch(str(error))

    def _take_side(self, side: SideCar | None, offset: int, at_ms: int) -> RaftlineError | None:
        """Refuse a batch for its dedup keys, or remember keys and priorities of what is stored."""
        if side is None:
            return None
        if side.dedup:
            refusal = self.dedup.admit(side.dedup, at_ms)
            if refusal is not None:
                return refusal
            self.dedup.stored(side.dedup, offset, at_ms + side.window_ms)
        for start, end, priority in side.priorities:
            self.lanes.add(offset + start, offset + end, priority)
        return None

    def _trim(self, command: Trim) -> Event:
        wanted = min(command.log_start, self.next_offset)
        pin = self.delivery.pin()  # the dead-letter topic does not have it yet
        if pin is not None:
            wanted = min(wanted, pin)
        self.log_start = Offset(max(self.log_start, wanted))
        self.lanes.trim(self.log_start)
        self.letters.trim(self.log_start)
        self.waiting.trim(self.log_start)
        self.delivery.trim(self.log_start)
        return Trimmed(self.log_start)

    def _set_feature_level(self, command: SetFeatureLevel) -> Event:
        require_level(command.level)
        self.feature_level = max(self.feature_level, command.level)
        return FeatureLevelSet(self.feature_level)


_decoder = msgspec.msgpack.Decoder(PartitionState)
