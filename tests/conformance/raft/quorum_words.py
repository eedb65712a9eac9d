"""The words of a dialogue about majorities.

``committed cfg=(1,2,3) cfgj=(3,4) idx=(5,_,7,_)`` and ``vote cfg=(1,2,3) votes=(y,n,_)``; ``_`` is
a voter not heard of, ``cfgj`` the second half of a joint configuration (``zero`` for an empty
one). Values go to the voters in the order named. Every answer is worked out in more than one way;
where the ways differ, the output says so and does not match.
"""

from collections.abc import Iterable

from raftline.raft.quorum import (
    EVERYTHING,
    VoteResult,
    committed_index,
    joint_committed_index,
    joint_vote_result,
    vote_result,
)
from tests.conformance.raft.dialogue import Step

RESULT_NAMES = {
    VoteResult.PENDING: "VotePending",
    VoteResult.LOST: "VoteLost",
    VoteResult.WON: "VoteWon",
}
VOTES = {"y": 2, "n": 1, "_": 0}


class QuorumWords:
    """Runs the steps of one dialogue."""

    def run(self, step: Step) -> list[str]:
        first: list[int] = []
        second: list[int] = []
        given: list[int] = []
        joint = False
        for key, value in step.options():
            if key == "cfg":
                first.append(int(value))
            elif key == "cfgj":
                joint = True
                second += [] if value == "zero" else [int(value)]
            elif key == "idx":
                given.append(0 if value == "_" else int(value))
            elif key == "votes":
                given.append(VOTES[value])
        voters = sorted({*first, *second})
        if len(voters) != len(given):
            shown = " ".join(f"{voter}:{{}}" for voter in voters)
            numbers = " ".join(map(str, given))
            return [f"error: mismatched input (explicit or _) for voters map[{shown}]: [{numbers}]"]
        known = {
            voter: value
            for voter, value in zip(dict.fromkeys([*first, *second]), given, strict=True)
            if value
        }
        halves = (tuple(sorted(set(first))), tuple(sorted(set(second))))
        if step.verb == "vote":
            return vote(halves, known, joint=joint)
        if step.verb == "committed":
            return committed(halves, known, joint=joint)
        return ["unknown command"]


def vote(
    halves: tuple[tuple[int, ...], tuple[int, ...]], known: dict[int, int], *, joint: bool
) -> list[str]:
    votes = {voter: value == VOTES["y"] for voter, value in known.items()}
    if not joint:
        return [RESULT_NAMES[vote_result(halves[0], votes)]]
    result = joint_vote_result(*halves, votes)
    other = joint_vote_result(*reversed(halves), votes)  # type: ignore[misc]
    lines = [] if other is result else [f"{RESULT_NAMES[other]} <-- via symmetry"]
    return [*lines, RESULT_NAMES[result]]


def committed(
    halves: tuple[tuple[int, ...], tuple[int, ...]], acked: dict[int, int], *, joint: bool
) -> list[str]:
    first, second = halves
    if joint:
        index = joint_committed_index(first, second, acked)
        ways = [("via symmetry", joint_committed_index(second, first, acked))]
        picture = draw(sorted({*first, *second}), acked)
    else:
        index = committed_index(first, acked)
        ways = [
            ("via alternative computation", counted_index(first, acked)),
            ("via zero-joint quorum", joint_committed_index(first, (), acked)),
            ("via self-joint quorum", joint_committed_index(first, first, acked)),
            *lowered(first, acked, index),
        ]
        picture = draw(first, acked)
    lines = [f"{show(other)} <-- {name}" for name, other in ways if other != index]
    answer = [*lines, show(index)]
    if not picture:
        return [f"<empty majority quorum>{answer[0]}", *answer[1:]]
    return picture + answer


def lowered(
    voters: tuple[int, ...], acked: dict[int, int], index: int
) -> Iterable[tuple[str, int]]:
    """Yield the index again after a voter below it was moved further down: nothing may change."""
    for voter in voters:
        own = acked.get(voter, 0)
        if index > own > 0:
            for less in (own - 1, 0):
                yield f"overlaying {voter}->{less}", committed_index(voters, {**acked, voter: less})


def counted_index(voters: tuple[int, ...], acked: dict[int, int]) -> int:
    """Return the greatest acked index that enough voters reach, by counting for each."""
    if not voters:
        return EVERYTHING
    needed = len(voters) // 2 + 1
    reached = [
        index
        for index in acked.values()
        if sum(acked.get(voter, 0) >= index for voter in voters) >= needed
    ]
    return max(reached, default=0)


def draw(voters: Iterable[int], acked: dict[int, int]) -> list[str]:
    """Return a picture of how far each voter is: one ``x`` per voter that is behind it."""
    voters = list(voters)
    if not voters:
        return []
    width = len(voters)
    lines = [" " * width + "    idx"]
    for voter in voters:
        index = acked.get(voter, 0)
        behind = sum(acked.get(other, 0) < index for other in voters)
        mark = "x" * behind + ">" + " " * (width - behind) if voter in acked else "?" + " " * width
        lines.append(f"{mark} {index:5d}    (id={voter:x})")
    return lines


def show(index: int) -> str:
    return "∞" if index == EVERYTHING else str(index)
