"""Waiting messages against a plain twin: a sorted list of what waits."""

from array import array
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from raftline.machines.machine import Refused
from raftline.machines.partition.due_index import DueIndex
from raftline.machines.partition.machine import AppendedEntry, PartitionMachine
from raftline.machines.partition.number_table import NumberTable
from raftline.machines.partition.release_runs import ReleaseRuns
from raftline.machines.partition.waiting import Cancelled, Moved, Scheduled
from raftline.machines.partition.waiting_commands import (
    encode_cancel,
    encode_move,
    encode_release,
    encode_schedule,
)
from raftline.model.errors import InvalidArgument

LIMIT_MS = 50
MESSAGE = b"m"
steps = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), st.integers(0, 60), st.sampled_from([-1, 0, 7])),
        st.tuples(st.just("cancel"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("move"), st.integers(0, 30), st.integers(0, 60)),
        st.tuples(st.just("release"), st.integers(1, 4), st.sampled_from([-1, 0, 7])),
        st.tuples(st.just("late"), st.integers(1, 4), st.sampled_from([-1, 0, 7])),
        st.tuples(st.just("pass"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("trim"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=80,
)


class Twin:
    """What waits, message by message."""

    def __init__(self) -> None:
        self.machine = PartitionMachine()
        self.now = self.index = 0
        self.waiting: dict[int, tuple[int, int]] = {}  # number -> due_ms, priority
        self.cancelled: set[int] = set()
        self.offsets: dict[int, int] = {}
        self.given = 0

    def apply(self, data: bytes):
        self.index += 1
        return self.machine.apply(self.index, 1, data)

    def order(self, priority: int) -> list[int]:
        rows = [(due, n) for n, (due, p) in self.waiting.items() if p == priority]
        return [number for _, number in sorted(rows)]

    def schedule(self, delay: int, priority: int) -> None:
        due = self.now + delay
        items = [(MESSAGE, priority, due, 0), (MESSAGE, priority, 0, 0)]  # the second: in the past
        (event,) = self.apply(encode_schedule(self.now, LIMIT_MS, items))
        assert isinstance(event, Scheduled)
        for outcome, wanted in zip(event.outcomes, [due, self.now], strict=True):
            if wanted - self.now > LIMIT_MS:
                assert isinstance(outcome, InvalidArgument)
                continue
            self.given += 1
            assert outcome == self.given
            self.waiting[self.given] = wanted, priority
        assert [b.number for b in event.stored] == [o for o in event.outcomes if type(o) is int]

    def cancel(self, number: int, _: int) -> None:
        (event,) = self.apply(encode_cancel(self.now, [number]))
        assert isinstance(event, Cancelled)
        if self.waiting.pop(number, None) is not None:
            self.cancelled.add(number)
        is_released = number in self.offsets
        assert event.cancelled == ([number] if number in self.cancelled else [])
        assert event.released == ([number] if is_released else [])

    def move(self, number: int, delay: int) -> None:
        (event,) = self.apply(encode_move(self.now, number, self.now + delay, LIMIT_MS))
        if number not in self.waiting:
            assert isinstance(event, Refused)
            assert event.code in {"not_waiting", "unknown_message"}
        elif delay > LIMIT_MS:
            assert isinstance(event, Refused)
        else:
            assert event == Moved(number, self.now + delay)
            self.waiting[number] = self.now + delay, self.waiting[number][1]

    def release(self, count: int, priority: int) -> None:
        numbers = self.machine.waiting.next_due(priority, self.now, 0, count)
        due = [n for n in self.order(priority) if self.waiting[n][0] <= self.now]
        assert numbers == due[:count]
        if numbers:
            self._released(self.apply(encode_release(self.now, priority, numbers, 0, b"b")))
            for number in numbers:
                del self.waiting[number]
                self.offsets[number] = len(self.offsets)

    def late(self, skip: int, priority: int) -> None:
        """Any other Release is refused: not the next, or not due yet."""
        order = self.order(priority)
        wrong = order[skip : skip + 2]
        early = [n for n in order if self.waiting[n][0] > self.now][:1]
        for numbers in (wrong, order[: len(order) - len(early) + 1] if early else []):
            if numbers:
                (event,) = self.apply(encode_release(self.now, priority, numbers, 0, b"b"))
                assert isinstance(event, Refused)

    def _released(self, events) -> None:
        appended, released = events
        assert isinstance(appended, AppendedEntry)
        assert appended.outcomes == [released.base_offset] == [len(self.offsets)]

    def step(self, verb: str, one: int, two: int) -> None:
        if verb == "pass":
            self.now += one
        elif verb == "trim":
            start = max(self.machine.log_start, min(one, self.machine.next_offset))
            self.machine.log_start = start
            self.machine.waiting.trim(start)
        elif verb == "restart":
            fresh = PartitionMachine()
            fresh.restore(self.machine.snapshot())
            assert fresh.snapshot() == self.machine.snapshot()
            self.machine = fresh
        else:
            getattr(self, verb)(one, two)

    def check(self) -> None:
        self.machine.check()
        waiting = self.machine.waiting
        rows = sorted((due, number, p) for number, (due, p) in self.waiting.items())
        assert waiting.page((-1, -1), 1000) == rows
        assert waiting.earliest_due_ms() == (rows[0][0] if rows else None)
        assert waiting.log_start == min(self.waiting, default=self.given + 1)
        if len(rows) > 2:
            assert waiting.page(rows[1][:2], 1) == rows[2:3]
        for number, offset in self.offsets.items():
            found = waiting.find(number)
            assert found.state == "released"
            assert found.offset == (offset if offset >= self.machine.log_start else -1)
        for number in self.cancelled:
            assert waiting.find(number).state == "cancelled"


@given(steps)
def test_the_machine_does_what_its_plain_twin_does(history) -> None:
    twin = Twin()
    for verb, one, two in history:
        twin.step(verb, one, two)
    twin.check()


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 400), st.booleans()), max_size=60), st.integers(0, 999))
def test_a_frozen_index_stays_as_it_was(changes, seed) -> None:
    """Chunks are shared with what was frozen: a change copies them first."""
    chance = Random(seed)
    index, table, twin = DueIndex(), NumberTable(), []
    for number in range(3000):
        due = chance.randrange(400)
        index.add(due, number)
        table.put(number, due, 3)
        twin.append((due, number))
    twin.sort()
    frozen, frozen_table = index.freeze(), table.freeze()
    want = (
        array("q", [due for due, _ in twin]).tobytes(),
        array("q", [n for _, n in twin]).tobytes(),
    )
    before = frozen_table()
    for due, is_removal in changes:
        if is_removal:
            pair = twin.pop(chance.randrange(len(twin)))
            index.remove(*pair)
            table.drop([pair[1]])
        else:
            count = min(len(twin), due * 3)
            taken, twin = twin[:count], twin[count:]
            index.take(count)
            table.drop([number for _, number in taken])
        if not twin:
            break
    index.check()
    table.check()
    assert list(index.after((-1, -1))) == twin
    assert frozen() == want
    assert frozen_table() == before
    again, again_table = DueIndex(), NumberTable()
    again.restore(*index.freeze()())
    again_table.restore(*table.freeze()())
    assert list(again.after((-1, -1))) == twin
    assert again_table.freeze()() == table.freeze()()
    assert index.first() == (twin[0] if twin else None)


@given(
    st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=5), max_size=30),
    st.integers(0, 60),
    st.sampled_from([5, 1000]),
)
def test_runs_lead_from_numbers_to_offsets(releases, start, runs_max) -> None:
    runs, twin = ReleaseRuns(runs_max), {}
    for numbers in releases:
        fresh = [number for number in dict.fromkeys(numbers) if number not in twin]
        if fresh:
            runs.add(len(twin), fresh)
            twin |= {number: len(twin) + at for at, number in enumerate(fresh)}
        runs.check()
    forgot = len(runs) == runs_max
    runs.trim(start)
    runs.check()
    for number, offset in twin.items():
        want = {offset} if offset >= start else {None}
        assert runs.find(number) in (want | {None} if forgot else want)
    assert runs.find(201) is None
