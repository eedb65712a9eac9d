"""What a member is told, and what people are shown, of a group."""

import msgspec

from raftline.machines.groups.group import Group
from raftline.model.groups import (
    REVOKING,
    STABLE,
    WAITING,
    CursorRow,
    GroupSummary,
    GroupView,
    MemberRow,
    MemberView,
    PauseSums,
    Places,
)


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
    rows: list[CursorRow] = []
    for name in sorted(group.topics):
        topic = group.topics[name]
        for partition, slot in enumerate(topic.slots):
            cursor = topic.cursors.get(partition)
            offset, metadata, at_ms = -1, "", -1
            if cursor is not None:
                offset, metadata, at_ms = cursor.offset, cursor.metadata, cursor.at_ms
            rows.append(
                CursorRow(
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
        PauseSums(*msgspec.structs.astuple(group.pauses)),
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
