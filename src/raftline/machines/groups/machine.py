"""Group coordination: the stream groups whose names hash to one shard.

State
    Groups by name (group.py), log time, the feature level.

Commands
    See commands.py. The first event of an answer is the command's own outcome.

Invariants
    K1  No partition has two owners in a group: it moves only when its owner gave it up, left or
        was expired (G4). What does not move never pauses.
    K2  A cursor moves by its partition's owner, with a generation not older than the one it was
        given the partition at; or by anybody while the group has no members.
    K3  Who was expired is unknown, whatever it says, until it joins again.
    K5  In a classic group a cursor moves by any member of the present generation (L5).
    K4  A refused command changes nothing but log time.

Costs
    A change of members costs the assignor, about linear in partitions. Everything else touches
    one group's slots once. A snapshot encodes only the groups that changed since the last one.
"""

from collections.abc import Mapping, Sequence

import msgspec

from raftline.machines.groups import classic_steps
from raftline.machines.groups.commands import (
    Acknowledge,
    Assign,
    Command,
    Commit,
    Delete,
    Dismiss,
    DropCursors,
    Expire,
    Form,
    Join,
    Leave,
    Malformed,
    Noop,
    Reset,
    SetTopics,
    Substitute,
    TopicSize,
    decode_command,
)
from raftline.machines.groups.cursors import check_offsets, cursor_of
from raftline.machines.groups.events import (
    Acknowledged,
    Committed,
    Deleted,
    Event,
    Joined,
    Left,
    Passed,
    TopicsSet,
    WasReset,
)
from raftline.machines.groups.group import Group
from raftline.machines.machine import digest_of, refused, require_level
from raftline.model.errors import (
    GroupNotEmpty,
    InvalidArgument,
    NewerFormat,
    OverLimit,
    RaftlineError,
    UnknownGroup,
    UnknownPartition,
)
from raftline.model.groups import Offsets, Places
from raftline.model.limits import GROUPS_PER_SHARD_MAX
from raftline.model.names import check_group_name

SNAPSHOT_FORMAT = 1
NO_MEMBER = ""


class GroupsSnapshot(msgspec.Struct, array_like=True):
    """The canonical snapshot: groups in the order of their names."""

    format: int
    at_ms: int
    feature_level: int
    groups: list[msgspec.Raw]


