"""A plain model of query leases, on top of the plain model of work groups: one record a message.

Rules (machines/delivery/query_leases.py in other words)
    N1  A query has one number. Its lease is asked for again under the same number, acked by the
        next one; lower ones, acked ones and ones too far on are refused.
    N2  Asked again, it is what it was, less what others got hold of; nothing counts as delivered.
    N3  Acks, rejects and releases touch what the query's own lease still holds.
"""

from raftline.machines.delivery.commands import (
    AckQuery,
    Grant,
    LeaseQuery,
    QueryCommand,
    RejectQuery,
    ReleaseQuery,
)
from raftline.testing.delivery_model import LEASED, READY, SETTLED, DeliveryModel, GroupModel

Told = tuple[list[int], list[int]]  # what a lease holds, what of it is lost


class QueryModel:
    """One query in one group."""

    def __init__(self, n: int, lease: tuple[int, int], offsets: list[int]) -> None:
        self.n = n
        self.lease = lease
        self.offsets = offsets
        self.rejected: list[int] = []
        self.is_acked = False


class QueryModels:
    """All queries of a model's groups."""

    def __init__(self, model: DeliveryModel) -> None:
        self._model = model
        self._queries: dict[tuple[str, str], QueryModel] = {}

    def apply(
        self, term: int, command: QueryCommand, log_start: int, next_offset: int
    ) -> Told | int | None:
        """Apply a command: what a lease has, how many messages changed, or None: refused."""
        group = self._model.groups.get(command.group)
        if group is None:
            return None
        match command:
            case LeaseQuery():
                return self._lease(group, term, command, log_start, next_offset)
            case AckQuery():
                held = self._queries.get((command.group, command.query))
                if held is None or held.n > command.n or held.is_acked:
                    return 0
                return self._ack(group, held)
            case RejectQuery():
                return self._reject(group, command)
            case ReleaseQuery():
                return self._release(group, command)

    def reset(self, name: str) -> None:
        """A group begins anew: its queries hold nothing."""
        for (group, _), query in self._queries.items():
            if group == name:
                query.offsets, query.rejected = [], []

    def drop(self, name: str) -> None:
        """A group is gone, with its queries."""
        self._queries = {key: query for key, query in self._queries.items() if key[0] != name}

    def held(self, group: str, query: str) -> QueryModel | None:
        """Return what is known of a query."""
        return self._queries.get((group, query))

    def _lease(
        self, group: GroupModel, term: int, command: LeaseQuery, log_start: int, next_offset: int
    ) -> Told | None:
        key = (command.group, command.query)
        held = self._queries.get(key)
        if held is not None:
            if command.n < held.n or (command.n == held.n and held.is_acked):
                return None
            if command.n > held.n + 1 and held.offsets and not held.is_acked:
                return None
            if command.n == held.n and held.offsets:
                for offset in self._mine(group, held):
                    group.lives[offset].deadline_ms = command.deadline_ms
                return self._told(group, held)
            if not held.is_acked:
                self._ack(group, held)
        grant = Grant(
            command.group, command.sequence, "", command.deadline_ms, command.spans, command.keys
        )
        verdict = self._model.apply(term, grant, log_start, next_offset)
        taken = [offset for offset, why in (verdict or {}).items() if not why]
        new = self._queries[key] = QueryModel(command.n, (term, command.sequence), taken)
        return self._told(group, new)

    def _mine(self, group: GroupModel, held: QueryModel) -> list[int]:
        """Return what a query's lease still holds. N3."""
        found: list[int] = []
        for offset in held.offsets:
            life = group.lives.get(offset)
            if life is not None and life.state == LEASED and life.lease == held.lease:
                found.append(offset)
        return found

    def _told(self, group: GroupModel, held: QueryModel) -> Told:
        has = sorted([*self._mine(group, held), *held.rejected])
        return has, sorted(offset for offset in held.offsets if offset not in has)

    def _ack(self, group: GroupModel, held: QueryModel) -> int:
        mine = self._mine(group, held)
        for offset in mine:
            group.turn(offset, SETTLED)
        held.is_acked, held.offsets, held.rejected = True, [], []
        return len(mine)

    def _reject(self, group: GroupModel, command: RejectQuery) -> int | None:
        held = self._queries.get((command.group, command.query))
        if held is None or held.n != command.n or held.is_acked:
            return None
        ranges = command.ranges
        wanted = {o for at in range(0, len(ranges), 2) for o in range(ranges[at], ranges[at + 1])}
        mine = [offset for offset in self._mine(group, held) if offset in wanted]
        for offset in mine:
            self._model.give_up(command.group, group, offset)
            held.rejected.append(offset)
        return len(mine)

    def _release(self, group: GroupModel, command: ReleaseQuery) -> int:
        held = self._queries.pop((command.group, command.query), None)
        mine = [] if held is None else self._mine(group, held)
        for offset in mine:
            group.turn(offset, READY)
        return len(mine)
