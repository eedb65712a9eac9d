"""Who takes part in a shard, and how one configuration leads to the next.

State: ``Members``, an immutable value. A change yields a ``Plan``: the next configuration and
the replicas that are new in it, whose progress must start afresh.

Invariants:
    M1  a learner is in neither half of the voters.
    M2  a learner-to-be (``learners_next``) is an outgoing voter and not an incoming one.
    M3  only a joint configuration has ``learners_next`` or leaves by itself.
    M4  once somebody takes part, there is at least one voter.
"""

import msgspec

from raftline.raft.conf_change import Change, ChangeKind, ConfChangeV2
from raftline.raft.errors import ConfChangeFault, Trouble
from raftline.raft.rpc import ConfState


class Members(msgspec.Struct, frozen=True):
    """A configuration. All ids sorted; joint while ``outgoing`` is not empty."""

    incoming: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    learners_next: tuple[int, ...] = ()
    auto_leave: bool = False

    def is_joint(self) -> bool:
        """Say whether two majorities must agree."""
        return bool(self.outgoing)

    def is_singleton(self) -> bool:
        """Say whether one voter decides alone."""
        return len(self.incoming) == 1 and not self.outgoing

    def voters(self) -> list[int]:
        """Return everyone with a vote in either half, sorted."""
        return sorted({*self.incoming, *self.outgoing})

    def everyone(self) -> list[int]:
        """Return everyone who takes part, sorted."""
        return sorted({*self.incoming, *self.outgoing, *self.learners})

    def conf_state(self) -> ConfState:
        """Return the form that is stored."""
        return ConfState(
            self.incoming, self.learners, self.outgoing, self.learners_next, self.auto_leave
        )


class Plan(msgspec.Struct, frozen=True):
    """The next configuration, and who is new in it."""

    members: Members
    fresh: tuple[int, ...]


def plan_change(members: Members, change: ConfChangeV2) -> Plan:
    """Return what ``change`` makes of ``members``.

    Raises:
        ConfChangeFault: it cannot be made.
    """
    if change.leaves_joint():
        return plan_leave_joint(members)
    if change.enters_joint():
        return plan_enter_joint(members, change.changes, auto_leave=change.leaves_by_itself())
    return plan_simple(members, change.changes)


def plan_simple(members: Members, changes: tuple[Change, ...]) -> Plan:
    """Make ``changes``, which may touch one voter, at once."""
    if members.is_joint():
        raise ConfChangeFault(Trouble.SIMPLE_WHILE_JOINT)
    draft = _Draft(members)
    draft.make(changes)
    if len(draft.incoming.symmetric_difference(members.incoming)) > 1:
        raise ConfChangeFault(Trouble.TOO_MANY_AT_ONCE)
    return draft.plan(auto_leave=False)


def plan_enter_joint(members: Members, changes: tuple[Change, ...], *, auto_leave: bool) -> Plan:
    """Make ``changes`` to the incoming half while the outgoing half keeps its say."""
    if members.is_joint():
        raise ConfChangeFault(Trouble.ALREADY_JOINT)
    if not members.incoming:
        raise ConfChangeFault(Trouble.NO_VOTERS_YET)
    draft = _Draft(members)
    draft.outgoing = set(draft.incoming)
    draft.make(changes)
    return draft.plan(auto_leave=auto_leave)


def plan_leave_joint(members: Members) -> Plan:
    """Drop the outgoing half; who waited to become a learner becomes one."""
    if not members.is_joint():
        raise ConfChangeFault(Trouble.NOT_JOINT)
    draft = _Draft(members)
    draft.learners |= draft.learners_next
    draft.learners_next = set()
    draft.outgoing = set()
    return draft.plan(auto_leave=False)


def members_from(conf: ConfState) -> Members:
    """Return the configuration stored as ``conf``.

    Raises:
        ConfChangeFault: no sequence of changes leads to it.
    """
    members = Members(
        tuple(sorted(conf.voters)),
        tuple(sorted(conf.voters_outgoing)),
        tuple(sorted(conf.learners)),
        tuple(sorted(conf.learners_next)),
        conf.auto_leave,
    )
    if members.everyone() and not members.incoming:
        raise ConfChangeFault(Trouble.NO_VOTERS_LEFT)
    check(members)
    return members


def check(members: Members) -> None:
    """Raise a ``ConfChangeFault`` unless M1 to M3 hold."""
    incoming, outgoing = set(members.incoming), set(members.outgoing)
    learners, waiting = set(members.learners), set(members.learners_next)
    sizes = (len(incoming), len(outgoing), len(learners), len(waiting))
    parts = (members.incoming, members.outgoing, members.learners, members.learners_next)
    sound = (
        sizes == tuple(len(part) for part in parts)  # nobody twice
        and all(0 not in part for part in parts)
        and learners.isdisjoint(incoming | outgoing)  # M1
        and waiting <= outgoing - incoming  # M2
        and (bool(outgoing) or not members.auto_leave)  # M3
    )
    if not sound:
        raise ConfChangeFault(Trouble.INCONSISTENT, str(members))


class _Draft:
    """A configuration while changes are made to it."""

    __slots__ = ("fresh", "incoming", "learners", "learners_next", "outgoing")

    def __init__(self, members: Members) -> None:
        self.incoming = set(members.incoming)
        self.outgoing = set(members.outgoing)
        self.learners = set(members.learners)
        self.learners_next = set(members.learners_next)
        self.fresh: set[int] = set()

    def make(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            replica = change.replica
            if replica == 0:
                continue  # a change that was refused is stored with nobody in it
            if change.kind == ChangeKind.ADD_VOTER:
                self._meet(replica)
                self._drop(replica)
                self.incoming.add(replica)
            elif change.kind == ChangeKind.ADD_LEARNER:
                self._meet(replica)
                self._demote(replica)
            elif change.kind == ChangeKind.REMOVE:
                self._drop(replica)
            elif change.kind != ChangeKind.UPDATE:
                raise ConfChangeFault(Trouble.UNKNOWN_KIND, str(change.kind))
        if not self.incoming:
            raise ConfChangeFault(Trouble.NO_VOTERS_LEFT)

    def plan(self, *, auto_leave: bool) -> Plan:
        members = Members(
            tuple(sorted(self.incoming)),
            tuple(sorted(self.outgoing)),
            tuple(sorted(self.learners)),
            tuple(sorted(self.learners_next)),
            auto_leave,
        )
        check(members)
        everyone = members.everyone()
        return Plan(members, tuple(replica for replica in everyone if replica in self.fresh))

    def _meet(self, replica: int) -> None:
        """Note that ``replica`` is new if it takes part nowhere."""
        parts = (self.incoming, self.outgoing, self.learners)
        if not any(replica in part for part in parts):
            self.fresh.add(replica)

    def _demote(self, replica: int) -> None:
        """Make a learner, later if the outgoing half still counts on its vote."""
        self._drop(replica)
        if replica in self.outgoing:
            self.learners_next.add(replica)
        else:
            self.learners.add(replica)

    def _drop(self, replica: int) -> None:
        self.incoming.discard(replica)
        self.learners.discard(replica)
        self.learners_next.discard(replica)
