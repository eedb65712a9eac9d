"""Work groups of a partition: the part of its machine that makes a log a queue.

State
    The groups (group.py), the outbox (outbox.py), log time, and the generation at which the next
    new group begins. Derived: the agenda (agenda.py), so that only groups concerned are looked at.

Commands
    All of commands.py. Every entry first lets time pass: leases and backoffs that are due end.

Invariants
    D1  One outcome per command, in their order. A refusal changes nothing.
    D2  Log time never goes back.
    D3  A message in a row that is DYING is in the outbox, under the same group and generation.
    D4  A group that is dropped and opened again begins above every generation it ever had: a
        settle or a burial of its earlier life is told apart.

Bounds: ``EXPIRE_ROWS_MAX`` rows end per entry (``next_due_ms`` is then still due), a command looks
at ``SETTLE_ROWS_MAX`` rows. Numbers out of range are refused, texts cut.
"""

from collections.abc import Callable, Iterable
from typing import assert_never

from raftline.machines.delivery.agenda import Agenda
from raftline.machines.delivery.commands import (
    START_FIRST,
    START_NEXT,
    VERBS,
    AckQuery,
    Buried,
    Command,
    Deliver,
    DropGroup,
    Forget,
    Grant,
    LeaseQuery,
    OpenGroup,
    Policy,
    QueryCommand,
    RejectQuery,
    ReleaseQuery,
    Reset,
    Revive,
    Settle,
)
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.leases import grant, settle
from raftline.machines.delivery.letters import bury, forget, revive
from raftline.machines.delivery.outbox import Outbox
from raftline.machines.delivery.outcomes import Done, Granted, Opened, Outcome, SettledRanges
from raftline.machines.delivery.query_leases import (
    ack_query,
    lease_query,
    reject_query,
    release_query,
)
from raftline.machines.delivery.retries import expire
from raftline.machines.delivery.rows import (
    DYING,
    TERM_MAX,
    TIME_MS_MAX,
    generation_of,
    lease_of,
    state_of,
)
from raftline.machines.delivery.snapshots import freeze_delivery, restore_delivery
from raftline.machines.machine import Refused, refused
from raftline.model.errors import InvalidArgument, OverLimit, RaftlineError, UnknownGroup
from raftline.model.limits import (
    BACKOFF_MS_MAX,
    EXPIRE_ROWS_MAX,
    GROUP_NAME_CHARS_MAX,
    OFFSET_MAX,
    QUERY_NAME_CHARS_MAX,
    RETRIES_MAX,
    SETTLE_ROWS_MAX,
    WORK_GROUPS_MAX,
)

_INT64_MAX = (1 << 63) - 1


