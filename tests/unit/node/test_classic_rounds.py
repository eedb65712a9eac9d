"""A coordinator of classic groups, alone: its clock and its log are moved by hand."""

from collections.abc import Callable, Sequence

from raftline.machines.groups import commands as c
from raftline.machines.groups.machine import GroupsMachine
from raftline.model.classic_groups import (
    ClassicBeat,
    ClassicJoin,
    ClassicJoined,
    ClassicSync,
    ClassicSynced,
    Offered,
    Share,
)
from raftline.model.errors import OverLimit, RaftlineError, Rebalancing, TimedOut
from raftline.model.groups import Done
from raftline.model.limits import CLASSIC_GROUP_BYTES_MAX, CLASSIC_METADATA_BYTES_MAX
from raftline.node.classic_groups import CHECK_MS, ClassicGroups
from tests.unit.node.little_ports import HandClock

GROUP = "billing"
SESSION_MS, REBALANCE_MS = 6_000, 60_000


class Desk:
    """The coordinator, and the log its commands go through."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.machine = GroupsMachine()
        self.is_stuck = False  # commands wait
        self.waiting: list[tuple[c.Command, Callable[..., None]]] = []
        self.groups = ClassicGroups(self.clock, self.machine, lambda: 0, self._propose)

    def _propose(
        self,
        command: c.Command,
        _timeout_ms: int,
        done: Callable[[Sequence[object] | RaftlineError], None],
    ) -> None:
        if self.is_stuck:
            self.waiting.append((command, done))
        else:
            done(self.machine.apply_command(command))

    def ask(self, request: ClassicJoin | ClassicSync | ClassicBeat) -> list[object]:
        got: list[object] = []
        self.groups.answer(request, got.append)
        return got

    def join(self, name: str, metadata: bytes = b"", *, again: bool = False) -> list[object]:
        offers = (Offered("range", metadata),)
        return self.ask(
            ClassicJoin(
                GROUP, "consumer", offers, name if again else "", name, session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS, made_up=name,
            )
        )  # fmt: skip

    def form(self, *names: str) -> str:
        """Have static members join; return who leads them."""
        joins = [self.join(name) for name in names]
        self.clock.advance(300)
        joined = [got[0] for got in joins]
        assert all(isinstance(one, ClassicJoined) for one in joined), joined
        return joined[0].leader  # type: ignore[attr-defined]

    def settle(self, *names: str) -> None:
        """Have static members join and be assigned."""
        leader = self.form(*names)
        shares = {name: Share(name.encode()) for name in names}
        told = [self.ask(ClassicSync(GROUP, n, 1, n)) for n in names if n != leader]
        told.append(self.ask(ClassicSync(GROUP, leader, 1, leader, shares=shares)))
        assert all(isinstance(got[0], ClassicSynced) for got in told), told

    def beat(self, name: str) -> object:
        (told,) = self.ask(ClassicBeat(GROUP, name, 1, name))
        return told

    def members(self) -> list[str]:
        classic = self.machine.group(GROUP).classic
        assert classic is not None
        return list(classic.members)


def test_who_is_heard_after_a_standstill_is_not_heard_in_the_future() -> None:
    desk = Desk()
    desk.settle("a", "b")
    desk.clock.now += 4_000  # nothing runs
    assert isinstance(desk.beat("a"), Done)
    desk.clock.advance()  # the look for silent members, late
    assert desk.members() == ["a", "b"], "the standstill is nobody's silence"
    desk.clock.advance(SESSION_MS - 1_000)
    assert desk.members() == ["a", "b"]
    desk.clock.advance(1_000 + 2 * CHECK_MS)
    assert desk.members() == [], "both were silent for a session since"


def test_a_dismissal_that_comes_after_its_time_lets_nobody_wait_for_ever() -> None:
    desk = Desk()
    leader = desk.form("a", "b")
    (other,) = {"a", "b"} - {leader}
    waits = desk.ask(ClassicSync(GROUP, other, 1, other))
    desk.is_stuck = True
    desk.clock.advance(SESSION_MS + 2 * CHECK_MS)
    ((command, done),) = desk.waiting
    assert command == c.Dismiss(GROUP, (leader,), 0)
    done(TimedOut("a command", 5_000))
    assert not waits
    desk.machine.apply_command(command)  # it was on its way all the same
    desk.is_stuck = False
    desk.clock.advance(2 * CHECK_MS)
    assert len(waits) == 1, "whose leader is gone has to join again"
    assert isinstance(waits[0], Rebalancing)


def test_who_waited_for_a_leader_that_died_has_a_session_to_join_again() -> None:
    desk = Desk()
    leader = desk.form("a", "b")
    (other,) = {"a", "b"} - {leader}
    waits = desk.ask(ClassicSync(GROUP, other, 1, other))
    desk.clock.advance(SESSION_MS + 2 * CHECK_MS)
    (told,) = waits
    assert isinstance(told, Rebalancing), "its leader was silent"
    desk.clock.advance(SESSION_MS - 3 * CHECK_MS)
    assert desk.members() == [other], "it waited all the time: that is no silence"
    desk.clock.advance(4 * CHECK_MS)
    assert desk.members() == []


def test_who_joined_where_no_generation_could_be_formed_has_a_session_to_join_again() -> None:
    desk = Desk()
    desk.settle("a", "b")
    again = desk.join("a", b"other topics", again=True)
    for _ in range(2):  # b hears of it late: a waits longer than a session
        desk.clock.advance(SESSION_MS - CHECK_MS)
        assert isinstance(desk.beat("b"), Rebalancing)
    assert not again
    desk.is_stuck = True
    desk.join("b", again=True)
    ((_, done),) = desk.waiting
    done(TimedOut("a command", 5_000))
    desk.is_stuck = False
    assert isinstance(again[0], TimedOut)
    desk.clock.advance(2 * CHECK_MS)
    assert desk.members() == ["a", "b"]


def test_an_assignment_that_comes_after_its_time_lets_nobody_wait_for_ever() -> None:
    desk = Desk()
    leader = desk.form("a", "b")
    (other,) = {"a", "b"} - {leader}
    desk.is_stuck = True
    shares = {other: Share(b"all")}
    first = desk.ask(ClassicSync(GROUP, leader, 1, leader, shares=shares))
    ((command, done),) = desk.waiting
    done(TimedOut("a command", 5_000))
    assert isinstance(first[0], TimedOut)
    waits = desk.ask(ClassicSync(GROUP, other, 1, other))
    assert not waits
    desk.machine.apply_command(command)  # it was on its way all the same
    (told,) = desk.ask(ClassicSync(GROUP, leader, 1, leader, shares=shares))
    assert isinstance(told, ClassicSynced), "the leader heard, so it says no more"
    desk.clock.advance(2 * CHECK_MS)
    (told,) = waits
    assert isinstance(told, ClassicSynced)
    assert told.assignment == b"all"


def test_a_member_that_tells_too_much_for_the_group_is_refused_alone() -> None:
    desk = Desk()
    told = bytes(CLASSIC_METADATA_BYTES_MAX)
    count = CLASSIC_GROUP_BYTES_MAX // CLASSIC_METADATA_BYTES_MAX
    joins = [desk.join(f"m{n}", told) for n in range(count)]
    (refused,) = desk.join("last", b"one more")
    assert isinstance(refused, OverLimit)
    desk.clock.advance(300)
    assert all(isinstance(got[0], ClassicJoined) for got in joins), joins
