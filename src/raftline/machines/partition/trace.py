"""Tracing of a partition: how much of it is kept, and what an entry leaves behind.

State
    ``percent`` of messages that are traced; ``log_start`` of the trace log (its own retention).

Messages are chosen by blocks of ``BLOCK`` offsets, so that a range stays a range. The records go
to the trace log, a side log that every replica writes for itself, from the same entries: there is
no second replication, and replicas have equal bytes.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from raftline.machines.delivery.commands import (
    ACK,
    REJECT,
    AckQuery,
    Command,
    Deliver,
    Forget,
    Grant,
    LeaseQuery,
    RejectQuery,
    Reset,
    Revive,
    Settle,
)
from raftline.machines.delivery.outbox import Dying
from raftline.machines.delivery.outcomes import (
    Done,
    Granted,
    Leased,
    Outcome,
    QuerySettled,
    SettledRanges,
)
from raftline.machines.delivery.query_leases import MEMBER
from raftline.machines.partition.parts import Freeze
from raftline.machines.partition.waiting import Cancelled, Moved, Released, Scheduled
from raftline.model.intervals import IntervalSet
from raftline.model.trace import (
    CalledOff,
    Died,
    Ended,
    Event,
    Forgotten,
    Given,
    LetGo,
    Replayed,
    Revived,
    TraceRecord,
    Waits,
    WaitsUntil,
    encode_record,
)

BLOCK = 64
ALL = 100
_SPREAD = 2_654_435_761  # neighbouring blocks fall far apart


class Trace:
    """How a partition is traced."""

    __slots__ = ("log_start", "percent")

    def __init__(self) -> None:
        self.percent = ALL
        self.log_start = 1

    def set_percent(self, percent: int) -> None:
        """Trace so much of what comes."""
        self.percent = max(0, min(ALL, percent))

    def trim(self, log_start: int) -> None:
        """Let go of records below ``log_start``."""
        self.log_start = max(self.log_start, log_start)

    def has(self, offset: int) -> bool:
        """Say whether a message is among the traced."""
        return (offset // BLOCK * _SPREAD & 0xFFFFFFFF) % ALL < self.percent

    def record(
        self, term: int, entry: Deliver, outcomes: Sequence[Outcome], died: Iterable[Dying]
    ) -> bytes | None:
        """Return what an entry of delivery commands leaves in the trace; None: nothing."""
        if not self.percent:
            return None
        events: list[Event] = []
        for command, outcome in zip(entry.commands, outcomes, strict=True):
            if isinstance(outcome, SettledRanges):  # nearly all are
                if isinstance(command, Settle):
                    ranges = command.ranges
                    if outcome.lost:
                        ranges = _without(ranges, outcome.lost)
                    if ranges:
                        events.append(_ended(command, ranges))
                continue
            if isinstance(outcome, Leased | QuerySettled):
                events += _query_events(command, outcome)
                continue
            event = _event(command, outcome)
            if event is not None:
                events.append(event)
        for d in died:
            events.append(Died(d.group, d.start, d.end, d.reason, d.attempts))
        if self.percent < ALL:
            events = [kept for event in events if (kept := self._sampled(event)) is not None]
        return self.encode(entry.at_ms, term, events)

    def encode(self, at_ms: int, term: int, events: list[Event]) -> bytes | None:
        """Return the bytes of a record; None if it says nothing."""
        if not events or not self.percent:
            return None
        return encode_record(TraceRecord(at_ms, term, events))

    def _sampled(self, event: Event) -> Event | None:
        """Return the traced part of an event."""
        match event:
            case Given():
                spans = self._cut(event.spans, 4)
                return msgspec.structs.replace(event, spans=spans) if spans else None
            case Ended() | Revived() | Forgotten():
                ranges = self._cut(event.ranges, 2)
                return msgspec.structs.replace(event, ranges=ranges) if ranges else None
            case Died():
                return event if self._cut([event.start, event.end], 2) else None
            case _:
                return event

    def _cut(self, rows: list[int], width: int) -> list[int]:
        """Return the parts of flat ranges (with ``width - 2`` more numbers) that are traced."""
        found: list[int] = []
        for at in range(0, len(rows), width):
            start, end, *more = rows[at : at + width]
            while start < end:
                stop = min(end, (start // BLOCK + 1) * BLOCK)
                if self.has(start):
                    found += (start, stop, *more)
                start = stop
        return found

    def freeze(self) -> Freeze:
        """Hold the state as it is now."""
        state = (self.percent, self.log_start)
        return bytes if state == (ALL, 1) else lambda: msgspec.msgpack.encode(state)

    def restore(self, data: bytes) -> None:
        """Replace the state."""
        state = msgspec.msgpack.decode(data, type=tuple[int, int]) if data else (ALL, 1)
        self.percent, self.log_start = state

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert 0 <= self.percent <= ALL
        assert self.log_start >= 1


def _event(command: Command, outcome: Outcome) -> Event | None:
    match command:
        case Grant():
            if not isinstance(outcome, Granted) or not outcome.spans:
                return None
            spans = outcome.spans
            return Given(
                command.group, command.member, command.sequence, command.deadline_ms, spans
            )
        case Revive() if isinstance(outcome, Done):
            return Revived(command.group, command.ranges)
        case Forget() if isinstance(outcome, Done):
            return Forgotten(command.group, command.ranges)
        case Reset() if isinstance(outcome, Done):
            return Replayed(command.group, command.offset)
        case _:
            return None


def _query_events(command: Command, outcome: Leased | QuerySettled) -> list[Event]:
    """Return what a query's lease, ack or reject leaves in the trace."""
    events: list[Event] = []
    if isinstance(outcome, QuerySettled):
        if isinstance(command, AckQuery):
            events += _ended_spans(command.group, ACK, outcome.sequence, outcome.spans)
        elif isinstance(command, RejectQuery):
            reason = command.reason
            events += _ended_spans(command.group, REJECT, outcome.sequence, outcome.spans, reason)
    elif isinstance(command, LeaseQuery):
        if outcome.acked:
            events += _ended_spans(command.group, ACK, outcome.before[0], outcome.acked)
        if outcome.granted:
            member, spans = f"{MEMBER}{command.query}", outcome.granted
            events.append(
                Given(command.group, member, command.sequence, command.deadline_ms, spans)
            )
    return events


