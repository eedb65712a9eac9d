"""Work groups against a naive twin: one small dict per message, everything by walking them all."""

from itertools import groupby
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftline.machines.delivery import machine as delivery
from raftline.machines.delivery.commands import (
    ACK,
    BACKOFF,
    EXTEND,
    NACK,
    REJECT,
    RELEASE,
    START_FIRST,
    START_NEXT,
    Buried,
    Deliver,
    DropGroup,
    Forget,
    Grant,
    OpenGroup,
    Policy,
    Reset,
    Revive,
    Settle,
    decode_deliver,
    encode_deliver,
)
from raftline.machines.delivery.machine import DeliveryMachine
from raftline.machines.delivery.rows import (
    FIRST,
    KEY,
    LEASE,
    STATES,
    TIME,
    attempt_of,
    error_of,
    generation_of,
    lease_of,
    member_of,
    state_of,
)

EXPIRE_ROWS = 3  # in these tests, so that the bound is met
MESSAGES = 14
FRESH = {"state": "fresh"}
SETTLED = {"state": "settled"}


class NaiveGroup:
    def __init__(self, policy: Policy, floor: int, generation: int) -> None:
        self.policy = policy
        self.base = self.highest = generation
        self.messages: dict[int, dict] = {}
        self.begin(floor)

    def begin(self, floor: int) -> None:
        self.messages = {offset: SETTLED if offset < floor else FRESH for offset in range(MESSAGES)}

    def held(self, state: str) -> list[int]:
        return [offset for offset, m in sorted(self.messages.items()) if m["state"] == state]


