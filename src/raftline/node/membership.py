"""Membership: bring a shard's Raft configuration to what the catalog wants.

Run by the leader of each shard. ``next_step`` is a pure function from (configuration, wish) to the
one step that comes next; repeating it until it says None is the whole protocol, so any leader may
go on where another stopped.

Rules
    M1  A new replica joins as a learner and is promoted only when it is level.
    M2  One joint change swaps all promoted replicas in and all unwanted ones out, so the number of
        voters never drops below the wish on the way. Where one of them cannot come, because an
        older replica votes on its node still (it was moved away and back), one that is ready takes
        the place of that older one before the others.
    M3  A leader that is not wanted hands over before it is removed.
    M4  No change leaves a shard with voters of which the live ones are no majority: it waits until
        they are back.
"""

from collections.abc import Callable

import msgspec

from raftline.model.ids import ReplicaId, node_of
from raftline.raft.conf_change import Change, ChangeKind, ConfChangeV2, Transition
from raftline.raft.rpc import ConfState


class Wish(msgspec.Struct, frozen=True):
    """What the catalog wants of a shard."""

    voters: tuple[int, ...]
    observers: tuple[int, ...] = ()


class HandOver(msgspec.Struct, frozen=True):
    """Give leadership to ``to`` first."""

    to: int


Step = ConfChangeV2 | HandOver


def next_step(
    conf: ConfState,
    leader: int,
    wish: Wish,
    *,
    live: Callable[[int], bool],
    level: Callable[[int], bool],
) -> Step | None:
    """Return the next step from ``conf`` toward ``wish``, or None if there is none to take now."""
    if conf.voters_outgoing:
        return None  # the core leaves the joint configuration by itself
    present = (*conf.voters, *conf.learners)
    missing = [r for r in (*wish.voters, *wish.observers) if r not in present and live(r)]
    if missing:
        return _simple(ChangeKind.ADD_LEARNER, missing[0])  # M1
    unpromoted = [r for r in wish.voters if r not in conf.voters]
    ready = [r for r in unpromoted if r in conf.learners and level(r)]
    unwanted = [v for v in conf.voters if v not in wish.voters]
    if len(ready) == len(unpromoted) and (ready or unwanted):
        return _swap(conf, leader, wish, ready, unwanted, live, level)
    older = [v for v in unwanted if any(_is_in_the_way(v, r) for r in unpromoted)]
    if ready and older:
        older.sort(key=lambda v: v == leader)  # M3: it would have to hand over first
        return _swap(conf, leader, wish, ready[:1], older[:1], live, level)
    strangers = [r for r in conf.learners if r not in wish.voters and r not in wish.observers]
    if strangers:
        return _simple(ChangeKind.REMOVE, strangers[0])
    return None


def _is_in_the_way(older: int, newer: int) -> bool:
    return node_of(ReplicaId(older)) == node_of(ReplicaId(newer))


def _swap(
    conf: ConfState,
    leader: int,
    wish: Wish,
    ready: list[int],
    unwanted: list[int],
    live: Callable[[int], bool],
    level: Callable[[int], bool],
) -> Step | None:
    """Promote and remove in one joint change, the leader last. M2, M3, M4."""
    if leader in unwanted:
        heirs = [v for v in conf.voters if v in wish.voters and live(v) and level(v)]
        if heirs:
            return HandOver(heirs[0])
        unwanted = [v for v in unwanted if v != leader]
        if not ready and not unwanted:
            return None
    after = [*(v for v in conf.voters if v not in unwanted), *ready]
    if 2 * sum(live(v) for v in after) <= len(after):
        return None  # M4
    changes = [Change(ChangeKind.ADD_VOTER, r) for r in ready]
    changes += [
        Change(ChangeKind.ADD_LEARNER if v in wish.observers else ChangeKind.REMOVE, v)
        for v in unwanted
    ]
    if len(changes) == 1:
        return _simple(ChangeKind(changes[0].kind), changes[0].replica)
    return ConfChangeV2(tuple(changes), Transition.JOINT_IMPLICIT)


def _simple(kind: ChangeKind, replica: int) -> ConfChangeV2:
    return ConfChangeV2((Change(kind, replica),))
