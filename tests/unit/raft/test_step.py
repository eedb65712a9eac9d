"""A replica trusts no rpc: it refuses, or faults, and stays as it was."""

import pytest

from raftline.raft.core import Raft, Role
from raftline.raft.errors import LocalOnly, ProposalDropped, RaftFault, Refused, UnknownSender
from raftline.raft.rpc import LOCAL_APPLY, ConfState, Entry, EntryKind, Rpc, RpcKind, Snapshot
from tests.unit.raft.replicas import leader, replica, settle, work

K = RpcKind


def memory(raft: Raft) -> tuple[object, ...]:
    """Return what a bad rpc must not touch."""
    log = raft.log
    return (
        log.commit,
        log.applied,
        log.last_index,
        log.last_term,
        log.snapshot,
        list(log.unstable),
        raft.vote,
        raft.members,
        {key: (p.match, p.next, p.state) for key, p in raft.progress.items()},
    )


def follower() -> Raft:
    raft = replica(2)
    raft.step(Rpc(K.APP, 2, 1, 3, 1, 2, [Entry(3, 3), Entry(4, 3)], 3))
    work(raft)
    return raft


BAD_FOR_A_FOLLOWER = {
    "kind": Rpc(99, 2, 1, 3),
    "negative kind": Rpc(-1, 2, 1, 3),
    "no term": Rpc(K.APP, 2, 1, 0, 3, 4, [Entry(5, 3)], 4),
    "commit of a heartbeat past the end": Rpc(K.HEARTBEAT, 2, 1, 3, commit=9),
    "gap": Rpc(K.APP, 2, 1, 3, 3, 4, [Entry(6, 3)], 4),
    "gap between": Rpc(K.APP, 2, 1, 3, 3, 4, [Entry(5, 3), Entry(7, 3)], 4),
    "terms going back": Rpc(K.APP, 2, 1, 3, 3, 4, [Entry(5, 2)], 4),
    "term of the future": Rpc(K.APP, 2, 1, 3, 3, 4, [Entry(5, 4)], 4),
    "voters twice": Rpc(K.SNAP, 2, 1, 3, snapshot=Snapshot(9, 3, ConfState((2, 2)))),
    "voters that learn": Rpc(K.SNAP, 2, 1, 3, snapshot=Snapshot(9, 3, ConfState((2,), (2,)))),
    "no voters": Rpc(K.SNAP, 2, 1, 3, snapshot=Snapshot(9, 3, ConfState((), (2,)))),
    "read answers": Rpc(K.READ_INDEX_RESP, 2, 1, 3, 0, 4, []),
    "applied past the commit mark": Rpc(
        K.STORAGE_APPLY_RESP, 2, LOCAL_APPLY, entries=[Entry(4, 3)]
    ),
}


@pytest.mark.parametrize("name", list(BAD_FOR_A_FOLLOWER))
def test_a_follower_takes_nothing_impossible(name: str) -> None:
    raft = follower()
    before = memory(raft)
    with pytest.raises(RaftFault):
        raft.step(BAD_FOR_A_FOLLOWER[name])
    assert memory(raft) == before


BAD_FOR_A_LEADER = {
    "ack past the end": Rpc(K.APP_RESP, 1, 2, 1, 0, 99),
    "empty proposal": Rpc(K.PROPOSE, 1, 2),
    "damaged change": Rpc(K.PROPOSE, 1, 2, entries=[Entry(0, 0, EntryKind.CONF_CHANGE, b"\xc1")]),
    "unknown kind of entry": Rpc(K.PROPOSE, 1, 2, entries=[Entry(0, 0, 9, b"")]),
    "unknown change": Rpc(
        K.PROPOSE, 1, 2, entries=[Entry(0, 0, EntryKind.CONF_CHANGE, b"\x93\x09\x01\xc4\x00")]
    ),
    "read without a name": Rpc(K.READ_INDEX, 1, 2),
    "answer to a read not asked": Rpc(K.HEARTBEAT_RESP, 1, 2, 1, context=b"\x05" + b"\0" * 7),
    "answer of a wrong size": Rpc(K.HEARTBEAT_RESP, 1, 2, 1, context=b"\x01"),
}