class Naive:
    """What work groups do, said once more and in no hurry."""

    def __init__(self) -> None:
        self.at_ms = 0
        self.log_start = 0
        self.next_offset = 6
        self.generation_next = 0
        self.groups: dict[str, NaiveGroup] = {}
        self.outbox: list[tuple] = []  # (number, group, offset, generation, reason, attempts, ...)
        self.died = 0

    def tick(self, at_ms: int) -> None:
        self.at_ms = max(self.at_ms, at_ms)
        left = EXPIRE_ROWS
        for name, group in self.groups.items():
            for run in self.due(group)[:left]:
                left -= 1
                for offset in run:
                    message = group.messages[offset]
                    last = message["attempt"] > group.policy.max_retries
                    if message["state"] == "leased" and last:
                        self.die(name, offset, message, "expired")
                    else:
                        group.messages[offset] = self.ready(message)

    def due(self, group: NaiveGroup) -> list[list[int]]:
        """Return runs of equal neighbours that are due, in the order in which they end."""
        items = sorted(group.messages.items())
        runs = [
            [offset for offset, _ in run]
            for message, run in groupby(items, key=lambda item: item[1])
            if message["state"] in ("leased", "resting") and message["time"] <= self.at_ms
        ]
        return sorted(runs, key=lambda run: (group.messages[run[0]]["time"], run[0]))

    @staticmethod
    def ready(message: dict) -> dict:
        return message | {"state": "ready", "time": 0, "member": "", "lease": None}

    def die(self, name: str, offset: int, message: dict, reason: str) -> None:
        group = self.groups[name]
        if not group.policy.dead_letters:
            group.messages[offset] = SETTLED
            return
        self.died += 1
        told = (message["attempt"], message["first"], self.at_ms, message["member"])
        row = (name, offset, message["generation"], reason, *told, message["error"])
        self.outbox.append((self.died, *row))
        group.messages[offset] = message | {"state": "dying"}

    def run(self, term: int, command) -> object:
        match command:
            case Buried():
                return self.bury(command.number)
            case OpenGroup():
                if command.group in self.groups:
                    self.groups[command.group].policy = command.policy
                else:
                    floor = self.where(command.start)
                    group = NaiveGroup(command.policy, floor, self.generation_next)
                    self.groups[command.group] = group
                return "opened"
        group = self.groups.get(command.group)
        if group is None:
            return "unknown_group"
        match command:
            case Grant():
                return self.grant(group, term, command)
            case Settle():
                return self.settle(group, command)
            case Revive():
                dead = self.dead(group, command.ranges)
                for offset in dead:
                    old = group.messages[offset]
                    generation = old["generation"] + 1
                    group.highest = max(group.highest, generation)
                    group.messages[offset] = self.message("ready", 0, generation, key=old["key"])
                return len(dead)
            case Forget():
                dead = self.dead(group, command.ranges)
                for offset in dead:
                    group.messages[offset] = SETTLED
                return len(dead)
            case Reset():
                group.highest += 1
                group.base = group.highest
                floor = self.where(command.offset)
                group.begin(floor)
                return self.next_offset - floor
            case DropGroup():
                del self.groups[command.group]
                self.generation_next = max(self.generation_next, group.highest + 1)
                return len([m for o, m in group.messages.items() if o < self.next_offset
                            and m["state"] in ("fresh", "leased", "resting", "ready")])  # fmt: skip
        raise AssertionError(command)

    def where(self, start: int) -> int:
        if start == START_NEXT:
            return self.next_offset
        return min(max(start, self.log_start), self.next_offset)

    @staticmethod
    def message(state: str, attempt: int, generation: int, **more) -> dict:
        plain = {"time": 0, "first": 0, "member": "", "error": "", "key": 0, "lease": None}
        return {"state": state, "attempt": attempt, "generation": generation} | plain | more

    def free(self, group: NaiveGroup, offset: int, attempt: int, generation: int) -> bool:
        message = group.messages.get(offset, SETTLED)
        if offset >= self.next_offset:
            return False
        if message["state"] == "fresh":
            return (attempt, generation) == (1, group.base)
        return message["state"] == "ready" and (
            (message["attempt"] + 1, message["generation"]) == (attempt, generation)
        )

    def grant(self, group: NaiveGroup, term: int, command: Grant) -> tuple[list, list]:
        granted, lost, at = [], [], 0
        for n in range(0, len(command.spans), 4):
            start, end, attempt, generation = command.spans[n : n + 4]
            for offset in range(start, end):
                key = command.keys[at] if command.keys and group.policy.ordered else 0
                at += 1
                old = group.messages.get(offset, SETTLED)
                is_fresh = old["state"] == "fresh"
                held = {m.get("key", 0) for m in group.messages.values()}
                if (
                    not self.free(group, offset, attempt, generation)
                    or (group.policy.ordered and command.keys is None)
                    or (is_fresh and key and key in held)
                ):
                    lost.append(offset)
                    continue
                granted.append((offset, attempt, generation))
                group.messages[offset] = self.message(
                    "leased",
                    attempt,
                    generation,
                    time=command.deadline_ms,
                    first=old.get("first", 0) or self.at_ms,
                    member=command.member,
                    error=old.get("error", ""),
                    key=key if is_fresh else old["key"],
                    lease=(term, command.sequence),
                )
        return granted, lost

    def settle(self, group: NaiveGroup, command: Settle) -> list[int]:
        lost = []
        for n in range(0, len(command.ranges), 2):
            for offset in range(*command.ranges[n : n + 2]):
                lost += [] if self.settle_one(group, offset, command) else [offset]
        return lost

    def settle_one(self, group: NaiveGroup, offset: int, command: Settle) -> bool:
        message = group.messages.get(offset, SETTLED)
        said = (command.attempt, command.generation)
        lives = message["state"] == "leased" and (
            message["lease"] == (command.term, command.sequence)
            and (message["attempt"], message["generation"]) == said
        )
        if not lives:
            if command.verb == EXTEND or not self.free(group, offset, *said):
                return False
            is_fresh = message["state"] == "fresh"
            if command.verb == RELEASE:
                return True  # it is free
            if is_fresh and group.policy.ordered and command.verb != ACK:
                return False
            known = {} if is_fresh else {key: message[key] for key in ("error", "key")}
            first = message.get("first", 0) or self.at_ms
            message = self.message("", *said, first=first, member=command.member, **known)
        if command.verb == ACK:
            group.messages[offset] = SETTLED
        elif command.verb == RELEASE:
            attempt = message["attempt"] - 1
            first = message["first"] if attempt else 0
            group.messages[offset] = self.ready(message) | {"attempt": attempt, "first": first}
        elif command.verb == EXTEND:
            until = self.at_ms + max(command.delay_ms, 0)
            group.messages[offset] = message | {"time": until}
        else:
            message["error"] = command.reason or message["error"]
            message["member"] = message["member"] or command.member
            self.fail(command, group, offset, message)
        return True

    def fail(self, command: Settle, group: NaiveGroup, offset: int, message: dict) -> None:
        if command.verb == REJECT:
            self.die(command.group, offset, message, "rejected")
        elif message["attempt"] > group.policy.max_retries:
            self.die(command.group, offset, message, "max_retries")
        else:
            policy, delay = group.policy, command.delay_ms
            if delay == BACKOFF:
                factor = 2 ** (message["attempt"] - 1)
                delay = min(policy.backoff_ms_max, policy.backoff_ms * factor)
            ready = self.ready(message)
            resting = {"state": "resting", "time": self.at_ms + delay}
            group.messages[offset] = ready | resting if delay else ready

    def dead(self, group: NaiveGroup, ranges: list[int]) -> list[int]:
        asked = {o for n in range(0, len(ranges), 2) for o in range(*ranges[n : n + 2])}
        return [offset for offset in group.held("dead") if offset in asked]

    def bury(self, number: int) -> int:
        gone = [row for row in self.outbox if row[0] <= number]
        self.outbox = [row for row in self.outbox if row[0] > number]
        count = 0
        for _, name, offset, generation, *_ in gone:
            group = self.groups.get(name)
            old = group.messages.get(offset, SETTLED) if group else SETTLED
            if group and old["state"] == "dying" and old["generation"] == generation:
                group.messages[offset] = self.message("dead", 0, generation, key=old["key"])
                count += 1
        return count

    def trim(self, log_start: int) -> None:
        self.log_start = max(self.log_start, min(log_start, self.next_offset))
        for group in self.groups.values():
            for offset in range(self.log_start):
                group.messages[offset] = SETTLED

    def next_due_ms(self) -> int | None:
        times = [m["time"] for g in self.groups.values() for m in g.messages.values()
                 if m["state"] in ("leased", "resting")]  # fmt: skip
        return min(times, default=None)


