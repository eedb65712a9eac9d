"""One stream group: members, the slots they share, cursors.

State
    ``epoch`` counts changes of who should read what; members by id; topics with their slots and
    cursors; the sums of pauses. A *classic* group has its members in ``classic`` instead, and no
    owners: they share partitions out themselves. ``encoded`` is the group's piece of a snapshot,
    until it changes; ``layout`` counts changes of slots in this process, so that unchanged ones
    are not looked at.

Invariants
    G1  A slot's owner and target are members that read its topic.
    G2  Every partition of a topic that somebody reads has a target.
    G3  A free slot has no target: what can be given is given at once.
    G4  A slot moves only when its owner gave it up, left or was expired. So no partition has two
        owners, and those that do not move never pause.
    G6  A group has members of one kind only.
    G5  The epoch grows with every change of members or targets; nothing else changes it.
"""

import msgspec

from raftline.machines.groups.assignors import ASSIGNORS, STICKY, assign
from raftline.machines.groups.classic import Classic, ClassicRow
from raftline.machines.groups.commands import Acknowledge, Join, TopicSize
from raftline.machines.groups.cursors import Cursor
from raftline.machines.groups.events import Event, Given
from raftline.machines.groups.members import Member, member_of
from raftline.machines.groups.slots import NEVER, Pauses, Slot, SlotRow
from raftline.model.classic_groups import CLASSIC
from raftline.model.errors import (
    FencedMember,
    InvalidArgument,
    OverLimit,
    UnknownMember,
    WrongGroupKind,
)
from raftline.model.groups import Places
from raftline.model.limits import GROUP_MEMBERS_MAX, GROUP_PARTITIONS_MAX, GROUP_TOPICS_MAX

STREAM = "stream"  # members are told what to read; other kinds may share cursors and names


class TopicRow(msgspec.Struct, frozen=True, array_like=True):
    """A topic of a group in a snapshot."""

    name: str
    uuid: str
    created_ms: int
    slots: list[SlotRow]
    cursors: dict[int, Cursor]


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    """A group in a snapshot; members and topics by name."""

    name: str
    kind: str
    epoch: int
    assignor: str
    created_ms: int
    touched_ms: int
    members: list[Member]
    topics: list[TopicRow]
    pauses: Pauses
    classic: ClassicRow | None = None


class GroupTopic:
    """A topic as a group knows it: one slot per partition, and cursors."""

    __slots__ = ("created_ms", "cursors", "slots", "uuid")

    def __init__(self, uuid: str, created_ms: int) -> None:
        self.uuid = uuid
        self.created_ms = created_ms
        self.slots: list[Slot] = []
        self.cursors: dict[int, Cursor] = {}


