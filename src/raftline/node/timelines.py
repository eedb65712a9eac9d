"""Timelines: what happened to one message, and finding messages by what happened to them.

Answered by the partition's leader from the trace log (events in ranges), the machine (what the
message is now) and the log itself. The trace is looked through in pieces, each small enough for
the loop; a look ends after ``SCAN_BYTES_MAX`` and then says that it is not complete. A batch of
messages may hold a million: it is opened in the lane, and what is found there taken in steps.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.machines.delivery.rows import STATES, state_of
from raftline.machines.partition.commands import SetTrace
from raftline.model.errors import (
    OffsetOutOfRange,
    RaftlineError,
    StorageFault,
    UnknownMessage,
)
from raftline.model.ids import ReplicaId, node_of
from raftline.model.intervals import IntervalSet
from raftline.model.message import FIRST_MS, LAST_MS
from raftline.model.records import open_batches, open_or_count
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
    decode_record,
)
from raftline.node.partition import TRACE, PartitionHost
from raftline.node.questions import Arguments, Done
from raftline.node.replica import Replica
from raftline.storage.log_words import DamagedRange

if TYPE_CHECKING:
    from raftline.node.node import Node

READ_BYTES = 128 << 10
SCAN_BYTES_MAX = 64 << 20
FOUND_MAX = 1_000
FOUND_BYTES_MAX = 32 << 20  # of keys and names of groups in one answer: half a frame
STEP_ROWS = 1_000  # messages whose states are looked up in one go

Row = tuple[int, int, bytes | None]  # offset, timestamp, key
Each = Callable[[TraceRecord], None]
Finished = Callable[[int | RaftlineError], None]  # records that were not looked at


class Timelines:
    """Adds the questions about traces to a node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        node.questions.add("trace.show", self._show)
        node.questions.add("trace.search", self._search)

    def keep(self, host: PartitionHost, replica: Replica, percent: int, age_ms: int) -> None:
        """As the leader: adopt the topic's settings; let go of records that are too old."""
        trace, log = host.machine.trace, host.side.get(TRACE)
        if log is None and percent == trace.percent:
            return
        start, at_ms = trace.log_start, replica.time.stamp()
        if log is not None and age_ms >= 0:
            start = max(start, log.retention_start(at_ms - age_ms, None))
        if percent != trace.percent or start > trace.log_start:
            host.command(SetTrace(percent, start, at_ms), self._node.proposal(lambda _: None))

    # ------------------------------------------------------------------ one message

    def _show(self, host: PartitionHost, arguments: Arguments, _ms: int, done: Done) -> None:
        """Tell everything of the message at ``offset`` (or of the waiting ``number``)."""
        number = int(arguments.get("number", 0))
        offset = int(arguments.get("offset", -1))
        if number:
            found = host.machine.waiting.find(number)
            if found.state == "unknown":
                raise UnknownMessage(f"{host.name} w{number}")
            offset = found.offset
        machine = host.machine
        if offset >= machine.next_offset or (offset < machine.log_start and not number):
            raise OffsetOutOfRange(host.name, offset, machine.log_start, machine.next_offset)
        events: list[dict[str, Any]] = []

        def each(record: TraceRecord) -> None:
            for event in record.events:
                row = _row_of(event, offset, number)
                if row is not None:
                    events.append({"at_ms": record.at_ms, **row})

        def finished(rest: int | RaftlineError) -> None:
            if isinstance(rest, RaftlineError):
                done(rest)
                return
            done(
                {
                    "offset": offset,
                    "events": events,
                    "complete": not rest,
                    "traced": machine.trace.has(max(0, offset)),
                    "groups": states_of(host, offset) if offset >= 0 else {},
                    "nodes": self._nodes_with(host),
                    "log_start": machine.log_start,
                    "at_ms": machine.at_ms,
                }
            )

        since_ms = host.ages.at(offset) if offset >= 0 and not number else 0
        _Scan(self._node, host, since_ms, each, finished).start()

    def _nodes_with(self, host: PartitionHost) -> list[int]:
        """Return the nodes whose replica has everything that is committed here."""
        replica = host.replica
        if replica is None:
            return []
        found = [int(node_of(replica.id))]
        for other, progress in replica.raft.progress.items():
            if other != replica.id and progress.match >= replica.applied_index:
                found.append(int(node_of(ReplicaId(other))))
        return sorted(set(found))

    # ------------------------------------------------------------------ many

    def _search(self, host: PartitionHost, arguments: Arguments, _ms: int, done: Done) -> None:
        """Find messages by time window, key, member, group and state."""
        wanted = msgspec.convert(arguments, Wanted)
        if not wanted.member:
            _Look(self._node, host, wanted, None, done).start()
            return
        given = IntervalSet()

        def each(record: TraceRecord) -> None:
            if not wanted.from_ms <= record.at_ms < wanted.to_ms:
                return
            for event in record.events:
                if (
                    isinstance(event, Given)
                    and event.member == wanted.member
                    and wanted.group in ("", event.group)
                ):
                    for at in range(0, len(event.spans), 4):
                        given.add(event.spans[at], event.spans[at + 1])

        def finished(rest: int | RaftlineError) -> None:
            if isinstance(rest, RaftlineError):
                done(rest)
            else:
                window = msgspec.structs.replace(wanted, from_ms=FIRST_MS, to_ms=LAST_MS)
                _Look(self._node, host, window, given, done, is_complete=not rest).start()

        _Scan(self._node, host, max(0, wanted.from_ms), each, finished).start()


