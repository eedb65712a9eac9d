"""What the leader of a coordination shard does unasked: expire the silent, tell of topics, sweep.

Rules
    D2  Who is silent, or does not give up what it was asked for, is expired through the log: a
        leader without a majority expires nobody.
    D3  Sizes of topics are stamped from this node's catalog, and again whenever it changes.
"""

from collections.abc import Callable

from raftline.machines.catalog.machine import CatalogMachine
from raftline.machines.groups import commands as c
from raftline.machines.groups.commands import TopicSize
from raftline.machines.groups.group import Group
from raftline.model.errors import OverLimit, RaftlineError
from raftline.model.limits import GROUP_IDLE_MS
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.groups_host import GroupsHost
from raftline.node.ports import Clock
from raftline.node.sessions import Sessions

CHECK_MS = 250  # between two looks for silent members
PROPOSE_MS = 3_000  # what nobody waits for is tried again after this
SWEEP_MS = 600_000.0


class GroupUpkeep:
    """Looks after the groups of one shard while this node leads it."""

    def __init__(
        self,
        clock: Clock,
        host: GroupsHost,
        sessions: Sessions,
        catalog: Callable[[], CatalogMachine],
    ) -> None:
        self._clock = clock
        self._host = host
        self._machine = host.machine
        self._sessions = sessions
        self._catalog = catalog
        self._is_closed = self._is_checking = False
        self._check_due = 0.0
        self._busy: set[str] = set()  # groups with a command of ours on the way
        self._swept_mono = clock.mono_ms()

    def close(self) -> None:
        """Somebody else leads now."""
        self._is_closed = True

    # ------------------------------------------------------------------ silence

    def watch(self) -> None:
        """Look for silent members from now on, while there are any."""
        if not self._is_checking and any(g.members for g in self._machine.groups.values()):
            self._is_checking = True
            self._check_due = self._clock.mono_ms() + CHECK_MS
            self._clock.call_later(CHECK_MS, self._check)

    def _check(self) -> None:
        self._is_checking = False
        if self._is_closed:
            return
        now = self._clock.mono_ms()
        if now - self._check_due > CHECK_MS:
            self._sessions.stood_still(now - self._check_due, now)
        for group in list(self._machine.groups.values()):
            if group.members and group.name not in self._busy:
                late = self._sessions.late(group, now)
                if late:
                    for member in late:
                        self._sessions.of(group, member, now).is_expiring = True
                    self._propose(c.Expire(group.name, late, self._now()), group.name)
        self._sessions.keep_only(self._machine.groups)
        self.watch()

    def sweep(self) -> None:
        """Now and then: forget groups that nobody used for long."""
        now = self._clock.mono_ms()
        if now - self._swept_mono < SWEEP_MS:
            return
        self._swept_mono = now
        since_ms = self._now() - GROUP_IDLE_MS
        for group in list(self._machine.groups.values()):
            if (
                not group.member_count
                and group.touched_ms <= since_ms
                and group.name not in self._busy
            ):
                self._propose(c.Delete(group.name, since_ms, self._now()), group.name)

    # ------------------------------------------------------------------ topics

    def catalog_changed(self) -> None:
        """Tell groups of topics that came, went or grew. D3."""
        if self._is_closed:
            return
        for group in list(self._machine.groups.values()):
            changed = _fitting(group, self._changed_topics(group))
            if changed and group.name not in self._busy:
                self._propose(c.SetTopics(group.name, changed, self._now()), group.name)

    def sizes(self, topics: tuple[str, ...]) -> dict[str, TopicSize]:
        """Return topics as the catalog has them; those it has not are left out."""
        rows = self._catalog().topics
        return {
            name: TopicSize(row.uuid, len(row.shards), row.created_ms)
            for name in topics
            if (row := rows.get(name)) is not None
        }

    def _changed_topics(self, group: Group) -> dict[str, TopicSize]:
        read = {topic for member in group.members.values() for topic in member.topics}
        names = sorted(read | group.topics.keys())
        changed: dict[str, TopicSize] = {}
        for name, size in self.sizes(tuple(names)).items():
            known = group.topics.get(name)
            if (
                known is None
                or group.size_with(name, size) != len(known.slots)
                or (known.uuid != size.uuid and known.created_ms <= size.created_ms)
            ):
                changed[name] = size
        catalog = self._catalog()
        for name, known in group.topics.items():
            if name not in catalog.topics and catalog.was_deleted(known.uuid):
                changed[name] = TopicSize(known.uuid, 0, known.created_ms)
        return changed

    # ------------------------------------------------------------------ proposing

    def _now(self) -> int:
        replica = self._host.replica
        assert replica is not None
        return replica.time.stamp()

    def _propose(self, command: c.Command, group: str) -> None:
        """Propose what nobody waits for, one at a time in a group. D2."""
        self._busy.add(group)

        def applied(result: Applied | RaftlineError) -> None:
            self._busy.discard(group)
            if not self._is_closed:  # the catalog may have changed meanwhile
                again_ms = PROPOSE_MS if isinstance(result, RaftlineError) else CHECK_MS
                self._clock.call_later(again_ms, self.catalog_changed)

        deadline = self._clock.mono_ms() + PROPOSE_MS
        proposal = CommandProposal(self._host.name, deadline, PROPOSE_MS, applied)
        self._host.propose(command, proposal)


def _fitting(group: Group, changed: dict[str, TopicSize]) -> dict[str, TopicSize]:
    """Leave out topics that are too many for the group: it hears of the others all the same."""
    fitting: dict[str, TopicSize] = {}
    for name in sorted(changed, key=lambda name: (changed[name].count, name)):
        try:
            group.check_sizes({**fitting, name: changed[name]})
        except OverLimit:
            continue
        fitting[name] = changed[name]
    return fitting