# What is tried. None: the right one, as the naive twin knows it.
name = st.sampled_from(["a", "a", "a", "b"])
offset = st.integers(0, MESSAGES - 1)
count = st.integers(1, 5)
policy = st.builds(
    Policy,
    st.integers(0, 2),
    st.integers(0, 300),
    st.integers(0, 500),
    st.booleans(),
    st.booleans(),
)
start = st.sampled_from([START_FIRST, START_NEXT, 0, 3, 99])
guess = st.none() | st.none() | st.integers(0, 3)
some_keys = st.none() | st.lists(st.integers(0, 3), min_size=10, max_size=10)
step = st.one_of(
    st.tuples(st.just("open"), name, policy, start),
    st.tuples(st.just("grant"), name, offset, count, guess, guess, st.integers(0, 400),
              st.sampled_from(["w", "v"]), some_keys),
    st.tuples(st.just("settle"), name, offset, count, guess, guess,
              st.sampled_from([ACK, NACK, NACK, REJECT, EXTEND, RELEASE]),
              st.sampled_from([BACKOFF, 0, 70, 200]), st.sampled_from(["", "boom"])),
    st.tuples(st.just("tick"), st.integers(0, 400)),
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("bury"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["revive", "forget"]), name, offset, count),
    st.tuples(st.just("reset"), name, start),
    st.tuples(st.just("drop"), name),
    st.tuples(st.just("trim"), offset),
    st.tuples(st.just("restart")),
    st.tuples(st.just("term")),
)  # fmt: skip
first = st.tuples(st.just("open"), st.just("a"), policy, st.just(START_FIRST))


