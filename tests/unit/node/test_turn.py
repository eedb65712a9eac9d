"""The turn: nothing leaves before what it stands on is synced. U1-U3."""

from raftline.node.replica import Proposal, Replica
from raftline.node.turn import GATHER_MS, HURRIED, LINGER_MS
from raftline.raft.rpc import Entry, Rpc, RpcKind
from tests.unit.node.little_replica import (
    OURS,
    SECOND,
    THIRD,
    Asker,
    LittleHost,
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


def patient(little: LittleNode, replica: Replica, *, is_patient: bool = True) -> Asker:
    """Let somebody ask for an entry who waits for others like him."""
    asker = Asker()
    little_host(replica).collected.append((b"one", asker))
    replica.collected(3, is_patient=is_patient)
    little.clock.advance()
    return asker


def alone(little: LittleNode) -> Replica:
    """Return a leader that is its own majority."""
    replica = little.open(voters=(OURS,))
    replica.campaign()
    little.settle()
    assert replica.is_leader
    return replica


def test_nobody_waits_alone() -> None:
    little = LittleNode()
    replica = alone(little)
    patient(little, replica)
    assert len(little.lane.jobs) == 1


def test_who_came_back_waits_for_the_others_who_were_answered() -> None:
    little = LittleNode()
    replica = alone(little)
    replica.expect(3)
    first = patient(little, replica)
    second = patient(little, replica)
    assert little.lane.jobs == []
    third = patient(little, replica)
    assert len(little.lane.jobs) == 1
    little.lane.run()
    assert [len(asker.heard) for asker in (first, second, third)] == [1, 1, 1]
    patient(little, replica)
    assert len(little.lane.jobs) == 1, "nobody is expected any more"


def test_the_wait_for_others_is_short() -> None:
    little = LittleNode()
    replica = alone(little)
    for _ in range(2):  # and it is so each time
        replica.expect(3)
        asker = patient(little, replica)
        little.clock.advance(GATHER_MS / 2)
        patient(little, replica)
        assert little.lane.jobs == []
        little.clock.advance(GATHER_MS / 2)
        assert len(little.lane.jobs) == 1
        little.settle()
        assert len(asker.heard) == 1


def test_callers_who_take_their_time_are_not_waited_for_again_and_again() -> None:
    little = LittleNode()
    replica = alone(little)
    replica.expect(2)
    patient(little, replica)
    little.clock.advance(GATHER_MS)
    little.settle()
    for _ in range(HURRIED):
        replica.expect(2)
        asker = patient(little, replica)
        little.settle()
        assert len(asker.heard) == 1
    replica.expect(2)
    patient(little, replica)
    assert little.lane.jobs == []


def test_what_is_not_patient_takes_those_who_wait_along() -> None:
    little = LittleNode()
    replica = alone(little)
    replica.expect(3)
    first = patient(little, replica)
    patient(little, replica, is_patient=False)
    assert len(little.lane.jobs) == 1
    little.lane.run()
    assert len(first.heard) == 1


def test_enough_bytes_wait_for_nobody() -> None:
    little = LittleNode()
    replica = alone(little)
    replica.expect(3)
    patient(little, replica)
    replica.collected(1024, is_patient=True)
    little.clock.advance()
    assert len(little.lane.jobs) == 1


def test_those_who_share_groups_are_answered_before_the_next_is_proposed() -> None:
    """One came too late for the group of the other two: it waits for them, not they for it."""
    little = LittleNode()
    replica = alone(little)
    replica.expect(2)
    patient(little, replica)
    patient(little, replica)
    assert len(little.lane.jobs) == 1
    late = patient(little, replica)
    host, apply = little_host(replica), LittleHost.apply

    def answering(entry: Entry, proposal: Proposal | None) -> None:
        apply(host, entry, proposal)
        replica.expect(1)

    host.apply = answering  # type: ignore[method-assign]
    little.lane.run()
    little.clock.advance()
    assert little.lane.jobs == []
    assert late.heard == []
    patient(little, replica)
    assert len(little.lane.jobs) == 1
    little.lane.run()
    assert len(late.heard) == 1


def lingering(little: LittleNode, replica: Replica, size: int = 3) -> Asker:
    """Have an entry collected for which nobody waits."""
    asker = Asker()
    little_host(replica).collected.append((b"one", asker))
    replica.lingers(size)
    little.clock.advance()
    return asker


def test_what_nobody_waits_for_goes_with_what_comes_next() -> None:
    little = LittleNode()
    replica = alone(little)
    first = lingering(little, replica)
    assert little.lane.jobs == []
    second = patient(little, replica)
    assert len(little.lane.jobs) == 1
    little.settle()
    assert [len(asker.heard) for asker in (first, second)] == [1, 1]
    little.clock.advance(2 * LINGER_MS)
    assert little.lane.jobs == [], "its time ended with it"


def test_what_nobody_waits_for_goes_alone_in_the_end() -> None:
    little = LittleNode()
    replica = alone(little)
    for _ in range(2):
        asker = lingering(little, replica)
        little.clock.advance(LINGER_MS / 2)
        lingering(little, replica)
        assert little.lane.jobs == []
        little.clock.advance(LINGER_MS / 2)
        assert len(little.lane.jobs) == 1
        little.settle()
        assert len(asker.heard) == 1


def test_what_nobody_waits_for_goes_after_the_group_under_way() -> None:
    little = LittleNode()
    replica = alone(little)
    patient(little, replica)
    asker = lingering(little, replica)
    little.clock.advance(LINGER_MS)
    assert len(little.lane.jobs) == 1
    little.lane.run()
    little.settle()
    assert len(asker.heard) == 1


def test_much_that_nobody_waits_for_goes_at_once() -> None:
    little = LittleNode()
    replica = alone(little)
    lingering(little, replica, 4096)
    assert len(little.lane.jobs) == 1


def test_a_clean_stop_says_that_the_last_group_was_synced() -> None:
    """Else damage of what was acknowledged last looks like a torn write, and is cut."""
    little = LittleNode()
    replica = little.open()
    replica.step(append(2, 1, 1, b"one"))
    little.clock.advance()
    ended: list[bool] = []
    little.turn.finish(lambda: ended.append(little.wal.mark_group() is None))
    while little.lane.jobs:
        assert ended == []
        little.lane.run()
    assert ended == [True]
