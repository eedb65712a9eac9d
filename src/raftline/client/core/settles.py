"""Settles: what workers say of their messages, many in one request, to the partition's leader.

State
    Per partition and group: what was said and not sent yet, by lease and kind; how many requests
    are on their way.

Rules
    A1  What is said while ``FLYING_MAX`` requests are on their way goes with the next one.
    A2  A request is sent again after a lost answer. If the node then says that the lease is lost,
        it may be ours that was counted: nobody knows, so the outcome is ``TimedOut``.
    A3  Everything ends by its deadline.
    A4  A flush waits for what was said before it, not for what others say meanwhile: settles have
        the number of the flush they came before, and those of one request have the same.
"""

from collections.abc import Callable, Iterable
from urllib.parse import quote

import msgspec

from raftline.client.core.caller import Caller
from raftline.client.core.ports import Ask, Reply
from raftline.client.core.wire import read_body
from raftline.model.errors import LeaseLost, RaftlineError, TimedOut
from raftline.model.limits import REASON_CHARS_MAX

FLYING_MAX = 2
RANGES_MAX = 10_000  # in one request
WAY = "settle"
ACK, NACK, REJECT, EXTEND = "ack", "nack", "reject", "extend"
RELEASE = "release"


class Lease:
    """What the messages of one span share: all a settle must name."""

    __slots__ = (
        "attempt",
        "expires_ms",
        "generation",
        "group",
        "lease_ms",
        "partition",
        "sequence",
        "term",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        group: str,
        term: int,
        sequence: int,
        attempt: int,
        generation: int,
        lease_ms: int,
        expires_ms: float,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.group = group
        self.term = term
        self.sequence = sequence
        self.attempt = attempt
        self.generation = generation
        self.lease_ms = lease_ms
        self.expires_ms = expires_ms  # by this process's monotonic clock


Told = Callable[[RaftlineError | None], None]
Settle = tuple[Lease, int, str, int, str, Told | None]
"""lease, offset, verb, delay (nack, -1: backoff) or lease (extend) in ms, reason, who hears"""

_Kind = tuple[str, int, str, int]  # verb, delay_ms, reason, number of a flush: a request has one
_Place = tuple[str, int, str]  # topic, partition, group


class _Lost(msgspec.Struct):
    lost: list[list[int]]


_decode = msgspec.json.Decoder(_Lost).decode


class _Desk:
    """What waits for one partition and group."""

    __slots__ = ("count", "flying", "kinds")

    def __init__(self) -> None:
        self.kinds: dict[_Kind, list[Settle]] = {}
        self.count = 0
        self.flying = 0


class Settles:
    """All settles on their way."""

    __slots__ = (
        "_caller",
        "_desks",
        "_finished",
        "_flushes",
        "_left",
        "_under_way",
        "lost_count",
        "timeout_ms",
    )

    def __init__(self, caller: Caller, *, timeout_ms: float) -> None:
        self._caller = caller
        self.timeout_ms = timeout_ms
        self.lost_count = 0  # settles whose lease had moved on, or of which nothing was heard
        self._desks: dict[_Place, _Desk] = {}
        self._under_way = 0
        self._flushes = 0
        self._left: dict[int, int] = {}  # settles under way, by number. A4
        self._finished: list[tuple[int, Callable[[], None]]] = []  # number, who waits for it

    @property
    def under_way(self) -> int:
        """Return how many settles have no outcome yet."""
        return self._under_way

    def take(self, settles: Iterable[Settle]) -> None:
        """Take what workers said."""
        touched: dict[_Place, _Desk] = {}
        for settle in settles:
            lease, _, verb, delay_ms, reason, _ = settle
            place = (lease.topic, lease.partition, lease.group)
            desk = touched.get(place)
            if desk is None:
                desk = self._desks.get(place)
                if desk is None:
                    desk = self._desks[place] = _Desk()
                touched[place] = desk
            kind = (verb, delay_ms, reason, self._flushes)
            rows = desk.kinds.get(kind)
            if rows is None:
                rows = desk.kinds[kind] = []
            rows.append(settle)
            desk.count += 1
            self._under_way += 1
            self._left[self._flushes] = self._left.get(self._flushes, 0) + 1
        for place, desk in touched.items():
            self._pump(place, desk)

    def flush(self, done: Callable[[], None]) -> None:
        """Call ``done`` when all that was said so far has its outcome. A4."""
        if self._under_way:
            self._finished.append((self._flushes, done))
            self._flushes += 1
        else:
            done()

    def _pump(self, place: _Place, desk: _Desk) -> None:
        while desk.flying < FLYING_MAX and desk.kinds:
            kind = next(iter(desk.kinds))
            rows = desk.kinds.pop(kind)
            if len(rows) > RANGES_MAX:
                desk.kinds[kind] = rows[RANGES_MAX:]
                rows = rows[:RANGES_MAX]
            desk.count -= len(rows)
            self._send(place, desk, kind, rows)

    def _send(self, place: _Place, desk: _Desk, kind: _Kind, rows: list[Settle]) -> None:
        topic, partition, group = place
        verb, delay_ms, reason, number = kind
        by_lease: dict[int, tuple[Lease, list[int]]] = {}
        for lease, offset, *_ in rows:
            found = by_lease.get(id(lease))
            if found is None:
                by_lease[id(lease)] = (lease, [offset])
            else:
                found[1].append(offset)
        leases = list(by_lease.values())
        body: dict[str, object] = {
            "settles": [
                (verb, one.term, one.sequence, one.attempt, one.generation, ranges_of(offsets))
                for one, offsets in leases
            ]
        }
        if verb == NACK and delay_ms >= 0:
            body["delay"] = delay_ms
        if verb == EXTEND:
            body["lease"] = delay_ms
        if reason:
            body["reason"] = reason[:REASON_CHARS_MAX]
        path = f"/v1/topics/{topic}/partitions/{partition}/groups/{quote(group, safe='')}/settle"
        ask = Ask(
            method="POST",
            path=path,
            body=msgspec.json.encode(body),
            topic=topic,
            partition=partition,
            is_repeatable=True,
            way=WAY,
        )
        desk.flying += 1
        is_repeated = False

        def repeated() -> None:
            nonlocal is_repeated
            is_repeated = True

        def answered(answer: Reply | RaftlineError) -> None:
            desk.flying -= 1
            self._settled(rows, leases, answer, is_repeated=is_repeated)
            self._count_down(number, len(rows))
            self._pump(place, desk)
            if not desk.flying and not desk.kinds:
                self._desks.pop(place, None)

        self._caller.call(ask, self.timeout_ms, answered, repeated)

    def _settled(
        self,
        rows: list[Settle],
        leases: list[tuple[Lease, list[int]]],
        answer: Reply | RaftlineError,
        *,
        is_repeated: bool,
    ) -> None:
        """Tell those who wait. A2."""
        lost: set[tuple[int, int]] = set()
        found = read_body(_decode, answer) if isinstance(answer, Reply) else answer
        if not isinstance(found, RaftlineError):
            for (lease, _), ranges in zip(leases, found.lost, strict=False):
                for at in range(0, len(ranges), 2):
                    lost.update((id(lease), offset) for offset in range(*ranges[at : at + 2]))
            self.lost_count += len(lost)
        else:
            self.lost_count += len(rows)
        for lease, offset, verb, _, _, told in rows:
            if told is None:
                continue
            error = found if isinstance(found, RaftlineError) else None
            if error is None and (id(lease), offset) in lost:
                where = f"{lease.topic}/{lease.partition}@{offset}"
                error = TimedOut(f"{verb} of {where}", 0) if is_repeated else LeaseLost(where)
            told(error)

    def _count_down(self, number: int, count: int) -> None:
        """Tell those whose flush is over. A4."""
        self._under_way -= count
        self._left[number] -= count
        if self._left[number]:
            return
        del self._left[number]
        first = min(self._left, default=self._flushes)
        over = [tell for before, tell in self._finished if before < first]
        self._finished = [one for one in self._finished if one[0] >= first]
        for tell in over:
            tell()


def noted_in(errors: list[RaftlineError]) -> Told:
    """Return who hears of settles and keeps what went wrong."""

    def told(error: RaftlineError | None) -> None:
        if error is not None:
            errors.append(error)

    return told


def ranges_of(offsets: list[int]) -> list[int]:
    """Return flat half-open ranges of offsets, each once."""
    ranges: list[int] = []
    for offset in sorted(set(offsets)):
        if ranges and ranges[-1] == offset:
            ranges[-1] = offset + 1
        else:
            ranges += (offset, offset + 1)
    return ranges
