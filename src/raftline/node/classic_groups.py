"""Kafka's classic group protocol, as the leader of a coordination shard speaks it.

A member joins and waits until all have joined (or the rebalance timeout is over); then a generation
is formed through the log and everybody is answered. The group's leader sends what it assigned,
which goes through the log too; whoever asked for its assignment is answered then. Members that
leave or fall silent are dismissed through the log, and the rest has to join again.

Rules
    H1  One command of a group is on its way at a time. Requests that come meanwhile wait for it
        (at most ``FORWARDED_MAX``).
    H2  A new leader knows nothing of joining: it gives every member one full session, and goes on
        where the log left the group.
    H3  A static member that comes back in a stable group gets its place without a new generation.
    H4  Static members that do not join again in time stay; only silence dismisses them.
"""

from collections.abc import Callable, Sequence

import msgspec

from raftline.machines.groups import commands as c
from raftline.machines.groups.classic import Classic, check_member
from raftline.machines.groups.group import Group
from raftline.machines.groups.machine import GroupsMachine
from raftline.model.classic_groups import (
    EMPTY,
    JOINING,
    STABLE,
    SYNCING,
    ClassicBeat,
    ClassicJoin,
    ClassicJoined,
    ClassicLeave,
    ClassicLeft,
    ClassicMember,
    ClassicRequest,
    ClassicSync,
    ClassicSynced,
    ClassicView,
    Leaver,
    MemberNamed,
)
from raftline.model.errors import (
    FencedInstance,
    InvalidArgument,
    NotReady,
    OverLimit,
    RaftlineError,
    Rebalancing,
    TooLarge,
    UnknownMember,
    WrongGroupKind,
)
from raftline.model.groups import Done
from raftline.model.limits import (
    CLASSIC_METADATA_BYTES_MAX,
    FORWARDED_MAX,
    GROUP_MEMBERS_MAX,
    GROUPS_PER_SHARD_MAX,
    SESSION_MS_MAX,
)
from raftline.node.classic_round import Reply, Round, chosen_protocol
from raftline.node.ports import Clock

CHECK_MS = 250  # between two looks for silent members
FIRST_JOIN_MS = 250  # a new group waits so long for more members before it forms
ROUNDS_MAX = 2 * GROUPS_PER_SHARD_MAX
PROPOSE_MS = 5_000

Result = Sequence[object] | RaftlineError
Propose = Callable[[c.Command, int, Callable[[Result], None]], None]


