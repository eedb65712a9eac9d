"""Kafka's classic group protocol, as the leader of a coordination shard speaks it.

A member joins and waits until all have joined (or the rebalance timeout is over); then a generation
is formed through the log and everybody is answered. The group's leader sends what it assigned,
which goes through the log too; whoever asked for its assignment is answered then. Members that
leave or fall silent are dismissed through the log, and the rest has to join again.

Joining is in classic_joins.py; H1 in classic_rounds.py.

Rules
    H2  A new leader knows nothing of joining: it gives every member one full session, and goes on
        where the log left the group.
"""

from collections.abc import Callable

import msgspec

from raftline.machines.groups import commands as c
from raftline.machines.groups.classic import Classic
from raftline.machines.groups.group import Group
from raftline.machines.groups.machine import GroupsMachine
from raftline.model.classic_groups import (
    EMPTY,
    JOINING,
    STABLE,
    ClassicBeat,
    ClassicJoin,
    ClassicLeave,
    ClassicLeft,
    ClassicRequest,
    ClassicSync,
    ClassicSynced,
    ClassicView,
    Leaver,
)
from raftline.model.errors import (
    FencedInstance,
    RaftlineError,
    Rebalancing,
    UnknownMember,
    WrongGroupKind,
)
from raftline.model.groups import Done
from raftline.node.classic_joins import Joins
from raftline.node.classic_round import Reply, Round
from raftline.node.classic_rounds import Propose, Result, Rounds
from raftline.node.ports import Clock

CHECK_MS = 250  # between two looks for silent members


