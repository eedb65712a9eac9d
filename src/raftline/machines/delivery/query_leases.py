"""Query leases: what a job that reads in numbered batches (a *query*; Spark) holds of a group.

A query leases batch n, works, and says so by leasing n + 1, or by an ack: in between it may crash
and come back as often as it likes, and hears the same ranges for n. Workers of the group go on
beside it; to them its messages are leased.

State, per group
    For each query its number n, the lease that holds the messages (rows.py), the spans it was
    given, what of them it rejected, whether n is acked, and when it was heard of last.

Invariants
    U1  One number n per query. A lower one, or one that is acked, is refused; the next one acks n.
        One further on is refused while n holds something.
    U2  Leasing n again gives the spans of n again and counts no delivery; only where n holds
        nothing new messages may be taken. Their lease runs anew from then on.
    U3  Only what is still leased by the query's own lease is acked, rejected or given back: what
        ran out, was reset or trimmed is *lost* to it, and it is told so.
    U4  At most ``QUERY_LEASES_MAX`` queries per group. One that holds nothing and is silent for
        ``FENCE_EXPIRE_MS`` is forgotten.

Costs: as a lease and a settle of each of its at most ``QUERY_SPANS_MAX`` spans.
"""

from collections.abc import Iterable

from raftline.machines.delivery.commands import (
    AckQuery,
    Grant,
    LeaseQuery,
    RejectQuery,
    ReleaseQuery,
)
from raftline.machines.delivery.group import Piece, WorkGroup
from raftline.machines.delivery.leases import grant
from raftline.machines.delivery.outbox import REJECTED, Outbox
from raftline.machines.delivery.outcomes import Done, Leased, QuerySettled
from raftline.machines.delivery.queries import QueryLease
from raftline.machines.delivery.retries import Delivery, give_back, give_up
from raftline.machines.delivery.rows import (
    FIRST,
    KEY,
    LEASE,
    TIME_MS_MAX,
    attempt_of,
    error_of,
    generation_of,
    member_of,
)
from raftline.model.errors import FencedQuery, OverLimit, RaftlineError, TooLarge
from raftline.model.intervals import IntervalSet
from raftline.model.limits import (
    FENCE_EXPIRE_MS,
    MEMBER_ID_CHARS_MAX,
    NACK_REASON_CHARS_MAX,
    QUERY_LEASES_MAX,
    QUERY_SPANS_MAX,
)

SEQUENCE_MASK = (1 << 40) - 1
MEMBER = "query:"  # what the name of a query follows where members are shown


def lease_query(
    group: WorkGroup, command: LeaseQuery, lease: int, at_ms: int, next_offset: int
) -> Leased | RaftlineError:
    """Give a query the messages of number n. U1, U2."""
    held = group.queries.get(command.query)
    refusal = _refusal(group, held, command, at_ms)
    if refusal is not None:
        return refusal
    if held is not None and command.n == held.n and held.spans:
        _renew(group, held, command.deadline_ms)
        held.used_ms = at_ms
        return Leased(command.n, *whole_of(group, held), [], [], [])
    acked = [] if held is None else _ack(group, held)
    before = 0 if held is None else held.lease & SEQUENCE_MASK
    member = f"{MEMBER}{command.query}"[:MEMBER_ID_CHARS_MAX]
    wanted = Grant(
        command.group, command.sequence, member, command.deadline_ms, command.spans, command.keys
    )
    granted, _ = grant(group, wanted, lease, at_ms, next_offset)
    new = QueryLease(command.n, lease, granted, at_ms)
    group.queries.pop(command.query, None)
    group.queries[command.query] = new
    return Leased(command.n, *whole_of(group, new), granted, acked, [before])


def ack_query(group: WorkGroup, command: AckQuery, at_ms: int) -> QuerySettled | RaftlineError:
    """Ack what a query holds under number n or a lower one."""
    held = group.queries.get(command.query)
    if held is None or held.n > command.n or held.is_acked:
        return QuerySettled(0, [])
    held.used_ms = at_ms
    return QuerySettled(held.lease & SEQUENCE_MASK, _ack(group, held))


def reject_query(
    group: WorkGroup, outbox: Outbox, command: RejectQuery, at_ms: int
) -> QuerySettled | RaftlineError:
    """Give up on messages of number n; a repeat changes nothing."""
    held = group.queries.get(command.query)
    if held is None or held.n != command.n or held.is_acked:
        stands = "nothing is leased" if held is None else _stands(held)
        return FencedQuery(command.query, command.n, stands)
    held.used_ms = at_ms
    rejected: list[int] = []
    wanted = IntervalSet(zip(command.ranges[::2], command.ranges[1::2], strict=True))
    for start, end, _, _ in _fours(held.spans):
        for low, high in wanted.within(start, end):
            for piece in _leased(group, held.lease, low, high):
                give_up(
                    group, outbox, piece, _failed(group, piece, command.reason), REJECTED, at_ms
                )
                held.rejected.add(piece[0], piece[1])
                row = piece[2]
                assert row is not None
                rejected += (piece[0], piece[1], attempt_of(row), generation_of(row))
    return QuerySettled(held.lease & SEQUENCE_MASK, rejected)


