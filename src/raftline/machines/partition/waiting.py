"""Waiting messages: stored, not yet in the log, each until it is due.

State
    For each waiting message its number, due time and priority; their bytes are in the partition's
    waiting log, whose offsets are the numbers. Where released messages went (release_runs.py),
    and which numbers were cancelled.

Commands
    Schedule, Cancel, Move, Release: see waiting_commands.py.

Invariants
    W1  Every number is given once, in order, and is exactly one of waiting, released, cancelled.
    W2  A Release holds exactly the next messages of its priority, in the order (due time, number),
        all due by the log time of its entry; else it is refused whole. So nothing is released
        early or twice or after a cancel, and what is due in one priority keeps its order.
    W3  A due time in the past means now: what is scheduled goes behind what is due already.
    W4  A delay over the limit that is stamped in the command stores nothing.
    W5  ``log_start`` of the waiting log is the lowest number that waits.

Costs: 25 bytes a waiting message; 3 us to schedule one, 0.5 us to release one.
"""

import heapq
from collections.abc import Callable, Iterator

import msgspec

from raftline.machines.partition.due_index import DueIndex
from raftline.machines.partition.number_table import NumberTable
from raftline.machines.partition.release_runs import Columns, ReleaseRuns
from raftline.machines.partition.waiting_commands import Cancel, Move, Release, Schedule
from raftline.model.errors import (
    InvalidArgument,
    NewerFormat,
    NotWaiting,
    RaftlineError,
    UnknownMessage,
)
from raftline.model.intervals import IntervalSet
from raftline.model.limits import CANCELLED_RANGES_MAX

WAITING_FORMAT = 1
FIRST_NUMBER = 1

Row = tuple[int, int, int]  # due_ms, number, priority
Admit = Callable[[int, int], RaftlineError | None]


class WaitingBatch(msgspec.Struct, frozen=True, gc=False):
    """A message that goes to the waiting log: where it is in the entry's data, and its number."""

    start: int
    length: int
    number: int
    timestamp: int


class Scheduled(msgspec.Struct, frozen=True):
    """Messages wait now: the number of each or why it has none, and what to store."""

    at_ms: int
    outcomes: list[int | RaftlineError]
    stored: list[WaitingBatch]


class Cancelled(msgspec.Struct, frozen=True):
    """What became of each number: cancelled (also before), or released, or never given."""

    cancelled: list[int]
    released: list[int]
    unknown: list[int]


class Moved(msgspec.Struct, frozen=True):
    """A message waits until another time."""

    number: int
    due_ms: int


class Released(msgspec.Struct, frozen=True):
    """Messages are in the log now, from ``base_offset`` on."""

    base_offset: int
    priority: int
    numbers: list[int]


class Found(msgspec.Struct, frozen=True, gc=False):
    """What is known of a number."""

    state: str  # "waiting" | "released" | "cancelled" | "unknown"
    due_ms: int = -1
    priority: int = 0
    offset: int = -1


WaitingEvent = Scheduled | Cancelled | Moved | Released


class WaitingState(msgspec.Struct, array_like=True):
    """The canonical snapshot."""

    format: int
    next_number: int
    released_count: int
    cancelled_count: int
    lanes: list[tuple[int, bytes, bytes]]  # priority, due times, numbers
    table: tuple[bytes, bytes, bytes]
    runs: Columns
    cancelled: list[tuple[int, int]]