class Wanted(msgspec.Struct, frozen=True):
    """Which messages are meant."""

    from_ms: int = FIRST_MS
    to_ms: int = LAST_MS
    key: bytes | None = None
    member: str = ""  # to whom it was delivered
    group: str = ""
    state: str = ""  # fresh, settled, leased, resting, ready, dying, dead
    after: int = -1  # offsets up to here are left out
    limit: int = 100


class _Scan:
    """One look through the trace log, from a log time on."""

    __slots__ = ("_at", "_each", "_finished", "_host", "_left", "_node", "_since_ms")

    def __init__(
        self, node: "Node", host: PartitionHost, since_ms: int, each: Each, finished: Finished
    ) -> None:
        self._node = node
        self._host = host
        self._since_ms = since_ms
        self._each = each
        self._finished = finished
        self._left = SCAN_BYTES_MAX
        self._at = 0

    def start(self) -> None:
        """Find where to begin."""
        log = self._host.side.get(TRACE)
        if log is None:
            self._finished(0)
            return
        self._at = log.log_start
        if self._since_ms:
            self._node.segments.run(log.find_log_time(self._since_ms), self._found)
        else:
            self._next()

    def _found(self, offset: int | None, error: BaseException | None) -> None:
        del error  # then from the beginning
        if offset is not None and offset > self._at:
            self._at = offset
        self._next()

    def _next(self) -> None:
        log = self._host.side.get(TRACE)
        self._at = max(self._at, 0 if log is None else log.log_start)  # trimmed meanwhile
        if log is None or self._at >= log.log_end:
            self._finished(0)
        elif self._left <= 0:
            self._finished(log.log_end - self._at)
        else:
            self._node.segments.run(log.read_job(self._at, READ_BYTES), self._took)

    def _took(self, buffers: Sequence[Any] | None, error: BaseException | None) -> None:
        log = self._host.side.get(TRACE)
        if not buffers and log is not None and self._at < log.log_start:
            self._next()
            return
        if not buffers:
            self._finished(_unread(self._node, self._host, error, TRACE))
            return
        piece = b"".join(buffers)
        self._left -= len(piece)
        for message in open_batches(piece):
            self._at = message.offset + 1
            if message.value is not None:
                self._each(decode_record(message.value))
        self._next()


class _Look:
    """One look through the messages."""

    __slots__ = (
        "_at",
        "_done",
        "_found",
        "_given",
        "_host",
        "_is_complete",
        "_left",
        "_node",
        "_size",
        "_wanted",
    )

    def __init__(
        self,
        node: "Node",
        host: PartitionHost,
        wanted: Wanted,
        given: IntervalSet | None,
        done: Done,
        *,
        is_complete: bool = True,
    ) -> None:
        self._is_complete = is_complete  # all that was delivered is in ``given``
        self._node = node
        self._host = host
        self._wanted = wanted
        self._given = given
        self._done = done
        self._left = SCAN_BYTES_MAX
        self._at = max(host.machine.log_start, wanted.after + 1)
        self._found: list[dict[str, Any]] = []
        self._size = 0  # of what was found

    @property
    def _is_full(self) -> bool:
        """Say whether no more goes into the answer."""
        limit = min(self._wanted.limit, FOUND_MAX)
        return len(self._found) >= limit or self._size >= FOUND_BYTES_MAX

    def start(self) -> None:
        """Look at the next piece, or answer."""
        host = self._host
        self._at = max(self._at, host.log.log_start)  # trimmed meanwhile
        if self._given is not None:
            self._at = next(
                (start for start, _ in self._given.within(self._at, host.log.log_end)),
                host.log.log_end,
            )
        if self._at >= host.log.log_end:
            self._answer(-1)
        elif self._left <= 0 or self._is_full:
            self._answer(self._at - 1)
        else:
            read, at = host.log.read_job(self._at, READ_BYTES), self._at
            wanted, given = self._wanted, self._given
            self._node.segments.run(lambda: _opened(read(), at, wanted, given), self._took)

    def _took(self, opened: "_Opened | None", error: BaseException | None) -> None:
        if opened is None and self._at < self._host.log.log_start:
            self.start()
            return
        if opened is None:
            self._done(_unread(self._node, self._host, error))
            return
        self._left -= opened.size
        self._sift(opened, 0)

    def _sift(self, opened: "_Opened", done: int) -> None:
        """Look at the next of the messages that may be meant; then read on."""
        rows = opened.rows[done : done + STEP_ROWS]
        for row in rows:
            if self._is_full:
                break
            self._at = row[0] + 1
            self._take(*row)
        if self._is_full:
            self.start()
        elif done + len(rows) < len(opened.rows):
            self._node.clock.call_soon(lambda: self._sift(opened, done + STEP_ROWS))
        else:
            self._at = opened.end
            self.start()

    def _take(self, offset: int, timestamp_ms: int, key: bytes | None) -> None:
        states = states_of(self._host, offset, self._wanted.group)
        if self._wanted.state and self._wanted.state not in states.values():
            return
        self._size += len(key or b"") + sum([len(name) for name in states])
        self._found.append(
            {"offset": offset, "timestamp": timestamp_ms, "key": key, "groups": states}
        )

    def _answer(self, after: int) -> None:
        self._done({"messages": self._found, "after": after, "complete": self._is_complete})


