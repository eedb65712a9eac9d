"""Query leases: what jobs that read in numbered batches ask of a work group on a partition.

Questions and answers (questions.py); each may be repeated. Ranges are flat pairs.
    query.lease    {group, query, n, count, wait_ms, ordered, start} -> {n, ranges, lost, count}
    query.held     {group, query} -> {n, ranges, lost, acked}; n -1: nothing is known
    query.ack      {group, query, n} -> {acked}
    query.reject   {group, query, n, ranges, reason} -> {rejected}
    query.release  {group, query} -> {released}

Invariants
    Q1  A lease is answered when it is committed, never before (machines/delivery/query_leases.py).
    Q2  What is chosen for a query is chosen as for workers: by lanes, ready rows first come first,
        one message a key in ordered groups (there the number before is acked first, so that its
        keys are free). It is reserved until the lease is applied.
    Q3  The machine forgets silent queries that were given nothing or acked it all. Who lost its
        lease is not among them; where there are too many queries its leader lets go of those too.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.machines.delivery.commands import (
    START_FIRST,
    START_NEXT,
    AckQuery,
    Command,
    LeaseQuery,
    RejectQuery,
    ReleaseQuery,
)
from raftline.machines.delivery.outcomes import Done as DoneOutcome
from raftline.machines.delivery.outcomes import Leased, Outcome, QuerySettled
from raftline.machines.delivery.query_leases import holds, whole_of
from raftline.machines.delivery.selection import RANGES_MAX
from raftline.machines.machine import Refused
from raftline.model.calls import Received
from raftline.model.errors import InvalidArgument, NotLeader, RaftlineError, TooLarge
from raftline.model.intervals import IntervalSet
from raftline.model.limits import (
    FENCE_EXPIRE_MS,
    GROUP_NAME_CHARS_MAX,
    NACK_REASON_CHARS_MAX,
    OFFSET_MAX,
    QUERY_COUNT_MAX,
    QUERY_LEASES_MAX,
    SETTLE_ROWS_MAX,
    WAIT_MS_MAX,
)
from raftline.node.counter import Counter, Receiver
from raftline.node.partition import PartitionHost
from raftline.node.questions import Arguments, Done
from raftline.node.staging import number_of, query_of

if TYPE_CHECKING:
    from raftline.machines.delivery.group import WorkGroup
    from raftline.node.desk import Desk
    from raftline.node.node import Node

STARTS = {"first": START_FIRST, "next": START_NEXT}
STEP_FIRST = 1_000  # messages chosen at first; more at a time while they lie together
STEP_FACTOR = 4
FORGOTTEN_AT_ONCE = 8  # queries; each may have lost many ranges
LEASE_RANGES = 1_000  # of one lease: they are leased, and acked, in one turn each

Answer = Callable[[Sequence[Outcome] | RaftlineError], None]


class QueryReceiver(Receiver):
    """A query that waits for messages at a desk."""

    __slots__ = ("desk", "hear", "n", "query")

    def __init__(
        self,
        group: str,
        query: str,
        n: int,
        count_max: int,
        lease_ms: int,
        times: tuple[float, float, int],  # deadline, give up, timeout
        start: int,
        hear: Answer,
        desk: "Desk",
        *,
        ordered: bool,
    ) -> None:
        super().__init__(
            group, count_max, 0, lease_ms, "", *times, start, self._none, ordered=ordered
        )
        self.query = query
        self.n = n
        self.hear = hear
        self.desk = desk

    def _none(self, answer: Received | RaftlineError) -> None:
        """There is nothing, or nobody to ask: nothing is what is leased then."""
        if isinstance(answer, RaftlineError):
            self.hear(answer)
        else:
            lease(self.desk, None, self, [], None)


def serve_query(
    desk: "Desk", counter: Counter, group: "WorkGroup", receiver: QueryReceiver
) -> bool:
    """Choose for a query and lease; say whether there was something. Q2."""
    spans: list[int] = []
    keys: list[int] = []
    left = receiver.count_max
    step = STEP_FIRST
    while left > 0 and len(spans) < 4 * LEASE_RANGES:
        count = min(left, step)
        found, _, found_keys = counter.choose(group, desk.host, count, desk.now_ms())
        counter.reserve(found)
        spans += found
        keys += found_keys or ()
        taken = sum(found[1::4]) - sum(found[::4])
        left -= taken
        step *= STEP_FACTOR if len(found) < step else 1
        if taken < min(count, RANGES_MAX):
            break
    if not spans:
        return False
    if len(spans) > 4 * LEASE_RANGES:
        rest = spans[4 * LEASE_RANGES :]
        del spans[4 * LEASE_RANGES :]
        counter.release(rest)
    lease(desk, counter, receiver, spans, keys if group.policy.ordered else None)
    return True


def lease(
    desk: "Desk",
    counter: Counter | None,
    receiver: QueryReceiver,
    spans: list[int],
    keys: list[int] | None,
) -> None:
    """Propose a query's lease; it is answered when it is committed. Q1."""
    at_ms = desk.now_ms()
    if keys is not None:
        keys = keys[: sum(spans[1::4]) - sum(spans[::4])]
    command = LeaseQuery(
        receiver.group,
        receiver.query,
        receiver.n,
        desk.next_sequence(),
        at_ms + receiver.lease_ms,
        spans,
        keys,
    )

    def applied(outcomes: Sequence[Outcome] | RaftlineError) -> None:
        if isinstance(outcomes, RaftlineError) and not outcomes.unknown and counter is not None:
            counter.release(spans)  # it was dropped and will never be applied
        receiver.hear(outcomes)

    desk.collect([command], receiver.give_up, receiver.timeout_ms, applied)


