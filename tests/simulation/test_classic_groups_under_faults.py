"""Random members of a classic group while nodes die and links break.

They are eager ones: who hears that others join puts everything down and joins again. A member stops
reading when it has had no good answer for a session, counted from when it asked. Then no partition
is ever read by two, no generation is formed twice, and no cursor goes back.
"""

import random

import pytest

import raftline.testing
from raftline.machines.groups.classic import Classic
from raftline.model.classic_groups import (
    ClassicBeat,
    ClassicJoin,
    ClassicJoined,
    ClassicLeave,
    ClassicSync,
    ClassicSynced,
    Leaver,
    MemberNamed,
    Offered,
    Share,
)
from raftline.model.errors import FencedMember, RaftlineError, Rebalancing, UnknownMember
from raftline.model.groups import (
    CommitCursors,
    CursorsCommitted,
    Done,
    FetchCursors,
    Offset,
)
from raftline.node.classic_round import Round

TOPIC, GROUP = "orders", "billing"
PARTITIONS = 7
SESSION_MS, REBALANCE_MS = 3_000, 4_000
LOST_MS = 5_500  # an answer that takes longer is not waited for
STEP = "20ms"


class Log:
    """What all members saw together."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}  # by generation
        self.committed: dict[int, int] = {}  # by partition: the last that was answered


class Eager:
    """One member, as a state machine over answers that may never come."""

    def __init__(self, c, rng: random.Random, name: str, log: Log) -> None:
        self.c, self.rng, self.name, self.log = c, rng, name, log
        self.member = ""
        self.joined: ClassicJoined | None = None
        self.is_synced = False
        self.reads: set[int] = set()
        self.at: dict[int, int] = {}  # how far it has read, as it thinks
        self.valid_ms = self.asked_ms = self.next_ms = 0.0
        self.call = 0
        self.is_waiting = False
        self.is_back = False  # from a lull: it commits before it does anything else

    def step(self) -> None:
        now = self.c.now_ms
        if now >= self.valid_ms:
            self.reads.clear()
        if self.is_waiting and now - self.asked_ms > LOST_MS:
            self.is_waiting = False
        if self.is_waiting or now < self.next_ms or not self.c.running:
            return
        joined = self.joined
        if joined is None:
            self.ask(
                ClassicJoin(
                    GROUP,
                    "consumer",
                    (Offered("range", b""),),
                    self.member,
                    session_ms=SESSION_MS,
                    rebalance_ms=REBALANCE_MS,
                    client=self.name,
                    is_named_first=True,
                )
            )
        elif not self.is_synced:
            self.ask(ClassicSync(GROUP, self.member, joined.generation, shares=self.shares()))
        elif self.at and (self.is_back or (self.reads and self.rng.random() < 0.3)):
            self.is_back = False
            self.commit(joined.generation)
        else:
            self.ask(ClassicBeat(GROUP, self.member, joined.generation))

    def shares(self) -> dict[str, Share]:
        assert self.joined is not None
        rows = self.joined.members
        if not rows:
            return {}
        return {
            row.id: Share(
                bytes(range(at, PARTITIONS, len(rows))),
                {TOPIC: list(range(at, PARTITIONS, len(rows)))},
            )
            for at, row in enumerate(rows)
        }

    def commit(self, generation: int) -> None:
        """Move a cursor by one from where we are: who reads it no more must be refused."""
        partition = self.rng.choice(sorted(self.at))
        offset = self.at[partition] = self.at[partition] + 1
        floor = self.log.committed.get(partition, 0)

        def taken(answer: object) -> None:
            if isinstance(answer, CursorsCommitted):
                assert offset > floor, f"{partition} went back from {floor} to {offset}"
                before = self.log.committed.get(partition, 0)
                self.log.committed[partition] = max(before, offset)

        offsets = {TOPIC: {partition: Offset(offset)}}
        self.ask(CommitCursors(GROUP, self.member, generation, offsets), taken)

    def ask(self, request, also=None) -> None:
        self.call += 1
        call, sent_ms = self.call, self.c.now_ms
        self.asked_ms, self.is_waiting = sent_ms, True
        self.next_ms = sent_ms + self.rng.uniform(50, 400)
        node = self.c.host(self.rng.choice(self.c.running)).node

        def taken(answer: object) -> None:
            if also is not None:
                also(answer)
            self.take(call, sent_ms, answer)

        node.group(request, 5_000, taken)

    def take(self, call: int, sent_ms: float, answer: object) -> None:
        if call != self.call or not self.is_waiting:
            return
        self.is_waiting = False
        match answer:
            case MemberNamed():
                self.member = answer.member
            case ClassicJoined():
                leader = self.log.leaders.setdefault(answer.generation, answer.leader)
                assert leader == answer.leader, f"generation {answer.generation} formed twice"
                self.joined, self.is_synced = answer, False
            case ClassicSynced():
                self.is_synced = True
                self.reads = set(answer.assignment)
                self.at = {p: self.log.committed.get(p, 0) for p in self.reads}
                self.valid_ms = sent_ms + SESSION_MS
            case Done() | CursorsCommitted():
                self.valid_ms = sent_ms + SESSION_MS
            case Rebalancing():
                self.put_down()
            case UnknownMember() | FencedMember():
                self.put_down()
                self.member = "" if isinstance(answer, UnknownMember) else self.member
            case _:
                assert isinstance(answer, RaftlineError), answer

    def put_down(self) -> None:
        self.joined = None
        self.is_synced = False
        self.reads.clear()
        self.at.clear()
        self.valid_ms = 0.0

    def leave(self) -> None:
        if self.member:
            member, self.member = self.member, ""
            self.stop()
            node = self.c.host(self.rng.choice(self.c.running)).node
            node.group(ClassicLeave(GROUP, (Leaver(member),)), 1_000, lambda _: None)
            self.next_ms = self.c.now_ms + self.rng.uniform(100, 3_000)

    def lull(self) -> None:
        """Ask nothing for a while, and go on reading as long as one may; then commit at once."""
        self.next_ms = self.c.now_ms + self.rng.uniform(0.5, 3.0) * SESSION_MS
        self.is_back = True

    def crash(self) -> None:
        """Say nothing for a while; it is another process afterwards."""
        self.member = ""
        self.stop()
        self.next_ms = self.c.now_ms + self.rng.uniform(100, 2 * SESSION_MS)

    def stop(self) -> None:
        self.put_down()
        self.call += 1
        self.is_waiting = False


def disturb(c, rng: random.Random, members: list[Eager]) -> None:
    kind = rng.random()
    down = [name for name in c.nodes if name not in c.running]
    if kind < 0.3 and not down:
        c.power_off(rng.choice(c.nodes))
        rng.choice(members).lull()
    elif kind < 0.5 and down:
        c.restart(down[0])
    elif kind < 0.6:
        c.isolate(rng.choice(c.nodes))
    elif kind < 0.75:
        c.heal()
    elif kind < 0.82:
        rng.choice(members).leave()
    elif kind < 0.92:
        rng.choice(members).lull()
    else:
        rng.choice(members).crash()


def check_readers(c, members: list[Eager]) -> None:
    readers: dict[int, str] = {}
    for member in members:
        if c.now_ms >= member.valid_ms:
            continue
        for partition in member.reads:
            other = readers.setdefault(partition, member.name)
            assert other == member.name, (
                f"at {c.now_ms:.0f} ms {TOPIC}/{partition} is read by {other} and {member.name}"
            )


@pytest.mark.parametrize("seed", range(8))
def test_no_partition_is_ever_read_by_two_and_no_cursor_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    log = Log()
    with raftline.testing.cluster(nodes=3, seed=200 + seed) as c:
        c.create_topic(TOPIC, partitions=PARTITIONS)
        members = [Eager(c, rng, f"m{n}", log) for n in range(4)]

        def run(until_ms: float, fault_ms: float) -> None:
            while c.now_ms < until_ms:
                c.advance(STEP)
                for member in members:
                    member.step()
                check_readers(c, members)
                if c.now_ms >= fault_ms:
                    fault_ms = c.now_ms + rng.uniform(300, 1_500)
                    disturb(c, rng, members)

        run(c.now_ms + 60_000, c.now_ms + 3_000)
        c.heal()
        for name in c.nodes:
            if name not in c.running:
                c.restart(name)
        run(c.now_ms + 25_000, float("inf"))
        loads = sorted(len(member.reads) for member in members)
        assert loads == [1, 2, 2, 2], loads
        assert log.committed
        found = c.group(FetchCursors(GROUP)).offsets[TOPIC]
        for partition, offset in log.committed.items():
            assert found[partition].offset >= offset, (partition, offset, found[partition])
        assert c.verify().identical
        assert not c.bugs


# Planted bugs: the checks above catch them, each in a seed that was found to meet it.


def forget_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new coordinator takes everybody for silent."""
    made = Round.__init__

    def init(self: Round, name: str, classic: Classic | None, now_mono: float) -> None:
        made(self, name, classic, now_mono)
        self.heard = dict.fromkeys(self.heard, now_mono - 1000000.0)

    monkeypatch.setattr(Round, "__init__", init)


def take_any_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit counts whoever sends it."""
    monkeypatch.setattr(Classic, "check_commit", lambda *_: None)


@pytest.mark.parametrize("plant", [forget_sessions, take_any_commit])
def test_planted_bugs_are_caught(plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(16):
        try:
            test_no_partition_is_ever_read_by_two_and_no_cursor_is_lost(seed)
        except AssertionError:
            return
    pytest.fail("nothing was noticed")
