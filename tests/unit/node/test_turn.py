"""The turn: nothing leaves before what it stands on is synced. U1-U3."""

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


def test_an_acknowledgement_leaves_after_the_sync_and_not_before() -> None:
    """U1."""
    little = LittleNode()
    replica = little.open()
    replica.step(append(2, 1, 1, b"one"))
    little.clock.advance()
    assert len(little.lane.jobs) == 1
    assert little.sent(RpcKind.APP_RESP) == []
    little.lane.run()
    assert [rpc.index for rpc in little.sent(RpcKind.APP_RESP)] == [2]


def test_a_vote_leaves_after_the_sync_and_not_before() -> None:
    """U1."""
    little = LittleNode()
    replica = little.open()
    for sender in (SECOND, THIRD):
        replica.step(Rpc(RpcKind.VOTE, to=OURS, sender=sender, term=5, log_term=1, index=1))
    little.clock.advance()
    assert little.sent(RpcKind.VOTE_RESP) == []
    little.lane.run()
    granted = [rpc.to for rpc in little.sent(RpcKind.VOTE_RESP) if not rpc.reject]
    assert granted == [SECOND], "one vote a term"


def test_a_leader_sends_before_its_sync_and_counts_itself_after_it() -> None:
    little = LittleNode()
    replica = little.open()
    little.elect(replica)
    for sender in (SECOND, THIRD):
        little.ack(replica, sender=sender)
    little.settle()
    asker = Asker()
    replica.propose(b"one", asker)
    little.frames.clear()
    little.clock.advance()
    index = replica.raft.last_index
    assert {rpc.to for rpc in little.sent(RpcKind.APP) if rpc.entries} == {SECOND, THIRD}
    little.ack(replica)
    little.clock.advance()
    assert replica.raft.commit < index, "one other disk and not ours is no majority of three"
    little.settle()
    assert replica.raft.commit == index
    assert asker.heard == [index]


def test_what_is_committed_elsewhere_is_applied_here_only_when_synced_here() -> None:
    little = LittleNode()
    replica = little.open()
    replica.step(append(2, 1, 1, b"one", commit=2))
    little.clock.advance()
    assert little_host(replica).entries == []
    little.settle()
    assert [entry.data for entry in little_host(replica).entries] == [b"one"]


def test_a_reply_that_needs_no_sync_waits_for_the_group_under_way() -> None:
    """U1: the repeated append claims the entry, which is with the lane."""
    little = LittleNode()
    replica = little.open()
    replica.step(append(2, 1, 1, b"one"))
    little.clock.advance()
    replica.step(append(2, 1, 1, b"one"))
    little.clock.advance()
    assert little.sent(RpcKind.APP_RESP) == []
    assert len(little.lane.jobs) == 1
    little.lane.run()
    assert [rpc.index for rpc in little.sent(RpcKind.APP_RESP)] == [2, 2]


def test_one_group_at_a_time_and_the_rest_shares_the_next() -> None:
    """U2, and one sync for many shards."""
    little = LittleNode()
    replicas = [little.open(shard) for shard in (100, 101, 102)]
    replicas[0].step(append(2, 1, 1, b"first"))
    little.clock.advance()
    for replica in replicas:
        index = replica.raft.last_index
        replica.step(append(2, index, replica.raft.log.term_at(index), b"more"))
        little.clock.advance()
    assert len(little.lane.jobs) == 1
    little.lane.run()
    assert len(little.lane.jobs) == 1
    assert [rpc.index for rpc in little.sent(RpcKind.APP_RESP)] == [2]
    little.lane.run()
    assert len(little.sent(RpcKind.APP_RESP)) == 4
    assert little.lane.jobs == []


def test_a_failed_write_is_the_end() -> None:
    """U3: no reply, no second try."""
    little = LittleNode()
    replica = little.open()
    replica.step(append(2, 1, 1, b"one"))
    little.clock.advance()
    little.lane.run(OSError(5, "input/output error"))
    assert len(little.fatal) == 1
    replica.step(append(2, 2, 2, b"two"))
    little.clock.advance(1_000)
    assert little.lane.jobs == []
    assert little.frames == []
    assert little_host(replica).entries == []


def test_a_closed_replica_says_nothing_more() -> None:
    """Its group is synced, but another life of the replica may have begun."""
    little = LittleNode()
    replica = little.open()
    replica.step(append(2, 1, 1, b"one"))
    little.clock.advance()
    replica.is_closed = True
    little.settle()
    assert little.sent(RpcKind.APP_RESP) == []


def test_a_held_replica_says_nothing_before_the_next_sync() -> None:
    """U1 over a reopening: what the WAL was given for it outside a turn counts too."""
    little = LittleNode()
    replica = little.open(term=2)
    little.wal.add_hard_state(replica.shard, 2, 0, 1)
    little.turn.hold(replica)
    replica.step(append(2, 1, 1))  # nothing new: the answer needs no write of its own
    little.clock.advance()
    assert little.sent(RpcKind.APP_RESP) == []
    little.lane.run()
    assert len(little.sent(RpcKind.APP_RESP)) == 1


def test_appends_are_collected_while_a_group_is_written_until_there_are_enough() -> None:
    little = LittleNode()
    replica = little.open()
    little.elect(replica)
    little.ack(replica)
    little.settle()
    host = little_host(replica)

    def collect(size: int) -> None:
        host.collected.append((bytes(size), Asker()))
        replica.collected(size)
        little.clock.advance()

    last = replica.raft.last_index
    collect(10)
    assert replica.raft.last_index == last + 1, "an idle WAL takes it at once"
    collect(10)
    collect(10)
    assert replica.raft.last_index == last + 1
    collect(2_000)
    assert replica.raft.last_index == last + 4, "enough for a turn of its own"
    collect(10)
    little.settle()
    assert replica.raft.last_index == last + 5
