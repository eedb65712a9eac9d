"""Work groups: bounds, refusals and what snapshots share. Stories are in tests/scripts/delivery."""

import pytest

from raftline.machines.delivery import group as groups
from raftline.machines.delivery import leases, letters
from raftline.machines.delivery import machine as delivery
from raftline.machines.delivery.commands import (
    ACK,
    EXTEND,
    NACK,
    REJECT,
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
)
from raftline.machines.delivery.group import WorkGroup
from raftline.machines.delivery.machine import DeliveryMachine
from raftline.machines.delivery.outcomes import Done, Granted, Opened, SettledRanges
from raftline.machines.delivery.retries import backoff_ms
from raftline.machines.delivery.rows import LEASED, READY, RESTING
from raftline.machines.delivery.texts import Texts
from raftline.machines.delivery.timers import Timers
from raftline.machines.machine import Refused
from raftline.model.errors import NewerFormat

END = 100


class Shard:
    """A machine over the messages [0, END), and its clock."""

    def __init__(self, **policy) -> None:
        self.machine = DeliveryMachine()
        self.at_ms = 1000
        self.do(OpenGroup("g", Policy(**policy), START_FIRST))

    def do(self, *commands, term: int = 1):
        entry = Deliver(self.at_ms, list(commands))
        outcomes = self.machine.apply(term, 1, entry, 0, END)
        self.machine.check(0, END)
        return outcomes[0] if len(outcomes) == 1 else outcomes

    @property
    def group(self):
        return self.machine.groups["g"]

    def lease(self, start: int, end: int, sequence: int = 1, lease_ms: int = 500, attempt: int = 1):
        deadline_ms = self.at_ms + lease_ms
        return self.do(Grant("g", sequence, "w", deadline_ms, [start, end, attempt, 0]))

    def settle(self, verb: int, *ranges: int, sequence: int = 1, attempt: int = 1, **more):
        return self.do(Settle("g", verb, 1, sequence, attempt, 0, list(ranges), **more))


def test_one_outcome_per_command_in_order():
    shard = Shard()
    grant = Grant("g", 1, "w", 5000, [0, 4, 1, 0])
    outcomes = shard.do(
        grant,
        Settle("g", ACK, 1, 1, 1, 0, [0, 1, 9, 10]),
        OpenGroup("h", Policy(), START_NEXT),
        Settle("unknown", ACK, 1, 1, 1, 0, [0, 1]),
        Reset("g", 50),
        DropGroup("h"),
    )
    # Message 9 is fresh: its ack is taken for that of a lost Grant.
    assert outcomes[:3] == [Granted(1, [0, 4, 1, 0], []), SettledRanges([]), Opened("h", END)]
    assert isinstance(outcomes[3], Refused)
    assert outcomes[3].code == "unknown_group"
    assert outcomes[4:] == [Done(50), Done(0)]


@pytest.mark.parametrize(
    "command",
    [
        OpenGroup("", Policy(), 0),
        OpenGroup("x" * 250, Policy(), 0),
        OpenGroup("h", Policy(max_retries=-1), 0),
        OpenGroup("h", Policy(max_retries=1_000_001), 0),
        OpenGroup("h", Policy(backoff_ms=-1), 0),
        OpenGroup("h", Policy(jitter_percent=101), 0),
        Grant("g", 1, "w", 5000, [0, 1, 1]),
        Grant("g", 1, "w", 5000, [-1, 1, 1, 0]),
        Grant("g", 1 << 40, "w", 5000, [0, 1, 1, 0]),
        Grant("g", 1, "w", 5000, [0, 2, 1, 0], [1]),
        Grant("g", 1, "w", 5000, [0, 1, 1, 0], [1 << 63]),
        Settle("g", 5, 1, 1, 1, 0, [0, 1]),
        Settle("g", ACK, 1, 1, 1, 0, [0]),
        Revive("g", [0]),
        Forget("g", [0]),
    ],
    ids=repr,
)
def test_what_cannot_be_is_refused_and_changes_nothing(command):
    shard = Shard()
    before = shard.machine.snapshot()
    outcome = shard.do(command)
    assert isinstance(outcome, Refused)
    assert outcome.code == "invalid_argument"
    assert shard.machine.snapshot() == before


def test_groups_are_bounded(monkeypatch):
    monkeypatch.setattr(delivery, "WORK_GROUPS_MAX", 2)
    shard = Shard()
    assert shard.do(OpenGroup("h", Policy(), 0)) == Opened("h", 0)
    assert shard.do(OpenGroup("i", Policy(), 0)).code == "over_limit"
    assert shard.do(OpenGroup("h", Policy(ordered=True), 7)) == Opened("h", 0)
    assert shard.machine.groups["h"].policy.ordered