def _ended_spans(
    group: str, verb: int, sequence: int, spans: list[int], reason: str = ""
) -> list[Event]:
    """Return one event for each attempt."""
    by_attempt: dict[int, list[int]] = {}
    for at in range(0, len(spans), 4):
        by_attempt.setdefault(spans[at + 2], []).extend(spans[at : at + 2])
    return [Ended(group, verb, sequence, a, ranges, reason) for a, ranges in by_attempt.items()]


def waiting_events(events: Iterable[object], due_of: Callable[[int], int]) -> list[Event]:
    """Return what commands about waiting messages leave in the trace."""
    found: list[Event] = []
    for event in events:
        match event:
            case Scheduled() if event.stored:
                numbers = [stored.number for stored in event.stored]
                found.append(Waits([n for number in numbers for n in (number, due_of(number))]))
            case Moved():
                found.append(WaitsUntil(event.number, event.due_ms))
            case Cancelled() if event.cancelled:
                found.append(CalledOff(event.cancelled))
            case Released():
                found.append(LetGo(event.base_offset, event.numbers))
            case _:
                pass
    return found


def _ended(command: Settle, ranges: list[int]) -> Ended:
    return Ended(
        command.group,
        command.verb,
        command.sequence,
        command.attempt,
        ranges,
        command.reason,
        command.delay_ms,
    )


def _without(ranges: Sequence[int], lost: Sequence[int]) -> list[int]:
    """Return flat ranges less those that were refused."""
    left = IntervalSet((ranges[at], ranges[at + 1]) for at in range(0, len(ranges), 2))
    for at in range(0, len(lost), 2):
        left.remove(lost[at], lost[at + 1])
    return [edge for pair in left for edge in pair]