class ClassicGroups:
    """The classic groups of one coordination shard, while this node leads it."""

    def __init__(
        self, clock: Clock, machine: GroupsMachine, now: Callable[[], int], propose: Propose
    ) -> None:
        self._clock = clock
        self._rounds = Rounds(clock, machine, now, propose, self._serve)
        self._joins = Joins(self._rounds, self._dismiss)
        self._is_checking = False
        self._check_due = 0.0

    def close(self, error: RaftlineError) -> None:
        """Somebody else leads now."""
        self._rounds.close(error)

    def answer(self, request: ClassicRequest, reply: Reply) -> None:
        """Answer a request, perhaps much later."""
        self._rounds.answer(request, reply)
        self.watch()

    def heard(self, group: str, member: str, instance: str) -> None:
        """Hear a member that commits. Raises FencedInstance."""
        classic = self._rounds.classic(group)
        if classic is None:
            return
        round_ = self._rounds.of(group)
        if instance:
            self._rounds.check_instance(round_, classic, member, instance)
        if member in classic.members:
            round_.hear(member, self._clock.mono_ms())

    def view(self, group: Group, classic: Classic) -> ClassicView:
        """Return all of a group, with the state as its members meet it."""
        view = classic.view(group.name, group.epoch)
        round_ = self._rounds.rows.get(group.name)
        if round_ is None or not round_.is_open:
            return view
        return msgspec.structs.replace(view, state=JOINING)

    def _serve(self, round_: Round, request: ClassicRequest, reply: Reply) -> None:
        match request:
            case ClassicBeat():
                self._beat(round_, request, reply)
            case ClassicSync():
                self._sync(round_, request, reply)
            case ClassicJoin():
                self._joins.join(round_, request, reply)
            case ClassicLeave():
                self._leave(round_, request, reply)

    # ------------------------------------------------------------------ being a member

    def _member(
        self, round_: Round, member: str, generation: int, instance: str
    ) -> tuple[Group, Classic]:
        """Return the group of a member whose word counts, and hear it."""
        group = self._rounds.machine.groups.get(round_.name)
        classic = group.classic if group is not None else None
        if group is None or classic is None or classic.state == EMPTY:
            raise UnknownMember(round_.name, member)
        if instance:
            self._rounds.check_instance(round_, classic, member, instance)
        classic.member(round_.name, member, generation, group.epoch)
        round_.hear(member, self._clock.mono_ms())
        return group, classic

    def _beat(self, round_: Round, request: ClassicBeat, reply: Reply) -> None:
        group, classic = self._member(round_, request.member, request.generation, request.instance)
        if round_.phase(classic) == JOINING:
            raise Rebalancing(round_.name)
        reply(Done(group.epoch))

    def _sync(self, round_: Round, request: ClassicSync, reply: Reply) -> None:
        _, classic = self._member(round_, request.member, request.generation, request.instance)
        for said, known in (
            (request.protocol_type, classic.protocol_type),
            (request.protocol, classic.protocol),
        ):
            if said and said != known:
                raise WrongGroupKind(round_.name, f"agreed on {known!r}, not on {said!r}")
        phase = round_.phase(classic)
        if phase == JOINING:
            raise Rebalancing(round_.name)
        round_.synced.add(request.member)
        if phase == STABLE:
            reply(_synced(classic, request.member))
            return
        earlier = round_.waiters.pop(request.member, None)
        round_.waiters[request.member] = reply
        if earlier is not None:
            earlier(Rebalancing(round_.name))
        if request.member == classic.leader:
            self._assign(round_, request)

    def _assign(self, round_: Round, request: ClassicSync) -> None:
        command = c.Assign(round_.name, request.generation, request.shares, self._rounds.now())

        def applied(result: Result) -> None:
            if isinstance(result, RaftlineError):
                round_.end_waiting(result, self._clock.mono_ms())
            else:
                self._tell(round_)

        self._rounds.propose(round_, command, applied)

    def _tell(self, round_: Round) -> None:
        """Answer those that wait for their assignment: it is there, or they are gone."""
        classic = self._rounds.classic(round_.name)
        now = self._clock.mono_ms()
        waiters, round_.waiters = round_.waiters, {}
        for member, reply in waiters.items():
            round_.hear(member, now)
            if classic is None or member not in classic.members:
                reply(UnknownMember(round_.name, member))
            else:
                reply(_synced(classic, member))

    # ------------------------------------------------------------------ leaving

    def _leave(self, round_: Round, request: ClassicLeave, reply: Reply) -> None:
        classic = self._rounds.classic(round_.name)
        codes: list[str] = []
        gone: list[str] = []
        for leaver in request.leavers:
            member, code = self._leaver(round_, classic, leaver)
            codes.append(code)
            if not code and classic is not None and member in classic.members:
                gone.append(member)
        answer = ClassicLeft(tuple(codes))
        if gone:
            self._dismiss(round_, tuple(gone), lambda error: reply(error or answer))
        else:
            reply(answer)
            self._joins.maybe_form(round_)

    def _leaver(self, round_: Round, classic: Classic | None, leaver: Leaver) -> tuple[str, str]:
        """Return who goes, and why not; what only this leader knows of it is forgotten."""
        member = leaver.member
        if leaver.instance:
            holder = round_.holder(classic, leaver.instance)
            if not holder:
                return member, UnknownMember.code
            if member and holder != member:
                return member, FencedInstance.code
            member = holder
        applicant = round_.applicants.pop(member, None)
        if applicant is not None:
            applicant.reply(UnknownMember(round_.name, member))
        named = round_.named.pop(member, None)
        if applicant is None and named is None:
            known = classic is not None and member in classic.members
            return member, "" if known else UnknownMember.code
        return member, ""

    def _dismiss(
        self,
        round_: Round,
        members: tuple[str, ...],
        done: Callable[[RaftlineError | None], None] | None = None,
    ) -> None:
        def applied(result: Result) -> None:
            if isinstance(result, RaftlineError):
                if done is not None:
                    done(result)
                return
            for member in members:
                round_.heard.pop(member, None)
                waiter = round_.waiters.pop(member, None)
                if waiter is not None:
                    waiter(UnknownMember(round_.name, member))
            if done is not None:
                done(None)
            classic = self._rounds.classic(round_.name)
            is_left = classic is not None and bool(classic.members)
            if is_left and not round_.is_open:
                self._joins.open(round_)
            round_.is_open = is_left or bool(round_.applicants)
            self._joins.maybe_form(round_)

        self._rounds.propose(round_, c.Dismiss(round_.name, members, self._rounds.now()), applied)

    # ------------------------------------------------------------------ time

    def watch(self) -> None:
        """Look for silent members from now on, while there are any."""
        if self._rounds.is_closed or self._is_checking:
            return
        if self._rounds.rows or any(
            group.classic for group in self._rounds.machine.groups.values()
        ):
            self._is_checking = True
            self._check_due = self._clock.mono_ms() + CHECK_MS
            self._clock.call_later(CHECK_MS, self._check)

    def _check(self) -> None:
        self._is_checking = False
        if self._rounds.is_closed:
            return
        now = self._clock.mono_ms()
        missed_ms = now - self._check_due
        for name, group in list(self._rounds.machine.groups.items()):
            if (
                group.classic is not None
                and group.classic.members
                and name not in self._rounds.rows
            ):
                self._rounds.of(name)  # H2
        for round_ in list(self._rounds.rows.values()):
            if missed_ms > CHECK_MS:
                round_.stood_still(missed_ms, now)
            self._check_round(round_, now)
        self.watch()

    def _check_round(self, round_: Round, now: float) -> None:
        for name in [name for name, until in round_.named.items() if until < now]:
            del round_.named[name]
        if round_.is_busy:
            return
        classic = self._rounds.classic(round_.name)
        if classic is not None and classic.state == JOINING and not round_.is_open:
            self._joins.open(round_)  # a Dismiss was applied after its time was up
        if round_.waiters and round_.phase(classic) in (STABLE, EMPTY):
            self._tell(round_)  # an Assign was, or a Dismiss of the last
        late = round_.late(classic, now) if classic is not None else ()
        if late:
            self._dismiss(round_, late)
        elif round_.is_open:
            self._joins.maybe_form(round_)
        is_idle = classic is None or not classic.members
        if is_idle and not (round_.named or round_.applicants or round_.is_busy):
            del self._rounds.rows[round_.name]


def _synced(classic: Classic, member: str) -> ClassicSynced:
    row = classic.members[member]
    return ClassicSynced(classic.protocol_type, classic.protocol, row.assignment)
