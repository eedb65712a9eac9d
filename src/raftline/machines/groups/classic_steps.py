"""Commands of classic groups, applied to one group; and cursors dropped, of either kind."""

from raftline.machines.groups.classic import check_form, check_member, check_shares
from raftline.machines.groups.commands import Assign, Dismiss, DropCursors, Form, Substitute
from raftline.machines.groups.events import (
    Assigned,
    CursorsDropped,
    Event,
    Formed,
    Left,
    Substituted,
)
from raftline.machines.groups.group import Group
from raftline.model.errors import InvalidArgument, UnknownMember, WrongGroupKind
from raftline.model.groups import Places

Step = Assign | Dismiss | Substitute | DropCursors


def form(group: Group, command: Form) -> Event:
    """Begin a generation. L1."""
    check_form(command)
    if command.generation != group.epoch + 1:
        raise InvalidArgument(f"group {group.name!r} is at {group.epoch} by now", "join again")
    group.become_classic().form(command)
    group.epoch = command.generation
    return Formed(group.name, group.epoch)


def step(group: Group, command: Step) -> Event:
    """Carry one of the other commands out."""
    if isinstance(command, DropCursors):
        return _drop_cursors(group, command.places)
    classic = group.classic
    if classic is None:
        raise WrongGroupKind(group.name, "has no members that share partitions out themselves")
    match command:
        case Assign():
            check_shares(command)
            classic.member(group.name, classic.leader, command.generation, group.epoch)
            return Assigned(group.name, group.epoch, classic.assign(command))
        case Dismiss():
            gone = classic.dismiss(command.members)
            if gone and not classic.members:
                group.epoch += 1  # L3
            return Left(group.name, tuple(gone), group.epoch)
        case Substitute():
            check_member(command.member)
            if command.old not in classic.members:
                raise UnknownMember(group.name, command.old)
            if command.member.id in classic.members:
                raise InvalidArgument(f"{command.member.id!r} is a member already")
            classic.substitute(command)
            return Substituted(group.name, command.old, command.member.id)


def _drop_cursors(group: Group, places: Places) -> Event:
    """Forget cursors, but for topics that members read."""
    rows = list(group.members.values())
    rows_classic = list(group.classic.members.values()) if group.classic is not None else []
    read = {t for row in rows for t in row.topics} | {t for r in rows_classic for t in r.topics}
    refused: Places = {}
    count = 0
    for topic in sorted(places):
        known = group.topics.get(topic)
        for partition in sorted(places[topic]):
            if topic in read:
                refused.setdefault(topic, []).append(partition)
            elif known is not None and known.cursors.pop(partition, None) is not None:
                count += 1
    group.forget_unread()
    return CursorsDropped(group.name, count, refused)