class Twins:
    """The machine and its naive twin, told the same."""

    def __init__(self) -> None:
        self.fast, self.naive = DeliveryMachine(), Naive()
        self.term, self.sequence, self.now = 1, 0, 1000

    def do(self, what: str, *args) -> None:
        match what:
            case "tick":
                self.now += args[0]
                self.apply()
            case "append":
                self.naive.next_offset = min(MESSAGES, self.naive.next_offset + args[0])
            case "trim":
                self.naive.trim(args[0])
                self.fast.trim(self.naive.log_start)
            case "term":
                self.term += 1
            case "restart":
                again = DeliveryMachine()
                again.restore(self.fast.snapshot())
                assert again.snapshot() == self.fast.snapshot()
                self.fast = again
            case _:
                self.apply(getattr(self, what)(*args))
        self.compare()

    def apply(self, *commands) -> None:
        naive, fast = self.naive, self.fast
        naive.tick(self.now)
        entry = Deliver(self.now, list(commands))
        outcomes = fast.apply(self.term, 1, entry, naive.log_start, naive.next_offset)
        wanted = [naive.run(self.term, command) for command in commands]
        assert [said(outcome) for outcome in outcomes] == wanted

    def known(self, group: str, at: int) -> dict:
        naive = self.naive.groups.get(group)
        found = naive.messages.get(at, SETTLED) if naive else SETTLED
        plain = {"attempt": 0, "generation": naive.base if naive else 0, "lease": None}
        return plain | found

    def open(self, group, policy, start):
        return OpenGroup(group, policy, start)

    def grant(self, group, at, count, attempt, generation, lease_ms, member, keys):
        known = self.known(group, at)
        attempt = known["attempt"] + 1 if attempt is None else attempt
        generation = known["generation"] if generation is None else generation
        self.sequence += 1
        spans = [at, at + count, attempt, generation, 0, 3, 1, generation]
        keys = keys and keys[: count + 3]
        keys = keys and keys + [0] * (count + 3 - len(keys))
        return Grant(group, self.sequence, member, self.now + lease_ms, spans, keys)

    def settle(self, group, at, count, attempt, generation, verb, delay_ms, reason):
        known = self.known(group, at)
        attempt = (known["attempt"] or 1) if attempt is None else attempt
        generation = known["generation"] if generation is None else generation
        lease = known["lease"] or (self.term, 99)
        if delay_ms == 60:
            lease = (lease[0], max(1, lease[1] - at % 2))  # now and then another one
        ranges = [at, at + count, at + 1, at + 2]
        return Settle(group, verb, *lease, attempt, generation, ranges, delay_ms, reason, "w")

    def bury(self, more):
        return Buried(self.fast.outbox.buried + more)

    def revive(self, group, at, count):
        return Revive(group, [at, at + count, 0, 2])

    def forget(self, group, at, count):
        return Forget(group, [at, at + count])

    def reset(self, group, start):
        return Reset(group, start)

    def drop(self, group):
        return DropGroup(group)

    def compare(self) -> None:
        fast, naive = self.fast, self.naive
        fast.check(naive.log_start, naive.next_offset)
        assert list(fast.groups) == list(naive.groups)
        for group, twin in zip(fast.groups.values(), naive.groups.values(), strict=True):
            assert seen(group, naive.next_offset) == [
                plain(twin.messages[o]) for o in range(naive.next_offset)
            ]
            due = {"fresh", "leased", "resting", "ready"}
            left = [o for o in range(naive.next_offset) if twin.messages[o]["state"] in due]
            assert group.lag(naive.next_offset) == len(left)
            assert group.oldest(naive.next_offset) == (left[0] if left else None)
            assert [group.is_settled(o) for o in range(MESSAGES)] == [
                twin.messages[o] == SETTLED for o in range(MESSAGES)
            ]
        told = [(d.number + n, d.group, d.start + n, d.generation, d.reason, d.attempts, d.first_ms,
                 d.last_ms, d.member, d.error)
                for d in fast.outbox.after(0) for n in range(d.end - d.start)]  # fmt: skip
        assert told == naive.outbox
        assert fast.pin() == min((row[2] for row in naive.outbox), default=None)
        assert len(fast.outbox) == len(naive.outbox)
        assert fast.next_due_ms() == naive.next_due_ms()
        assert fast.at_ms == naive.at_ms


