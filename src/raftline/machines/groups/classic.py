"""A classic group: members of one generation, and what their leader assigned to each.

State
    ``state`` (EMPTY, JOINING, SYNCING, STABLE), the protocol that was chosen, the leader, members
    by name in the order they joined. The generation is the epoch of the group.

Rules
    L1  A generation is formed whole, by one entry, and is one later than the one before: two
        leaders of a shard never form the same one.
    L2  What the leader of a generation assigned is taken once; later ones of it change nothing.
    L3  When members go the rest must join again (JOINING until the next is formed); when the
        last one goes the group is empty, in a generation of its own.
    L4  A static member that comes back under another name has the place of the one before: the
        generation and all assignments stay.
    L5  A commit counts in the generation it names, but not before that was assigned.
"""

import msgspec

from raftline.machines.groups.commands import Assign, Form, Substitute
from raftline.model.classic_groups import (
    EMPTY,
    JOINING,
    STABLE,
    SYNCING,
    ClassicMember,
    ClassicView,
)
from raftline.model.errors import (
    FencedMember,
    InvalidArgument,
    OverLimit,
    Rebalancing,
    TooLarge,
    UnknownMember,
)
from raftline.model.limits import (
    CLASSIC_GROUP_BYTES_MAX,
    CLASSIC_PROTOCOLS_MAX,
    CLIENT_ID_CHARS_MAX,
    GROUP_MEMBERS_MAX,
    GROUP_TOPICS_MAX,
    MEMBER_ID_CHARS_MAX,
    SESSION_MS_MAX,
    SESSION_MS_MIN,
)


class ClassicRow(msgspec.Struct, frozen=True, array_like=True):
    """The classic part of a group in a snapshot."""

    state: str
    protocol_type: str
    protocol: str
    leader: str
    members: list[ClassicMember]


class Classic:
    """Members and assignments of one classic group."""

    __slots__ = ("leader", "members", "protocol", "protocol_type", "state")

    def __init__(self) -> None:
        self.state = EMPTY
        self.protocol_type = ""
        self.protocol = ""
        self.leader = ""
        self.members: dict[str, ClassicMember] = {}

    # ------------------------------------------------------------------ changes

    def form(self, command: Form) -> None:
        """Take a new generation's members. L1."""
        self.state = SYNCING
        self.protocol_type, self.protocol = command.protocol_type, command.protocol
        self.leader = command.leader
        fresh = [msgspec.structs.replace(m, assignment=b"", places={}) for m in command.members]
        self.members = {member.id: member for member in fresh}

    def assign(self, command: Assign) -> bool:
        """Take what the leader assigned; say whether that was new. L2."""
        if self.state != SYNCING:
            return False
        for name, member in self.members.items():
            share = command.shares.get(name)
            if share is not None:
                self.members[name] = msgspec.structs.replace(
                    member, assignment=share.assignment, places=share.places
                )
        self.state = STABLE
        return True

    def dismiss(self, members: tuple[str, ...]) -> list[str]:
        """Take members out; return those that were there. L3."""
        gone = [name for name in members if self.members.pop(name, None) is not None]
        if gone:
            self.state = JOINING if self.members else EMPTY
            if self.leader in gone:
                self.leader = ""
        if not self.members:
            self.protocol = ""
        return gone

    def substitute(self, command: Substitute) -> None:
        """Give a static member's place to the one that came back. L4."""
        old = self.members[command.old]
        new = msgspec.structs.replace(command.member, assignment=old.assignment, places=old.places)
        self.members = {
            (new.id if name == old.id else name): (new if name == old.id else row)
            for name, row in self.members.items()
        }
        if self.leader == old.id:
            self.leader = new.id

    # ------------------------------------------------------------------ questions

    def member(self, group: str, member: str, generation: int, epoch: int) -> ClassicMember:
        """Return a member whose word counts. Raises UnknownMember or FencedMember."""
        found = self.members.get(member)
        if found is None:
            raise UnknownMember(group, member)
        if generation != epoch:
            why = f"the group is at {epoch}"
            raise FencedMember(group, member, generation, epoch, why)
        return found

    def check_commit(self, group: str, member: str, generation: int, epoch: int) -> None:
        """Refuse a commit that does not count. L5."""
        self.member(group, member, generation, epoch)
        if self.state == SYNCING:
            raise Rebalancing(group)

    def holder(self, instance: str) -> str:
        """Return who has the place of a static member; "" if nobody."""
        rows = self.members.values()
        return next((row.id for row in rows if instance and row.instance == instance), "")

    def view(self, group: str, epoch: int) -> ClassicView:
        """Return all of it."""
        members = tuple(self.members.values())
        return ClassicView(
            group, self.state, epoch, self.protocol_type, self.protocol, self.leader, members
        )

    # ------------------------------------------------------------------ snapshots

    def row(self) -> ClassicRow:
        """Return it for a snapshot."""
        members = list(self.members.values())
        return ClassicRow(self.state, self.protocol_type, self.protocol, self.leader, members)

    @classmethod
    def of(cls, row: ClassicRow) -> "Classic":
        """Return that of a snapshot."""
        classic = cls()
        classic.state, classic.leader = row.state, row.leader
        classic.protocol_type, classic.protocol = row.protocol_type, row.protocol
        classic.members = {member.id: member for member in row.members}
        return classic

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert (self.state == EMPTY) == (not self.members)
        assert self.state in (EMPTY, JOINING) or self.leader in self.members
        instances = [row.instance for row in self.members.values() if row.instance]
        assert len(instances) == len(set(instances))


