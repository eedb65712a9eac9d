"""Joining a classic group: who is let in, and when its next generation is formed.

Rules
    H3  A static member that comes back in a stable group gets its place without a new generation.
    H4  Static members that do not join again in time stay; only silence dismisses them.
"""

from collections.abc import Callable

from raftline.machines.groups import commands as c
from raftline.machines.groups.classic import Classic, check_member
from raftline.model.classic_groups import (
    STABLE,
    SYNCING,
    ClassicJoin,
    ClassicJoined,
    ClassicMember,
    MemberNamed,
)
from raftline.model.errors import (
    FencedInstance,
    OverLimit,
    RaftlineError,
    Rebalancing,
    TooLarge,
    UnknownMember,
    WrongGroupKind,
)
from raftline.model.limits import (
    CLASSIC_GROUP_BYTES_MAX,
    CLASSIC_METADATA_BYTES_MAX,
    GROUP_MEMBERS_MAX,
    SESSION_MS_MAX,
    SESSION_MS_MIN,
)
from raftline.node.classic_round import Reply, Round, chosen_protocol
from raftline.node.classic_rounds import Result, Rounds

FIRST_JOIN_MS = 250  # a new group waits so long for more members before it forms


class Joins:
    """Lets members in and forms generations."""

    def __init__(self, rounds: Rounds, dismiss: Callable[[Round, tuple[str, ...]], None]) -> None:
        self._rounds = rounds
        self._clock = rounds.clock
        self._dismiss = dismiss

    def join(self, round_: Round, request: ClassicJoin, reply: Reply) -> None:
        """Take a request to join; it is answered when the generation is formed."""
        group = self._rounds.machine.groups.get(request.group)
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
            self._rounds.check_instance(round_, classic, row.id, request.instance)
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
                now = self._rounds.classic(request.group)
                members = tuple(now.members.values()) if now is not None else ()
                reply(self._joined(request.group, row.id, members, is_skipped=True))
            else:  # an old client that hears another's name as leader's does not assign
                leader = "" if request.is_skipping else leader_before
                reply(self._joined(request.group, row.id, (), leader=leader))

        self._rounds.propose(
            round_, c.Substitute(request.group, old, row, self._rounds.now()), substituted
        )

    def _joined(
        self,
        name: str,
        member: str,
        members: tuple[ClassicMember, ...],
        *,
        is_skipped: bool = False,
        leader: str = "",
    ) -> ClassicJoined | RaftlineError:
        group = self._rounds.machine.groups.get(name)
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

    def _apply_for(self, round_: Round, row: ClassicMember, reply: Reply) -> None:
        if not round_.is_open:
            self.open(round_)
        round_.add(row, reply)
        self.maybe_form(round_)

    def open(self, round_: Round) -> None:
        """Everybody is to join again."""
        now = self._clock.mono_ms()
        classic = self._rounds.classic(round_.name)
        round_.is_open = True
        round_.opened_mono = round_.first_mono = now
        if classic is None or not classic.members:
            round_.first_mono = now + FIRST_JOIN_MS
            self._clock.call_later(FIRST_JOIN_MS + 1, lambda: self.maybe_form(round_))
        round_.end_waiting(Rebalancing(round_.name), now)

    def maybe_form(self, round_: Round) -> None:
        """Form the generation if all are there, or time is up. H4."""
        now = self._clock.mono_ms()
        if (
            self._rounds.is_closed
            or not round_.is_open
            or round_.is_busy
            or now < round_.first_mono
        ):
            return
        classic = self._rounds.classic(round_.name)
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
        group = self._rounds.machine.groups.get(round_.name)
        first = next(iter(round_.applicants))
        leader = classic.leader if classic is not None else ""
        command = c.Form(
            round_.name,
            (group.epoch if group is not None else 0) + 1,
            round_.protocol_type,
            chosen_protocol(members.values()),
            leader if leader in round_.applicants else first,
            tuple(members.values()),
            self._rounds.now(),
        )
        formed = round_.applicants
        round_.applicants = {}

        def applied(result: Result) -> None:
            now = self._clock.mono_ms()
            if isinstance(result, RaftlineError):
                for name, applicant in formed.items():
                    round_.hear(name, now)
                    applicant.reply(result)
                return
            round_.is_open = False
            round_.syncing_mono = now
            round_.synced.clear()
            round_.heard = {name: round_.heard.get(name, now) for name in members}
            round_.heard.update(dict.fromkeys(formed, now))
            for name, applicant in formed.items():
                told = tuple(members.values()) if name == command.leader else ()
                applicant.reply(self._joined(round_.name, name, told))

        self._rounds.propose(round_, command, applied)


def _row(request: ClassicJoin) -> ClassicMember:
    """Return the member a request makes. Raises InvalidArgument or OverLimit."""
    row = ClassicMember(
        request.member or request.made_up,
        request.instance,
        request.client,
        request.host,
        request.session_ms,
        _rebalance_ms(request),
        request.protocols,
        request.topics,
    )
    check_member(row)
    total = sum(len(offer.metadata) for offer in row.protocols)
    if total > CLASSIC_METADATA_BYTES_MAX:
        raise TooLarge("bytes a member tells of itself", total, CLASSIC_METADATA_BYTES_MAX)
    return row


def _rebalance_ms(request: ClassicJoin) -> int:
    """Return the rebalance timeout, within our bounds: Kafka has none, so none is refused."""
    wanted_ms = request.rebalance_ms or request.session_ms
    return max(SESSION_MS_MIN, min(wanted_ms, SESSION_MS_MAX))


def _check_common(
    request: ClassicJoin, row: ClassicMember, round_: Round, classic: Classic | None
) -> None:
    """Refuse one that can agree on nothing with the others. Raises WrongGroupKind or OverLimit."""
    holder = round_.holder(classic, request.instance) if request.instance else ""
    rows = round_.rows(classic)
    others = [other for name, other in rows.items() if name not in (row.id, holder)]
    _check_bytes([row, *others])
    if not others:
        round_.protocol_type = request.protocol_type
    elif request.protocol_type != round_.protocol_type:
        why = f"has members of type {round_.protocol_type!r}, not {request.protocol_type!r}"
        raise WrongGroupKind(request.group, why)
    elif not chosen_protocol([row, *others]):
        names = ", ".join(offer.name for offer in row.protocols)
        raise WrongGroupKind(request.group, f"has members that do not all know one of {names}")


def _check_bytes(rows: list[ClassicMember]) -> None:
    """Refuse one with whom the others could not form a generation either. Raises OverLimit."""
    total = sum(len(offer.metadata) for row in rows for offer in row.protocols)
    if total > CLASSIC_GROUP_BYTES_MAX:
        raise OverLimit("bytes members tell of themselves", total, CLASSIC_GROUP_BYTES_MAX)
