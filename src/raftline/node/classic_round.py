"""A round of a classic group: who joins, who waits for its assignment, who was heard when.

All of it is the memory of one leader of the coordination shard. After a failover members repeat
their requests, and the new leader's round grows out of them.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from raftline.machines.groups.classic import Classic
from raftline.model.classic_groups import (
    JOINING,
    STABLE,
    SYNCING,
    ClassicAnswer,
    ClassicMember,
    ClassicRequest,
)
from raftline.model.errors import RaftlineError, Rebalancing
from raftline.model.groups import Done

Reply = Callable[[ClassicAnswer | Done | RaftlineError], None]


class Applicant:
    """One that asked to join, and waits for the generation."""

    __slots__ = ("reply", "row")

    def __init__(self, row: ClassicMember, reply: Reply) -> None:
        self.row = row
        self.reply = reply


class Round:
    """What the coordinator remembers of one classic group."""

    __slots__ = (
        "applicants",
        "deferred",
        "first_mono",
        "heard",
        "is_busy",
        "is_open",
        "name",
        "named",
        "opened_mono",
        "protocol_type",
        "synced",
        "syncing_mono",
        "waiters",
    )

    def __init__(self, name: str, classic: Classic | None, now_mono: float) -> None:
        self.name = name
        self.protocol_type = classic.protocol_type if classic is not None else ""
        self.is_open = classic is not None and classic.state == JOINING
        self.is_busy = False  # with a command on its way: requests wait for it
        self.deferred: list[tuple[ClassicRequest, Reply]] = []
        self.opened_mono = now_mono
        self.first_mono = now_mono  # not formed before
        self.syncing_mono = now_mono  # since when members are to ask for their assignment
        self.applicants: dict[str, Applicant] = {}  # in the order they came
        self.named: dict[str, float] = {}  # names given out and not used yet, until when
        self.heard: dict[str, float] = {}
        self.waiters: dict[str, Reply] = {}  # for their assignment
        self.synced: set[str] = set()  # asked for their assignment in this generation
        if classic is not None:
            self.heard = dict.fromkeys(classic.members, now_mono)

    def phase(self, classic: Classic | None) -> str:
        """Return where the group is, joining by request included."""
        if self.is_open:
            return JOINING
        return classic.state if classic is not None else STABLE

    def hear(self, member: str, now_mono: float) -> None:
        """Note that a member lives."""
        self.heard[member] = now_mono

    def add(self, row: ClassicMember, reply: Reply) -> None:
        """Let one wait for the generation; an earlier request of the same one is over."""
        self.named.pop(row.id, None)
        earlier = self.applicants.pop(row.id, None)
        self.applicants[row.id] = Applicant(row, reply)
        if earlier is not None:
            earlier.reply(Rebalancing(self.name))

    def end_waiting(self, error: RaftlineError, now_mono: float) -> None:
        """Tell those that wait for their assignment that it does not come.

        Who waited was not silent, however long it took: it has a session from now on.
        """
        waiters, self.waiters = self.waiters, {}
        for member, reply in waiters.items():
            self.hear(member, now_mono)
            reply(error)

    def refuse_all(self, error: RaftlineError, now_mono: float) -> None:
        """Answer everybody."""
        self.end_waiting(error, now_mono)
        applicants, self.applicants = self.applicants, {}
        deferred, self.deferred = self.deferred, []
        for applicant in applicants.values():
            applicant.reply(error)
        for _, reply in deferred:
            reply(error)

    def stood_still(self, missed_ms: float, now_mono: float) -> None:
        """Forgive a time in which nothing could be heard; nothing began later than now."""
        self.opened_mono = min(self.opened_mono + missed_ms, now_mono)
        self.syncing_mono = min(self.syncing_mono + missed_ms, now_mono)
        self.heard = {name: min(mono + missed_ms, now_mono) for name, mono in self.heard.items()}
        self.named = {name: until + missed_ms for name, until in self.named.items()}

    def rows(self, classic: Classic | None) -> dict[str, ClassicMember]:
        """Return all members there would be, were the generation formed now."""
        table = dict(classic.members) if classic is not None else {}
        table.update({name: applicant.row for name, applicant in self.applicants.items()})
        return table

    def holder(self, classic: Classic | None, instance: str) -> str:
        """Return who has the place of a static member; "" if nobody."""
        for name, applicant in self.applicants.items():
            if applicant.row.instance == instance:
                return name
        return classic.holder(instance) if classic is not None else ""

    def late(self, classic: Classic, now_mono: float) -> tuple[str, ...]:
        """Return members that were silent for too long, or never asked for their assignment."""
        phase = self.phase(classic)
        late: list[str] = []
        for name, row in classic.members.items():
            if name in self.applicants or name in self.waiters:
                continue
            silent_ms = now_mono - self.heard.setdefault(name, now_mono)
            waited_ms = now_mono - self.syncing_mono
            unsynced = phase == SYNCING and name not in self.synced
            if silent_ms > row.session_ms or (unsynced and waited_ms > row.rebalance_ms):
                late.append(name)
        return tuple(late)


def chosen_protocol(rows: Iterable[ClassicMember]) -> str:
    """Return the protocol that most members prefer of those that all know; "" if there is none."""
    members = list(rows)
    offers = [[offer.name for offer in row.protocols] for row in members]
    common = [name for name in (offers[0] if offers else []) if all(name in o for o in offers)]
    if not common:
        return ""
    votes = Counter(next(name for name in names if name in common) for names in offers)
    return max(common, key=lambda name: (votes[name], -common.index(name)))