def check_member(row: ClassicMember) -> None:
    """Refuse what cannot be a member. Raises InvalidArgument or OverLimit."""
    for what, text, most in (
        ("a member", row.id, MEMBER_ID_CHARS_MAX),
        ("a static member", row.instance, MEMBER_ID_CHARS_MAX),
        ("a client", row.client, CLIENT_ID_CHARS_MAX),
        ("a host", row.host, CLIENT_ID_CHARS_MAX),
    ):
        if len(text) > most or not text.isprintable():
            raise InvalidArgument(f"{text[:40]!r} cannot be the name of {what}")
    if not row.id:
        raise InvalidArgument("a member has no name")
    if not row.protocols:
        raise InvalidArgument("the member knows no protocol", "offer at least one assignor")
    if len(row.protocols) > CLASSIC_PROTOCOLS_MAX:
        raise TooLarge("protocols of a member", len(row.protocols), CLASSIC_PROTOCOLS_MAX)
    if len(row.topics) > GROUP_TOPICS_MAX:
        raise TooLarge("topics of a member", len(row.topics), GROUP_TOPICS_MAX)
    for name, value in (("session", row.session_ms), ("rebalance", row.rebalance_ms)):
        if not SESSION_MS_MIN <= value <= SESSION_MS_MAX:
            raise InvalidArgument(
                f"a {name} timeout of {value} ms", f"use {SESSION_MS_MIN} to {SESSION_MS_MAX}"
            )


def check_form(command: Form) -> None:
    """Refuse a generation that cannot be. Raises InvalidArgument or OverLimit."""
    if len(command.members) > GROUP_MEMBERS_MAX:
        raise OverLimit("members of a group", len(command.members), GROUP_MEMBERS_MAX)
    names = {row.id for row in command.members}
    if len(names) != len(command.members) or command.leader not in names:
        raise InvalidArgument(f"group {command.group!r}: no generation without its leader")
    instances = [row.instance for row in command.members if row.instance]
    if len(instances) != len(set(instances)):
        raise InvalidArgument(f"group {command.group!r}: two members are the same static one")
    for row in command.members:
        check_member(row)
    total = sum(len(offer.metadata) for row in command.members for offer in row.protocols)
    if total > CLASSIC_GROUP_BYTES_MAX:
        raise TooLarge("bytes members tell of themselves", total, CLASSIC_GROUP_BYTES_MAX)


def check_shares(command: Assign) -> None:
    """Refuse an assignment that is too large. Raises OverLimit."""
    total = sum(len(share.assignment) for share in command.shares.values())
    if total > CLASSIC_GROUP_BYTES_MAX:
        raise TooLarge("bytes of an assignment", total, CLASSIC_GROUP_BYTES_MAX)
