"""The quick majorities against plain counting; configurations under any sequence of changes."""

from hypothesis import given
from hypothesis import strategies as st

from raftline.raft.conf_change import Change, ChangeKind, ConfChangeV2, Transition
from raftline.raft.errors import ConfChangeFault
from raftline.raft.members import Members, check, members_from, plan_change
from raftline.raft.quorum import (
    EVERYTHING,
    VoteResult,
    committed_index,
    joint_committed_index,
    joint_vote_result,
    vote_result,
)

REPLICAS = st.integers(1, 9)
VOTERS = st.sets(REPLICAS, max_size=7).map(lambda ids: tuple(sorted(ids)))
ACKED = st.dictionaries(REPLICAS, st.integers(0, 6))
VOTES = st.dictionaries(REPLICAS, st.booleans())
CHANGES = st.builds(Change, st.sampled_from(list(ChangeKind)), st.integers(0, 6))
CONF_CHANGES = st.builds(
    ConfChangeV2,
    st.lists(CHANGES, max_size=3).map(tuple),
    st.sampled_from(list(Transition)),
)


def naive_committed(voters: tuple[int, ...], acked: dict[int, int]) -> int:
    """Return the greatest index that more than half the voters reach, by trying all."""
    if not voters:
        return EVERYTHING
    reached = [
        index
        for index in range(7)
        if 2 * sum(acked.get(voter, 0) >= index for voter in voters) > len(voters)
    ]
    return max(reached)


def naive_result(voters: tuple[int, ...], votes: dict[int, bool]) -> VoteResult:
    """Return what every way of completing the votes leads to, or that they differ."""
    if not voters:
        return VoteResult.WON
    silent = [voter for voter in voters if voter not in votes]
    yes = sum(votes.get(voter, False) for voter in voters)
    ends = {2 * (yes + more) > len(voters) for more in range(len(silent) + 1)}
    if len(ends) == 2:
        return VoteResult.PENDING
    return VoteResult.WON if ends == {True} else VoteResult.LOST


@given(VOTERS, ACKED)
def test_committed_is_what_counting_gives(voters: tuple[int, ...], acked: dict[int, int]) -> None:
    assert committed_index(voters, acked) == naive_committed(voters, acked)
    assert joint_committed_index(voters, (), acked) == naive_committed(voters, acked)


@given(VOTERS, VOTERS, ACKED)
def test_joint_committed_needs_both(
    first: tuple[int, ...], second: tuple[int, ...], acked: dict[int, int]
) -> None:
    both = min(naive_committed(first, acked), naive_committed(second, acked))
    assert joint_committed_index(first, second, acked) == both


@given(VOTERS, VOTERS, VOTES)
def test_votes_are_what_counting_gives(
    first: tuple[int, ...], second: tuple[int, ...], votes: dict[int, bool]
) -> None:
    results = {naive_result(first, votes), naive_result(second, votes)}
    assert vote_result(first, votes) is naive_result(first, votes)
    joint = joint_vote_result(first, second, votes)
    assert (joint is VoteResult.WON) == (results == {VoteResult.WON})
    assert (joint is VoteResult.LOST) == (VoteResult.LOST in results)


@given(st.lists(CONF_CHANGES, max_size=12))
def test_any_changes_keep_the_configuration_sound(changes: list[ConfChangeV2]) -> None:
    members = Members(incoming=(1, 2, 3))
    for change in changes:
        try:
            plan = plan_change(members, change)
        except ConfChangeFault:
            continue
        new = plan.members
        check(new)
        assert new.incoming
        assert set(new.everyone()) >= set(plan.fresh)
        assert members_from(new.conf_state()) == new
        if not members.is_joint() and not new.is_joint():
            assert len(set(members.incoming) ^ set(new.incoming)) <= 1
        if new.is_joint() and not members.is_joint():
            assert new.outgoing == members.incoming
        members = new
