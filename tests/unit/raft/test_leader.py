"""What a leader does, where no dialogue says it."""

import pytest

from raftline.raft.conf_change import Change, ChangeKind, ConfChange, ConfChangeV2
from raftline.raft.core import Config, Raft, Role
from raftline.raft.errors import ConfChangeFault, ProposalDropped, RaftFault
from raftline.raft.rpc import ConfState, Entry, HardState, Rpc, RpcKind, Snapshot
from raftline.transport.rpcs import encode_rpcs
from tests.unit.raft.replicas import disk_of, leader, replica, settle, work

K = RpcKind


def test_an_entry_of_an_older_term_is_not_committed_by_counting() -> None:
    """Paper, section 5.4.2 and figure 8."""
    raft = replica(1, hard_state=HardState(2, 1, 2), entries=[Entry(3, 2)])
    raft.campaign()
    work(raft)
    raft.step(Rpc(K.VOTE_RESP, 1, 2, 3))
    assert raft.role is Role.LEADER
    raft.step(Rpc(K.APP_RESP, 1, 2, 3, 0, 3))
    assert raft.commit == 2
    work(raft)
    raft.step(Rpc(K.APP_RESP, 1, 2, 3, 0, 4))
    assert raft.commit == 4


def test_no_term_is_led_twice_by_one_that_forgot_it() -> None:
    """The others' votes alone are a majority; its own is on no disk when it crashes."""
    options = {"own_vote_first": True, "check_quorum": True, "pre_vote": True}
    first, second, third = (replica(number, **options) for number in (1, 2, 3))  # type: ignore[arg-type]
    others = {2: second, 3: third}

    def ask(raft: Raft, kind: RpcKind, voters: tuple[int, ...]) -> None:
        """Carry requests of one kind out, and their answers back; our own disk does nothing."""
        for rpc in [rpc for rpc in raft.ready().rpcs if rpc.kind == kind and rpc.to in voters]:
            others[rpc.to].step(rpc)
            for answer in work(others[rpc.to]):
                raft.step(answer)

    first.campaign()
    ask(first, K.PRE_VOTE, (2, 3))
    ask(first, K.VOTE, (2, 3))
    if first.role is Role.LEADER:
        first.propose([b"one"])
        ask(first, K.APP, (2,))  # the first entry of the term
        ask(first, K.APP, (2,))
    again = replica(1, **options)  # type: ignore[arg-type]  # nothing was durable
    third.forget_leader()
    again.campaign()
    settle(again, third)
    assert again.role is Role.LEADER
    again.propose([b"another"])
    settle(again, third)
    again.tick()
    settle(again, second, third)
    logs = [[e.data for e in disk_of(r).entries(3, 5, 1 << 62)] for r in (again, second, third)]
    assert logs == [[b"", b"another"]] * 3


def test_one_that_waits_for_its_own_vote_leads_once_it_is_durable() -> None:
    raft = replica(1, own_vote_first=True)
    raft.campaign()
    ready = raft.ready()
    assert ready.append is not None
    for voter in (2, 3):
        raft.step(Rpc(K.VOTE_RESP, 1, voter, 1))
    assert raft.role is Role.CANDIDATE
    for response in ready.append.responses:
        raft.step(response)
    assert raft.role is Role.LEADER


def test_propose_returns_where_the_entries_stand() -> None:
    raft = leader(replica(2), replica(3))
    assert raft.propose([b"a", b"b"]) == (1, 4)
    assert raft.propose([b"c"]) == (1, 6)
    assert raft.last_index == 6


def test_too_much_uncommitted_drops_proposals_but_never_the_first() -> None:
    second = replica(2)
    raft = leader(second, replica(3), uncommitted_bytes_max=100)
    raft.propose([b"x" * 500])
    with pytest.raises(ProposalDropped):
        raft.propose([b"x"])
    assert raft.last_index == 4
    settle(raft, second)
    raft.propose([b"x" * 60])
    raft.propose([b"x" * 40])
    with pytest.raises(ProposalDropped):
        raft.propose([b"x"])