def plain(message: dict) -> dict:
    """Return of a message what its state has a use for."""
    if message["state"] in ("fresh", "settled"):
        return {"state": message["state"]}
    if message["state"] in ("dying", "dead"):
        return {key: message[key] for key in ("state", "generation", "key")}
    return message


def seen(group, end: int) -> list[dict]:
    found = [FRESH if not group.is_settled(offset) else SETTLED for offset in range(end)]
    for low, high, row in group.rows:
        lease = row[LEASE]
        message = {
            "state": STATES[state_of(row)],
            "attempt": attempt_of(row),
            "generation": generation_of(row),
            "time": row[TIME],
            "first": row[FIRST],
            "member": group.members.text(member_of(row)),
            "error": group.errors.text(error_of(row)),
            "key": row[KEY],
            "lease": (lease >> 40, lease & ((1 << 40) - 1)) if lease else None,
        }
        assert not lease or lease_of(*message["lease"]) == lease
        for offset in range(low, high):
            assert found[offset] == FRESH
            found[offset] = plain(message)
    return found


def said(outcome) -> object:
    match type(outcome).__name__:
        case "Opened":
            return "opened"
        case "Refused":
            return outcome.code
        case "Granted":
            spans = [outcome.spans[n : n + 4] for n in range(0, len(outcome.spans), 4)]
            granted = [(o, a, g) for low, high, a, g in spans for o in range(low, high)]
            return granted, spread(outcome.lost)
        case "SettledRanges":
            return spread(outcome.lost)
    assert outcome.stopped == -1
    return outcome.count


def spread(ranges: list[int]) -> list[int]:
    return [o for n in range(0, len(ranges), 2) for o in range(ranges[n], ranges[n + 1])]


@pytest.fixture(autouse=True)
def _small_bound(monkeypatch):
    monkeypatch.setattr(delivery, "EXPIRE_ROWS_MAX", EXPIRE_ROWS)


@given(first, st.lists(step, max_size=40))
def test_the_same_as_the_naive_twin(opened, steps):
    twins = Twins()
    for what, *args in [opened, *steps]:
        twins.do(what, *args)


WEIGHTS = {
    "grant": 30, "settle": 35, "tick": 12, "append": 4, "bury": 6, "revive": 4, "forget": 1,
    "open": 2, "reset": 1, "drop": 1, "trim": 1, "restart": 2, "term": 2,
}  # fmt: skip


