"""Staged writes by the machine and by a plain model: random jobs, repeats, zombies, restores."""

import random

import pytest

from raftline.machines.machine import Refused
from raftline.machines.partition.commands import encode_append
from raftline.machines.partition.machine import AppendedEntry, PartitionMachine
from raftline.machines.partition.side_car import SideCar, encode_extension, hash_key
from raftline.machines.partition.staging_commands import (
    APPENDS,
    SCHEDULES,
    Abandon,
    ForgetQuery,
    Publish,
    encode_piece,
    encode_stage,
    encode_staging,
)
from raftline.machines.partition.staging_words import Dropped, PublishBegun, Result, Staged
from raftline.machines.partition.waiting import Scheduled
from raftline.machines.partition.waiting_commands import encode_schedule
from raftline.model.batch import BatchInfo

QUERIES = ("q1", "q2")
KEEP_MS = 300_000
Key = tuple[int, int, int, int]


class Plain:
    """One query: what it staged (messages by chunk), its fence, what is being published."""

    def __init__(self) -> None:
        self.chunks: dict[Key, int] = {}
        self.fence = -1
        self.result = Result()
        self.going = Result()  # of the batch being published
        self.moving: list[int] = []  # messages of the chunks left to move
        self.batch = -1
        self.used_ms = 0