class ClassicGroups:
    """The classic groups of one coordination shard, while this node leads it."""

    def __init__(
        self, clock: Clock, machine: GroupsMachine, now: Callable[[], int], propose: Propose
    ) -> None:
        self._clock = clock
        self._machine = machine
        self._now = now  # log time
        self._propose_to_log = propose
        self._rounds: dict[str, Round] = {}
        self._is_closed = self._is_checking = False
        self._check_due = 0.0

    def close(self, error: RaftlineError) -> None:
        """Somebody else leads now."""
        self._is_closed = True
        rounds, self._rounds = self._rounds, {}
        for round_ in rounds.values():
            round_.refuse_all(error)

    def answer(self, request: ClassicRequest, reply: Reply) -> None:
        """Answer a request, perhaps much later."""
        round_ = self._round(request.group)
        if not round_.is_busy:
            self._run(round_, request, reply)
        elif len(round_.deferred) >= FORWARDED_MAX:
            reply(OverLimit("requests waiting for a group", FORWARDED_MAX + 1, FORWARDED_MAX))
        else:
            round_.deferred.append((request, reply))  # H1

    def heard(self, group: str, member: str, instance: str) -> None:
        """Hear a member that commits. Raises FencedInstance."""
        classic = self._classic(group)
        if classic is None:
            return
        round_ = self._round(group)
        if instance:
            self._check_instance(round_, classic, member, instance)
        if member in classic.members:
            round_.hear(member, self._clock.mono_ms())

    def view(self, group: Group, classic: Classic) -> ClassicView:
        """Return all of a group, with the state as its members meet it."""
        view = classic.view(group.name, group.epoch)
        round_ = self._rounds.get(group.name)
        if round_ is None or not round_.is_open:
            return view
        return msgspec.structs.replace(view, state=JOINING)

    def _round(self, name: str) -> Round:
        found = self._rounds.get(name)
        if found is None:
            if len(self._rounds) >= ROUNDS_MAX:
                raise OverLimit("groups that are joined", ROUNDS_MAX + 1, ROUNDS_MAX)
            found = Round(name, self._classic(name), self._clock.mono_ms())
            self._rounds[name] = found
            self.watch()
        return found

    def _classic(self, name: str) -> Classic | None:
        group = self._machine.groups.get(name)
        return group.classic if group is not None else None

    def _run(self, round_: Round, request: ClassicRequest, reply: Reply) -> None:
        try:
            match request:
                case ClassicBeat():
                    self._beat(round_, request, reply)
                case ClassicSync():
                    self._sync(round_, request, reply)
                case ClassicJoin():
                    self._join(round_, request, reply)
                case ClassicLeave():
                    self._leave(round_, request, reply)
        except RaftlineError as error:
            reply(error)

    # ------------------------------------------------------------------ joining

    def _join(self, round_: Round, request: ClassicJoin, reply: Reply) -> None:
        group = self._machine.groups.get(request.group)
        if group is not None and group.members:
            raise WrongGroupKind(request.group, "has members that are told what to read")
        classic = group.classic if group is not None else None
        row = _row(request)
        _check_common(request, row, round_, classic)
        if request.member:
            self._join_known(round_, classic, row, request, reply)
        elif round_.holder(classic, request.instance) if request.instance else "":
            self._join_instance(round_, classic, row, request, reply)
        elif len(round_.rows(classic)) + len(round_.named) >= GROUP_MEMBERS_MAX:
            raise OverLimit("members of a group", GROUP_MEMBERS_MAX + 1, GROUP_MEMBERS_MAX)
        elif request.is_named_first and not request.instance:
            round_.named[row.id] = self._clock.mono_ms() + row.session_ms
            reply(MemberNamed(row.id))
        else:
            self._apply_for(round_, row, reply)

    def _join_known(
        self,
        round_: Round,
        classic: Classic | None,
        row: ClassicMember,
        request: ClassicJoin,
        reply: Reply,
    ) -> None:
        """A member joins again, or one that was given its name."""
        if request.instance:
            self._check_instance(round_, classic, row.id, request.instance)
        if row.id in round_.named or row.id in round_.applicants:
            self._apply_for(round_, row, reply)
            return
        known = classic.members.get(row.id) if classic is not None else None
        if known is None or classic is None:
            raise UnknownMember(request.group, row.id)
        round_.hear(row.id, self._clock.mono_ms())
        leads = row.id == classic.leader
        phase = round_.phase(classic)
        is_same = known.protocols == row.protocols
        if is_same and (phase == SYNCING or (phase == STABLE and not leads)):
            members = tuple(classic.members.values()) if leads else ()
            reply(self._joined(request.group, row.id, members))  # the answer before got lost
        else:
            self._apply_for(round_, row, reply)

    def _join_instance(
        self,
        round_: Round,
        classic: Classic | None,
        row: ClassicMember,
        request: ClassicJoin,
        reply: Reply,
    ) -> None:
        """A static member comes back without knowing its name. H3."""
        old = round_.holder(classic, request.instance)
        fenced = FencedInstance(request.group, request.instance, old)
        applicant = round_.applicants.pop(old, None)
        if applicant is not None:
            applicant.reply(fenced)
        waiter = round_.waiters.pop(old, None)
        if waiter is not None:
            waiter(fenced)
        if classic is None or old not in classic.members:
            self._apply_for(round_, row, reply)
            return
        rows = [row if name == old else known for name, known in classic.members.items()]
        stays = round_.phase(classic) == STABLE and chosen_protocol(rows) == classic.protocol
        leader_before = classic.leader

        def substituted(result: Result) -> None:
            if isinstance(result, RaftlineError):
                reply(result)
                return
            round_.heard.pop(old, None)
            round_.hear(row.id, self._clock.mono_ms())
            if not stays:
                self._apply_for(round_, row, reply)
            elif request.is_skipping and leader_before == old:
                now = self._classic(request.group)
                members = tuple(now.members.values()) if now is not None else ()
                reply(self._joined(request.group, row.id, members, is_skipped=True))
            else:  # an old client that hears another's name as leader's does not assign
                leader = "" if request.is_skipping else leader_before
                reply(self._joined(request.group, row.id, (), leader=leader))

        self._propose(round_, c.Substitute(request.group, old, row, self._now()), substituted)

    def _joined(
        self,
        name: str,
        member: str,
        members: tuple[ClassicMember, ...],
        *,
        is_skipped: bool = False,
        leader: str = "",
    ) -> ClassicJoined | RaftlineError:
        group = self._machine.groups.get(name)
        if group is None or group.classic is None or member not in group.classic.members:
            return UnknownMember(name, member)
        classic = group.classic
        return ClassicJoined(
            member,
            group.epoch,
            classic.protocol_type,
            classic.protocol,
            leader or classic.leader,
            members,
            is_skipped,
        )

    @staticmethod
    def _check_instance(round_: Round, classic: Classic | None, member: str, instance: str) -> None:
        """Refuse one whose place another has. Raises FencedInstance or UnknownMember."""
        holder = round_.holder(classic, instance)
        if holder and holder != member:
            raise FencedInstance(round_.name, instance, member)
        if not holder:
            raise UnknownMember(round_.name, member)

    def _apply_for(self, round_: Round, row: ClassicMember, reply: Reply) -> None:
        if not round_.is_open:
            self._open(round_)
        round_.add(row, reply)
        self._maybe_form(round_)

    def _open(self, round_: Round) -> None:
        """Everybody is to join again."""
        now = self._clock.mono_ms()
        classic = self._classic(round_.name)
        round_.is_open = True
        round_.opened_mono = round_.first_mono = now
        if classic is None or not classic.members:
            round_.first_mono = now + FIRST_JOIN_MS
            self._clock.call_later(FIRST_JOIN_MS + 1, lambda: self._maybe_form(round_))
        round_.end_waiting(Rebalancing(round_.name))

    def _maybe_form(self, round_: Round) -> None:
        """Form the generation if all are there, or time is up. H4."""
        now = self._clock.mono_ms()
        if self._is_closed or not round_.is_open or round_.is_busy or now < round_.first_mono:
            return
        classic = self._classic(round_.name)
        table = classic.members if classic is not None else {}
        rows = round_.rows(classic)
        missing = [name for name in table if name not in round_.applicants]
        wait_ms = max((row.rebalance_ms for row in rows.values()), default=0)
        is_over = now - round_.opened_mono >= wait_ms
        if (missing or round_.named) and not is_over:
            return
        late = tuple(name for name in missing if not table[name].instance)
        if not round_.applicants:
            round_.opened_mono = now  # static ones have their sessions
            round_.is_open = bool(table)
            if late:
                self._dismiss(round_, late)
            return
        members = {name: table[name] for name in missing if name not in late}
        members.update({name: applicant.row for name, applicant in round_.applicants.items()})
        self._form(round_, classic, members)

    def _form(
        self, round_: Round, classic: Classic | None, members: dict[str, ClassicMember]
    ) -> None:
        group = self._machine.groups.get(round_.name)
        first = next(iter(round_.applicants))
        leader = classic.leader if classic is not None else ""
        command = c.Form(
            round_.name,
            (group.epoch if group is not None else 0) + 1,
            round_.protocol_type,
            chosen_protocol(members.values()),
            leader if leader in round_.applicants else first,
            tuple(members.values()),
            self._now(),
        )
        formed = round_.applicants
        round_.applicants = {}

        def applied(result: Result) -> None:
            if isinstance(result, RaftlineError):
                for applicant in formed.values():
                    applicant.reply(result)
                return
            now = self._clock.mono_ms()
            round_.is_open = False
            round_.syncing_mono = now
            round_.synced.clear()
            round_.heard = {name: round_.heard.get(name, now) for name in members}
            round_.heard.update(dict.fromkeys(formed, now))
            for name, applicant in formed.items():
                told = tuple(members.values()) if name == command.leader else ()
                applicant.reply(self._joined(round_.name, name, told))

        self._propose(round_, command, applied)

    # ------------------------------------------------------------------ being a member

    def _member(
        self, round_: Round, member: str, generation: int, instance: str
    ) -> tuple[Group, Classic]:
        """Return the group of a member whose word counts, and hear it."""
        group = self._machine.groups.get(round_.name)
        classic = group.classic if group is not None else None
        if group is None or classic is None or classic.state == EMPTY:
            raise UnknownMember(round_.name, member)
        if instance:
            self._check_instance(round_, classic, member, instance)
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
        command = c.Assign(round_.name, request.generation, request.shares, self._now())

        def applied(result: Result) -> None:
            if isinstance(result, RaftlineError):
                round_.end_waiting(result)
                return
            classic = self._classic(round_.name)
            now = self._clock.mono_ms()
            waiters, round_.waiters = round_.waiters, {}
            for member, reply in waiters.items():
                round_.hear(member, now)
                if classic is None or member not in classic.members:
                    reply(UnknownMember(round_.name, member))
                else:
                    reply(_synced(classic, member))

        self._propose(round_, command, applied)

    # ------------------------------------------------------------------ leaving

    def _leave(self, round_: Round, request: ClassicLeave, reply: Reply) -> None:
        classic = self._classic(round_.name)
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
            self._maybe_form(round_)

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
            classic = self._classic(round_.name)
            is_left = classic is not None and bool(classic.members)
            if is_left and not round_.is_open:
                self._open(round_)
            round_.is_open = is_left or bool(round_.applicants)
            self._maybe_form(round_)

        self._propose(round_, c.Dismiss(round_.name, members, self._now()), applied)

    # ------------------------------------------------------------------ time

    def watch(self) -> None:
        """Look for silent members from now on, while there are any."""
        if self._is_closed or self._is_checking:
            return
        if self._rounds or any(group.classic for group in self._machine.groups.values()):
            self._is_checking = True
            self._check_due = self._clock.mono_ms() + CHECK_MS
            self._clock.call_later(CHECK_MS, self._check)

    def _check(self) -> None:
        self._is_checking = False
        if self._is_closed:
            return
        now = self._clock.mono_ms()
        missed_ms = now - self._check_due
        for name, group in list(self._machine.groups.items()):
            if group.classic is not None and group.classic.members and name not in self._rounds:
                self._round(name)  # H2
        for round_ in list(self._rounds.values()):
            if missed_ms > CHECK_MS:
                round_.stood_still(missed_ms)
            self._check_round(round_, now)
        self.watch()

    def _check_round(self, round_: Round, now: float) -> None:
        for name in [name for name, until in round_.named.items() if until < now]:
            del round_.named[name]
        if round_.is_busy:
            return
        classic = self._classic(round_.name)
        late = round_.late(classic, now) if classic is not None else ()
        if late:
            self._dismiss(round_, late)
        elif round_.is_open:
            self._maybe_form(round_)
        is_idle = classic is None or not classic.members
        if is_idle and not (round_.named or round_.applicants or round_.is_busy):
            del self._rounds[round_.name]

    # ------------------------------------------------------------------ proposing

    def _propose(self, round_: Round, command: c.Command, then: Callable[[Result], None]) -> None:
        """Send one command through the log; what comes meanwhile waits. H1."""
        assert not round_.is_busy
        round_.is_busy = True

        def applied(result: Result) -> None:
            round_.is_busy = False
            if isinstance(result, InvalidArgument):
                result = NotReady(f"group {round_.name} changed meanwhile")  # try again
            then(result)
            while round_.deferred and not round_.is_busy and not self._is_closed:
                self._run(round_, *round_.deferred.pop(0))

        self._propose_to_log(command, PROPOSE_MS, applied)