def test_a_dropped_change_is_not_remembered() -> None:
    second = replica(2)
    raft = leader(second, replica(3), uncommitted_bytes_max=50)
    raft.propose([b"x" * 50])
    with pytest.raises(ProposalDropped):
        raft.propose_conf_change(ConfChange(ChangeKind.ADD_LEARNER, 4))
    settle(raft, second)
    raft.propose_conf_change(ConfChange(ChangeKind.ADD_LEARNER, 4))
    assert raft.log.unstable[-1].kind != 0


def test_appends_are_cut_to_the_limit_and_bounded_in_bytes() -> None:
    raft = leader(replica(2), replica(3), message_bytes_max=50, inflight_bytes_max=100)
    raft.propose([b"x" * 30] * 6)
    rpcs = [rpc for rpc in work(raft) if rpc.to == 2]
    assert [len(rpc.entries) for rpc in rpcs] == [1]
    raft.step(Rpc(K.APP_RESP, 1, 2, 1, 0, 4))
    rpcs = [rpc for rpc in work(raft) if rpc.to == 2 and rpc.entries]
    assert [len(rpc.entries) for rpc in rpcs] == [1, 1, 1, 1]  # 120 bytes: then it is full
    assert raft.progress[2].is_paused()


def test_no_append_has_more_entries_than_the_wire_can_count() -> None:
    """However small they are, and whatever bytes an append may have."""
    second, third = replica(2), replica(3)
    raft = leader(second, message_bytes_max=1 << 63)
    raft.propose([b"tick"] * 150_000)
    settle(raft, second)
    assert raft.commit == raft.last_index
    raft.step(Rpc(K.HEARTBEAT_RESP, 1, 3, raft.term))
    sent: list[int] = []
    while rpcs := [rpc for rpc in work(raft) if rpc.to == 3]:
        for rpc in rpcs:
            encode_rpcs([(1, rpc)])
            sent.append(len(rpc.entries))
            third.step(rpc)
        for answer in work(third):
            raft.step(answer)
    assert third.last_index == raft.last_index
    assert max(sent) == (1 << 16) - 1


def test_the_commit_mark_rides_or_is_flushed() -> None:
    second, third = replica(2), replica(3)
    raft = leader(second, third, commit_rides=True)
    assert (raft.commit, second.commit) == (3, 2)
    raft.propose([b"x"])
    settle(raft, second, third)
    assert (raft.commit, second.commit) == (4, 3)
    raft.flush_commit()
    raft.flush_commit()
    assert len(work(raft)) == 2
    raft.flush_commit()
    assert not raft.has_ready()


def test_an_append_stands_for_the_next_heartbeat_unless_a_read_waits() -> None:
    second, third = replica(2), replica(3)
    raft = leader(second, third, heartbeats_ride=True)
    raft.tick()  # for what was sent when it was elected
    work(raft)
    raft.propose([b"x"])
    settle(raft, second, third)
    raft.tick()
    assert not work(raft)
    raft.tick()
    assert [rpc.kind for rpc in work(raft)] == [K.HEARTBEAT, K.HEARTBEAT]
    raft.propose([b"y"])
    raft.read_index(b"read")
    work(raft)
    raft.tick()  # whatever asked for the read may be lost: it is asked again
    assert [rpc.kind for rpc in work(raft)] == [K.HEARTBEAT, K.HEARTBEAT]


def test_a_leader_that_is_removed_tells_its_last_commit_mark() -> None:
    second = replica(2, step_down_on_removal=True)
    raft = leader(second, replica(3), commit_rides=True, step_down_on_removal=True)
    raft.propose_conf_change(ConfChange(ChangeKind.REMOVE, 1))
    settle(raft, second)
    assert raft.commit == 4
    raft.apply_conf_change(ConfChange(ChangeKind.REMOVE, 1), 4)
    assert raft.role is Role.FOLLOWER
    settle(raft, second)
    assert second.commit == 4