def test_a_policy_is_adopted_where_the_group_stands():
    shard = Shard(max_retries=5)
    shard.lease(0, 1)
    shard.do(OpenGroup("g", Policy(max_retries=0), 50))
    shard.settle(NACK, 0, 1)
    assert [d.reason for d in shard.machine.outbox.after(0)] == ["max_retries"]


def test_so_many_leases_end_per_entry(monkeypatch):
    monkeypatch.setattr(delivery, "EXPIRE_ROWS_MAX", 3)
    shard = Shard()
    for at in range(8):
        shard.lease(at, at + 1, sequence=at + 1)
    shard.at_ms += 500
    shard.do()
    assert shard.group.counts[READY] == 3
    assert shard.machine.next_due_ms() == shard.at_ms  # still due: the leader ticks again
    assert shard.settle(ACK, 5, 6, sequence=6) == SettledRanges([5, 6])  # it was its turn
    assert shard.settle(ACK, 7, 8, sequence=8) == SettledRanges([7, 8])
    assert shard.machine.next_due_ms() is None


def test_a_range_that_expires_is_one_row_and_dies_in_one_go():
    shard = Shard(max_retries=0)
    shard.lease(0, 90)
    shard.at_ms += 500
    shard.do()
    (dying,) = shard.machine.outbox.after(0)
    assert (dying.number, dying.start, dying.end, dying.reason) == (1, 0, 90, "expired")
    assert shard.do(Buried(30)) == Done(30)
    (dying,) = shard.machine.outbox.after(0)
    assert (dying.number, dying.start) == (31, 30)
    assert shard.machine.pin() == 30
    assert [d.start for d in shard.machine.outbox.after(49)] == [49]


def test_a_command_looks_at_so_many_rows(monkeypatch):
    monkeypatch.setattr(leases, "SETTLE_ROWS_MAX", 4)
    monkeypatch.setattr(letters, "SETTLE_ROWS_MAX", 4)
    shard = Shard()
    for at in range(6):
        shard.lease(2 * at, 2 * at + 1, sequence=at + 1)
    # Between the leases lie fresh messages: a foreign settle gets through to four pieces.
    assert shard.settle(EXTEND, 0, 12, sequence=9) == SettledRanges([0, 12])
    assert shard.settle(ACK, 4, 8, sequence=3) == SettledRanges([6, 7])
    for at in range(20, 31, 2):
        shard.settle(REJECT, at, at + 1)
    shard.do(Buried(10))
    assert shard.do(Forget("g", [19, 40])) == Done(4, stopped=28)
    assert shard.do(Revive("g", [28, 40])) == Done(2)


def test_texts_are_cut_and_bounded(monkeypatch):
    monkeypatch.setattr(groups, "DELIVERY_MEMBERS_MAX", 2)
    monkeypatch.setattr(groups, "DELIVERY_ERRORS_MAX", 1)
    shard = Shard()
    for at, name in enumerate(["a" * 300, "b", "c"]):
        shard.do(Grant("g", at + 1, name, 9000, [at, at + 1, 1, 0]))
        shard.settle(NACK, at + 50, at + 51, reason=name * 2000)
    members = [shard.group.members.text(row[4] & 0xFFFFFFFF) for _, _, row in shard.group.rows]
    assert members[:3] == ["a" * 249, "b", ""]  # the third finds no room
    errors = {shard.group.errors.text(row[4] >> 32) for _, _, row in shard.group.rows}
    assert errors == {"", "a" * 1000}
    shard.settle(ACK, 0, 1)
    shard.do(Grant("g", 9, "d", 9000, [9, 10, 1, 0]))
    assert shard.group.members.state() == [(1, "d"), (2, "b")]


def test_backoff_doubles_up_to_its_limit():
    policy = Policy(backoff_ms=1000, backoff_ms_max=60_000)
    assert [backoff_ms(policy, n) for n in (1, 2, 3, 6, 7, 1_000_000)] == [
        1000, 2000, 4000, 32_000, 60_000, 60_000,
    ]  # fmt: skip
    assert backoff_ms(Policy(backoff_ms=0), 5) == 0


def test_log_time_never_goes_back():
    shard = Shard()
    shard.lease(0, 1)
    shard.at_ms = 1500
    shard.do()
    shard.at_ms = 10
    shard.do()
    assert shard.machine.at_ms == 1500
    shard.lease(0, 1, sequence=2, attempt=2, lease_ms=5000)
    shard.settle(EXTEND, 0, 1, sequence=2, attempt=2, delay_ms=100)
    assert shard.machine.next_due_ms() == 1600  # from log time, not from what the entry says