class QueryLeases:
    """Adds the questions to a node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        add = node.questions.add
        add("query.lease", self._lease)
        add("query.held", self._held)
        add("query.ack", self._ack)
        add("query.reject", self._reject)
        add("query.release", self._release)

    def _lease(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        name, query, n = _group_of(asked), query_of(asked), number_of(asked, "n")
        count_max = number_of(asked, "count", QUERY_COUNT_MAX)
        wait_ms = min(number_of({"wait_ms": 0, **asked}, "wait_ms", WAIT_MS_MAX), ms)
        start = STARTS.get(str(asked.get("start", "first")))
        if count_max < 1 or start is None:
            hint = f"count: 1 to {QUERY_COUNT_MAX}; start: first or next"
            raise InvalidArgument("a query lease asks for nothing", hint)
        assert host.replica is not None
        if not host.replica.is_leader:
            raise NotLeader(host.name, host.replica.leader_node)
        desk, now = host.open_desk(), self._node.clock.mono_ms()
        group = host.machine.delivery.groups.get(name)
        ordered = bool(asked.get("ordered", False)) if group is None else group.policy.ordered
        if ordered:  # a range each
            count_max = min(count_max, LEASE_RANGES)

        def hear(outcomes: Sequence[Outcome] | RaftlineError) -> None:
            outcome = _first(outcomes)
            if isinstance(outcome, RaftlineError):
                done(outcome)
                return
            assert isinstance(outcome, Leased)
            count = sum(outcome.ranges[1::2]) - sum(outcome.ranges[::2])
            told = {"n": n, "ranges": outcome.ranges, "lost": outcome.lost, "count": count}
            done(told)

        receiver = QueryReceiver(
            name,
            query,
            n,
            count_max,
            self._node.staging.setting(host.replica, "query_lease_ms"),
            (now + wait_ms, now + ms, ms),
            start,
            hear,
            desk,
            ordered=ordered,
        )
        held = None if group is None else group.queries.get(query)
        if held is not None and (n < held.n or (n == held.n and held.spans)):
            lease(desk, None, receiver, [], None)  # nothing to choose: the same again, or a refusal
        elif held is not None and n == held.n + 1 and held.spans and ordered:
            self._ack_first(host, receiver)
        elif held is None and group is not None and len(group.queries) >= QUERY_LEASES_MAX:
            self._make_room(host, group, receiver)
        else:
            desk.receive(receiver)

    def _make_room(self, host: PartitionHost, group: "WorkGroup", receiver: QueryReceiver) -> None:
        """Forget queries that lost what they held and are silent for long. Q3."""
        before_ms = receiver.desk.now_ms() - FENCE_EXPIRE_MS
        lost = (
            name
            for name, query in group.queries.items()
            if query.used_ms < before_ms and not holds(group, query)
        )
        gone = [ReleaseQuery(group.name, name) for name in islice(lost, FORGOTTEN_AT_ONCE)]
        self._after(host, gone, receiver)

    def _ack_first(self, host: PartitionHost, receiver: QueryReceiver) -> None:
        """In an ordered group the number before holds keys: only what it lets go can be chosen."""
        command = AckQuery(receiver.group, receiver.query, receiver.n - 1)
        self._after(host, [command], receiver)

    def _after(
        self, host: PartitionHost, commands: Sequence[Command], receiver: QueryReceiver
    ) -> None:
        """Serve a receiver once these commands are applied."""

        def applied(outcomes: Sequence[Outcome] | RaftlineError) -> None:
            if isinstance(outcomes, RaftlineError):
                receiver.hear(outcomes)
            else:
                receiver.desk.receive(receiver)

        host.deliver(commands, receiver.give_up, receiver.timeout_ms, applied)

    def _held(self, host: PartitionHost, asked: Arguments, _ms: int, done: Done) -> None:
        group = host.machine.delivery.groups.get(_group_of(asked))
        held = None if group is None else group.queries.get(query_of(asked))
        if group is None or held is None:
            done({"n": -1, "ranges": [], "lost": [], "acked": False})
            return
        ranges, lost = whole_of(group, held)
        done({"n": held.n, "ranges": ranges, "lost": lost, "acked": held.is_acked})

    def _ack(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        command = AckQuery(_group_of(asked), query_of(asked), number_of(asked, "n"))
        self._propose(host, command, ms, done, "acked")

    def _reject(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        name, query, n = _group_of(asked), query_of(asked), number_of(asked, "n")
        ranges, reason = _ranges_of(asked), str(asked.get("reason", ""))
        group = host.machine.delivery.groups.get(name)
        held = None if group is None else group.queries.get(query)
        if held is not None and held.n == n and not held.is_acked:
            _check_inside(host, held.spans, ranges)
        command = RejectQuery(name, query, n, ranges, reason[:NACK_REASON_CHARS_MAX])
        self._propose(host, command, ms, done, "rejected")

    def _release(self, host: PartitionHost, asked: Arguments, ms: int, done: Done) -> None:
        name, query = _group_of(asked), query_of(asked)
        self._propose(host, ReleaseQuery(name, query), ms, done, "released")

    def _propose(
        self, host: PartitionHost, command: Command, ms: int, done: Done, word: str
    ) -> None:
        def applied(outcomes: Sequence[Outcome] | RaftlineError) -> None:
            outcome = _first(outcomes)
            if isinstance(outcome, RaftlineError):
                done(outcome)
                return
            assert isinstance(outcome, QuerySettled | DoneOutcome)
            done({word: outcome.count})

        host.deliver([command], self._node.clock.mono_ms() + ms, ms, applied)


def queries_of(group: "WorkGroup") -> list[dict[str, Any]]:
    """Return what people are shown of the queries of a group."""
    rows: list[dict[str, Any]] = []
    for name, query in group.queries.items():
        ranges, lost = whole_of(group, query)
        rows.append(
            {
                "query": name,
                "n": query.n,
                "held": sum(ranges[1::2]) - sum(ranges[::2]),
                "rejected": query.rejected.count(),
                "lost": sum(lost[1::2]) - sum(lost[::2]),
                "acked": query.is_acked,
                "used_ms": query.used_ms,
            }
        )
    return rows


def _first(outcomes: Sequence[Outcome] | RaftlineError) -> Outcome | RaftlineError:
    if isinstance(outcomes, RaftlineError):
        return outcomes
    return outcomes[0].error() if isinstance(outcomes[0], Refused) else outcomes[0]


def _group_of(asked: Arguments) -> str:
    name = asked.get("group")
    if not isinstance(name, str) or not 0 < len(name) <= GROUP_NAME_CHARS_MAX:
        raise InvalidArgument(f"group is {name!r}", f"1 to {GROUP_NAME_CHARS_MAX} characters")
    return name


def _ranges_of(asked: Arguments) -> list[int]:
    try:
        edges = msgspec.convert(asked.get("ranges"), list[int])
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"ranges: {error}", "pairs of offsets: start, end") from error
    if len(edges) > 2 * SETTLE_ROWS_MAX:
        raise TooLarge("ranges of a reject", len(edges) // 2, SETTLE_ROWS_MAX)
    if len(edges) % 2 or any(not 0 <= edge <= OFFSET_MAX for edge in edges):
        raise InvalidArgument("ranges hold something that is no offset, or no pair")
    return edges


def _check_inside(host: PartitionHost, spans: list[int], ranges: list[int]) -> None:
    """Refuse to reject what was not leased. Raises InvalidArgument."""
    leased = IntervalSet(zip(spans[::4], spans[1::4], strict=True))
    for start, end in zip(ranges[::2], ranges[1::2], strict=True):
        if not leased.covers(start, end):
            where = f"{host.name}@{start} to {end}"
            raise InvalidArgument(f"{where} is not in the lease", "reject what it holds")