class DeliveryMachine:
    """All work groups of one partition."""

    __slots__ = ("_agenda", "at_ms", "generation_next", "groups", "outbox")

    def __init__(self) -> None:
        self.at_ms = 0
        self.generation_next = 0  # of the next new group. D4
        self.groups: dict[str, WorkGroup] = {}
        self.outbox = Outbox()
        self._agenda = Agenda()

    def apply(
        self, term: int, index: int, entry: Deliver, log_start: int, next_offset: int
    ) -> list[Outcome]:
        """Let time pass, then apply the commands of one committed entry. D1."""
        assert 0 < term <= TERM_MAX, (term, index)
        self._begin()
        self._advance(entry.at_ms)
        outcomes = [self._apply(term, c, log_start, next_offset) for c in entry.commands]
        for group in self._agenda.moved.values():
            self._agenda.note(group)
        return outcomes

    def moved(self) -> Iterable[WorkGroup]:
        """Return the groups that the last entry moved."""
        return self._agenda.moved.values()

    def take_returned(self) -> list[tuple[str, int, int]]:
        """Return the ranges that the last entry made ready to be delivered again, once."""
        found: list[tuple[str, int, int]] = []
        for name, group in self._agenda.moved.items():
            found += [(name, start, end) for start, end in group.returned]
            group.returned.clear()
        return found

    def take_freed(self) -> list[tuple[str, int]]:
        """Return the keys that no message holds any more since the last entry, once."""
        found: list[tuple[str, int]] = []
        for name, group in self._agenda.moved.items():
            found += [(name, key) for key in group.freed if key not in group.keys]
            group.freed.clear()
        return found

    def trim(self, log_start: int) -> None:
        """Messages below ``log_start`` are gone; so is what was known of them."""
        self._begin()
        for name, group in self.groups.items():
            group.trim(log_start)
            if group.freed:
                self._agenda.moved[name] = group

    def pin(self) -> int | None:
        """Return the lowest offset that retention must keep: the dead-letter topic lacks it."""
        return self.outbox.pin()

    def next_due_ms(self) -> int | None:
        """Return when the next lease or backoff ends; not after ``at_ms``: some are overdue."""
        agenda = self._agenda
        while (first := agenda.first()) is not None:
            time_ms, name = first
            group = self.groups.get(name)
            if group is not None and group.next_due_ms() == time_ms:
                return time_ms
            agenda.forget(name)
            if group is not None:
                agenda.note(group)
        return None

    def is_due_before(self, time_ms: int) -> bool:
        """Say whether a lease or a backoff may end before ``time_ms``: a quick look."""
        first = self._agenda.first()
        return first is not None and first[0] < time_ms

    def freeze(self) -> Callable[[], bytes]:
        """Return what writes the state as it is now. It may be called in a lane."""
        if not self.at_ms:
            return bytes  # no entry was for us yet
        return freeze_delivery(self.at_ms, self.generation_next, self.groups, self.outbox)

    def snapshot(self) -> bytes:
        """Return the whole state, canonical."""
        return self.freeze()()

    def restore(self, data: "bytes | memoryview") -> None:
        """Replace the state.

        Raises:
            NewerFormat: the snapshot is of a newer build.
        """
        self.outbox, self._agenda = Outbox(), Agenda()
        if not data:
            self.at_ms, self.generation_next, self.groups = 0, 0, {}
            return
        self.at_ms, self.generation_next, self.groups = restore_delivery(data, self.outbox)
        for group in self.groups.values():
            self._agenda.note(group)

    def check(self, log_start: int = 0, next_offset: int = OFFSET_MAX) -> None:
        """Raise if an invariant is broken."""
        self.outbox.check()
        self._agenda.check(self.groups)
        owed = {
            (dying.group, offset, dying.generation)
            for dying in self.outbox.after(0)
            for offset in range(dying.start, dying.end)
        }
        for name, group in self.groups.items():
            group.check(log_start, next_offset)
            assert name == group.name
            for start, end, row in group.rows:
                if state_of(row) == DYING:
                    for offset in range(start, end):
                        assert (name, offset, generation_of(row)) in owed  # D3

    def _begin(self) -> None:
        """Forget what the entry before moved."""
        moved = self._agenda.moved
        for group in moved.values():
            group.returned.clear()
            group.freed.clear()
        moved.clear()

    def _advance(self, at_ms: int) -> None:
        self.at_ms = max(self.at_ms, min(at_ms, TIME_MS_MAX))  # D2
        due = self._agenda.take_due(self.at_ms)
        if len(due) > 1:  # in the order of the groups: what is left over must not hang on notes
            wanted = set(due)
            due = [name for name in self.groups if name in wanted]
        left = EXPIRE_ROWS_MAX
        for name in due:
            group = self._moving(name)
            if group is not None:
                left -= expire(group, self.outbox, self.at_ms, left)

    def _moving(self, name: str) -> WorkGroup | None:
        """Return a group that this entry is about to move."""
        group = self.groups.get(name)
        if group is not None:
            self._agenda.moved[name] = group
        return group

    def _apply(self, term: int, command: Command, log_start: int, next_offset: int) -> Outcome:
        if isinstance(command, Settle):  # nearly all are
            return self._settle(command, next_offset)
        if isinstance(command, Buried):
            return Done(bury(self._moving, self.outbox, command.number))
        if isinstance(command, OpenGroup):
            return self._open(command, log_start, next_offset)
        group = self._moving(command.group)
        if group is None:
            return refused(UnknownGroup(command.group[:GROUP_NAME_CHARS_MAX]))
        match command:
            case Grant():
                lease = lease_of(term, command.sequence)
                if lease < 0 or not _is_sound(command):
                    return _malformed(command)
                granted, lost = grant(group, command, lease, self.at_ms, next_offset)
                return Granted(command.sequence, granted, lost)
            case Revive():
                return _malformed(command) if len(command.ranges) % 2 else revive(group, command)
            case Forget():
                return _malformed(command) if len(command.ranges) % 2 else forget(group, command)
            case Reset():
                group.reset(_resolve(command.offset, log_start, next_offset))
                return Done(next_offset - group.floor)
            case LeaseQuery() | AckQuery() | RejectQuery() | ReleaseQuery():
                return self._query(term, group, command, next_offset)
            case DropGroup():
                del self.groups[group.name]
                del self._agenda.moved[group.name]
                self._agenda.forget(group.name)
                self.generation_next = max(self.generation_next, group.generation_max + 1)  # D4
                return Done(group.lag(next_offset))
            case _:
                assert_never(command)

    def _settle(self, command: Settle, next_offset: int) -> Outcome:
        group = self._moving(command.group)
        if group is None:
            return refused(UnknownGroup(command.group[:GROUP_NAME_CHARS_MAX]))
        if not 0 <= command.verb < len(VERBS) or len(command.ranges) % 2:
            return _malformed(command)
        return SettledRanges(settle(group, self.outbox, command, self.at_ms, next_offset))

    def _query(
        self, term: int, group: WorkGroup, command: QueryCommand, next_offset: int
    ) -> Outcome:
        if not 0 < len(command.query) <= QUERY_NAME_CHARS_MAX:
            return _malformed(command)
        match command:
            case LeaseQuery():
                lease = lease_of(term, command.sequence)
                if lease <= 0 or command.n < 0 or not _is_sound(command):
                    return _malformed(command)
                found = lease_query(group, command, lease, self.at_ms, next_offset)
            case AckQuery():
                found = ack_query(group, command, self.at_ms)
            case RejectQuery():
                if len(command.ranges) % 2 or len(command.ranges) > 2 * SETTLE_ROWS_MAX:
                    return _malformed(command)
                found = reject_query(group, self.outbox, command, self.at_ms)
            case ReleaseQuery():
                found = release_query(group, command, self.at_ms)
        return refused(found) if isinstance(found, RaftlineError) else found

    def _open(self, command: OpenGroup, log_start: int, next_offset: int) -> Outcome:
        name, policy = command.group, command.policy
        if not 0 < len(name) <= GROUP_NAME_CHARS_MAX:
            error = InvalidArgument(
                f"a group's name has {len(name)} characters", f"use 1 to {GROUP_NAME_CHARS_MAX}"
            )
            return refused(error)
        if not _is_possible(policy):
            return refused(InvalidArgument(f"group {name!r} cannot deliver by {policy}"))
        group = self.groups.get(name)
        if group is not None:
            group.policy = policy
        else:
            if len(self.groups) >= WORK_GROUPS_MAX:
                limit = WORK_GROUPS_MAX
                return refused(OverLimit("work groups of a partition", limit + 1, limit))
            floor = _resolve(command.start, log_start, next_offset)
            group = self.groups[name] = WorkGroup(name, policy, floor, self.generation_next)
        return Opened(name, group.floor)


def _resolve(start: int, log_start: int, next_offset: int) -> int:
    if start == START_FIRST:
        return log_start
    if start == START_NEXT:
        return next_offset
    return min(max(start, log_start), next_offset)


def _is_possible(policy: Policy) -> bool:
    return (
        0 <= policy.max_retries <= RETRIES_MAX
        and 0 <= policy.backoff_ms <= BACKOFF_MS_MAX
        and 0 <= policy.backoff_ms_max <= BACKOFF_MS_MAX
        and 0 <= policy.jitter_percent <= 100
    )


def _is_sound(command: Grant | LeaseQuery) -> bool:
    """Say whether spans are fours, and keys as many as messages and as wide as a column."""
    spans, keys = command.spans, command.keys
    if len(spans) % 4 or max(spans, default=0) > OFFSET_MAX or min(spans, default=0) < 0:
        return False
    if keys is None:
        return True
    count = sum(max(0, spans[at + 1] - spans[at]) for at in range(0, len(spans), 4))
    return len(keys) == count and all(0 <= key <= _INT64_MAX for key in keys)


def _malformed(command: Command) -> Refused:
    return refused(InvalidArgument(f"{type(command).__name__} with numbers that cannot be"))
