"""What is known of one query in a work group: see query_leases.py."""

import msgspec

from raftline.model.intervals import IntervalSet


class QueryLease:
    """The number a query stands at, and what it holds under it."""

    __slots__ = ("is_acked", "lease", "n", "rejected", "spans", "used_ms")

    def __init__(self, n: int, lease: int, spans: list[int], used_ms: int) -> None:
        self.n = n
        self.lease = lease  # as rows name it
        self.spans = spans  # fours: start, end, attempt, generation
        self.rejected = IntervalSet()
        self.is_acked = False
        self.used_ms = used_ms

    def reset(self) -> None:
        """The group begins anew: nothing is held under this number any more."""
        self.spans = []
        self.rejected = IntervalSet()

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert self.n >= 0
        assert len(self.spans) % 4 == 0
        assert not (self.is_acked and self.spans)


class QueryLeaseState(msgspec.Struct, array_like=True):
    """A query in a snapshot."""

    query: str
    n: int
    lease: int
    spans: list[int]
    rejected: list[tuple[int, int]]
    is_acked: bool
    used_ms: int


def query_state(name: str, query: QueryLease) -> QueryLeaseState:
    """Return what a snapshot holds of a query."""
    return QueryLeaseState(
        name,
        query.n,
        query.lease,
        list(query.spans),
        list(query.rejected),
        query.is_acked,
        query.used_ms,
    )


def restored(state: QueryLeaseState) -> QueryLease:
    """Return the query of a snapshot."""
    query = QueryLease(state.n, state.lease, state.spans, state.used_ms)
    query.rejected = IntervalSet(state.rejected)
    query.is_acked = state.is_acked
    return query