def test_what_became_ready_is_told_once():
    shard = Shard()
    shard.lease(0, 3)
    shard.settle(NACK, 1, 2)
    assert shard.machine.take_returned() == [("g", 1, 2)]
    assert shard.machine.take_returned() == []
    shard.settle(NACK, 2, 3)
    shard.do()  # nobody asked: it is forgotten with the next entry
    assert shard.machine.take_returned() == []


def test_an_entry_looks_only_at_the_groups_it_concerns(monkeypatch):
    shard = Shard()
    names = [f"g{number}" for number in range(300)]
    shard.do(*(OpenGroup(name, Policy(), START_FIRST) for name in names))
    shard.do(*(Grant(name, 1, "w", 5000, [0, 4, 1, 0]) for name in names))
    looked: list[str] = []
    look = WorkGroup.due_ms_least
    monkeypatch.setattr(WorkGroup, "due_ms_least", lambda g: looked.append(g.name) or look(g))
    machine = shard.machine
    entry = Deliver(shard.at_ms, [Settle("g7", ACK, 1, 1, 1, 0, [0, 1])])
    machine.apply(1, 2, entry, 0, END)
    assert [group.name for group in machine.moved()] == ["g7"]
    assert (machine.take_returned(), machine.is_due_before(4000)) == ([], False)
    assert machine.next_due_ms() == 5000
    assert set(looked) == {"g7"}
    machine.apply(1, 3, Deliver(5000, []), 0, END)
    assert len(machine.take_returned()) == 300


def test_trim_ends_leases_and_forgets():
    shard = Shard()
    shard.lease(0, 10)
    shard.settle(ACK, 12, 15)
    shard.settle(REJECT, 3, 4)
    shard.machine.trim(5)
    shard.machine.check(5, END)
    assert (shard.group.floor, shard.group.counts[LEASED]) == (5, 5)
    assert shard.machine.pin() == 3  # owed all the same: the sender will find it gone
    shard.machine.trim(13)
    shard.machine.check(13, END)
    assert (shard.group.floor, sum(shard.group.counts)) == (15, 0)
    assert shard.machine.next_due_ms() is None
    shard.at_ms += 5000
    outcome = shard.machine.apply(1, 1, Deliver(9000, [Buried(1)]), 13, END)
    assert outcome == [Done(0)]
    assert shard.machine.pin() is None


def test_a_snapshot_is_of_the_moment_it_was_frozen():
    shard = Shard()
    shard.lease(0, 50)
    shard.settle(ACK, 10, 20)
    frozen, then = shard.machine.freeze(), shard.machine.snapshot()
    shard.settle(ACK, 20, 30)
    shard.settle(NACK, 0, 5, delay_ms=50)
    shard.do(OpenGroup("h", Policy(), 0))
    assert frozen() == then != shard.machine.snapshot()
    again = DeliveryMachine()
    again.restore(then)
    again.check(0, END)
    assert again.groups["g"].counts[RESTING] == 0
    assert again.snapshot() == then


def test_a_snapshot_of_a_newer_build_is_refused(monkeypatch):
    monkeypatch.setattr("raftline.machines.delivery.snapshots.SNAPSHOT_FORMAT", 2)
    snapshot = Shard().machine.snapshot()
    monkeypatch.undo()
    with pytest.raises(NewerFormat):
        DeliveryMachine().restore(snapshot)


def test_texts_take_the_smallest_free_number():
    texts = Texts(10)
    for number, text in enumerate("abcd", 1):
        assert texts.number(text) == number
        texts.hold(number, 2)
    texts.drop(3, 2)
    texts.drop(1, 2)
    again = Texts(10)
    again.restore(texts.state())
    assert [t.number("e") for t in (texts, again)] == [1, 1]
    assert [t.number("f") for t in (texts, again)] == [3, 3]
    assert [t.number("g") for t in (texts, again)] == [5, 5]
    texts.tidy(5)
    assert texts.number("h") == 5
    assert (texts.number(""), texts.text(0)) == (0, "")


def test_timers_come_in_order_and_vanish_with_those_who_wait():
    timers = Timers()
    for time_ms, start in [(500, 9), (70, 3), (64, 8), (70, 1), (64, 2)]:
        timers.arm(time_ms, start, 1)
    timers.disarm(500, 1)
    found = []
    while (note := timers.first()) is not None:
        found.append(note)
        timers.pop()
        timers.disarm(note[0], 1)
        if note == (64, 8):
            timers.arm(65, 7, 1)
    assert found == [(64, 2), (64, 8), (65, 7), (70, 1), (70, 3)]
    for _ in range(10_000):  # a lease given and settled at once, over and over
        timers.arm(90_000, 1, 1)
        timers.disarm(90_000, 1)
    assert len(timers._order) < 100