def test_quorum_active_and_the_election_timer() -> None:
    raft = leader(replica(2), replica(3), check_quorum=True)
    assert raft.quorum_active()
    for _ in range(5):
        raft.tick()
    assert not raft.quorum_active()
    raft.step(Rpc(K.HEARTBEAT_RESP, 1, 3, 1))
    assert raft.quorum_active()
    for _ in range(10):
        raft.tick()
    assert raft.role is Role.FOLLOWER
    raft.tick()
    assert raft.election_elapsed > 0
    raft.reset_election_timer()
    assert raft.election_elapsed == 0


def test_a_single_voter_answers_no_read_before_it_has_committed() -> None:
    raft = replica(1, voters=(1,), hard_state=HardState(1, 1, 2), entries=[Entry(3, 1)])
    raft.campaign()
    ready = raft.ready()
    assert ready.append is not None
    for rpc in ready.append.responses:
        raft.step(rpc)
    assert raft.role is Role.LEADER
    assert raft.commit == 2  # older than what it may have acked before it stopped
    raft.read_index(b"early")
    assert raft.ready().reads == []
    raft.step(Rpc(K.APP_RESP, 1, 1, 2, 0, 4))
    assert [(read.index, read.context) for read in raft.ready().reads] == [(4, b"early")]


def test_reads_are_answered_when_a_change_leaves_one_voter() -> None:
    second = replica(2, voters=(1, 2))
    raft = leader(second, voters=(1, 2))
    raft.read_index(b"r")
    raft.apply_conf_change(ConfChange(ChangeKind.REMOVE, 2))
    assert [read.context for read in raft.ready().reads] == [b"r"]


def test_a_change_that_a_snapshot_overtook_is_passed_over() -> None:
    raft = replica(2)
    conf = ConfState((1, 2, 3), (4,))
    raft.step(Rpc(K.SNAP, 2, 1, 1, snapshot=Snapshot(9, 1, conf)))
    assert raft.conf_state() == conf
    assert raft.apply_conf_change(ConfChange(ChangeKind.REMOVE, 4), 5) == conf
    assert raft.apply_conf_change(ConfChange(ChangeKind.REMOVE, 4), 10).learners == ()


def test_a_change_that_cannot_be_made_changes_nothing() -> None:
    raft = leader(replica(2), replica(3))
    before = raft.conf_state()
    with pytest.raises(ConfChangeFault):
        raft.apply_conf_change(ConfChangeV2())
    with pytest.raises(ConfChangeFault):
        raft.apply_conf_change(
            ConfChangeV2(tuple(Change(ChangeKind.REMOVE, replica) for replica in (1, 2, 3)))
        )
    assert raft.conf_state() == before


def test_a_restart_knows_what_was_applied_or_compacted() -> None:
    entries = [Entry(index, 1) for index in range(3, 7)]
    raft = replica(1, hard_state=HardState(1, 2, 3), entries=entries, applied=5)
    assert (raft.commit, raft.applied, raft.term, raft.vote) == (5, 5, 1, 2)
    disk_of(raft).compact(5)
    again = Raft(raft.config, disk_of(raft))
    assert (again.commit, again.applied) == (5, 5)
    disk_of(raft).compact(6)
    with pytest.raises(RaftFault):  # entry 6 was never applied and is gone
        Raft(raft.config, disk_of(raft))
    with pytest.raises(RaftFault):
        replica(1, hard_state=HardState(1, 2, 9), entries=entries)


def test_settings_are_checked_together() -> None:
    problems = Config(
        id=0, rng=replica().config.rng, election_ticks=1, inflight_max=0,
        read_only_lease_based=True, message_bytes_max=9, inflight_bytes_max=8,
    ).problems()  # fmt: skip
    assert len(problems) == 5


def test_the_logger_is_called_only_if_there_is_one() -> None:
    said: list[tuple[str, str]] = []
    raft = replica(1, logger=lambda level, text: said.append((level, text)))
    raft.campaign()
    assert ("INFO", "1 is candidate in term 1") in said
    assert replica(1).say is None
