"""Majorities, plain and joint.

A configuration is a pair of voter tuples, incoming and outgoing. An empty half agrees with
everything, so a plain configuration is a joint one whose outgoing half is empty.
"""

from collections.abc import Mapping
from enum import Enum

EVERYTHING = (1 << 64) - 1  # what a majority of nobody has agreed to


class VoteResult(Enum):
    """How an election stands."""

    PENDING = 1
    LOST = 2
    WON = 3


def majority_index(indexes: list[int]) -> int:
    """Return the greatest index that a majority of ``indexes`` has reached.

    ``indexes`` holds one number per voter, 0 where nothing is known.
    """
    if not indexes:
        return EVERYTHING
    indexes.sort()
    return indexes[(len(indexes) - 1) // 2]


def committed_index(voters: tuple[int, ...], acked: Mapping[int, int]) -> int:
    """Return the greatest index that a majority of ``voters`` has acked."""
    return majority_index([acked.get(voter, 0) for voter in voters])


def joint_committed_index(
    incoming: tuple[int, ...], outgoing: tuple[int, ...], acked: Mapping[int, int]
) -> int:
    """Return the greatest index that both majorities have acked."""
    return min(committed_index(incoming, acked), committed_index(outgoing, acked))


def vote_result(voters: tuple[int, ...], votes: Mapping[int, bool]) -> VoteResult:
    """Return how an election among ``voters`` stands after ``votes``."""
    if not voters:
        return VoteResult.WON
    needed = len(voters) // 2 + 1
    granted = refused = 0
    for voter in voters:
        vote = votes.get(voter)
        if vote is not None:
            granted += vote
            refused += not vote
    if granted >= needed:
        return VoteResult.WON
    if len(voters) - refused >= needed:
        return VoteResult.PENDING
    return VoteResult.LOST


def joint_vote_result(
    incoming: tuple[int, ...], outgoing: tuple[int, ...], votes: Mapping[int, bool]
) -> VoteResult:
    """Return how an election stands that both majorities must grant."""
    results = (vote_result(incoming, votes), vote_result(outgoing, votes))
    if results[0] is results[1]:
        return results[0]
    if VoteResult.LOST in results:
        return VoteResult.LOST
    return VoteResult.PENDING
