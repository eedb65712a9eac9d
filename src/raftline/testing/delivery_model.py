"""A plain model of work groups on one partition: one small record per message, no ranges.

Written from the contract alone (DESIGN.md section 5, machines/delivery/commands.py), so that it and
the production machine check each other. Slow and simple.

State
    Per group: what its policy says and a ``Life`` for every message that was ever delivered. A
    message without a life is fresh. The outbox: numbers of what waits for the dead-letter topic.

Rules (the same words as in the contract)
    M1  A lease begins with a Grant of a message that is fresh or ready, of the current generation,
        whose attempt is one more than those committed; of a key that nothing else holds (a Grant
        of an ordered group that names no keys gives nothing).
    M2  It ends with a settle that names it, or with its deadline.
    M3  A settle without its lease is adopted if the Grant was lost: the message is fresh or ready,
        the generation current, the attempt the next one. Otherwise it is lost. A fresh message of
        an ordered group has no known key: only its ack is adopted.
    M4  The attempt after ``max_retries`` is the last; then the message is dying, dead when buried.
    M5  Reviving gives one generation more and no attempts; a reset gives all one generation more,
        and so does a group that was dropped and begins again.
    M6  A release makes a leased message ready with one attempt less; of a free one it changes
        nothing.
"""

from typing import assert_never

from raftline.machines.delivery.commands import (
    ACK,
    BACKOFF,
    EXTEND,
    NACK,
    REJECT,
    RELEASE,
    START_FIRST,
    START_NEXT,
    AckQuery,
    Buried,
    Command,
    DropGroup,
    Forget,
    Grant,
    LeaseQuery,
    OpenGroup,
    Policy,
    RejectQuery,
    ReleaseQuery,
    Reset,
    Revive,
    Settle,
)

FRESH, LEASED, RESTING, READY, DYING, DEAD, SETTLED = (
    "fresh", "leased", "resting", "ready", "dying", "dead", "settled",
)  # fmt: skip

Verdict = dict[int, str]
"""By offset: "" where it was done, else why not (the state that forbade it)."""


class Life:
    """One message in one group."""

    __slots__ = ("attempts", "deadline_ms", "generation", "key", "lease", "number", "state")

    def __init__(self, generation: int) -> None:
        self.state = FRESH
        self.attempts = 0  # committed
        self.generation = generation
        self.lease: tuple[int, int] = (0, 0)  # term, sequence
        self.deadline_ms = 0  # of a lease, or when a rest ends
        self.key = 0
        self.number = 0  # in the outbox


class GroupModel:
    """One group on one partition."""

    __slots__ = ("base", "highest", "lives", "open", "policy", "start")

    def __init__(self, policy: Policy, start: int, generation: int) -> None:
        self.policy = policy
        self.start = start  # below it all is settled
        self.base = generation
        self.highest = generation  # ever given
        self.lives: dict[int, Life] = {}
        self.open: dict[int, Life] = {}  # those that are neither fresh nor settled

    def state_of(self, offset: int) -> tuple[str, int, int]:
        """Return state, committed attempts and generation of a message."""
        life = self.lives.get(offset)
        if life is None:
            return (SETTLED if offset < self.start else FRESH, 0, self.base)
        return (life.state, life.attempts, life.generation)

    def life(self, offset: int) -> Life:
        """Return the life of a message, born fresh."""
        life = self.lives.get(offset)
        if life is None:
            life = self.lives[offset] = Life(self.base)
            if offset < self.start:
                life.state = SETTLED
        return life

    def turn(self, offset: int, state: str) -> Life:
        """Let a message enter a state."""
        life = self.life(offset)
        life.state = state
        if state == SETTLED:
            self.open.pop(offset, None)
        else:
            self.open[offset] = life
        return life

    def holder(self, key: int, offset: int) -> int:
        """Return another message that holds a key, or -1."""
        for other, life in self.open.items():
            if life.key == key and other != offset:
                return other
        return -1


