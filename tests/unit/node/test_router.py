"""Routing: definite refusals are tried again, unknown outcomes are not. O1-O3."""

import struct

import pytest

from raftline.model.errors import (
    DiskFull,
    NoLeader,
    NotLeader,
    NotReady,
    RaftlineError,
    ShuttingDown,
    TimedOut,
    TopicExists,
)
from raftline.node.remote import VERB_APPEND
from raftline.node.replica import Replica
from raftline.node.router import Router
from raftline.testing import cluster
from raftline.transport.rpcs import Heartbeat
from tests.unit.node import whole
from tests.unit.node.little_ports import HandLink
from tests.unit.node.little_replica import SHARD, LittleNode
from tests.unit.node.test_remote import Ends

LOST = "lost"


class Map:
    """Where replicas are."""

    def __init__(self) -> None:
        self.ours: Replica | None = None
        self.opening = False
        self.wanted: tuple[int, ...] = (2, 3)

    def replica(self, shard: int) -> Replica | None:
        return self.ours

    def is_opening(self, shard: int) -> bool:
        return self.opening

    def hosts(self, shard: int) -> tuple[int, ...]:
        return self.wanted

    def shard_name(self, shard: int) -> str:
        return "orders/0"


class Calls:
    """A router on node 1, with links to nodes 2 and 3."""

    def __init__(self) -> None:
        self.ends = Ends()
        self.clock = self.ends.clock
        self.links = {2: self.ends.link, 3: HandLink(3, "c:1")}
        peers = self.ends.peers
        peers.know("c:1", 3)
        peers.up(self.links[3])
        for node in (2, 3):
            peers.heard(Heartbeat(node, "p", self.clock.wall_ms(), 1, 1, 0))
        self.map = Map()
        self.router = Router(self.clock, peers, self.ends.remote, self.map, 1)
        self.heard: list[str] = []
        self.local: list[int] = []

    def send(self, *, repeatable: bool = False, timeout_ms: int = 1_000) -> None:
        self.router.send(
            SHARD, VERB_APPEND, [b"body"], timeout_ms, self._done, self._here, repeatable=repeatable
        )

    def _done(self, answer: object) -> None:
        self.heard.append(answer.code if isinstance(answer, RaftlineError) else str(answer))

    def _here(self, replica: Replica, left_ms: int, answer: object) -> None:
        self.local.append(left_ms)
        self.answer_here = answer

    @property
    def asked(self) -> list[int]:
        """Return the nodes that were asked, in a fixed order."""
        return [node for node, link in self.links.items() for _ in link.sent]

    def refuse_all(self, error: RaftlineError, ms: int) -> float:
        """Refuse whatever is asked for a while; return when the caller was answered."""
        began = self.clock.now
        for _ in range(ms):
            if self.heard:
                break
            self.clock.advance(1)
            for number in list(self.ends.remote._calls):
                self.ends.answer(number, error)
        return self.clock.now - began

    def reply(self, node: int, answer: bytes | RaftlineError) -> None:
        """Let a node answer the latest question."""
        link = self.links[node]
        if isinstance(answer, TimedOut) and answer.extras.get(LOST):
            self.ends.remote.on_link_down(link)
            return
        (number,) = struct.unpack_from("<Q", link.sent[-1], 1)
        self.ends.answer(number, answer)


def lost() -> TimedOut:
    error = TimedOut("a call", 1_000)
    error.extras[LOST] = 1
    return error


@pytest.mark.parametrize(
    "error", [NotLeader("orders/0", 3), NoLeader("orders/0"), NotReady("not yet"), ShuttingDown()]
)
def test_what_was_definitely_not_proposed_is_tried_again(error: RaftlineError) -> None:
    calls = Calls()
    calls.send()
    assert calls.asked == [2]
    calls.reply(2, error)
    assert calls.heard == []
    calls.clock.advance(100)
    assert len(calls.asked) == 2
    calls.reply(calls.asked[-1], b"done")
    assert calls.heard == ["b'done'"]


def test_the_leader_a_refusal_names_is_asked_next() -> None:
    calls = Calls()
    calls.send()
    calls.reply(2, NotLeader("orders/0", 3))
    assert calls.router.leader_of(SHARD) == 3


def test_a_leader_that_a_refusal_names_is_asked_though_the_catalog_wants_others() -> None:
    """While a replica moves away its node may lead, and be no host any more."""
    calls = Calls()
    calls.map.wanted = (2,)
    calls.send()
    calls.reply(2, NotLeader("orders/0", 3))
    calls.router.hint(SHARD, 0)  # our own replica stands again and again, and forgets
    calls.clock.advance(100)
    assert calls.asked == [2, 3]
    calls.reply(3, b"done")
    assert calls.heard == ["b'done'"]


