"""Membership: the one step that comes next. M1-M4."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftline.model.ids import NodeId, replica_id
from raftline.node.membership import HandOver, Step, Wish, next_step
from raftline.raft.conf_change import Change, ChangeKind, ConfChangeV2, Transition
from raftline.raft.rpc import ConfState

A, B, C, D, E, F = (replica_id(NodeId(node), 1) for node in range(1, 7))
A2, B2 = (replica_id(NodeId(node), 2) for node in (1, 2))  # newer ones on the same nodes
ALL: tuple[int, ...] = (A, B, C, D, E, F, A2, B2)
STEPS_MAX = 40


def among(*replicas: int) -> Callable[[int], bool]:
    return lambda replica: replica in replicas


def add(replica: int) -> ConfChangeV2:
    return ConfChangeV2((Change(ChangeKind.ADD_LEARNER, replica),))


def remove(replica: int) -> ConfChangeV2:
    return ConfChangeV2((Change(ChangeKind.REMOVE, replica),))


def promote(replica: int) -> ConfChangeV2:
    return ConfChangeV2((Change(ChangeKind.ADD_VOTER, replica),))


def joint(*changes: tuple[ChangeKind, int]) -> ConfChangeV2:
    return ConfChangeV2(tuple(Change(*c) for c in changes), Transition.JOINT_IMPLICIT)


VOTER, GONE, LEARNER = ChangeKind.ADD_VOTER, ChangeKind.REMOVE, ChangeKind.ADD_LEARNER


class Case(msgspec.Struct):
    """One row: where a shard is, what is wanted, what comes next."""

    name: str
    voters: tuple[int, ...]
    wish: tuple[int, ...]
    step: Step | None
    learners: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()
    observers: tuple[int, ...] = ()
    leader: int = A
    live: tuple[int, ...] = ALL
    level: tuple[int, ...] = ALL


CASES = [
    Case("nothing to do", (A, B, C), (A, B, C), None),
    Case("M1: a new replica joins as a learner", (A, B, C), (A, B, D), add(D)),
    Case("M1: one after another", (A,), (A, B, C), add(B)),
    Case("a dead node is not added", (A, B, C), (A, B, D), None, live=(A, B, C)),
    Case("a live one is added before a dead one", (A,), (A, B, C), add(C), live=(A, C)),
    Case("M1: not level, not promoted", (A, B, C), (A, B, D), None, learners=(D,), level=(A, B)),
    Case("M1: level, swapped", (A, B, C), (A, B, D), joint((VOTER, D), (GONE, C)), learners=(D,)),
    Case("M1: growing needs no joint change", (A,), (A, B), promote(B), learners=(B,)),
    Case("M2: all at once", (A, B, C), (A, D, E),
         joint((VOTER, D), (VOTER, E), (GONE, B), (GONE, C)), learners=(D, E)),
    Case("M2: wait for all", (A, B, C), (A, D, E), None, learners=(D, E), level=(A, D)),
    Case("M2: one that is ready comes for an older one in the way", (A, B, C), (A2, B, D),
         joint((VOTER, D), (GONE, A)), learners=(A2, D), leader=C, level=(B, C, D)),
    Case("M2: which hands over if it leads", (A, B, C), (A2, B, D), HandOver(B),
         learners=(A2, D), level=(B, C, D)),
    Case("M2: rather for one that does not lead", (A, B, C), (A2, B2, D),
         joint((VOTER, D), (GONE, B)), learners=(A2, B2, D), level=(A, B, C, D)),
    Case("M2: nobody is ready to come for it", (A, B, C), (A2, B, D), None,
         learners=(A2, D), leader=C, level=(B, C)),
    Case("a dead voter is swapped out like any", (A, B, C), (A, B, D),
         joint((VOTER, D), (GONE, C)), learners=(D,), live=(A, B, D)),
    Case("shrinking", (A, B, C), (A, B), remove(C)),
    Case("M3: a leader that is not wanted hands over", (A, B, C), (B, C), HandOver(B)),
    Case("M3: to a live heir", (A, B, C), (B, C), HandOver(C), live=(A, C)),
    Case("M3: to a level heir", (A, B, C), (B, C), HandOver(C), level=(A, C)),
    Case("M3: nobody to hand over to", (A, B), (B,), None, live=(A,)),
    Case("M3: first the others, then the leader", (A, B, C), (D, E, F),
         joint((VOTER, D), (VOTER, E), (VOTER, F), (GONE, B), (GONE, C)), learners=(D, E, F)),
    Case("M3: then the leader hands over", (A, D, E, F), (D, E, F), HandOver(D)),
    Case("then its heir removes it", (A, D, E, F), (D, E, F), remove(A), leader=D),
    Case("whole replacement of one", (A,), (B,), promote(B), learners=(B,)),
    Case("M4: a live voter stays where a dead one would be half of the rest", (A, B, C), (A, B),
         None, live=(A, C)),
    Case("M4: a dead learner is not made half of the voters", (A,), (A, B), None, learners=(B,),
         live=(A,)),
    Case("M4: a dead one goes", (A, B, C), (A, B), remove(C), live=(A, B)),
    Case("a joint configuration is left by the core", (A, B, D), (A, B, D), None,
         outgoing=(A, B, C)),
    Case("an observer joins", (A, B, C), (A, B, C), add(D), observers=(D,)),
    Case("an observer stays a learner", (A, B, C), (A, B, C), None, learners=(D,), observers=(D,)),
    Case("a voter becomes an observer", (A, B, C), (A, B, D), joint((VOTER, D), (LEARNER, C)),
         learners=(D,), observers=(C,)),
    Case("a learner nobody wants goes", (A, B, C), (A, B, C), remove(D), learners=(D,)),
    Case("though a wanted one is not level yet", (A, B, C), (A, B, E), remove(D),
         learners=(D, E), level=(A, B, C)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_next_step(case: Case) -> None:
    conf = ConfState(voters=case.voters, learners=case.learners, voters_outgoing=case.outgoing)
    found = next_step(
        conf,
        case.leader,
        Wish(case.wish, case.observers),
        live=among(*case.live),
        level=among(*case.level),
    )
    assert found == case.step


def applied(conf: ConfState, change: ConfChangeV2) -> ConfState:
    """Carry a change out, and leave the joint configuration it may have begun."""
    voters, learners = list(conf.voters), list(conf.learners)
    for step in change.changes:
        voters = [v for v in voters if v != step.replica]
        learners = [r for r in learners if r != step.replica]
        if step.kind == VOTER:
            voters.append(step.replica)
        elif step.kind == LEARNER:
            learners.append(step.replica)
    return ConfState(voters=tuple(voters), learners=tuple(learners))


replicas = st.lists(st.sampled_from(ALL), unique=True, max_size=4).map(tuple)
voters = st.lists(st.sampled_from(ALL), unique=True, min_size=1, max_size=4).map(tuple)


@given(voters=voters, learners=replicas, wanted=voters, watching=replicas, data=st.data())
def test_repeated_it_ends_at_the_wish(
    voters: tuple[int, ...],
    learners: tuple[int, ...],
    wanted: tuple[int, ...],
    watching: tuple[int, ...],
    data: st.DataObject,
) -> None:
    """From any configuration, with replicas that are level late and leaders that change."""
    conf = ConfState(voters=voters, learners=tuple(r for r in learners if r not in voters))
    wish = Wish(wanted, tuple(r for r in watching if r not in wanted))
    leader = data.draw(st.sampled_from(voters))
    least = min(len(conf.voters), len(wish.voters))
    idle = 0
    for _ in range(STEPS_MAX):
        level = set(conf.voters) if idle == 0 and data.draw(st.booleans()) else set(ALL)
        step = next_step(conf, leader, wish, live=among(*ALL), level=among(*level))
        if step is None:
            idle += 1
            if idle > 1:
                break
            continue
        idle = 0
        if isinstance(step, HandOver):
            assert step.to in conf.voters
            assert step.to in wish.voters
            leader = step.to
            continue
        conf = applied(conf, step)
        assert len(conf.voters) >= least, "M2: fewer voters than before and than wanted"
        assert leader in conf.voters, "M3: the leader was removed before it handed over"
    assert sorted(conf.voters) == sorted(wish.voters)
    assert sorted(conf.learners) == sorted(wish.observers)
    assert leader in wish.voters