@pytest.mark.parametrize("name", list(BAD_FOR_A_LEADER))
def test_a_leader_takes_nothing_impossible(name: str) -> None:
    raft = leader(replica(2), replica(3))
    before = memory(raft)
    with pytest.raises(RaftFault):
        raft.step(BAD_FOR_A_LEADER[name])
    assert memory(raft) == before
    assert raft.role is Role.LEADER


@pytest.mark.parametrize("kind", [K.APP_RESP, K.VOTE_RESP, K.PRE_VOTE_RESP, K.HEARTBEAT_RESP])
def test_answers_of_strangers_are_refused(kind: RpcKind) -> None:
    raft = leader(replica(2), replica(3))
    with pytest.raises(UnknownSender):
        raft.step(Rpc(kind, 1, 9, 50))
    assert raft.term == 1


@pytest.mark.parametrize(
    "kind",
    [K.HUP, K.BEAT, K.CHECK_QUORUM, K.SNAP_STATUS, K.UNREACHABLE, K.STORAGE_APPEND_RESP],
)
def test_local_kinds_do_not_come_from_others(kind: RpcKind) -> None:
    with pytest.raises(LocalOnly):
        replica(1).step(Rpc(kind, 1, 2, 1))


def test_old_terms_are_ignored() -> None:
    raft = follower()
    before = memory(raft)
    for kind in RpcKind:
        rpc = Rpc(kind, 2, 3, 1, 1, 2, [Entry(3, 1)], 3, snapshot=Snapshot(9, 1, ConfState((2,))))
        try:
            raft.step(rpc)
        except Refused:
            continue
    assert memory(raft) == before
    assert raft.term == 3


def test_an_append_to_a_leader_of_the_same_term_is_ignored() -> None:
    raft = leader(replica(2), replica(3))
    before = memory(raft)
    raft.step(Rpc(K.APP, 1, 2, 1, 1, 2, [Entry(3, 1, 0, b"other")], 3))
    assert memory(raft) == before


def test_a_proposal_finds_a_leader_or_is_dropped() -> None:
    with pytest.raises(ProposalDropped):
        replica(2).propose([b"x"])
    shy = replica(2, proposal_forwarding_disabled=True)
    shy.step(Rpc(K.HEARTBEAT, 2, 1, 1))
    with pytest.raises(ProposalDropped):
        shy.propose([b"x"])
    raft = replica(2)
    raft.step(Rpc(K.HEARTBEAT, 2, 1, 1))
    work(raft)
    assert raft.propose([b"x", b"y"]) == (0, 0)
    (rpc,) = work(raft)
    assert (rpc.kind, rpc.to, rpc.term) == (K.PROPOSE, 1, 0)
    boss = leader(replica(2), replica(3))
    boss.step(rpc)
    assert [entry.data for entry in boss.log.unstable] == [b"x", b"y"]


def test_forwarded_entries_are_numbered_in_copies() -> None:
    boss = leader(replica(2), replica(3))
    given = Entry(0, 0, 0, b"x", 77)
    boss.step(Rpc(K.PROPOSE, 1, 2, entries=[given]))
    assert (given.index, given.term) == (0, 0)
    assert boss.log.unstable == [Entry(4, 1, 0, b"x", 77)]


def test_a_cluster_that_was_sent_garbage_goes_on() -> None:
    second = replica(2)
    boss = leader(second, replica(3))
    for rpc in BAD_FOR_A_LEADER.values():
        with pytest.raises(RaftFault):
            boss.step(rpc)
    term, index = boss.propose([b"x"])
    settle(boss, second)
    assert boss.commit == index
    assert (boss.applied, term) == (index, 1)
