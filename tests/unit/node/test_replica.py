"""A replica: who hears of which entry; what stays in memory. R1-R4."""

import msgspec

from raftline.config.settings import RaftSettings
from raftline.model.errors import ShuttingDown
from raftline.raft.conf_change import Change, ChangeKind, ConfChangeV2
from raftline.raft.rpc import Rpc, RpcKind
from tests.unit.node.little_replica import (
    OURS,
    SECOND,
    THIRD,
    Asker,
    LittleNode,
    append,
    little_host,
)


def test_another_entry_at_its_index_proves_that_a_proposal_was_not_taken() -> None:
    """R1."""
    little = LittleNode()
    replica = little.open()
    little.elect(replica)
    little.ack(replica)
    little.settle()
    asker = Asker()
    replica.propose(b"ours", asker)
    little.settle()
    index, term = replica.raft.last_index, replica.raft.term
    replica.step(append(term + 1, index - 1, term, b"theirs", commit=index))
    little.settle()
    assert asker.heard == ["not_leader"]
    assert little_host(replica).entries[-1].data == b"theirs"


def test_a_proposal_that_may_still_be_taken_is_unknown_when_the_replica_closes() -> None:
    little = LittleNode()
    replica = little.open()
    little.elect(replica)
    asker = Asker()
    replica.propose(b"ours", asker)
    little.settle()
    replica.close(ShuttingDown())
    assert asker.heard == ["timed_out"]


def test_a_proposal_to_a_follower_is_refused_at_once() -> None:
    little = LittleNode()
    replica = little.open()
    asker = Asker()
    replica.propose(b"ours", asker)
    assert asker.heard == ["not_leader"]


def test_a_read_is_confirmed_by_a_majority_or_refused_when_leadership_goes() -> None:
    little = LittleNode()
    replica = little.open()
    little.elect(replica)
    little.ack(replica)
    little.settle()
    heard: list[object] = []
    replica.read_index(heard.append)
    little.settle()
    assert heard == [], "nobody has confirmed yet"
    beat = little.sent(RpcKind.HEARTBEAT)[-1]
    replica.step(
        Rpc(RpcKind.HEARTBEAT_RESP, to=OURS, sender=SECOND, term=beat.term, context=beat.context)
    )
    little.settle()
    assert heard == [None]
    replica.read_index(heard.append)
    little.settle()
    replica.step(Rpc(RpcKind.HEARTBEAT, to=OURS, sender=THIRD, term=replica.raft.term + 1))
    little.settle()
    assert [getattr(answer, "code", answer) for answer in heard] == [None, "not_leader"]


def test_a_confirmed_read_waits_until_what_was_committed_is_applied() -> None:
    little = LittleNode()
    replica = little.open()
    little.elect(replica)
    little.ack(replica)
    little.settle()
    replica.frozen = True
    replica.propose(b"one", Asker())
    little.settle()
    little.ack(replica)
    little.settle()
    heard: list[object] = []
    replica.read_index(heard.append)
    little.settle()
    beat = little.sent(RpcKind.HEARTBEAT)[-1]
    replica.step(
        Rpc(RpcKind.HEARTBEAT_RESP, to=OURS, sender=SECOND, term=beat.term, context=beat.context)
    )
    little.settle()
    assert heard == []
    replica.thaw()
    little.settle()
    assert heard == [None]
    assert little_host(replica).entries[-1].data == b"one"


def test_a_frozen_replica_applies_nothing_and_after_that_all_of_it() -> None:
    """R3."""
    little = LittleNode()
    replica = little.open()
    replica.frozen = True
    replica.step(append(2, 1, 1, b"one", b"two", commit=3))
    little.settle()
    assert little_host(replica).entries == []
    assert len(little.sent(RpcKind.APP_RESP)) == 1, "it goes on acknowledging"
    replica.thaw()
    little.settle()
    assert [entry.data for entry in little_host(replica).entries] == [b"one", b"two"]
    assert replica.raft.applied == replica.applied_index == 3


def test_the_tail_in_memory_is_bounded_and_keeps_what_a_live_follower_lacks() -> None:
    settings = msgspec.structs.replace(RaftSettings(), tail_bytes_max=4_096)
    little = LittleNode(settings)
    replica = little.open()
    little.elect(replica)
    little.ack(replica)
    little.ack(replica, sender=THIRD)
    little.settle()
    behind = replica.raft.last_index
    for _ in range(64):
        replica.propose(bytes(256), Asker())
        little.settle()
        little.ack(replica)
        little.settle()
    assert replica.log.first_index() <= behind + 1, "the third still needs them"
    for _ in range(128):
        replica.propose(bytes(256), Asker())
        little.settle()
        little.ack(replica)
        little.settle()
    kept = replica.log.last_index() - replica.log.first_index() + 1
    assert kept * 256 <= 9 * 4_096, "it holds back eight tails at most"


def test_a_replica_that_was_taken_out_forgets_a_leader_that_tells_it_nothing() -> None:
    """R5: a chaos run kept one for ever, that asked a leader of the past whether it may go."""
    little = LittleNode()
    replica = little.open(voters=(SECOND, THIRD))
    patience = 2 * little.settings.election_ticks
    for _ in range(2):  # an append at a time keeps the leader known
        replica.step(append(2, 1, 1))
        little.settle()
        for _ in range(little.settings.election_ticks - 1):
            replica.tick()
        little.settle()
        assert replica.leader_node == 2
    for _ in range(patience):
        replica.tick()
    little.settle()
    assert replica.leader_node == 0
    assert little.changed[-1] is replica
    assert not little.sent(RpcKind.PRE_VOTE)


def test_what_is_stamped_before_the_election_is_noted_is_not_from_before_it() -> None:
    """T5: chaos delivered the first delayed message after a power cut early, by all its length."""
    little = LittleNode()
    replica = little.open()
    replica.time.observe(little.clock.wall_ms() - 60_000)  # the last entry before a power cut
    replica.campaign()
    for kind, answer in (
        (RpcKind.PRE_VOTE, RpcKind.PRE_VOTE_RESP),
        (RpcKind.VOTE, RpcKind.VOTE_RESP),
    ):
        little.settle()
        term = little.sent(kind)[-1].term
        replica.step(Rpc(answer, to=OURS, sender=SECOND, term=term))
    assert replica.is_leader
    assert replica.time.stamp() == little.clock.wall_ms()


def test_a_leader_that_is_taken_out_while_it_writes_passes_its_own_word_over() -> None:
    """Its last entry was not synced yet when the change that removed it was applied."""
    little = LittleNode()
    replica = little.open()
    little.elect(replica)
    little.ack(replica)
    little.settle()
    assert replica.change_conf(ConfChangeV2((Change(ChangeKind.REMOVE, OURS),)))
    little.settle()
    removal = replica.raft.last_index
    replica.propose(b"more", Asker())
    little.clock.advance()
    for sender in (SECOND, THIRD):
        little.ack(replica, removal, sender)
    little.clock.advance()
    assert replica.conf.voters == (SECOND, THIRD)
    assert little.lane.jobs, "the last entry is still being written"
    little.settle()
    assert not replica.is_leader
