"""The outbox of a partition: what is given up on and not yet in the dead-letter topic.

State
    Every message that died has a number: 1, 2, ... over all groups, without gap. A table from
    numbers to what must be told of the messages; ``buried``: the last number that is there.

Invariants
    B1  The outbox holds exactly the numbers in ``(buried, next_number)``.
    B2  ``pins`` has the offsets of these messages and how many groups owe each: retention must
        keep them. (A trim by hand does not ask. Then the sender finds the bytes gone and says so.)
    B3  A group that is dropped or reset still owes what it owed.

Messages that died alike in one go are one row, so a range that expires costs what one message does.
"""

from collections.abc import Callable, Iterator

import msgspec

from raftline.machines.delivery.rows import ATTEMPT_MAX, TEXT_MASK, who_of
from raftline.machines.delivery.texts import Texts, TextState
from raftline.model.limits import DELIVERY_ERRORS_MAX, DELIVERY_MEMBERS_MAX
from raftline.model.range_table import Held, RangeTable, Row

MAX_RETRIES, EXPIRED, REJECTED = "max_retries", "expired", "rejected"
REASONS = ("", MAX_RETRIES, EXPIRED, REJECTED)

_GROUP, _SHIFT, _MARK, _FIRST, _LAST, _WHO = range(6)  # columns; shift: offset - number
_GROUPS_MAX = 1 << 31  # names of groups are never dropped


class Dying(msgspec.Struct, frozen=True):
    """Messages ``[start, end)`` of a group that died alike; ``number`` is that of the first."""

    number: int
    group: str
    start: int
    end: int
    generation: int
    reason: str  # MAX_RETRIES (nacked), EXPIRED (its last lease ran out), REJECTED
    attempts: int
    first_ms: int  # log time of the first delivery
    last_ms: int  # log time when it was given up on
    member: str
    error: str  # what was said last


class OutboxState(msgspec.Struct, array_like=True):
    """The outbox in a snapshot, besides the table."""

    buried: int
    next_number: int
    groups: TextState
    members: TextState
    errors: TextState


class Outbox:
    """Numbers and what must be told of the messages behind them."""

    __slots__ = ("_errors", "_groups", "_members", "_pins", "_table", "buried", "next_number")

    def __init__(self) -> None:
        self.buried = 0
        self.next_number = 1
        self._table = RangeTable(6)
        self._pins = RangeTable(1)  # offset -> groups that owe it
        self._groups = Texts(_GROUPS_MAX)
        self._members = Texts(DELIVERY_MEMBERS_MAX)
        self._errors = Texts(DELIVERY_ERRORS_MAX)

    def add(self, dying: Dying) -> None:
        """Take messages that died; their numbers are the next ones."""
        count = dying.end - dying.start
        assert dying.number == self.next_number, dying
        row: Row = (
            self._groups.number(dying.group),
            dying.start - dying.number,
            REASONS.index(dying.reason) | dying.attempts << 3 | dying.generation << 24,
            dying.first_ms,
            dying.last_ms,
            who_of(self._members.number(dying.member), self._errors.number(dying.error)),
        )
        self._hold(row, count)
        self._table.put(dying.number, dying.number + count, row)
        self._pin(dying.start, dying.end, 1)
        self.next_number += count

    def bury(self, number: int) -> list[Dying]:
        """Drop everything up to and with ``number``; return what it was."""
        end = min(number + 1, self.next_number)
        gone = [self._told(held) for held in self._table.within(0, end)]
        for held_start, held_end, row in list(self._table.within(0, end)):
            self._drop(row, held_end - held_start)
        self._table.remove(0, end)
        for dying in gone:
            self._pin(dying.start, dying.end, -1)
        self.buried = max(self.buried, end - 1)
        return gone

    def after(self, number: int) -> Iterator[Dying]:
        """Yield what has a higher number than ``number``, in order. Change nothing meanwhile."""
        return map(self._told, self._table.within(number + 1, self.next_number))

    def pin(self) -> int | None:
        """Return the lowest offset that retention must keep."""
        first = self._pins.first()
        return first and first[0]

    def __len__(self) -> int:
        """Return how many messages are in the outbox."""
        return self.next_number - 1 - self.buried

    @property
    def bytes(self) -> int:
        """Return about how much memory the outbox takes."""
        return self._table.bytes + self._pins.bytes

    def freeze(self) -> "tuple[OutboxState, Callable[[], list[bytes]]]":
        """Return the state besides the table, and what writes the table."""
        texts = (self._groups.state(), self._members.state(), self._errors.state())
        return OutboxState(self.buried, self.next_number, *texts), self._table.freeze()

    def restore(self, state: OutboxState, table: "bytes | memoryview") -> None:
        """Take over what ``freeze`` returned elsewhere."""
        self.buried, self.next_number = state.buried, state.next_number
        self._groups.restore(state.groups)
        self._members.restore(state.members)
        self._errors.restore(state.errors)
        self._table.restore(table)
        self._pins.clear()
        for start, end, row in self._table:
            self._hold(row, end - start)
            self._pin(start + row[_SHIFT], end + row[_SHIFT], 1)

    def check(self) -> None:
        """Raise if an invariant is broken."""
        self._table.check()
        self._pins.check()
        assert 0 <= self.buried < self.next_number
        assert not list(self._table.gaps(self.buried + 1, self.next_number))  # B1
        assert not self._table.overlaps(0, self.buried + 1)
        assert not self._table.overlaps(self.next_number, 1 << 62)
        held: tuple[dict[int, int], ...] = ({}, {}, {})
        owed: dict[int, int] = {}
        for start, end, row in self._table:
            numbers = (row[_GROUP], row[_WHO] & TEXT_MASK, row[_WHO] >> 32)
            for counts, number in zip(held, numbers, strict=True):
                counts[number] = counts.get(number, 0) + end - start
            for offset in range(start + row[_SHIFT], end + row[_SHIFT]):
                owed[offset] = owed.get(offset, 0) + 1
        for texts, counts in zip(self._texts(), held, strict=True):
            texts.check(counts)
        assert owed == {o: row[0] for s, e, row in self._pins for o in range(s, e)}  # B2

    def _texts(self) -> tuple[Texts, Texts, Texts]:
        return self._groups, self._members, self._errors

    def _hold(self, row: Row, count: int) -> None:
        self._groups.hold(row[_GROUP], count)
        self._members.hold(row[_WHO] & TEXT_MASK, count)
        self._errors.hold(row[_WHO] >> 32, count)

    def _drop(self, row: Row, count: int) -> None:
        self._groups.drop(row[_GROUP], count)
        self._members.drop(row[_WHO] & TEXT_MASK, count)
        self._errors.drop(row[_WHO] >> 32, count)

    def _pin(self, start: int, end: int, more: int) -> None:
        """Change how many owe the messages of a range. B2."""
        pins = self._pins
        held = list(pins.within(start, end))
        for low, high in list(pins.gaps(start, end)):
            pins.put(low, high, (more,))
        for low, high, (owed,) in held:
            if owed + more:
                pins.replace(low, high, (owed + more,))
            else:
                pins.remove(low, high)

    def _told(self, held: Held) -> Dying:
        start, end, row = held
        mark = row[_MARK]
        return Dying(
            start,
            self._groups.text(row[_GROUP]),
            start + row[_SHIFT],
            end + row[_SHIFT],
            mark >> 24,
            REASONS[mark & 7],
            mark >> 3 & ATTEMPT_MAX,
            row[_FIRST],
            row[_LAST],
            self._members.text(row[_WHO] & TEXT_MASK),
            self._errors.text(row[_WHO] >> 32),
        )