class _Opened(msgspec.Struct, frozen=True):
    """The messages of a piece of the log that may be meant, and where the piece ends."""

    rows: list[Row]
    end: int
    size: int


def _opened(
    buffers: Sequence[Any], at: int, wanted: Wanted, given: IntervalSet | None
) -> _Opened | None:
    """Open a piece of the log from ``at`` on; None: nothing was read. Work for a lane."""
    piece = b"".join(buffers)
    rows: list[Row] = []
    end = -1
    for message in open_or_count(piece):
        end = message.offset + 1
        if (
            message.offset >= at
            and wanted.from_ms <= message.timestamp_ms < wanted.to_ms
            and (wanted.key is None or message.key == wanted.key)
            and (given is None or message.offset in given)
        ):
            rows.append((message.offset, message.timestamp_ms, message.key))
    return _Opened(rows, end, len(piece)) if end > at else None


def states_of(host: PartitionHost, offset: int, only: str = "") -> dict[str, str]:
    """Return what a message is to each work group."""
    found: dict[str, str] = {}
    for name, group in host.machine.delivery.groups.items():
        if only and name != only:
            continue
        held = group.rows.find(offset)
        if held is not None:
            found[name] = STATES[state_of(held[2])]
        else:
            found[name] = "settled" if group.is_settled(offset) else "fresh"
    return found


def _unread(
    node: "Node", host: PartitionHost, error: BaseException | None, log: str = ""
) -> RaftlineError:
    """Return why messages or records could not be read; what is damaged is mended meanwhile."""
    if isinstance(error, DamagedRange):
        return node.segments.damaged(host, error, log)
    return StorageFault(host.name, f"reading its {log or 'log'}: {error}")


def _row_of(event: Event, offset: int, number: int) -> dict[str, Any] | None:
    """Return what an event says of one message; None: nothing."""
    match event:
        case Given():
            for at in range(0, len(event.spans), 4):
                start, end, attempt, generation = event.spans[at : at + 4]
                if start <= offset < end:
                    return {
                        "kind": "given",
                        "group": event.group,
                        "member": event.member,
                        "attempt": attempt,
                        "generation": generation,
                        "deadline_ms": event.deadline_ms,
                    }
            return None
        case Ended():
            if not _holds(event.ranges, offset):
                return None
            return {
                "kind": "ended",
                "group": event.group,
                "verb": event.verb,
                "attempt": event.attempt,
                "reason": event.reason,
                "delay_ms": event.delay_ms,
            }
        case Died():
            if not event.start <= offset < event.end:
                return None
            return {
                "kind": "died",
                "group": event.group,
                "reason": event.reason,
                "attempts": event.attempts,
            }
        case Revived():
            hit = _holds(event.ranges, offset)
            return {"kind": "revived", "group": event.group} if hit else None
        case Forgotten():
            hit = _holds(event.ranges, offset)
            return {"kind": "forgotten", "group": event.group} if hit else None
        case Replayed():
            hit = event.offset <= offset
            return {"kind": "replayed", "group": event.group} if hit else None
        case _:
            return _waiting_row(event, number) if number else None


def _waiting_row(
    event: Waits | WaitsUntil | CalledOff | LetGo, number: int
) -> dict[str, Any] | None:
    match event:
        case Waits():
            rows = event.waiting
            for at in range(0, len(rows), 2):
                if rows[at] == number:
                    return {"kind": "waits", "due_ms": rows[at + 1]}
        case WaitsUntil():
            if event.number == number:
                return {"kind": "moved", "due_ms": event.due_ms}
        case CalledOff():
            if number in event.numbers:
                return {"kind": "cancelled"}
        case LetGo():
            if number in event.numbers:
                return {"kind": "released"}
    return None


def _holds(ranges: list[int], offset: int) -> bool:
    return any(ranges[at] <= offset < ranges[at + 1] for at in range(0, len(ranges), 2))
