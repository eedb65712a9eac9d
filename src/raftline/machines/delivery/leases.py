"""Leases: what a Grant takes, and what a settle may do.

L1  A Grant leases what is free and counted right: fresh messages as delivery 1, READY ones as one
    more than they had, both in their generation. What is not is left out.
L2  A settle is accepted where its lease lives: same term and sequence, attempt and generation.
L3  A Grant may be lost with its leader after the messages went out. A settle that finds no lease
    is *adopted* if a Grant would be accepted now in its place: free, counted right. In an ordered
    group a nack or reject of a fresh message is not: nobody knows its key, and it would overtake.
L4  Everything else is lost: the lease has moved on, and the caller hears it.
L5  In an ordered group a message whose key is held by another is left out of a Grant. A Grant
    that names no keys is left out whole.
L6  A release says that work was not begun: the message is ready at once, and its delivery is not
    counted. The next one has the same number; the lease tells them apart. Adopted it is no more
    than a word: the message is free already.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from raftline.machines.delivery.commands import ACK, EXTEND, NACK, RELEASE, Grant, Settle
from raftline.machines.delivery.group import Piece, WorkGroup
from raftline.machines.delivery.outbox import MAX_RETRIES, REJECTED, Outbox
from raftline.machines.delivery.retries import Delivery, give_back, give_up, is_last, release
from raftline.machines.delivery.rows import (
    ATTEMPT_MAX,
    FIRST,
    GENERATION_MAX,
    KEY,
    LEASE,
    LEASED,
    MARK,
    READY,
    TIME_MS_MAX,
    attempt_of,
    error_of,
    generation_of,
    lease_of,
    mark_of,
    member_of,
    state_of,
    who_of,
)
from raftline.model.limits import (
    LEASE_MS_MAX,
    MEMBER_ID_CHARS_MAX,
    NACK_REASON_CHARS_MAX,
    SETTLE_ROWS_MAX,
)
from raftline.model.range_table import Row


class Taken:
    """Ranges walked through in order: what was taken, and so what was lost."""

    __slots__ = ("_at", "_end", "lost")

    def __init__(self) -> None:
        self.lost: list[int] = []
        self._at = self._end = 0

    def begin(self, start: int, end: int) -> None:
        """Ask for the next range."""
        self.close()
        self._at, self._end = start, max(start, end)

    def take(self, start: int, end: int) -> None:
        """Get a part of it, behind the last one."""
        self._lose(start)
        self._at = end

    def close(self) -> None:
        """Ask for no more."""
        self._lose(self._end)

    def _lose(self, end: int) -> None:
        if self._at >= end:
            return
        if self.lost and self.lost[-1] == self._at:
            self.lost[-1] = end
        else:
            self.lost += (self._at, end)
        self._at = end


def grant(
    group: WorkGroup, command: Grant, lease: int, at_ms: int, next_offset: int
) -> tuple[list[int], list[int]]:
    """Lease what is free of the spans; return the spans that are, and the ranges that are not."""
    taken, granted = Taken(), list[int]()
    member = group.members.number(command.member[:MEMBER_ID_CHARS_MAX])
    deadline_ms = min(max(1, command.deadline_ms), TIME_MS_MAX)
    index = 0  # of the span's first key
    spans = command.spans
    for at in range(0, len(spans), 4):
        start, end, attempt, generation = spans[at : at + 4]
        taken.begin(start, end)
        for piece in list(group.pieces(start, min(end, next_offset))):
            row = piece[2]
            if not is_free(group, row, attempt, generation):
                continue
            mark = mark_of(LEASED, attempt, generation)
            for part, key in _by_key(group, piece, command.keys, index - start):
                if row is None:
                    new = (mark, lease, deadline_ms, at_ms, member, key)
                else:
                    who = who_of(member, error_of(row))
                    new = (mark, lease, deadline_ms, row[FIRST] or at_ms, who, key)
                group.change(part, new)
                taken.take(part[0], part[1])
                _extend(granted, part[0], part[1], attempt, generation)
        index += max(0, end - start)
    taken.close()
    if not granted:
        group.members.tidy(member)
    return granted, taken.lost


def settle(
    group: WorkGroup, outbox: Outbox, command: Settle, at_ms: int, next_offset: int
) -> list[int]:
    """Do to the ranges what their worker says; return those whose lease has moved on."""
    lease, mark = _named(command)
    ranges, looks = command.ranges, SETTLE_ROWS_MAX
    is_ack = command.verb == ACK and lease > 0
    if is_ack and len(ranges) == 2 and group.ack(ranges[0], ranges[1], lease, mark):
        return []
    taken = Taken()
    for at in range(0, len(ranges), 2):
        start, end = ranges[at : at + 2]
        if is_ack and looks and group.ack(start, end, lease, mark):  # nothing of it is lost
            looks -= 1
            continue
        taken.begin(start, end)
        found = list(islice(group.pieces(start, min(end, next_offset)), looks))
        looks -= len(found)
        for piece in found:
            row = piece[2]
            if row is not None and row[LEASE] == lease:  # 0 where there is none
                if row[MARK] != mark:
                    continue
            elif not _is_adopted(group, row, command):
                continue
            taken.take(piece[0], piece[1])
            _settle_piece(group, outbox, command, piece, at_ms)
    taken.close()
    return taken.lost


def is_free(group: WorkGroup, row: Row | None, attempt: int, generation: int) -> bool:
    """Say whether a piece may be delivered as number ``attempt`` of ``generation``. L1."""
    if row is None:
        return attempt == 1 and generation == group.base_generation
    return (
        state_of(row) == READY
        and attempt_of(row) + 1 == attempt
        and generation_of(row) == generation
    )


def _named(command: Settle) -> tuple[int, int]:
    """Return lease and mark of the rows that a settle is about; -1 if there can be none. L2."""
    attempt, generation = command.attempt, command.generation
    if not 0 < attempt <= ATTEMPT_MAX or not 0 <= generation <= GENERATION_MAX:
        return -1, -1
    return lease_of(command.term, command.sequence) or -1, LEASED | attempt << 3 | generation << 24


def _is_adopted(group: WorkGroup, row: Row | None, command: Settle) -> bool:
    """Say whether a settle without a lease stands for a lost Grant. L3."""
    if command.verb == EXTEND or not is_free(group, row, command.attempt, command.generation):
        return False
    return row is not None or command.verb in (ACK, RELEASE) or not group.policy.ordered


def _settle_piece(
    group: WorkGroup, outbox: Outbox, command: Settle, piece: Piece, at_ms: int
) -> None:
    row, verb = piece[2], command.verb
    if verb == ACK:
        group.change(piece, None)
        return
    if verb == EXTEND:
        assert row is not None
        until_ms = at_ms + min(max(command.delay_ms, 0), LEASE_MS_MAX)
        group.change(piece, (*row[:LEASE], row[LEASE], max(1, until_ms), *row[FIRST:]))
        return
    if verb == RELEASE:
        if row is not None and state_of(row) == LEASED:  # L6
            release(group, piece)
        return
    failed = Delivery(command.attempt, command.generation, at_ms, 0)
    failed.member = command.member[:MEMBER_ID_CHARS_MAX]
    failed.error = command.reason[:NACK_REASON_CHARS_MAX]
    if row is not None:
        failed.first_ms, failed.key = row[FIRST] or at_ms, row[KEY]
        failed.member = group.members.text(member_of(row)) or failed.member
        failed.error = failed.error or group.errors.text(error_of(row))
    if verb != NACK:
        give_up(group, outbox, piece, failed, REJECTED, at_ms)
    elif is_last(group.policy, failed.attempt):
        give_up(group, outbox, piece, failed, MAX_RETRIES, at_ms)
    else:
        give_back(group, piece, failed, command.delay_ms, at_ms)


def _by_key(
    group: WorkGroup, piece: Piece, keys: list[int] | None, shift: int
) -> Iterable[tuple[Piece, int]]:
    """Return the parts of a piece that may be leased, each with its key. L5."""
    row = piece[2]
    if not group.policy.ordered:
        return ((piece, row[KEY] if row else 0),)
    if keys is None:
        return ()
    return ((piece, row[KEY]),) if row else _free_keys(group, piece, keys, shift)


def _free_keys(
    group: WorkGroup, piece: Piece, keys: list[int], shift: int
) -> Iterator[tuple[Piece, int]]:
    """Yield the messages of a fresh piece whose key nobody holds, not even one before. L5."""
    for offset in range(*piece[:2]):
        key = keys[shift + offset]
        if not key or key not in group.keys:
            yield (offset, offset + 1, None, offset + 1), key


def _extend(spans: list[int], start: int, end: int, attempt: int, generation: int) -> None:
    if spans and spans[-3:] == [start, attempt, generation]:
        spans[-3] = end
    else:
        spans += (start, end, attempt, generation)
