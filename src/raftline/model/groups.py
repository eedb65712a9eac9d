"""What is asked of and answered about stream groups, between gateways and nodes."""

import msgspec

from raftline.model.classic_groups import (
    ClassicAnswer,
    ClassicBeat,
    ClassicJoin,
    ClassicLeave,
    ClassicSync,
    DescribeGroup,
)
from raftline.model.limits import REVOKE_MS_DEFAULT, SESSION_MS_DEFAULT

Places = dict[str, list[int]]  # topic -> partitions
Positions = dict[str, dict[int, int]]  # topic -> partition -> offset

STABLE = "stable"  # it has what it should have
REVOKING = "revoking"  # it is asked to give partitions up
WAITING = "waiting"  # what it should have is not given up by others yet


class Offset(msgspec.Struct, frozen=True, array_like=True):
    """The next offset a group wants. Part of entries: the layout is permanent."""

    offset: int
    metadata: str = ""
    term: int = -1  # of the last message read, where the client says so


Offsets = dict[str, dict[int, Offset]]  # topic -> partition -> next offset


# Questions to the leader of a group's shard. ``generation``: what the member was told last.


class JoinGroup(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    """Become a member; "" as ``member``: under a name the node makes up. Answer: MemberView."""

    group: str
    topics: tuple[str, ...]
    member: str = ""
    client: str = ""
    nonce: str = ""
    assignor: str = ""
    session_ms: int = SESSION_MS_DEFAULT
    revoke_ms: int = REVOKE_MS_DEFAULT


class Beat(msgspec.Struct, frozen=True, array_like=True, tag="beat"):
    """Say that a member lives, and what it gave up. Answer: MemberView."""

    group: str
    member: str
    generation: int
    revoked: Places = {}


class LeaveGroup(msgspec.Struct, frozen=True, array_like=True, tag="leave"):
    """Stop being a member; generation -1: somebody's order. Answer: Done."""

    group: str
    member: str
    generation: int = -1


class CommitCursors(msgspec.Struct, frozen=True, array_like=True, tag="commit"):
    """Move cursors; "" as ``member`` only where the group has none. Answer: CursorsCommitted."""

    group: str
    member: str
    generation: int
    offsets: Offsets
    instance: str = ""  # of a static member of a classic group


class PollGroup(msgspec.Struct, frozen=True, array_like=True, tag="poll"):
    """Beat, and ask where the member goes on reading. Answer: Polled.

    A poll of the present generation gives up what that generation revoked: who polls again is
    done with what it had. ``number`` is that of the last poll whose answer arrived, -1: as it is.
    """

    group: str
    member: str
    generation: int
    number: int = -1


class AdvanceGroup(msgspec.Struct, frozen=True, array_like=True, tag="advance"):
    """A poll's messages go out: the next one begins after them. Answer: Advanced."""

    group: str
    member: str
    generation: int
    number: int
    positions: Positions


class ShowGroup(msgspec.Struct, frozen=True, array_like=True, tag="show"):
    """Answer: GroupView."""

    group: str


class ListGroups(msgspec.Struct, frozen=True, array_like=True, tag="list"):
    """The groups of one shard. Answer: GroupList."""

    shard: int


class ResetGroup(msgspec.Struct, frozen=True, array_like=True, tag="reset"):
    """Set cursors of a group without members. Answer: Done."""

    group: str
    offsets: Offsets


class FindGroup(msgspec.Struct, frozen=True, array_like=True, tag="find"):
    """Who coordinates the group. Answer: Done, with the node as ``count``."""

    group: str


class FetchCursors(msgspec.Struct, frozen=True, array_like=True, tag="cursors"):
    """Cursors of a group, whoever asks; without ``places`` all. Answer: CursorsFetched."""

    group: str
    places: Places | None = None


class DropCursors(msgspec.Struct, frozen=True, array_like=True, tag="drop_cursors"):
    """Forget cursors that no member needs. Answer: CursorsCommitted."""

    group: str
    places: Places


class DeleteGroup(msgspec.Struct, frozen=True, array_like=True, tag="delete"):
    """Forget a group without members. Answer: Done."""

    group: str


Request = (
    Beat
    | PollGroup
    | AdvanceGroup
    | CommitCursors
    | JoinGroup
    | LeaveGroup
    | ShowGroup
    | ListGroups
    | ResetGroup
    | DeleteGroup
    | FindGroup
    | FetchCursors
    | DropCursors
    | DescribeGroup
    | ClassicBeat
    | ClassicJoin
    | ClassicSync
    | ClassicLeave
)


# Answers.


class MemberView(msgspec.Struct, frozen=True, tag="member", tag_field="_"):
    """A member's own place in its group."""

    member: str
    generation: int
    state: str
    partitions: Places  # its own, for as long as nothing else is said
    revoke: Places  # still its own, to be given up: finish, commit, acknowledge
    members: int


class Polled(msgspec.Struct, frozen=True, tag="polled", tag_field="_"):
    """Where a member goes on reading; -1: at the start of what is kept."""

    view: MemberView
    positions: Positions
    number: int


class Advanced(msgspec.Struct, frozen=True, tag="advanced", tag_field="_"):
    """The number of the poll; -1: another poll of the same member came between."""

    number: int


class CursorsCommitted(msgspec.Struct, frozen=True, tag="committed", tag_field="_"):
    """Cursors moved, but for those of ``refused``: they are not the member's."""

    count: int
    refused: Places


class CursorsFetched(msgspec.Struct, frozen=True, tag="cursors", tag_field="_"):
    """Cursors; those that were never set are left out."""

    offsets: Offsets


class Done(msgspec.Struct, frozen=True, tag="done", tag_field="_"):
    """It is done, at the group's ``generation``."""

    generation: int = 0
    count: int = 0


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


class CursorRow(msgspec.Struct, frozen=True):
    """One partition of a group: its cursor (-1: none) and who reads it."""

    topic: str
    partition: int
    offset: int
    metadata: str
    at_ms: int
    owner: str
    target: str
    pause_ms: int  # of its last move; -1: it never moved


class PauseSums(msgspec.Struct, frozen=True):
    """How long partitions stood still that moved from one member to another."""

    count: int
    last_ms: int
    max_ms: int
    total_ms: int


class GroupView(msgspec.Struct, frozen=True, tag="group", tag_field="_"):
    """A whole group."""

    group: str
    kind: str  # "stream" | "classic"
    state: str  # "empty" | "stable" | "rebalancing"
    generation: int
    assignor: str
    created_ms: int
    members: list[MemberRow]
    partitions: list[CursorRow]
    pauses: PauseSums


class GroupSummary(msgspec.Struct, frozen=True):
    """A group in a list."""

    group: str
    kind: str
    state: str
    members: int
    topics: list[str]
    protocol_type: str = ""  # what members of a classic group call themselves: "consumer"


class GroupList(msgspec.Struct, frozen=True, tag="groups", tag_field="_"):
    """Groups, by name."""

    groups: list[GroupSummary]


Answer = (
    MemberView
    | Polled
    | Advanced
    | CursorsCommitted
    | CursorsFetched
    | Done
    | GroupView
    | GroupList
    | ClassicAnswer
)