class Group:
    """Members and slots of one group."""

    __slots__ = (
        "assignor",
        "classic",
        "created_ms",
        "encoded",
        "epoch",
        "kind",
        "layout",
        "members",
        "name",
        "pauses",
        "topics",
        "touched_ms",
    )

    def __init__(self, name: str, at_ms: int) -> None:
        self.name = name
        self.kind = STREAM
        self.epoch = 0
        self.assignor = STICKY
        self.created_ms = self.touched_ms = at_ms
        self.members: dict[str, Member] = {}
        self.classic: Classic | None = None
        self.topics: dict[str, GroupTopic] = {}
        self.pauses = Pauses()
        self.encoded: msgspec.Raw | None = None
        self.layout = 0

    # ------------------------------------------------------------------ kinds

    @property
    def member_count(self) -> int:
        """Return how many members it has, of whichever kind."""
        return len(self.members) + (len(self.classic.members) if self.classic else 0)

    def become_stream(self) -> None:
        """Let members in that are told what to read. Raises WrongGroupKind. G6."""
        if self.classic is not None:
            if self.classic.members:
                why = "has members that share partitions out themselves (Kafka's protocol)"
                raise WrongGroupKind(self.name, why)
            self.classic = None
        self.kind = STREAM

    def become_classic(self) -> Classic:
        """Let members in that share partitions out themselves. Raises WrongGroupKind. G6."""
        if self.members:
            raise WrongGroupKind(self.name, "has members that are told what to read")
        if self.classic is None:
            self.classic = Classic()
        self.kind = CLASSIC
        return self.classic

    # ------------------------------------------------------------------ members

    def member(self, member: str, generation: int) -> Member:
        """Return a member whose word counts. Raises UnknownMember or FencedMember."""
        found = self.members.get(member)
        if found is None:
            raise UnknownMember(self.name, member)
        if generation < found.joined_epoch:
            why = f"it joined again at {found.joined_epoch}"
            raise FencedMember(self.name, member, generation, self.epoch, why)
        if generation > self.epoch:
            why = f"the group is at {self.epoch}"
            raise FencedMember(self.name, member, generation, self.epoch, why)
        return found

    def join(self, command: Join, at_ms: int) -> tuple[str, list[Event]]:
        """Take a member in; return how, and who was given what."""
        known = self.members.get(command.member)
        if known is not None and known.nonce == command.nonce:
            return "known", []
        if self.classic is not None and self.classic.members:
            self.become_stream()  # refuses
        if command.assignor and command.assignor not in ASSIGNORS:
            raise InvalidArgument(
                f"there is no assignor {command.assignor[:40]!r}",
                f"use one of {', '.join(ASSIGNORS)}",
            )
        if known is None and len(self.members) >= GROUP_MEMBERS_MAX:
            raise OverLimit("members of a group", len(self.members) + 1, GROUP_MEMBERS_MAX)
        joined = member_of(command, self.epoch + 1, at_ms)
        self.check_sizes(command.sizes)
        self.become_stream()
        self.epoch += 1
        self.assignor = command.assignor or self.assignor
        self.members[joined.id] = joined
        for slot in self._owned(joined.id):
            slot.given_epoch = self.epoch  # fences the instance before
        self.set_sizes(command.sizes)
        given = self.rebalance(at_ms)
        self._tell(joined.id, at_ms)
        return "new" if known is None else "again", given

    def remove(self, members: list[str], at_ms: int) -> list[Event]:
        """Take members out; what they had goes to others at once."""
        self.epoch += 1
        for member in members:
            del self.members[member]
            for slot in self._owned(member):
                slot.release(at_ms)
        return self.rebalance(at_ms)

    def acknowledge(self, command: Acknowledge, at_ms: int) -> tuple[Places, list[Event]]:
        """Take a member's word: what it gave up is free, and it hears now what it has. S2."""
        member = self.member(command.member, command.generation)
        revoked: Places = {}
        for topic, row in self.topics.items():
            named = set(command.revoked.get(topic, ()))
            for partition, slot in enumerate(row.slots):
                if partition in named and slot.is_given_up_by(member.id, command.generation):
                    slot.release(at_ms)
                    revoked.setdefault(topic, []).append(partition)
        given = self._give() if revoked else []
        self._tell(member.id, at_ms)
        return revoked, given

    def _tell(self, member: str, at_ms: int) -> None:
        """The member hears now what it has: pauses end."""
        for slot in self._owned(member):
            if not slot.is_taken:
                pause_ms = slot.take(at_ms)
                if pause_ms != NEVER:
                    self.pauses = self.pauses.with_one(pause_ms)

    def news(self, member: str, generation: int, revoked: Places) -> bool:
        """Say whether an Acknowledge with these words would change anything."""
        for topic, row in self.topics.items():
            named = set(revoked.get(topic, ()))
            for partition, slot in enumerate(row.slots):
                if slot.owner == member and not slot.is_taken:
                    return True
                if partition in named and slot.is_given_up_by(member, generation):
                    return True
        return False

    def may_commit(self, member: str, generation: int, topic: str, partition: int) -> bool:
        """Say whether a cursor is the member's to move: it reads it, and knew so then."""
        row = self.topics.get(topic)
        if row is None or partition >= len(row.slots):
            return False
        slot = row.slots[partition]
        return slot.owner == member and slot.given_epoch <= generation

    # ------------------------------------------------------------------ topics

    def check_sizes(self, sizes: dict[str, TopicSize]) -> None:
        """Refuse topics that would be too many. Raises OverLimit."""
        topics = {name: len(row.slots) for name, row in self.topics.items()}
        topics.update({name: max(0, size.count) for name, size in sizes.items()})
        if len(topics) > GROUP_TOPICS_MAX:
            raise OverLimit("topics of a group", len(topics), GROUP_TOPICS_MAX)
        total = sum(topics.values())
        if total > GROUP_PARTITIONS_MAX:
            raise OverLimit("partitions of a group", total, GROUP_PARTITIONS_MAX)

    def size_with(self, topic: str, size: TopicSize | None) -> int:
        """Return how many partitions a topic has once ``size`` is known."""
        row = self.topics.get(topic)
        if row is None:
            return size.count if size is not None else 0
        if size is None:
            return len(row.slots)
        if row.uuid == size.uuid:
            return max(len(row.slots), size.count) if size.count else 0
        return len(row.slots) if size.created_ms < row.created_ms else size.count

    def set_sizes(self, sizes: dict[str, TopicSize]) -> bool:
        """Take topics as the catalog has them; say whether anything changed."""
        changed = False
        for name in sorted(sizes):
            size, row = sizes[name], self.topics.get(name)
            if not size.count:
                if row is not None and row.uuid == size.uuid:
                    del self.topics[name]
                    changed = True
                continue
            if row is not None and row.uuid != size.uuid:
                if size.created_ms < row.created_ms:
                    continue  # from a catalog that is behind
                row = None
            if row is None:
                row = self.topics[name] = GroupTopic(size.uuid, size.created_ms)
            changed = changed or len(row.slots) < size.count
            row.slots.extend(Slot() for _ in range(size.count - len(row.slots)))
        return changed

    def forget_unread(self) -> None:
        """Drop topics that nobody reads and that have no cursor."""
        for name in [n for n, row in self.topics.items() if not row.cursors]:
            if not self._is_read(name):
                del self.topics[name]

    def _is_read(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.members.values())

    # ------------------------------------------------------------------ who reads what

    def rebalance(self, at_ms: int) -> list[Event]:
        """Decide anew who should read what; give what is free. G2, G3, G4."""
        readers = {member: row.topics for member, row in self.members.items()}
        sizes = {name: len(row.slots) for name, row in self.topics.items()}
        owners = {
            name: [slot.owner or slot.target for slot in row.slots]
            for name, row in self.topics.items()
        }
        for name, wanted in assign(self.assignor, readers, sizes, owners).items():
            for slot, target in zip(self.topics[name].slots, wanted, strict=True):
                slot.target = target
                owner = self.members.get(slot.owner)
                if owner is not None and name not in owner.topics:
                    slot.release(at_ms)  # it reads this topic no more, and said so
        self.forget_unread()
        return self._give()

    def _give(self) -> list[Event]:
        given: dict[str, Places] = {}
        for name in sorted(self.topics):
            for partition, slot in enumerate(self.topics[name].slots):
                if slot.give(self.epoch):
                    places = given.setdefault(slot.owner, {})
                    places.setdefault(name, []).append(partition)
        return [Given(self.name, member, given[member]) for member in sorted(given)]

    def _owned(self, member: str) -> list[Slot]:
        """Return a member's slots by topic: a restored group knows its topics in another order."""
        rows = [self.topics[name] for name in sorted(self.topics)]
        return [slot for row in rows for slot in row.slots if slot.owner == member]

    # ------------------------------------------------------------------ snapshots

    def raw(self) -> msgspec.Raw:
        """Return the group's piece of a snapshot; encoded once per change."""
        if self.encoded is None:
            self.encoded = msgspec.Raw(_encoder.encode(self.row()))
        return self.encoded

    def row(self) -> GroupRow:
        """Return the whole group, in the order of names."""
        topics = [
            TopicRow(
                name,
                row.uuid,
                row.created_ms,
                [slot.row() for slot in row.slots],
                dict(sorted(row.cursors.items())),
            )
            for name, row in sorted(self.topics.items())
        ]
        return GroupRow(
            self.name,
            self.kind,
            self.epoch,
            self.assignor,
            self.created_ms,
            self.touched_ms,
            [member for _, member in sorted(self.members.items())],
            topics,
            self.pauses,
            self.classic.row() if self.classic is not None else None,
        )

    @classmethod
    def of(cls, raw: msgspec.Raw) -> "Group":
        """Return the group of a snapshot's piece."""
        row = _decoder.decode(raw)
        group = cls(row.name, row.created_ms)
        group.kind, group.epoch, group.assignor = row.kind, row.epoch, row.assignor
        group.touched_ms, group.pauses = row.touched_ms, row.pauses
        group.members = {member.id: member for member in row.members}
        group.classic = Classic.of(row.classic) if row.classic is not None else None
        for saved in row.topics:
            topic = group.topics[saved.name] = GroupTopic(saved.uuid, saved.created_ms)
            topic.slots = [Slot.of(slot) for slot in saved.slots]
            topic.cursors = saved.cursors
        return group

    def check(self) -> None:
        """Raise if an invariant is broken."""
        for name, row in self.topics.items():
            read = self._is_read(name)
            for slot in row.slots:
                assert bool(slot.target) == read, (name, slot.target)  # G2
                assert bool(slot.owner) == read, (name, slot.owner)  # G3
                for who in (slot.owner, slot.target):
                    assert not who or name in self.members[who].topics, (name, who)  # G1
                assert slot.given_epoch <= self.epoch
        for member in self.members.values():
            assert 0 < member.joined_epoch <= self.epoch
        assert (self.classic is not None) == (self.kind == CLASSIC)
        if self.classic is not None:
            assert not self.members  # G6
            self.classic.check()
        assert self.encoded is None or self.encoded == msgspec.Raw(_encoder.encode(self.row()))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(GroupRow)
