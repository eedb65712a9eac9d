"""What a member is told, and what people are shown, of a group."""

import msgspec

from raftline.machines.groups.commands import Places
from raftline.machines.groups.group import Group
from raftline.machines.groups.slots import Pauses

STABLE = "stable"  # it has what it should have
REVOKING = "revoking"  # it is asked to give partitions up
WAITING = "waiting"  # what it should have is not given up by others yet


class MemberView(msgspec.Struct, frozen=True):
    """A member's own place in its group."""

    member: str
    generation: int
    state: str
    partitions: Places  # its own, for as long as nothing else is said
    revoke: Places  # still its own, to be given up: finish, commit, acknowledge
    members: int


class CursorView(msgspec.Struct, frozen=True):
    """One partition of a group: its cursor (-1: none) and who reads it."""

    topic: str
    partition: int
    offset: int
    metadata: str
    at_ms: int
    owner: str
    target: str
    pause_ms: int  # of its last move; -1: it never moved


class MemberRow(msgspec.Struct, frozen=True):
    """One member as people see it."""

    member: str
    client: str
    topics: tuple[str, ...]
    session_timeout_ms: int
    joined_ms: int
    state: str
    partitions: Places
    revoke: Places


class GroupView(msgspec.Struct, frozen=True):
    """A whole group."""

    group: str
    kind: str
    state: str  # "empty" | "stable" | "rebalancing"
    generation: int
    assignor: str
    created_ms: int
    members: list[MemberRow]
    partitions: list[CursorView]
    pauses: Pauses


class GroupSummary(msgspec.Struct, frozen=True):
    """A group in a list."""

    group: str
    kind: str
    state: str
    members: int
    topics: list[str]


def member_view(group: Group, member: str) -> MemberView:
    """Return what ``member`` is told now."""
    partitions, revoke, waits = _places(group, member)
    state = REVOKING if revoke else WAITING if waits else STABLE
    return MemberView(member, group.epoch, state, partitions, revoke, len(group.members))


def summary(group: Group) -> GroupSummary:
    """Return one line about a group."""
    topics = sorted(group.topics)
    return GroupSummary(group.name, group.kind, _state(group), len(group.members), topics)


def group_view(group: Group) -> GroupView:
    """Return everything about a group."""
    rows: list[CursorView] = []
    for name in sorted(group.topics):
        topic = group.topics[name]
        for partition, slot in enumerate(topic.slots):
            cursor = topic.cursors.get(partition)
            offset, metadata, at_ms = -1, "", -1
            if cursor is not None:
                offset, metadata, at_ms = cursor.offset, cursor.metadata, cursor.at_ms
            rows.append(
                CursorView(
                    name,
                    partition,
                    offset,
                    metadata,
                    at_ms,
                    slot.owner,
                    slot.target,
                    slot.pause_ms,
                )
            )
    return GroupView(
        group.name,
        group.kind,
        _state(group),
        group.epoch,
        group.assignor,
        group.created_ms,
        [_member_row(group, member) for member in sorted(group.members)],
        rows,
        group.pauses,
    )


def _member_row(group: Group, member: str) -> MemberRow:
    row = group.members[member]
    view = member_view(group, member)
    return MemberRow(
        member,
        row.client,
        row.topics,
        row.session_ms,
        row.joined_ms,
        view.state,
        view.partitions,
        view.revoke,
    )


def _state(group: Group) -> str:
    if not group.members:
        return "empty"
    moving = any(slot.is_revoked for row in group.topics.values() for slot in row.slots)
    return "rebalancing" if moving else STABLE


def _places(group: Group, member: str) -> tuple[Places, Places, bool]:
    """Return what a member has to itself, what it is to give up, and whether it waits for more."""
    partitions: Places = {}
    revoke: Places = {}
    waits = False
    for name in sorted(group.topics):
        for partition, slot in enumerate(group.topics[name].slots):
            if slot.owner == member:
                places = partitions if slot.target == member else revoke
                places.setdefault(name, []).append(partition)
            elif slot.target == member:
                waits = True
    return partitions, revoke, waits
