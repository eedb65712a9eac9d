"""Random members of a group while nodes die and links break: never two readers of a partition.

A member here is a careful one: it stops reading when it has had no answer for a session, counted
from when it asked; and it stops reading what it was asked to give up before it says so.
"""

import random

import pytest

import raftline.testing
from raftline.model.errors import FencedMember, RaftlineError, UnknownMember
from raftline.model.groups import Beat, JoinGroup, LeaveGroup, MemberView, ShowGroup

TOPIC, GROUP = "orders", "billing"
PARTITIONS = 7
SESSION_MS = 2_000
LOST_MS = 1_200  # an answer that takes longer is not waited for
STEP = "20ms"


class Careful:
    """One member, as a state machine over answers that may never come."""

    def __init__(self, c, rng: random.Random, name: str) -> None:
        self.c, self.rng, self.name = c, rng, name
        self.generation = -1  # -1: to join
        self.reads: set[int] = set()
        self.revoke: set[int] = set()
        self.valid_ms = 0.0  # until when it may read without hearing anything
        self.asked_ms = self.next_ms = 0.0
        self.call = 0  # the one we wait for; others come too late
        self.is_waiting = False
        self.expired = 0

    def step(self) -> None:
        now = self.c.now_ms
        if now >= self.valid_ms:
            self.reads.clear()
        if self.is_waiting and now - self.asked_ms > LOST_MS:
            self.is_waiting = False
        if self.is_waiting or now < self.next_ms or not self.c.running:
            return
        if self.generation < 0:
            self.ask(JoinGroup(GROUP, (TOPIC,), self.name, session_ms=SESSION_MS))
        else:
            given_up = self.revoke if self.rng.random() < 0.5 else set()
            self.reads -= given_up
            self.ask(Beat(GROUP, self.name, self.generation, {TOPIC: sorted(given_up)}))

    def ask(self, request) -> None:
        self.call += 1
        call, sent_ms = self.call, self.c.now_ms
        self.asked_ms, self.is_waiting = sent_ms, True
        self.next_ms = sent_ms + self.rng.uniform(50, 400)
        node = self.c.host(self.rng.choice(self.c.running)).node
        node.group(request, 1_000, lambda answer: self.take(call, sent_ms, answer))

    def take(self, call: int, sent_ms: float, answer) -> None:
        if call != self.call or not self.is_waiting:
            return
        self.is_waiting = False
        if isinstance(answer, UnknownMember | FencedMember):
            self.expired += 1
            self.stop()
        elif isinstance(answer, MemberView):
            self.generation = answer.generation
            self.valid_ms = sent_ms + SESSION_MS
            self.revoke = set(answer.revoke.get(TOPIC, ()))
            stays = self.reads & self.revoke  # what was put down already is not taken up again
            self.reads = {*answer.partitions.get(TOPIC, ()), *stays}
        else:
            assert isinstance(answer, RaftlineError), answer

    def stop(self) -> None:
        self.generation = -1
        self.reads.clear()
        self.revoke.clear()
        self.valid_ms = 0.0
        self.call += 1
        self.is_waiting = False

    def leave(self) -> None:
        if self.generation >= 0:
            generation = self.generation
            self.stop()
            node = self.c.host(self.rng.choice(self.c.running)).node
            node.group(LeaveGroup(GROUP, self.name, generation), 1_000, lambda _: None)
            self.next_ms = self.c.now_ms + self.rng.uniform(100, 3_000)

    def crash(self) -> None:
        """Say nothing for longer than a session; it is another process afterwards."""
        self.stop()
        self.next_ms = self.c.now_ms + self.rng.uniform(100, 2 * SESSION_MS)


def disturb(c, rng: random.Random, members: list[Careful]) -> None:
    kind = rng.random()
    down = [name for name in c.nodes if name not in c.running]
    if kind < 0.25 and not down:
        c.power_off(rng.choice(c.nodes))
    elif kind < 0.5 and down:
        c.restart(down[0])
    elif kind < 0.6:
        c.isolate(rng.choice(c.nodes))
    elif kind < 0.75:
        c.heal()
    elif kind < 0.9:
        rng.choice(members).leave()
    else:
        rng.choice(members).crash()


def check_readers(c, members: list[Careful]) -> None:
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
def test_no_partition_is_ever_read_by_two(seed: int) -> None:
    rng = random.Random(seed)
    with raftline.testing.cluster(nodes=3, seed=100 + seed) as c:
        c.create_topic(TOPIC, partitions=PARTITIONS)
        members = [Careful(c, rng, f"m{n}") for n in range(4)]
        fault_ms = c.now_ms + 3_000
        end_ms = c.now_ms + 25_000
        while c.now_ms < end_ms:
            c.advance(STEP)
            for member in members:
                member.step()
            check_readers(c, members)
            if c.now_ms >= fault_ms:
                fault_ms = c.now_ms + rng.uniform(300, 1_500)
                disturb(c, rng, members)
        c.heal()
        for name in c.nodes:
            if name not in c.running:
                c.restart(name)
        calm_ms = c.now_ms + 15_000
        while c.now_ms < calm_ms:
            c.advance(STEP)
            for member in members:
                member.step()
            check_readers(c, members)
        loads = sorted(len(member.reads) for member in members)
        assert loads == [1, 2, 2, 2], (loads, c.group(ShowGroup(GROUP)))
        assert c.verify().identical
        assert not c.bugs
