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
    classic = group.classic
    read = {topic for row in classic.members.values() for topic in row.topics} if classic else ()
    topics = sorted({*group.topics, *read})
    protocol = classic.protocol_type if classic else ""
    state = _state(group)
    return GroupSummary(group.name, group.kind, state, group.member_count, topics, protocol)


def group_view(group: Group) -> GroupView:
    """Return everything about a group."""
    rows: list[CursorRow] = []
    owners = _assigned(group)
    for name in sorted(group.topics):
        topic = group.topics[name]
        for partition, slot in enumerate(topic.slots):
            cursor = topic.cursors.get(partition)
            offset, metadata, at_ms = -1, "", -1
            if cursor is not None:
                offset, metadata, at_ms = cursor.offset, cursor.metadata, cursor.at_ms
            owner = slot.owner or owners.pop((name, partition), "")
            target = slot.target or owner
            rows.append(
                CursorRow(name, partition, offset, metadata, at_ms, owner, target, slot.pause_ms)
            )
    rows += [CursorRow(*at, -1, "", -1, who, who, -1) for at, who in sorted(owners.items())]
    rows.sort(key=lambda row: (row.topic, row.partition))
    return GroupView(
        group.name,
        group.kind,
        _state(group),
        group.epoch,
        group.classic.protocol if group.classic is not None else group.assignor,
        group.created_ms,
        _member_rows(group),
        rows,
        PauseSums(*msgspec.structs.astuple(group.pauses)),
    )


def _assigned(group: Group) -> dict[tuple[str, int], str]:
    """Return who reads what of a classic group, as far as its gateway could read it."""
    members = group.classic.members.values() if group.classic is not None else ()
    return {
        (topic, partition): row.id
        for row in members
        for topic, partitions in row.places.items()
        for partition in partitions
    }


def _member_rows(group: Group) -> list[MemberRow]:
    if group.classic is None:
        return [_member_row(group, member) for member in sorted(group.members)]
    state = group.classic.state
    return [
        MemberRow(row.id, row.client, row.topics, row.session_ms, 0, state, row.places, {})
        for _, row in sorted(group.classic.members.items())
    ]


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
    if not group.member_count:
        return "empty"
    if group.classic is not None:
        return STABLE if group.classic.state == STABLE else "rebalancing"
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