def test_a_leader_that_a_refusal_names_is_not_asked_while_it_is_silent() -> None:
    calls = Calls()
    calls.send()
    calls.reply(2, NotLeader("orders/0", 7))
    calls.clock.advance(100)
    assert calls.asked == [2, 3]


def test_nobody_is_known_to_lead_while_our_own_replica_is_being_opened() -> None:
    calls = Calls()
    assert calls.router.known_leader(SHARD) == 2
    calls.map.opening = True
    assert calls.router.known_leader(SHARD) == 0
    assert calls.router.leader_of(SHARD) == 2


@pytest.mark.parametrize("error", [lost(), TimedOut("an append", 10)])
def test_what_may_have_been_proposed_is_not_sent_again(error: RaftlineError) -> None:
    """O1."""
    calls = Calls()
    calls.send()
    calls.reply(2, error)
    calls.clock.advance(5_000)
    assert calls.asked == [2]
    assert calls.heard == ["timed_out"]


def test_a_repeatable_call_is_sent_again_when_its_link_broke() -> None:
    calls = Calls()
    calls.send(repeatable=True)
    calls.reply(2, lost())
    calls.clock.advance(100)
    assert len(calls.asked) == 2
    calls.reply(calls.asked[-1], b"done")
    assert calls.heard == ["b'done'"]


def test_a_later_refusal_does_not_make_an_unknown_outcome_known() -> None:
    """O1: told "not proposed" at the end, a caller without sequences would send it twice."""
    calls = Calls()
    calls.send(repeatable=True, timeout_ms=200)
    calls.reply(2, lost())
    calls.refuse_all(NotReady("not yet"), 1_000)
    assert calls.heard == ["timed_out"]


def test_nor_does_a_refusal_that_is_final_by_itself() -> None:
    """O3: the topic that exists may be the one this very call made."""
    calls = Calls()
    calls.send(repeatable=True)
    calls.reply(2, lost())
    calls.clock.advance(100)
    calls.reply(3, TopicExists("orders"))
    assert calls.heard == ["timed_out"]


def test_any_other_refusal_is_passed_on_at_once() -> None:
    calls = Calls()
    calls.send()
    calls.reply(2, DiskFull("node-2", 1, 2))
    assert calls.heard == ["disk_full"]


def test_without_a_leader_a_call_ends_with_its_time() -> None:
    """O2: not earlier than a retry that could still succeed, never later."""
    calls = Calls()
    calls.send(timeout_ms=300)
    assert 250 <= calls.refuse_all(NoLeader("orders/0"), 1_000) <= 300
    assert calls.heard == ["no_leader"]
    calls.clock.advance(5_000)
    assert calls.heard == ["no_leader"]


def here() -> Calls:
    calls = Calls()
    little = LittleNode()
    calls.map.ours = little.open()
    little.elect(calls.map.ours)
    return calls


def test_our_own_replica_is_given_the_whole_time_and_no_more() -> None:
    """O2: late by our own clock, though the replica never answers."""
    calls = here()
    calls.send(timeout_ms=300)
    assert calls.asked == []
    assert calls.local == [301]
    calls.clock.advance(299)
    assert calls.heard == []
    calls.clock.advance(1)
    assert calls.heard == ["timed_out"]
    calls.answer_here(b"late")
    assert calls.heard == ["timed_out"]


def test_our_own_replica_that_lost_its_leadership_sends_the_call_on() -> None:
    calls = here()
    calls.send(timeout_ms=300)
    calls.map.ours = None
    calls.clock.advance(100)
    calls.answer_here(NotLeader("orders/0", 3))
    calls.clock.advance(50)
    assert calls.asked == [3]
    calls.reply(3, b"done")
    calls.clock.advance(1_000)
    assert calls.heard == ["b'done'"]


def test_a_leader_that_fell_silent_is_not_asked_by_who_has_no_replica() -> None:
    """It was remembered, and its link stays open: every call waited there for all its time."""
    with cluster(nodes=5, seed=21) as sim:
        sim.create_topic("orders", partitions=1, replication_factor=3)
        sim.advance("2s")
        shard = whole.shard_of(sim, "orders")
        second = whole.node(sim, "node-1").hosts(shard)[1]
        sim.command("cluster.transfer", topic="orders", partition=0, to_node=second)
        sim.advance("1s")
        hosts = whole.node(sim, "node-1").hosts(shard)
        other = next(n for n in sim.running if sim.number_of(n) not in hosts)
        sim.append("orders", [b"one"], via=other)
        assert whole.node(sim, other).router.leader_of(shard) == second
        sim.isolate(f"node-{second}")
        sim.advance("5s")
        assert sim.append("orders", [b"two"], via=other, timeout="2s").base_offset == 1
