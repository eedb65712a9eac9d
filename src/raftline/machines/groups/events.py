"""What happened in a coordination shard. The first event answers the command."""

import msgspec

from raftline.machines.machine import Refused
from raftline.model.groups import Places


class Joined(msgspec.Struct, frozen=True):
    """The member belongs to the group."""

    group: str
    member: str
    epoch: int
    how: str  # "new" | "again": another instance took its place | "known": the same Join twice


class Left(msgspec.Struct, frozen=True):
    """These members are gone."""

    group: str
    members: tuple[str, ...]
    epoch: int


class Acknowledged(msgspec.Struct, frozen=True):
    """The member gave up ``revoked``, and is told what it has."""

    group: str
    member: str
    revoked: Places


class Given(msgspec.Struct, frozen=True):
    """Partitions have a new owner."""

    group: str
    member: str
    places: Places


class Committed(msgspec.Struct, frozen=True):
    """Cursors moved; those of ``refused`` did not: they are not the member's."""

    group: str
    count: int
    refused: Places


class TopicsSet(msgspec.Struct, frozen=True):
    """The group knows these topics as they are now."""

    group: str
    epoch: int


class WasReset(msgspec.Struct, frozen=True):
    """Cursors are where they were asked to be."""

    group: str
    count: int


class Deleted(msgspec.Struct, frozen=True):
    """The group and its cursors are gone."""

    group: str


class CursorsDropped(msgspec.Struct, frozen=True):
    """Cursors are forgotten; those of ``refused`` are not: members read these topics."""

    group: str
    count: int
    refused: Places


class Formed(msgspec.Struct, frozen=True):
    """A classic group is in a new generation."""

    group: str
    epoch: int


class Assigned(msgspec.Struct, frozen=True):
    """A generation is assigned; ``is_new`` False: it was before."""

    group: str
    epoch: int
    is_new: bool


class Substituted(msgspec.Struct, frozen=True):
    """Another has the place of a static member."""

    group: str
    old: str
    member: str


class Passed(msgspec.Struct, frozen=True):
    """Nothing but time."""


Event = (
    Joined
    | Left
    | Acknowledged
    | Given
    | Committed
    | TopicsSet
    | WasReset
    | Deleted
    | CursorsDropped
    | Formed
    | Assigned
    | Substituted
    | Passed
    | Refused
)
