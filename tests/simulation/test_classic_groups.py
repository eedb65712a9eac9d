"""Kafka's classic group protocol on simulated clusters: the rounds, and coordinators that die."""

import pytest

import raftline.testing
from raftline.model.classic_groups import (
    ClassicBeat,
    ClassicJoin,
    ClassicJoined,
    ClassicLeave,
    ClassicLeft,
    ClassicSync,
    ClassicSynced,
    DescribeGroup,
    Leaver,
    MemberNamed,
    Offered,
    Share,
)
from raftline.model.errors import (
    FencedInstance,
    FencedMember,
    GroupNotEmpty,
    RaftlineError,
    Rebalancing,
    Unavailable,
    UnknownMember,
    WrongGroupKind,
)
from raftline.model.groups import (
    CommitCursors,
    CursorsFetched,
    DropCursors,
    FetchCursors,
    JoinGroup,
    Offset,
    ShowGroup,
)
from raftline.node.group_calls import shard_of

GROUP, TOPIC = "billing", "orders"


class Consumer:
    """One client of the group: its requests go to whoever coordinates; answers are kept."""

    def __init__(self, c, name: str, instance: str = "", *, session_ms: int = 6_000) -> None:
        self.c = c
        self.name = name
        self.instance = instance
        self.session_ms = session_ms
        self.member = ""
        self.generation = -1
        self.joined: ClassicJoined | None = None
        self.answers: list[object] = []

    def ask(self, request) -> list[object]:
        """Send; the list has the answer once there is one."""
        node = self.c.host(coordinator(self.c)).node
        got: list[object] = []
        node.group_calls.run_here(request, 5_000, got.append)
        return got

    def told(self, request, within: str = "3s"):
        got = self.ask(request)
        self.c.run_until(lambda: bool(got), within)
        return got[0]

    def join(self, *protocols: str) -> list[object]:
        """Ask to join, under a name if one was given."""
        offers = tuple(Offered(name, self.name.encode()) for name in protocols or ("range",))
        request = ClassicJoin(
            GROUP, "consumer", offers, self.member, self.instance, self.name, "/127.0.0.1",
            self.session_ms, 10_000, (TOPIC,), is_named_first=True, is_skipping=True,
        )  # fmt: skip
        if self.member or self.instance:
            return self.ask(request)
        named = self.told(request)
        assert isinstance(named, MemberNamed), named
        self.member = named.member
        return self.join(*protocols)

    def take(self, got: list[object]) -> ClassicJoined:
        self.c.run_until(lambda: bool(got), "15s")
        joined = got[0]
        assert isinstance(joined, ClassicJoined), joined
        self.joined, self.member, self.generation = joined, joined.member, joined.generation
        return joined

    def sync(self) -> list[object]:
        assert self.joined is not None
        shares = {row.id: Share(row.client.encode(), {TOPIC: [n]})
                  for n, row in enumerate(self.joined.members)}  # fmt: skip
        if self.joined.is_skipped:
            shares = {}
        return self.ask(
            ClassicSync(
                GROUP,
                self.member,
                self.generation,
                self.instance,
                "consumer",
                self.joined.protocol,
                shares,
            )
        )

    def beat(self):
        return self.told(ClassicBeat(GROUP, self.member, self.generation, self.instance))

    def commit(self, offset: int, generation: int | None = None):
        told = self.generation if generation is None else generation
        offsets = {TOPIC: {0: Offset(offset, "note", 3)}}
        return self.told(CommitCursors(GROUP, self.member, told, offsets, self.instance))


def coordinator(c) -> str:
    """Return the name of the node that leads the group's shard."""
    shard = shard_of(GROUP)

    def leader() -> str:
        for name in c.running:
            replica = c.host(name).node.shards.get(shard)
            if replica is not None and replica.is_leader:
                return name
        return ""

    c.run_until(lambda: bool(leader()), "10s")
    return leader()


@pytest.fixture(params=[1, 3])
def c(request: pytest.FixtureRequest):
    with raftline.testing.cluster(nodes=request.param, seed=11) as made:
        made.create_topic(TOPIC, partitions=6)
        found: list[object] = []
        made.host(made.running[0]).node.group_calls.find(GROUP, 5_000, found.append)
        made.run_until(lambda: bool(found), "10s")
        assert isinstance(found[0], int), found
        yield made


def settle(c, *consumers: Consumer) -> None:
    """Have all join one generation and be assigned."""
    joins = [(one, one.join()) for one in consumers]
    for one, got in joins:
        one.take(got)
    syncs = [one.sync() for one in consumers]
    c.run_until(lambda: all(syncs), "5s")
    for one, got in zip(consumers, syncs, strict=True):
        assert isinstance(got[0], ClassicSynced), got
        assert got[0].assignment == one.name.encode()


def test_three_members_form_a_generation_and_their_leader_assigns(c) -> None:
    a, b, d = (Consumer(c, name) for name in "abd")
    settle(c, a, b, d)
    assert {one.generation for one in (a, b, d)} == {1}
    leaders = [one for one in (a, b, d) if one.joined.leader == one.member]
    assert len(leaders) == 1
    assert len(leaders[0].joined.members) == 3
    view = c.group(ShowGroup(GROUP))
    assert (view.kind, view.state, len(view.members)) == ("classic", "stable", 3)
    assert sorted(row.owner for row in view.partitions) == sorted(one.member for one in (a, b, d))
    for one in (a, b, d):
        assert not isinstance(one.beat(), RaftlineError)