class Walk:
    """A machine, the model beside it, and random commands for both."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.machine = PartitionMachine()
        self.plain: dict[str, Plain] = {}
        self.at_ms = 1_000_000
        self.index = 0
        self.end = 0
        self.bytes_of: dict[tuple[str, Key], tuple[int, bool]] = {}

    def apply(self, data: bytes) -> list[object]:
        self.index += 1
        return list(self.machine.apply(self.index, 1, data))

    def query(self, name: str) -> Plain:
        plain = self.plain.setdefault(name, Plain())
        plain.used_ms = self.at_ms
        return plain

    def stage(self, name: str) -> None:
        rng, plain = self.rng, self.query(name)
        key = (
            max(0, plain.fence + rng.randrange(-1, 3)),
            rng.randrange(3),
            rng.randrange(2),
            rng.randrange(3),
        )
        count = rng.randrange(1, 5)
        extras = b"extras" if rng.randrange(3) == 0 else b""
        data = encode_stage(self.at_ms, KEEP_MS, name, key, b"b" * count, count, 5, extras)
        (event,) = self.apply(data)
        same = (count, bool(extras))
        if key[0] <= max(plain.fence, plain.batch):
            assert event == Staged(-1)
        elif key in plain.chunks and self.bytes_of[(name, key)] != same:
            assert isinstance(event, Refused)
        elif key in plain.chunks:
            assert event == Staged(0)
        else:
            assert isinstance(event, Staged)
            assert event.number > 0
            plain.chunks[key] = count
            self.bytes_of[(name, key)] = same

    def publish(self, name: str) -> None:
        rng, plain = self.rng, self.query(name)
        batch = max(0, plain.fence + rng.choice((0, 1, 1, 1, 2)))
        winners = self.winners(plain, batch)
        (event,) = self.apply(encode_staging(Publish(self.at_ms, name, batch, winners)))
        if batch <= max(plain.fence, plain.batch):
            assert isinstance(event, PublishBegun)
            assert event.is_repeat
            if batch == plain.fence:
                assert event.result == plain.result
            return
        wanted = [(batch, t, a, c) for t, a, count in sorted(winners) for c in range(count)]
        is_more = any((batch, t, a, count) in plain.chunks for t, a, count in winners)
        if plain.batch >= 0 or is_more or any(key not in plain.chunks for key in wanted):
            assert isinstance(event, Refused), event
            return
        assert isinstance(event, PublishBegun)
        assert not event.is_repeat
        plain.moving, plain.batch = [plain.chunks[key] for key in wanted], batch
        plain.chunks = {key: n for key, n in plain.chunks.items() if key[0] > batch}
        plain.going = Result()
        if not wanted:
            assert event.result == Result()
            plain.fence, plain.batch, plain.result = batch, -1, Result()
        else:
            assert event.result is None

    def winners(self, plain: Plain, batch: int) -> list[tuple[int, int, int]]:
        """Return attempts whose chunks are there without a gap; sometimes others."""
        rng, found = self.rng, list[tuple[int, int, int]]()
        for task in range(3):
            attempt = rng.randrange(2)
            count = 0
            while (batch, task, attempt, count) in plain.chunks:
                count += 1
            if rng.randrange(12) == 0:
                count += 1
            found.append((task, attempt, count))
        rng.shuffle(found)
        return found

    def piece(self, name: str) -> None:
        """Move the next chunks, or try to move wrong ones."""
        rng, plain = self.rng, self.query(name)
        machine = self.machine.staging.queries.get(name)
        under_way = None if machine is None else machine.publishing
        first = rng.randrange(2) if under_way is None else under_way.at
        if rng.randrange(6) == 0:
            first = max(0, first + rng.choice((-1, 1)))
        left = 0 if under_way is None else len(under_way.chunks) - under_way.at
        span = (first, first + max(1, min(left, 1 + rng.randrange(2))))
        batch = plain.batch if plain.batch >= 0 else plain.fence
        counts = plain.moving[: span[1] - span[0]] or [1]
        is_next = under_way is not None and first == under_way.at and bool(plain.moving)
        before, total = self.machine.next_offset, sum(counts)
        if rng.randrange(5) == 0 and len(counts) == 1:
            schedule = encode_schedule(self.at_ms, 10**9, [(b"w", 0, 5, 5)] * total)
            events = self.apply(encode_piece(self.at_ms, name, batch, span, SCHEDULES, schedule))
            expected = Result(plain.going.offset, plain.going.count, plain.going.waiting + total)
        else:
            data = self.append(counts)
            events = self.apply(encode_piece(self.at_ms, name, batch, span, APPENDS, data))
            offset = plain.going.offset if plain.going.offset >= 0 else before
            expected = Result(offset, plain.going.count + total, plain.going.waiting)
        if not is_next:
            assert isinstance(events[0], Refused), events
            assert self.machine.next_offset == before
            return
        assert isinstance(events[0], AppendedEntry | Scheduled), events
        assert isinstance(events[1], PublishBegun)
        del plain.moving[: span[1] - span[0]]
        plain.going = expected
        assert (events[1].result is not None) == (not plain.moving)
        if not plain.moving:
            plain.fence, plain.batch, plain.result = plain.batch, -1, plain.going
            assert events[1].result == plain.going

    def append(self, counts: list[int]) -> bytes:
        items = [(b"b" * n, BatchInfo(n, n, n - 1, 5, 5)) for n in counts]
        sides = [(0, SideCar(((0, 1, 9),)))] if self.rng.randrange(3) == 0 else []
        if len(counts) == 1 and self.rng.randrange(4) == 0:
            self.end += 1
            key = hash_key(b"%d" % self.end)
            sides = [(0, SideCar((), ((0, key),), 10_000))]
        return encode_append(self.at_ms, items, *encode_extension(sides))

    def drop(self, name: str) -> None:
        plain = self.plain.get(name, Plain())
        batch = self.rng.randrange(-1, 4)
        (event,) = self.apply(encode_staging(Abandon(self.at_ms, name, batch)))
        gone = [key for key in plain.chunks if key[0] <= batch]
        assert event == Dropped(len(gone))
        for key in gone:
            del plain.chunks[key]

    def forget(self, name: str) -> None:
        plain = self.plain.get(name, Plain())
        (event,) = self.apply(encode_staging(ForgetQuery(self.at_ms, name)))
        if plain.batch >= 0:
            assert isinstance(event, Refused)
        else:
            assert event == Dropped(len(plain.chunks))
            self.plain.pop(name, None)


@pytest.mark.parametrize("seed", range(40))
def test_machine_and_model_agree(seed: int) -> None:
    walk = Walk(seed)
    steps = [walk.stage] * 10 + [walk.publish] * 4 + [walk.piece] * 6 + [walk.drop]
    for step in range(300):
        walk.at_ms += walk.rng.randrange(200)
        name = QUERIES[walk.rng.randrange(2)]
        if walk.rng.randrange(80) == 0:
            walk.forget(name)
        else:
            steps[walk.rng.randrange(len(steps))](name)
        if step % 25 == 0:
            walk.machine.check()
            copy = PartitionMachine()
            copy.restore(walk.machine.snapshot())
            assert copy.snapshot() == walk.machine.snapshot()
            assert copy.staging.log_start == walk.machine.staging.log_start
            walk.machine = copy
        for query, plain in walk.plain.items():
            state = walk.machine.staging.queries.get(query)
            if state is not None:
                assert state.fence == plain.fence
                assert {key: chunk[1] for key, chunk in state.chunks.items()} == plain.chunks


def test_silent_queries_give_way() -> None:
    machine = PartitionMachine()
    for query, at_ms in (("old", 1_000_000), ("new", 1_000_000 + KEEP_MS // 2)):
        machine.apply(1, 1, encode_stage(at_ms, KEEP_MS, query, (0, 0, 0, 0), b"b", 1, 5))
    late = encode_staging(Abandon(1_000_001 + KEEP_MS, "old", -1))
    machine.apply(3, 1, late)
    assert not machine.staging.queries["old"].chunks
    assert machine.staging.queries["new"].chunks
    assert machine.staging.log_start == 2
    months = 1_000_000 + 100 * 24 * 3_600_000
    machine.apply(4, 1, encode_staging(Abandon(months, "old", -1)))
    assert not machine.staging.queries
    assert machine.staging.log_start == machine.staging.next_number == 3
    machine.check()


def test_a_replica_that_starts_again_looks_for_silent_queries_when_the_others_do() -> None:
    one, other = PartitionMachine(), PartitionMachine()

    def both(data: bytes) -> object:
        found = [list(machine.apply(1, 1, data)) for machine in (one, other)]
        assert found[0] == found[1]
        assert one.digest() == other.digest()
        return found[0][0]

    chunk, keep_ms = (0, 0, 0, 0), 60_000
    both(encode_staging(Abandon(1_000_000, "q", 5)))  # nothing was ever staged
    other.restore(one.snapshot())
    both(encode_stage(1_030_000, keep_ms, "q", chunk, b"b", 1, 5))
    both(encode_staging(Abandon(1_065_000, "r", 0)))
    published = both(encode_staging(Publish(1_095_000, "q", 0, [(0, 0, 1)])))
    assert isinstance(published, PublishBegun)