class DeliveryModel:
    """All groups of one partition."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupModel] = {}
        self.outbox: dict[int, tuple[str, int, int]] = {}  # number: group, offset, generation
        self.dead: dict[tuple[str, int, int], int] = {}  # group, offset, generation: number
        self.numbers = 0
        self.generation_next = 0  # of a new group
        self.at_ms = 0

    def pass_time(self, at_ms: int) -> None:
        """Begin an entry: what ends by this log time ends."""
        self.at_ms = max(self.at_ms, at_ms)
        for name, group in self.groups.items():
            self._pass_time(name, group)

    def trim(self, log_start: int) -> None:
        """Forget what retention removed."""
        for group in self.groups.values():
            for offset in [o for o in group.lives if o < log_start]:
                del group.lives[offset]
                group.open.pop(offset, None)
            group.start = max(group.start, log_start)

    def _pass_time(self, name: str, group: GroupModel) -> None:
        over = [(life.deadline_ms, o) for o, life in group.open.items()]
        for deadline_ms, offset in sorted(over):
            if deadline_ms > self.at_ms:
                break
            state = group.open[offset].state
            if state == LEASED:  # M2
                self._again(name, group, offset, READY)
            elif state == RESTING:
                group.turn(offset, READY)

    def _again(self, name: str, group: GroupModel, offset: int, state: str) -> None:
        """A delivery came to nothing: deliver again, or give up. M4."""
        life = group.lives[offset]
        if life.attempts > group.policy.max_retries:
            self.give_up(name, group, offset)
        else:
            group.turn(offset, state)

    def give_up(self, name: str, group: GroupModel, offset: int) -> None:
        """Let a message die."""
        if not group.policy.dead_letters:
            group.turn(offset, SETTLED)
            return
        self.numbers += 1
        life = group.turn(offset, DYING)
        life.number = self.numbers
        self.outbox[self.numbers] = (name, offset, life.generation)
        self.dead[(name, offset, life.generation)] = self.numbers

    def apply(
        self, term: int, command: Command, log_start: int, next_offset: int
    ) -> Verdict | None:
        """Apply one command of an entry; None where it has no verdict."""
        match command:
            case OpenGroup():
                self._open(command, log_start, next_offset)
            case Buried():
                self._bury(command.number)
            case DropGroup():
                dropped = self.groups.pop(command.group, None)
                if dropped is not None:
                    self.generation_next = max(self.generation_next, dropped.highest + 1)
            case Grant():
                return self._grant(term, command, log_start, next_offset)
            case Settle():
                return self._settle(command, log_start, next_offset)
            case Revive():
                return self._revive(command)
            case Forget():
                return self._forget(command)
            case Reset():
                self._reset(command, log_start, next_offset)
            case LeaseQuery() | AckQuery() | RejectQuery() | ReleaseQuery():
                pass  # query_model.py
            case _:
                assert_never(command)
        return None

    def _open(self, command: OpenGroup, log_start: int, next_offset: int) -> None:
        group = self.groups.get(command.group)
        if group is not None:
            group.policy = command.policy
            return
        start = command.start
        if start == START_FIRST:
            start = log_start
        elif start == START_NEXT:
            start = next_offset
        start = min(max(start, log_start), next_offset)
        self.groups[command.group] = GroupModel(command.policy, start, self.generation_next)

    def _bury(self, number: int) -> None:
        for n in [n for n in self.outbox if n <= number]:
            name, offset, generation = self.outbox.pop(n)
            group = self.groups.get(name)
            if group is not None and group.state_of(offset)[::2] == (DYING, generation):
                group.turn(offset, DEAD)

    def _grant(self, term: int, command: Grant, log_start: int, next_offset: int) -> Verdict:
        group = self.groups.get(command.group)
        verdict: Verdict = {}
        keys = iter(command.keys or ())
        if group is not None and group.policy.ordered and command.keys is None:
            spans = command.spans
            return {o: "no keys" for s, e, _, _ in _fours(spans) for o in range(s, e)}
        for start, end, attempt, generation in _fours(command.spans):
            for offset in range(start, end):
                key = next(keys, 0)
                why = "no group"
                if group is not None:
                    why = self._refuse_grant(
                        group, offset, attempt, generation, key, log_start, next_offset
                    )
                verdict[offset] = why
                if group is not None and not why:
                    life = group.turn(offset, LEASED)
                    life.attempts, life.lease = attempt, (term, command.sequence)
                    life.deadline_ms, life.key = command.deadline_ms, key
        return verdict

    def _refuse_grant(
        self,
        group: GroupModel,
        offset: int,
        attempt: int,
        generation: int,
        key: int,
        log_start: int,
        next_offset: int,
    ) -> str:
        """Say why a message cannot be leased; "" if it can. M1."""
        if not log_start <= offset < next_offset:
            return "not there"
        state, attempts, current = group.state_of(offset)
        if state not in (FRESH, READY):
            return state
        if generation != current:
            return "another generation"
        if attempt != attempts + 1:
            return "attempts"
        if group.policy.ordered and key and group.holder(key, offset) >= 0:
            return "parked"
        return ""

    def _settle(self, command: Settle, log_start: int, next_offset: int) -> Verdict:
        group = self.groups.get(command.group)
        verdict: Verdict = {}
        for start, end in _pairs(command.ranges):
            for offset in range(start, end):
                why = "no group"
                if group is not None:
                    why = self._refuse_settle(group, command, offset, log_start, next_offset)
                verdict[offset] = why
                if group is not None and not why:
                    self._settled(group, command, offset)
        return verdict

    def _refuse_settle(
        self, group: GroupModel, command: Settle, offset: int, log_start: int, next_offset: int
    ) -> str:
        """Say why a settle is lost; "" if it holds. M2, M3."""
        if not log_start <= offset < next_offset:
            return "not there"
        state, attempts, generation = group.state_of(offset)
        if generation != command.generation:
            return "another generation"
        life = group.lives.get(offset)
        if state == LEASED and life is not None:
            same = life.lease == (command.term, command.sequence) and attempts == command.attempt
            return "" if same else "leased to another"
        if state not in (FRESH, READY) or command.verb == EXTEND:
            return state
        if state == FRESH and group.policy.ordered and command.verb not in (ACK, RELEASE):
            return "its key is not known"
        return "" if attempts == command.attempt - 1 else "attempts"

    def _settled(self, group: GroupModel, command: Settle, offset: int) -> None:
        life = group.life(offset)
        if command.verb == RELEASE:  # M6
            if life.state == LEASED:
                life.attempts -= 1
                group.turn(offset, READY)
            return
        life.attempts = command.attempt
        if command.verb == ACK:
            group.turn(offset, SETTLED)
        elif command.verb == EXTEND:
            life.deadline_ms = self.at_ms + command.delay_ms
        elif command.verb == REJECT:
            self.give_up(command.group, group, offset)
        else:
            assert command.verb == NACK
            delay_ms = command.delay_ms
            if delay_ms == BACKOFF:
                policy = group.policy
                doubled = policy.backoff_ms * 2 ** min(command.attempt - 1, 40)
                delay_ms = min(policy.backoff_ms_max, doubled)
            life.deadline_ms = self.at_ms + delay_ms
            self._again(command.group, group, offset, RESTING if delay_ms else READY)

    def _revive(self, command: Revive) -> Verdict:
        group = self.groups.get(command.group)
        verdict: Verdict = {}
        for start, end in _pairs(command.ranges):
            for offset in range(start, end):
                if group is None or group.state_of(offset)[0] != DEAD:
                    continue
                life = group.turn(offset, READY)
                life.attempts = 0
                life.generation += 1  # M5
                group.highest = max(group.highest, life.generation)
                verdict[offset] = ""
        return verdict

    def _forget(self, command: Forget) -> Verdict:
        group = self.groups.get(command.group)
        verdict: Verdict = {}
        for start, end in _pairs(command.ranges):
            for offset in range(start, end):
                if group is not None and group.state_of(offset)[0] == DEAD:
                    group.turn(offset, SETTLED)
                    verdict[offset] = ""
        return verdict

    def _reset(self, command: Reset, log_start: int, next_offset: int) -> None:
        group = self.groups.get(command.group)
        if group is not None:
            group.base = group.highest = group.highest + 1  # M5
            group.start = min(max(command.offset, log_start), next_offset)
            group.lives, group.open = {}, {}


def _fours(spans: list[int]) -> list[tuple[int, int, int, int]]:
    return [
        (spans[i], spans[i + 1], spans[i + 2], spans[i + 3]) for i in range(0, len(spans) - 3, 4)
    ]


def _pairs(ranges: list[int]) -> list[tuple[int, int]]:
    return [(ranges[i], ranges[i + 1]) for i in range(0, len(ranges) - 1, 2)]