def release_query(group: WorkGroup, command: ReleaseQuery, at_ms: int) -> Done:
    """Give back what a query holds, and forget it."""
    held = group.queries.pop(command.query, None)
    count = 0
    for start, end, _, _ in () if held is None else _fours(held.spans):
        assert held is not None
        for piece in _leased(group, held.lease, start, end):
            give_back(group, piece, _failed(group, piece, ""), 0, at_ms)
            count += piece[1] - piece[0]
    return Done(count)


def whole_of(group: WorkGroup, held: QueryLease) -> tuple[list[int], list[int]]:
    """Return the flat ranges of number n, in order, and those that are lost to it. U3."""
    if held.is_acked:
        return [], []
    ranges, lost = IntervalSet(held.rejected), IntervalSet()
    for start, end, _, _ in _fours(held.spans):
        lost.add(start, end)
        for piece in _leased(group, held.lease, start, end):
            ranges.add(piece[0], piece[1])
    for start, end in ranges:
        lost.remove(start, end)
    return _flat(ranges), _flat(lost)


def holds(group: WorkGroup, held: QueryLease) -> bool:
    """Say whether anything is leased to a query. U3."""
    return any(_leased(group, held.lease, start, end) for start, end, _, _ in _fours(held.spans))


def _refusal(
    group: WorkGroup, held: QueryLease | None, command: LeaseQuery, at_ms: int
) -> RaftlineError | None:
    n = command.n
    if len(command.spans) > 4 * QUERY_SPANS_MAX:
        return TooLarge("ranges of a query lease", len(command.spans) // 4, QUERY_SPANS_MAX)
    if held is None:
        return _make_room(group, at_ms)
    if n < held.n or (n == held.n and held.is_acked):
        return FencedQuery(command.query, n, _stands(held))
    if n > held.n + 1 and held.spans and not held.is_acked:
        return FencedQuery(command.query, n, f"{held.n} is not acked, and {held.n + 1} is next")
    return None


def _make_room(group: WorkGroup, at_ms: int) -> RaftlineError | None:
    """Forget queries that hold nothing and were silent for long. U4."""
    for name, query in list(group.queries.items()):
        is_free = query.is_acked or not query.spans
        if is_free and at_ms - query.used_ms > FENCE_EXPIRE_MS:
            del group.queries[name]
    if len(group.queries) < QUERY_LEASES_MAX:
        return None
    return OverLimit("queries of a group", QUERY_LEASES_MAX + 1, QUERY_LEASES_MAX)


def _stands(held: QueryLease) -> str:
    return f"it stands at {held.n}" + (", which is acked" if held.is_acked else "")


def _ack(group: WorkGroup, held: QueryLease) -> list[int]:
    """Settle what is still leased; return it as spans."""
    acked: list[int] = []
    if held.is_acked:
        return acked
    for start, end, _, _ in _fours(held.spans):
        for piece in _leased(group, held.lease, start, end):
            row = piece[2]
            assert row is not None
            acked += (piece[0], piece[1], attempt_of(row), generation_of(row))
            group.change(piece, None)
    held.is_acked, held.spans = True, []
    held.rejected = IntervalSet()
    return acked


def _renew(group: WorkGroup, held: QueryLease, deadline_ms: int) -> None:
    """Let a lease run anew."""
    until_ms = min(max(1, deadline_ms), TIME_MS_MAX)
    for start, end, _, _ in _fours(held.spans):
        for piece in _leased(group, held.lease, start, end):
            row = piece[2]
            assert row is not None
            group.change(piece, (*row[:LEASE], row[LEASE], until_ms, *row[FIRST:]))


def _leased(group: WorkGroup, lease: int, start: int, end: int) -> list[Piece]:
    """Return what of a range is still leased by this lease. U3."""
    return [p for p in group.pieces(start, end) if p[2] is not None and p[2][LEASE] == lease]


def _failed(group: WorkGroup, piece: Piece, reason: str) -> Delivery:
    row = piece[2]
    assert row is not None
    failed = Delivery(attempt_of(row), generation_of(row), row[FIRST], row[KEY])
    failed.member = group.members.text(member_of(row))
    failed.error = reason[:NACK_REASON_CHARS_MAX] or group.errors.text(error_of(row))
    return failed


def _fours(spans: list[int]) -> Iterable[tuple[int, int, int, int]]:
    return zip(spans[::4], spans[1::4], spans[2::4], spans[3::4], strict=True)


def _flat(ranges: IntervalSet) -> list[int]:
    return [edge for pair in ranges for edge in pair]
