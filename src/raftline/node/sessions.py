"""Sessions: what the leader of a coordination shard remembers of members, and logs nothing of.

State
    Per member: when it was heard from, since when it is asked to give each partition up, what it
    was told last, and where its polls go on.

Rules
    N1  A new leader knows nothing, so it gives everybody one full session from its start on.
    N2  Time in which this process stood still is nobody's silence.
    N3  A position belongs to one ownership: who is given a partition anew begins at the cursor.
    N4  Who is to be expired is told nothing from memory: its next answer comes through the log,
        behind the Expire. Else it would read on for a session while others are given its part.
    N5  The time to give a partition up is that partition's: who gives up each in time is not late,
        however long it is asked for one after the other (as while many members come).
"""

from collections.abc import Iterator, Mapping

from raftline.machines.groups.group import Group
from raftline.machines.groups.views import member_view
from raftline.model.groups import MemberView, Positions

Key = tuple[str, str]  # group, member
At = tuple[int, int]  # given_epoch, next offset
FROM_START = -1
Place = tuple[str, int]  # topic, partition


class Session:
    """One member, as its coordinator hears it."""

    __slots__ = (
        "before",
        "group",
        "heard_mono",
        "is_expiring",
        "joined_epoch",
        "known_layout",
        "layout",
        "number",
        "positions",
        "view",
    )

    def __init__(self, group: Group, joined_epoch: int, now_mono: float) -> None:
        self.group = group  # one of the same name later is another, and counts from the start
        self.joined_epoch = joined_epoch
        self.heard_mono = now_mono
        self.is_expiring = False  # an Expire is on its way. N4
        self.known_layout = -1  # of the group when the member heard all there was to hear
        self.layout = -1  # of the group when ``view`` was made
        self.view: MemberView | None = None
        self.number = 0  # of the last poll that went out
        self.positions: dict[Place, At] = {}
        self.before: dict[Place, At] = {}  # those of the poll before

    def told(self, group: Group, member: str) -> MemberView:
        """Return what the member is told; looked up again only when its group changed."""
        if self.view is None or self.layout != group.layout:
            self.view = member_view(group, member)
            self.layout = group.layout
        return self.view


class Sessions:
    """All members of one shard's groups."""

    __slots__ = ("_revoked_mono", "_sessions")

    def __init__(self) -> None:
        self._sessions: dict[Key, Session] = {}
        self._revoked_mono: dict[Key, dict[Place, float]] = {}  # since when each is to be given up

    def of(self, group: Group, member: str, now_mono: float) -> Session:
        """Return a member's session; one that joined anew begins anew. N1."""
        epoch = group.members[member].joined_epoch
        found = self._sessions.get((group.name, member))
        if found is None or found.joined_epoch != epoch or found.group is not group:
            found = self._sessions[(group.name, member)] = Session(group, epoch, now_mono)
        return found

    def stood_still(self, missed_ms: float, now_mono: float) -> None:
        """Forgive a time in which nothing could be heard; nothing began later than now. N2."""
        for session in self._sessions.values():
            session.heard_mono = min(session.heard_mono + missed_ms, now_mono)
        for places in self._revoked_mono.values():
            for place in places:
                places[place] = min(places[place] + missed_ms, now_mono)

    def late(self, group: Group, now_mono: float) -> dict[str, int]:
        """Return the members to expire, with the epochs they joined at. N5."""
        revoked: dict[str, list[Place]] = {}
        for topic, topic_row in group.topics.items():
            for partition, slot in enumerate(topic_row.slots):
                if slot.is_revoked:
                    revoked.setdefault(slot.owner, []).append((topic, partition))
        late: dict[str, int] = {}
        for member, row in group.members.items():
            key = (group.name, member)
            session = self.of(group, member, now_mono)
            before = self._revoked_mono.pop(key, {})
            since = now_mono
            if member in revoked:
                places = {place: before.get(place, now_mono) for place in revoked[member]}
                self._revoked_mono[key] = places
                since = min(places.values())
            silent_ms, holding_ms = now_mono - session.heard_mono, now_mono - since
            if silent_ms > row.session_ms or holding_ms > row.revoke_ms:
                late[member] = row.joined_epoch
        return late

    def keep_only(self, groups: Mapping[str, Group]) -> None:
        """Forget members that are gone."""
        for key in [k for k in self._sessions if not _is_member(groups, k)]:
            del self._sessions[key]
            self._revoked_mono.pop(key, None)


def positions(group: Group, session: Session, view: MemberView) -> Positions:
    """Return where a member goes on in each of its partitions. N3."""
    found: Positions = {}
    for topic, partition, epoch in _owned(group, view):
        at = session.positions.get((topic, partition))
        if at is not None and at[0] == epoch:
            offset = at[1]
        else:
            cursor = group.topics[topic].cursors.get(partition)
            offset = FROM_START if cursor is None else cursor.offset
        found.setdefault(topic, {})[partition] = offset
    return found


def advance(group: Group, session: Session, view: MemberView, moved: Positions) -> None:
    """Note where the next poll goes on; what is not the member's any more is dropped. N3."""
    now = positions(group, session, view)
    session.before = {
        (topic, partition): (epoch, now[topic][partition])
        for topic, partition, epoch in _owned(group, view)
    }
    session.positions = {
        (topic, partition): (epoch, moved.get(topic, {}).get(partition, now[topic][partition]))
        for topic, partition, epoch in _owned(group, view)
    }
    session.number += 1


def _owned(group: Group, view: MemberView) -> Iterator[tuple[str, int, int]]:
    for topic, partitions in view.partitions.items():
        slots = group.topics[topic].slots
        for partition in partitions:
            yield topic, partition, slots[partition].given_epoch


def _is_member(groups: Mapping[str, Group], key: Key) -> bool:
    group = groups.get(key[0])
    return group is not None and key[1] in group.members