def _row(request: ClassicJoin) -> ClassicMember:
    """Return the member a request makes. Raises InvalidArgument or OverLimit."""
    row = ClassicMember(
        request.member or request.made_up,
        request.instance,
        request.client,
        request.host,
        request.session_ms,
        min(request.rebalance_ms, SESSION_MS_MAX) or request.session_ms,
        request.protocols,
        request.topics,
    )
    check_member(row)
    total = sum(len(offer.metadata) for offer in row.protocols)
    if total > CLASSIC_METADATA_BYTES_MAX:
        raise TooLarge("bytes a member tells of itself", total, CLASSIC_METADATA_BYTES_MAX)
    return row


def _check_common(
    request: ClassicJoin, row: ClassicMember, round_: Round, classic: Classic | None
) -> None:
    """Refuse one that can agree on nothing with the others. Raises WrongGroupKind."""
    holder = round_.holder(classic, request.instance) if request.instance else ""
    rows = round_.rows(classic)
    others = [other for name, other in rows.items() if name not in (row.id, holder)]
    if not others:
        round_.protocol_type = request.protocol_type
    elif request.protocol_type != round_.protocol_type:
        why = f"has members of type {round_.protocol_type!r}, not {request.protocol_type!r}"
        raise WrongGroupKind(request.group, why)
    elif not chosen_protocol([row, *others]):
        names = ", ".join(offer.name for offer in row.protocols)
        raise WrongGroupKind(request.group, f"has members that do not all know one of {names}")


def _synced(classic: Classic, member: str) -> ClassicSynced:
    row = classic.members[member]
    return ClassicSynced(classic.protocol_type, classic.protocol, row.assignment)