def test_a_join_has_everybody_join_again_and_a_leave_too(c) -> None:
    a, b = Consumer(c, "a"), Consumer(c, "b")
    settle(c, a)
    new = b.join()
    assert isinstance(a.beat(), Rebalancing)
    assert not new
    assert not isinstance(a.commit(5), RaftlineError)  # the old generation may still commit
    again = a.join()
    a.take(again)
    b.take(new)
    assert a.generation == b.generation == 2
    assert isinstance(a.commit(6), Rebalancing)  # not before it is assigned
    assert isinstance(a.commit(6, generation=1), FencedMember)
    syncs = [b.sync(), a.sync()]
    c.run_until(lambda: all(syncs), "5s")
    left = b.told(ClassicLeave(GROUP, (Leaver(b.member), Leaver("nobody"))))
    assert left == ClassicLeft(("", "unknown_member"))
    assert isinstance(a.beat(), Rebalancing)
    assert isinstance(b.beat(), UnknownMember)
    a.take(a.join())
    assert a.generation == 3


def test_who_is_silent_is_dismissed(c) -> None:
    a, b = Consumer(c, "a"), Consumer(c, "b")
    settle(c, a, b)
    for _ in range(8):
        c.advance("1s")
        told = a.beat()
    assert isinstance(told, Rebalancing)
    assert isinstance(b.beat(), UnknownMember)
    a.take(a.join())
    assert a.joined.leader == a.member
    assert len(a.joined.members) == 1


def test_who_does_not_join_again_in_time_is_out(c) -> None:
    a, b, d = (Consumer(c, name, session_ms=30_000) for name in "abd")
    settle(c, a, b)
    new = d.join()
    a.take(a.join())  # after the rebalance timeout of 10 s
    d.take(new)
    assert a.generation == d.generation == 2
    assert isinstance(b.beat(), UnknownMember)


def test_a_static_member_comes_back_without_a_new_generation(c) -> None:
    a, b = Consumer(c, "a", "one"), Consumer(c, "b", "two")
    settle(c, a, b)
    for old in (a, b):  # one of them leads
        back = Consumer(c, old.name, old.instance)
        joined = back.take(back.join())
        assert joined.generation == 1
        assert joined.member != old.member
        assert (joined.leader == joined.member) == joined.is_skipped
        synced = back.sync()
        c.run_until(lambda got=synced: bool(got), "3s")
        assert synced[0].assignment == old.name.encode()
        assert isinstance(old.beat(), FencedInstance)
        assert isinstance(old.commit(9), FencedInstance)
        assert not isinstance(back.beat(), RaftlineError)


def test_kinds_do_not_mix(c) -> None:
    a = Consumer(c, "a")
    settle(c, a)
    with pytest.raises(WrongGroupKind):
        c.group(JoinGroup(GROUP, (TOPIC,), "native"))
    other = Consumer(c, "x")
    refused = other.told(
        ClassicJoin(
            GROUP, "connect", (Offered("range", b""),), session_ms=6_000, rebalance_ms=6_000
        )
    )
    assert isinstance(refused, WrongGroupKind)
    a.told(ClassicLeave(GROUP, (Leaver(a.member),)))
    c.group(JoinGroup(GROUP, (TOPIC,), "native"))
    refused = other.told(
        ClassicJoin(
            GROUP, "consumer", (Offered("range", b""),), session_ms=6_000, rebalance_ms=6_000
        )
    )
    assert isinstance(refused, WrongGroupKind)


def test_cursors_with_and_without_members(c) -> None:
    simple = Consumer(c, "s")
    assert not isinstance(simple.commit(7), RaftlineError)
    fetched = simple.told(FetchCursors(GROUP, {TOPIC: [0, 1]}))
    assert fetched == CursorsFetched({TOPIC: {0: Offset(7, "note", 3)}})
    a = Consumer(c, "a")
    settle(c, a)
    assert isinstance(simple.commit(8), GroupNotEmpty)
    assert not isinstance(a.commit(9), RaftlineError)
    dropped = a.told(DropCursors(GROUP, {TOPIC: [0]}))
    assert dropped.refused == {TOPIC: [0]}
    a.told(ClassicLeave(GROUP, (Leaver(a.member),)))
    assert a.told(DropCursors(GROUP, {TOPIC: [0]})).count == 1
    assert a.told(FetchCursors(GROUP)) == CursorsFetched({})


@pytest.mark.parametrize("phase", ["stable", "syncing"])
def test_a_coordinator_dies_and_the_generation_goes_on(phase: str) -> None:
    with raftline.testing.cluster(nodes=3, seed=5) as c:
        c.create_topic(TOPIC, partitions=6)
        found: list[object] = []
        c.host(c.running[0]).node.group_calls.find(GROUP, 5_000, found.append)
        c.run_until(lambda: bool(found), "10s")
        a, b = Consumer(c, "a"), Consumer(c, "b")
        if phase == "stable":
            settle(c, a, b)
            assert not isinstance(a.commit(17), RaftlineError)
        else:
            joins = [(a, a.join()), (b, b.join())]
            for one, got in joins:
                one.take(got)
        c.kill(coordinator(c))
        while isinstance(a.beat(), Unavailable):
            c.advance("50ms")
        if phase == "syncing":
            syncs = [a.sync(), b.sync()]
            c.run_until(lambda: all(syncs), "10s")
            assert [got[0].assignment for got in syncs] == [b"a", b"b"]
        for one in (a, b):
            assert not isinstance(one.beat(), RaftlineError)
        view = a.told(DescribeGroup(GROUP))
        assert (view.state, view.generation, len(view.members)) == ("stable", 1, 2)
        if phase == "stable":
            fetched = a.told(FetchCursors(GROUP))
            assert fetched.offsets[TOPIC][0].offset == 17
