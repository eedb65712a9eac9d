"""The delivery machine and the plain model, on the same random commands: they agree on each."""

import random

import pytest

from raftline.machines.delivery.commands import (
    BACKOFF,
    Buried,
    Command,
    Deliver,
    DropGroup,
    Forget,
    Grant,
    OpenGroup,
    Policy,
    Reset,
    Revive,
    Settle,
)
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.machine import DeliveryMachine
from raftline.machines.delivery.outcomes import Done, Granted, SettledRanges
from raftline.machines.delivery.rows import (
    DEAD,
    DYING,
    LEASED,
    READY,
    RESTING,
    attempt_of,
    generation_of,
    state_of,
)
from raftline.testing import delivery_model as words
from raftline.testing.delivery_model import DeliveryModel, GroupModel, Verdict
from raftline.testing.queue_workers import expand

GROUPS = ("plain", "line")
STATES = {
    LEASED: words.LEASED,
    RESTING: words.RESTING,
    READY: words.READY,
    DYING: words.DYING,
    DEAD: words.DEAD,
}


class Walk:
    """Random commands that often make sense: leases are remembered, and settled late."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.at_ms = 1_000
        self.term = 1
        self.sequence = 0
        self.end = 0
        self.leases: list[tuple[str, int, int, list[int]]] = []

    def entry(self, model: DeliveryModel) -> Deliver:
        rng = self.rng
        self.at_ms += rng.randrange(3) * rng.randrange(400)
        self.end += rng.randrange(3)
        if rng.randrange(25) == 0:
            self.term += 1
        return Deliver(self.at_ms, [self.command(model) for _ in range(rng.randrange(4))])

    def command(self, model: DeliveryModel) -> Command:
        rng = self.rng
        name = GROUPS[rng.randrange(2)]
        group = model.groups.get(name)
        dice = rng.randrange(100)
        if group is None or dice == 0:
            policy = Policy(rng.randrange(3), 100, 300, bool(rng.randrange(4)), name == "line")
            return OpenGroup(name, policy, rng.randrange(-2, self.end + 1))
        if dice < 40:
            return self.grant(name, group)
        if dice < 85:
            return self.settle(name)
        low = rng.randrange(self.end + 1)
        if dice < 91:
            return Buried(rng.randrange(model.numbers + 2))
        if dice < 96:
            return Revive(name, [low, low + rng.randrange(1, 6)])
        if dice < 98:
            return Forget(name, [low, low + rng.randrange(1, 4)])
        return DropGroup(name) if rng.randrange(3) == 0 else Reset(name, low)

    def grant(self, name: str, group: GroupModel) -> Grant:
        rng = self.rng
        self.sequence += 1
        spans: list[int] = []
        keys: list[int] = []
        offset = rng.randrange(self.end + 2)
        for _ in range(rng.randrange(1, 4)):
            _, attempts, generation = group.state_of(offset)
            end = offset + rng.randrange(1, 4)
            attempt = attempts + 1 if rng.randrange(8) else rng.randrange(1, 4)
            spans += (offset, end, attempt, generation if rng.randrange(12) else generation + 1)
            keys += [(at * 7) % 3 for at in range(offset, end)]
            offset = end + rng.randrange(3)
        if rng.randrange(8):
            self.leases.append((name, self.term, self.sequence, spans))
        deadline_ms = self.at_ms + rng.randrange(1, 600)
        return Grant(name, self.sequence, "m", deadline_ms, spans, keys if name == "line" else None)

    def settle(self, name: str) -> Settle:
        rng = self.rng
        if not self.leases:
            return Settle(name, 0, 1, 1, 1, 0, [0, 1])
        name, term, sequence, spans = self.leases[-1 - rng.randrange(min(8, len(self.leases)))]
        at = 4 * rng.randrange(len(spans) // 4)
        start, end, attempt, generation = spans[at : at + 4]
        low = rng.randrange(start, end)
        if rng.randrange(10) == 0:
            sequence = 999_999  # as if its Grant was lost
        delay_ms = (BACKOFF, 0, 50, 500)[rng.randrange(4)]
        ranges = [low, end] if rng.randrange(2) else [start, end]
        verb = (0, 0, 1, 1, 2, 3)[rng.randrange(6)]
        return Settle(name, verb, term, sequence, attempt, generation, ranges, delay_ms)


ADOPTED_NACKS = (1009, 1066, 1115)  # of ready messages, without a delay: they stay ready


@pytest.mark.parametrize("seed", [*range(60), *ADOPTED_NACKS])
def test_machine_and_model_agree(seed: int) -> None:
    walk = Walk(seed)
    machine, model = DeliveryMachine(), DeliveryModel()
    log_start = 0
    for index in range(1, 160):
        entry = walk.entry(model)
        outcomes = machine.apply(walk.term, index, entry, log_start, walk.end)
        model.pass_time(entry.at_ms)
        for command, outcome in zip(entry.commands, outcomes, strict=True):
            verdict = model.apply(walk.term, command, log_start, walk.end)
            if verdict is not None:
                assert agree(command, outcome, verdict), (index, command, outcome, verdict)
        if index % 40 == 0 and walk.rng.randrange(2):
            log_start += walk.rng.randrange(max(1, (walk.end - log_start) // 3))
            machine.trim(log_start)
            model.trim(log_start)
        if index % 10 == 0:
            machine.check(log_start, walk.end)
            assert states(machine, log_start, walk.end) == model_states(model, log_start, walk.end)
        if index % 30 == 0:
            again = DeliveryMachine()
            again.restore(machine.snapshot())
            machine = again
            owed = [
                (d.number + at, d.group, d.start + at, d.generation)
                for d in machine.outbox.after(0)
                for at in range(d.end - d.start)
            ]
            assert owed == sorted((number, *what) for number, what in model.outbox.items())


def agree(command: Command, outcome: object, verdict: Verdict) -> bool:
    done = sorted(offset for offset, why in verdict.items() if not why)
    if isinstance(command, Grant):
        spans = outcome.spans if isinstance(outcome, Granted) else []
        given = [o for at in range(0, len(spans), 4) for o in range(spans[at], spans[at + 1])]
        return sorted(given) == done
    if isinstance(command, Settle):
        lost = expand(outcome.lost) if isinstance(outcome, SettledRanges) else list(verdict)
        return sorted(lost) == sorted(offset for offset, why in verdict.items() if why)
    return (outcome.count if isinstance(outcome, Done) else 0) == len(done)


def states(machine: DeliveryMachine, start: int, end: int) -> dict[str, list[object]]:
    return {name: [_state(g, o) for o in range(start, end)] for name, g in machine.groups.items()}


def _state(group: WorkGroup, offset: int) -> tuple[str, int, int]:
    if group.is_settled(offset):
        return (words.SETTLED, 0, 0)
    held = group.rows.find(offset)
    if held is None:
        return (words.FRESH, 0, group.base_generation)
    row = held[2]
    return (STATES[state_of(row)], attempt_of(row), generation_of(row))


def model_states(model: DeliveryModel, start: int, end: int) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for name, group in model.groups.items():
        rows: list[object] = []
        for offset in range(start, end):
            state, attempts, generation = group.state_of(offset)
            if state == words.SETTLED:
                rows.append((state, 0, 0))
            else:
                rows.append((state, 0 if state == words.DEAD else attempts, generation))
        found[name] = rows
    return found