class GroupsMachine:
    """The groups of one coordination shard."""

    __slots__ = ("_groups", "at_ms", "feature_level")

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self.at_ms = 0
        self.feature_level = 1

    @property
    def groups(self) -> Mapping[str, Group]:
        """Return all groups by name. Not to be changed."""
        return self._groups

    def group(self, name: str) -> Group:
        """Return a group, or raise UnknownGroup."""
        found = self._groups.get(name)
        if found is None:
            raise UnknownGroup(name)
        return found

    def apply(self, index: int, term: int, data: bytes) -> Sequence[Event]:
        """Apply one committed entry and say what happened."""
        if not data:
            return ()
        try:
            command = decode_command(data)
        except Malformed as error:
            return (refused(InvalidArgument(f"entry {index} is no command: {error}")),)
        return self.apply_command(command)

    def apply_command(self, command: Command) -> Sequence[Event]:
        """Apply one committed command. K4."""
        self.at_ms = max(self.at_ms, command.at_ms)
        try:
            return self._dispatch(command)
        except RaftlineError as error:
            return (refused(error),)

    def _dispatch(self, command: Command) -> list[Event]:
        match command:
            case Commit():
                return self._commit(command)
            case Acknowledge():
                return self._acknowledge(command)
            case Join():
                return self._join(command)
            case Leave():
                return self._leave(command)
            case Expire():
                return self._expire(command)
            case Form():
                group = self._found_or_new(command.group)
                event = classic_steps.form(group, command)
                self._groups[group.name] = group  # K4
                self._changed(group)
                return [event]
            case Assign() | Dismiss() | Substitute() | DropCursors():
                group = self.group(command.group)
                event = classic_steps.step(group, command)
                self._changed(group)
                return [event]
            case SetTopics():
                return self._set_topics(command)
            case Reset():
                return self._reset(command)
            case Delete():
                return self._delete(command)
            case Noop():
                return [Passed()]

    # ------------------------------------------------------------------ members

    def _join(self, command: Join) -> list[Event]:
        group = self._found_or_new(command.group)
        how, given = group.join(command, self.at_ms)
        self._groups[group.name] = group  # K4: a new one only after it was let in
        if how != "known":
            self._changed(group)
        return [Joined(group.name, command.member, group.epoch, how), *given]

    def _leave(self, command: Leave) -> list[Event]:
        group = self.group(command.group)
        group.member(command.member, group.epoch if command.generation < 0 else command.generation)
        return self._remove(group, [command.member])

    def _expire(self, command: Expire) -> list[Event]:
        group = self.group(command.group)
        late = [
            member
            for member in sorted(command.members)
            if member in group.members
            and group.members[member].joined_epoch == command.members[member]
        ]
        return self._remove(group, late) if late else [Left(group.name, (), group.epoch)]

    def _remove(self, group: Group, members: list[str]) -> list[Event]:
        given = group.remove(members, self.at_ms)
        self._changed(group)
        return [Left(group.name, tuple(members), group.epoch), *given]

    def _acknowledge(self, command: Acknowledge) -> list[Event]:
        group = self.group(command.group)
        revoked, given = group.acknowledge(command, self.at_ms)
        self._changed(group)
        return [Acknowledged(group.name, command.member, revoked), *given]

    # ------------------------------------------------------------------ cursors

    def _commit(self, command: Commit) -> list[Event]:
        check_offsets(command.offsets)
        if command.member == NO_MEMBER:
            count = self._set_cursors(command.group, command.offsets, command.sizes)
            return [Committed(command.group, count, {})]
        group = self.group(command.group)
        if group.classic is not None and group.classic.members:
            group.classic.check_commit(group.name, command.member, command.generation, group.epoch)
            count = self._put_cursors(group, command.offsets, command.sizes)
            return [Committed(group.name, count, {})]
        group.member(command.member, command.generation)
        refusals: Places = {}
        count = 0
        for topic in sorted(command.offsets):
            for partition, offset in sorted(command.offsets[topic].items()):
                if group.may_commit(command.member, command.generation, topic, partition):
                    cursor = cursor_of(offset, self.at_ms)
                    group.topics[topic].cursors[partition] = cursor
                    count += 1
                else:
                    refusals.setdefault(topic, []).append(partition)
        if count:
            group.touched_ms = self.at_ms
            group.encoded = None
        return [Committed(group.name, count, refusals)]

    def _reset(self, command: Reset) -> list[Event]:
        check_offsets(command.offsets)
        count = self._set_cursors(command.group, command.offsets, command.sizes)
        return [WasReset(command.group, count)]

    def _set_cursors(self, name: str, offsets: Offsets, sizes: dict[str, TopicSize]) -> int:
        """Set cursors of a group without members, a new one if need be. K2, K4."""
        group = self._found_or_new(name)
        if group.member_count:
            raise GroupNotEmpty(name, group.member_count)
        return self._put_cursors(group, offsets, sizes)

    def _put_cursors(self, group: Group, offsets: Offsets, sizes: dict[str, TopicSize]) -> int:
        """Set cursors of any partitions; sizes are of topics the group may not know yet."""
        group.check_sizes(sizes)
        self._check_places(group, offsets, sizes)
        group.set_sizes(sizes)
        for topic, rows in offsets.items():
            for partition, offset in rows.items():
                group.topics[topic].cursors[partition] = cursor_of(offset, self.at_ms)
        group.forget_unread()
        self._groups[group.name] = group
        self._changed(group)
        return sum(map(len, offsets.values()))

    @staticmethod
    def _check_places(group: Group, offsets: Offsets, sizes: dict[str, TopicSize]) -> None:
        for topic in sorted(offsets):
            count = group.size_with(topic, sizes.get(topic))
            for partition in offsets[topic]:
                if partition >= count:
                    raise UnknownPartition(topic, partition, count)

    # ------------------------------------------------------------------ the rest

    def _set_topics(self, command: SetTopics) -> list[Event]:
        group = self.group(command.group)
        group.check_sizes(command.sizes)
        given: list[Event] = []
        if group.set_sizes(command.sizes):
            if group.classic is None:  # members of a classic one see to it themselves
                group.epoch += 1
                given = group.rebalance(self.at_ms)
            self._changed(group)
        return [TopicsSet(group.name, group.epoch), *given]

    def _delete(self, command: Delete) -> list[Event]:
        group = self.group(command.group)
        if group.member_count:
            raise GroupNotEmpty(group.name, group.member_count)
        if 0 <= command.idle_since_ms < group.touched_ms:
            raise InvalidArgument(f"group {group.name!r} was used meanwhile")
        del self._groups[group.name]
        return [Deleted(group.name)]

    def _found_or_new(self, name: str) -> Group:
        found = self._groups.get(name)
        if found is not None:
            return found
        check_group_name(name)
        if len(self._groups) >= GROUPS_PER_SHARD_MAX:
            raise OverLimit("groups of one shard", len(self._groups) + 1, GROUPS_PER_SHARD_MAX)
        return Group(name, self.at_ms)

    def _changed(self, group: Group) -> None:
        group.touched_ms = self.at_ms
        group.encoded = None
        group.layout += 1

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """Return the whole state, canonical."""
        groups = [self._groups[name].raw() for name in sorted(self._groups)]
        return msgspec.msgpack.encode(
            GroupsSnapshot(SNAPSHOT_FORMAT, self.at_ms, self.feature_level, groups)
        )

    def restore(self, snapshot: bytes) -> None:
        """Replace the state.

        Raises:
            NewerFormat: the snapshot is of a newer build.
        """
        saved = _decoder.decode(snapshot)
        if saved.format > SNAPSHOT_FORMAT:
            raise NewerFormat("a coordination shard's snapshot", saved.format, SNAPSHOT_FORMAT)
        require_level(saved.feature_level)
        self.at_ms, self.feature_level = saved.at_ms, saved.feature_level
        groups = [Group.of(raw) for raw in saved.groups]
        self._groups = {group.name: group for group in groups}

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert len(self._groups) <= GROUPS_PER_SHARD_MAX
        for name, group in self._groups.items():
            assert group.name == name
            group.check()

    def digest(self) -> str:
        """Return a short text that is equal for equal states."""
        return digest_of(self.snapshot())


_decoder = msgspec.msgpack.Decoder(GroupsSnapshot)