class Waiting:
    """The waiting messages of one partition."""

    __slots__ = (
        "_cancelled",
        "_lanes",
        "_runs",
        "_table",
        "cancelled_count",
        "count",
        "next_number",
        "released_count",
    )

    def __init__(self) -> None:
        self.next_number = FIRST_NUMBER
        self.count = 0  # that wait
        self.released_count = 0
        self.cancelled_count = 0
        self._lanes: dict[int, DueIndex] = {}  # by priority
        self._table = NumberTable()
        self._runs = ReleaseRuns()
        self._cancelled = IntervalSet()

    # ------------------------------------------------------------------ questions

    @property
    def log_start(self) -> int:
        """Return the first number whose bytes are needed. W5."""
        lowest = self._table.lowest()
        return self.next_number if lowest is None else lowest

    def earliest_due_ms(self) -> int | None:
        """Return when the next message is due."""
        firsts = [lane.first() for lane in self._lanes.values()]
        return min([first[0] for first in firsts if first is not None], default=None)

    def due_lanes(self, at_ms: int) -> list[int]:
        """Return the priorities with something due, the longest due first."""
        firsts = [(lane.first(), priority) for priority, lane in self._lanes.items()]
        return [p for first, p in sorted(firsts) if first is not None and first[0] <= at_ms]

    def next_due(self, priority: int, at_ms: int, skip: int, count_max: int) -> list[int]:
        """Return numbers to release next: due by ``at_ms``, behind the first ``skip``."""
        lane = self._lanes.get(priority)
        if lane is None:
            return []
        dues, numbers = lane.head(skip, count_max)
        if dues and dues[-1] > at_ms:
            due = next(at for at, due_ms in enumerate(dues) if due_ms > at_ms)
            del numbers[due:]
        return numbers.tolist()

    def find(self, number: int) -> Found:
        """Say what is known of a number."""
        row = self._table.get(number)
        if row is not None:
            return Found("waiting", row[0], row[1])
        if not FIRST_NUMBER <= number < self.next_number:
            return Found("unknown")
        if number in self._cancelled:
            return Found("cancelled")
        offset = self._runs.find(number)
        return Found("released", offset=-1 if offset is None else offset)

    def page(self, after: tuple[int, int], limit: int) -> list[Row]:
        """Return up to ``limit`` waiting messages behind ``after`` (due_ms, number), in order."""
        found: list[Row] = []
        for row in heapq.merge(*[_rows(p, lane, after) for p, lane in self._lanes.items()]):
            if len(found) >= limit:
                break
            found.append(row)
        return found

    # ------------------------------------------------------------------ commands

    def schedule(self, command: Schedule, at_ms: int, admit: Admit | None = None) -> Scheduled:
        """Give each message a number, unless its delay is too long. W1, W3, W4.

        ``admit(row, number)`` may refuse one for other reasons, or take note of its number.
        """
        outcomes: list[int | RaftlineError] = []
        stored: list[WaitingBatch] = []
        start = command.body
        for at, (length, priority, due_ms, timestamp) in enumerate(command.rows):
            number = self.next_number
            refusal: RaftlineError | None = None
            if due_ms - at_ms > command.delay_ms_max:
                refusal = over_limit(due_ms - at_ms, command.delay_ms_max)
            elif admit is not None:
                refusal = admit(at, number)
            if refusal is None:
                self.next_number = number + 1
                self._wait(number, max(due_ms, at_ms), priority)
                stored.append(WaitingBatch(start, length, number, timestamp))
            outcomes.append(number if refusal is None else refusal)
            start += length
        return Scheduled(at_ms, outcomes, stored)

    def cancel(self, command: Cancel) -> Cancelled:
        """Forget those that wait; say it again of those that were cancelled before."""
        cancelled: list[int] = []
        released: list[int] = []
        unknown: list[int] = []
        for number in command.numbers:
            row = self._table.get(number)
            if row is not None:
                self._forget(number, row)
                self.cancelled_count += 1
                self._cancelled.add(number, number + 1)
                cancelled.append(number)
            elif number in self._cancelled:
                cancelled.append(number)
            elif FIRST_NUMBER <= number < self.next_number:
                released.append(number)
            else:
                unknown.append(number)
        while len(self._cancelled) > CANCELLED_RANGES_MAX:
            self._cancelled.remove(*next(iter(self._cancelled)))
        return Cancelled(cancelled, released, unknown)

    def move(self, command: Move, at_ms: int) -> Moved | RaftlineError:
        """Let a message wait until another time, sooner or later. W3, W4."""
        number = command.number
        row = self._table.get(number)
        if row is None:
            return self.refusal(number)
        if command.due_ms - at_ms > command.delay_ms_max:
            return over_limit(command.due_ms - at_ms, command.delay_ms_max)
        due_ms, priority = max(command.due_ms, at_ms), row[1]
        self._lanes[priority].remove(row[0], number)
        self._lanes[priority].add(due_ms, number)
        self._table.put(number, due_ms, priority)
        return Moved(number, due_ms)

    def refuse_release(self, command: Release, at_ms: int) -> RaftlineError | None:
        """Say why a Release cannot be applied; None if it can. Changes nothing. W2."""
        lane, count = self._lanes.get(command.priority), len(command.numbers)
        if lane is None:
            return NotWaiting("none of them waits")
        dues, numbers = lane.head(0, count)
        if numbers.tolist() != command.numbers:
            return NotWaiting(f"they are not the next {count} of priority {command.priority}")
        if dues[-1] > at_ms:
            return NotWaiting(f"number {numbers[-1]} is due at {dues[-1]}, it is {at_ms}")
        return None

    def release(self, command: Release, base_offset: int) -> Released:
        """Note that the messages are in the log; ``refuse_release`` had nothing against it."""
        numbers = command.numbers
        self._lanes[command.priority].take(len(numbers))
        self._drop_empty(command.priority)
        self._table.drop(numbers)
        self.count -= len(numbers)
        self.released_count += len(numbers)
        self._runs.add(base_offset, numbers)
        return Released(base_offset, command.priority, numbers)

    def trim(self, log_start: int) -> None:
        """The log starts at ``log_start`` now: ids below it lead nowhere."""
        self._runs.trim(log_start)

    def refusal(self, number: int) -> RaftlineError:
        """Return what who asks for a number hears that does not wait."""
        found = self.find(number)
        if found.state == "unknown":
            return UnknownMessage(f"w{number}", "it was never given")
        text = found.state if found.offset < 0 else f"released to offset {found.offset}"
        return NotWaiting(f"message w{number} was {text}: it does not wait any more")

    # ------------------------------------------------------------------ state

    def freeze(self) -> Callable[[], bytes]:
        """Hold the state as it is now; the callable joins its bytes."""
        if self.next_number == FIRST_NUMBER:
            return lambda: b""
        lanes = [(priority, self._lanes[priority].freeze()) for priority in sorted(self._lanes)]
        table, runs, cancelled = self._table.freeze(), self._runs.freeze(), list(self._cancelled)
        numbers = self.next_number, self.released_count, self.cancelled_count

        def join() -> bytes:
            joined = [(priority, *lane()) for priority, lane in lanes]
            return msgspec.msgpack.encode(
                WaitingState(WAITING_FORMAT, *numbers, joined, table(), runs(), cancelled)
            )

        return join

    def restore(self, data: bytes) -> None:
        """Replace the state.

        Raises:
            NewerFormat: the bytes are of a newer build.
        """
        self.__init__()
        if not data:
            return
        state = _decoder.decode(data)
        if state.format > WAITING_FORMAT:
            raise NewerFormat("waiting messages in a snapshot", state.format, WAITING_FORMAT)
        self.next_number = state.next_number
        self.released_count, self.cancelled_count = state.released_count, state.cancelled_count
        for priority, dues, numbers in state.lanes:
            lane = self._lanes[priority] = DueIndex()
            lane.restore(dues, numbers)
            self.count += len(lane)
        self._table.restore(*state.table)
        self._runs.restore(state.runs)
        self._cancelled = IntervalSet(state.cancelled)

    def check(self) -> None:
        """Raise if an invariant is broken."""
        gone = self.released_count + self.cancelled_count
        assert self.count + gone == self.next_number - FIRST_NUMBER  # W1
        rows: dict[int, tuple[int, int]] = {}
        for priority, lane in self._lanes.items():
            lane.check()
            assert len(lane), priority
            for due_ms, number in lane.after((-1, -1)):
                assert number not in rows
                rows[number] = due_ms, priority
        self._table.check()
        self._runs.check()
        self._cancelled.check()
        assert rows == {number: (due_ms, priority) for number, due_ms, priority in self._table}
        assert len(rows) == self.count
        assert all(FIRST_NUMBER <= number < self.next_number for number in rows)
        assert not any(number in self._cancelled for number in rows)  # W1
        assert self.log_start == min(rows, default=self.next_number)  # W5

    def _wait(self, number: int, due_ms: int, priority: int) -> None:
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._lanes[priority] = DueIndex()
        lane.add(due_ms, number)
        self._table.put(number, due_ms, priority)
        self.count += 1

    def _forget(self, number: int, row: tuple[int, int]) -> None:
        due_ms, priority = row
        self._lanes[priority].remove(due_ms, number)
        self._drop_empty(priority)
        self._table.drop([number])
        self.count -= 1

    def _drop_empty(self, priority: int) -> None:
        if not self._lanes[priority]:
            del self._lanes[priority]


def over_limit(delay_ms: int, delay_ms_max: int) -> InvalidArgument:
    """Return the refusal of a delay over the topic's limit. W4."""
    return InvalidArgument(
        f"a delay of {delay_ms} ms is over the limit of {delay_ms_max} ms; nothing was stored",
        "ask for less, or raise the topic's setting delay_ms_max",
    )


def _rows(priority: int, lane: DueIndex, after: tuple[int, int]) -> Iterator[Row]:
    for due_ms, number in lane.after(after):
        yield due_ms, number, priority


_decoder = msgspec.msgpack.Decoder(WaitingState)
