"""Query leases by the machine and by the plain model, on the same random commands: they agree."""

import random

import pytest

from raftline.machines.delivery.commands import (
    ACK,
    NACK,
    START_FIRST,
    AckQuery,
    Buried,
    Command,
    Deliver,
    DropGroup,
    Grant,
    LeaseQuery,
    OpenGroup,
    Policy,
    RejectQuery,
    ReleaseQuery,
    Reset,
    Settle,
)
from raftline.machines.delivery.machine import DeliveryMachine
from raftline.machines.delivery.outcomes import Done, Leased, Outcome, QuerySettled
from raftline.machines.delivery.query_leases import whole_of
from raftline.machines.machine import Refused
from raftline.testing.delivery_model import FRESH, LEASED, READY, DeliveryModel
from raftline.testing.query_model import QueryModels, Told
from raftline.testing.queue_workers import expand

GROUPS = ("plain", "line")
QUERIES = ("q1", "q2")
STATES = ("settled", "leased", "resting", "ready", "dying", "dead")


class Walk:
    """Random commands that often make sense."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.model = DeliveryModel()
        self.queries = QueryModels(self.model)
        self.at_ms = 1_000
        self.term = self.sequence = 1
        self.end = 0

    def command(self) -> Command:
        rng = self.rng
        name, query = GROUPS[rng.randrange(2)], QUERIES[rng.randrange(2)]
        if name not in self.model.groups:
            policy = Policy(rng.randrange(3), 100, 300, bool(rng.randrange(4)), name == "line")
            return OpenGroup(name, policy, START_FIRST)
        held = self.queries.held(name, query)
        n = max(0, (0 if held is None else held.n) + rng.choice((-1, 0, 0, 0, 1, 1, 1, 2)))
        self.sequence += 1
        dice = rng.randrange(100)
        if dice < 40:
            spans, keys = self.spans(name)
            deadline_ms = self.at_ms + rng.randrange(3_000)
            return LeaseQuery(name, query, n, self.sequence, deadline_ms, spans, keys)
        if dice < 50:
            return AckQuery(name, query, n)
        if dice < 60:
            low = rng.randrange(self.end + 1)
            return RejectQuery(name, query, n, [low, low + rng.randrange(5)], "bad")
        if dice < 63:
            return ReleaseQuery(name, query)
        if dice < 76:
            spans, keys = self.spans(name)
            return Grant(name, self.sequence, "w", self.at_ms + rng.randrange(900), spans, keys)
        if dice < 96:
            return self.settle(name)
        if dice < 98:
            return Buried(self.model.numbers - rng.randrange(3))
        return Reset(name, rng.randrange(self.end + 1)) if dice == 98 else DropGroup(name)

    def spans(self, name: str) -> tuple[list[int], list[int] | None]:
        """Return some messages, most of them free."""
        group, rng = self.model.groups[name], self.rng
        spans: list[int] = []
        offset = rng.randrange(self.end + 1)
        while offset < self.end and len(spans) < 16:
            state, attempts, generation = group.state_of(offset)
            if state in (FRESH, READY) or rng.randrange(6) == 0:
                spans += (offset, offset + 1, attempts + 1, generation)
            offset += 1 + rng.randrange(2)
        if name == "plain":
            return spans, None
        return spans, [1 + offset % 7 for offset in spans[::4]]

    def settle(self, name: str) -> Command:
        """Settle something that is leased, by a worker that may be wrong about it."""
        group, rng = self.model.groups[name], self.rng
        leased = [(o, life) for o, life in group.open.items() if life.state == LEASED]
        if not leased:
            return Settle(name, ACK, 1, 1, 1, 0, [0, 1])
        offset, life = leased[rng.randrange(len(leased))]
        verb = ACK if rng.randrange(3) else NACK
        term, sequence = life.lease if rng.randrange(4) else (self.term, 1)
        return Settle(
            name, verb, term, sequence, life.attempts, life.generation, [offset, offset + 1], 50
        )


def compare(outcome: Outcome, told: "Told | int | None") -> None:
    if told is None:
        assert isinstance(outcome, Refused), outcome
    elif isinstance(told, int):
        assert isinstance(outcome, Done | QuerySettled), outcome
        assert outcome.count == told
    else:
        assert isinstance(outcome, Leased), outcome
        assert (list(expand(outcome.ranges)), list(expand(outcome.lost))) == told


@pytest.mark.parametrize("seed", range(30))
def test_machine_and_model_agree(seed: int) -> None:
    walk, machine = Walk(seed), DeliveryMachine()
    model, queries, rng = walk.model, walk.queries, walk.rng
    log_start = 0
    for index in range(1, 260):
        walk.at_ms += rng.randrange(3) * rng.randrange(400)
        walk.end += rng.randrange(3)
        walk.term += rng.randrange(25) == 0
        if rng.randrange(60) == 0:
            log_start = rng.randrange(log_start, walk.end + 1)
            machine.trim(log_start)
            model.trim(log_start)
        command = walk.command()
        entry = Deliver(walk.at_ms, [command])
        (outcome,) = machine.apply(walk.term, index, entry, log_start, walk.end)
        model.pass_time(walk.at_ms)
        if isinstance(command, LeaseQuery | AckQuery | RejectQuery | ReleaseQuery):
            compare(outcome, queries.apply(walk.term, command, log_start, walk.end))
        else:
            model.apply(walk.term, command, log_start, walk.end)
            if isinstance(command, Reset):
                queries.reset(command.group)
            elif isinstance(command, DropGroup):
                queries.drop(command.group)
        if index % 20 == 0:
            machine.check(log_start, walk.end)
            copy = DeliveryMachine()
            copy.restore(machine.snapshot())
            assert copy.snapshot() == machine.snapshot()
            machine = copy
            agree(machine, walk, log_start)


def agree(machine: DeliveryMachine, walk: Walk, log_start: int) -> None:
    for name, group in machine.groups.items():
        for offset in range(log_start, walk.end):
            state, attempts, _ = walk.model.groups[name].state_of(offset)
            held = group.rows.find(offset)
            if held is None:
                assert state == ("settled" if group.is_settled(offset) else FRESH)
            else:
                assert STATES[held[2][0] & 7] == state
                if state in (LEASED, READY):
                    assert held[2][0] >> 3 & 0x1FFFFF == attempts
        for query in QUERIES:
            mine, theirs = group.queries.get(query), walk.queries.held(name, query)
            assert (mine is None) == (theirs is None)
            if mine is not None and theirs is not None:
                assert (mine.n, mine.is_acked) == (theirs.n, theirs.is_acked)
                assert set(expand(whole_of(group, mine)[0])) <= {*theirs.offsets, *theirs.rejected}