class Driver:
    """Chooses steps that mostly mean something where the messages are."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.twins = Twins()

    def group(self) -> str:
        return self.random.choice("aaaab")

    def at(self, group: str, *states: str) -> int:
        twin = self.twins.naive.groups.get(group)
        found = [o for state in states for o in twin.held(state)] if twin else []
        end = self.twins.naive.next_offset
        is_aimed = found and self.random.random() < 0.85
        return self.random.choice(found) if is_aimed else self.random.randrange(end)

    def guess(self) -> int | None:
        return self.random.randrange(4) if self.random.random() < 0.15 else None

    def policy(self) -> Policy:
        pick = self.random
        return Policy(
            pick.randrange(3), pick.choice([0, 100]), 150, pick.random() < 0.85, pick.random() < 0.4
        )

    def step(self) -> tuple:
        pick, group = self.random, self.group()
        what = pick.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        count = pick.choice([1, 1, 1, 2, 3, 5])
        match what:
            case "open":
                return what, group, self.policy(), pick.choice([START_FIRST, START_FIRST, 3, -2])
            case "grant":
                keys = None if pick.random() < 0.1 else [pick.randrange(4) for _ in range(10)]
                at, member = self.at(group, "fresh", "ready"), pick.choice("wwv")
                lease_ms = pick.choice([0, 50, 60, 60, 200])
                return what, group, at, count, self.guess(), self.guess(), lease_ms, member, keys
            case "settle":
                at = self.at(group, "leased", "leased", "ready", "fresh")
                verb, delay_ms = (
                    pick.choice([ACK, NACK, NACK, REJECT, EXTEND, RELEASE]),
                    pick.choice([-1, 0, 60]),
                )
                reason = pick.choice(["", "boom", "bang", "burst"])
                return what, group, at, count, self.guess(), self.guess(), verb, delay_ms, reason
            case "revive" | "forget":
                return what, group, self.at(group, "dead"), count
            case "reset":
                return what, group, pick.choice([START_FIRST, 0, 5])
            case "drop":
                return what, group
            case "tick":
                return what, pick.choice([0, 1, 30, 64, 200])
            case "append" | "bury":
                return what, pick.randrange(1, 4)
            case "trim":
                return what, pick.randrange(5)
        return (what,)


def drive(driver: Driver, steps: int):
    """Yield steps, told to the driver's twins one by one."""
    step = ("open", "a", driver.policy(), START_FIRST)
    for _ in range(steps):
        driver.twins.do(*step)
        yield step
        step = driver.step()
        if driver.twins.naive.next_offset == MESSAGES and driver.random.random() < 0.05:
            step = ("reset", "a", START_FIRST)


@pytest.mark.parametrize("seed", range(40))
def test_long_lives(seed):
    for _ in drive(Driver(seed), 250):
        pass


@pytest.mark.parametrize("seed", range(100, 110))
def test_a_replica_that_restarts_all_the_time_is_identical(seed):
    """What is derived (timers, counts, who holds a text) must not decide: it is made anew."""
    driver, restarting = Driver(seed), Twins()
    for step in drive(driver, 200):
        restarting.do(*step)
        restarting.do("restart")
        assert restarting.fast.snapshot() == driver.twins.fast.snapshot()


number = st.integers(-(1 << 63), (1 << 64) - 1) | st.integers(-3, 12)
numbers = st.lists(number, max_size=9)
text = st.sampled_from(["a", "", "x" * 5000])
anything = st.one_of(
    st.builds(OpenGroup, text, st.builds(Policy, number, number, number), number),
    st.builds(Grant, text, number, text, number, numbers, st.none() | numbers),
    st.builds(Settle, text, number, number, number, number, number, numbers, number, text, text),
    st.builds(Buried, number),
    st.builds(Revive, text, numbers),
    st.builds(Forget, text, numbers),
    st.builds(Reset, text, number),
    st.builds(DropGroup, text),
)


@given(st.lists(st.tuples(number, st.lists(anything, max_size=6)), max_size=6))
def test_any_command_is_applied_or_refused(entries):
    machine = DeliveryMachine()
    machine.apply(1, 1, Deliver(5, [OpenGroup("a", Policy(), 0)]), 0, 10)
    machine.apply(1, 2, Deliver(5, [Grant("a", 1, "w", 9, [0, 8, 1, 0])]), 0, 10)
    machine.apply(1, 3, Deliver(5, [Settle("a", REJECT, 1, 1, 1, 0, [2, 4])]), 0, 10)
    for index, (at_ms, commands) in enumerate(entries):
        data = encode_deliver(at_ms, commands)
        assert len(machine.apply(2, index, decode_deliver(data), 0, 10)) == len(commands)
        machine.check(0, 10)
        again = DeliveryMachine()
        again.restore(machine.snapshot())
        assert again.snapshot() == machine.snapshot()
