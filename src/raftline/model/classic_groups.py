"""Groups whose members share partitions out among themselves: Kafka's classic protocol.

The members agree on a *protocol* (an assignor all of them know), one of them is the *leader* and
computes the assignment; the coordinator passes bytes on that it does not read. What it knows of
them (``topics``, ``places``) was read by the gateway, for people and for lag.
"""

import msgspec

CLASSIC = "classic"

# Where a classic group is. All but JOINING-by-request is replicated.
EMPTY = "empty"
JOINING = "joining"  # everybody is to join again; commits of the old generation still count
SYNCING = "syncing"  # the generation is formed, its leader has not assigned yet
STABLE = "stable"


class Offered(msgspec.Struct, frozen=True, array_like=True):
    """A protocol a member knows, with what it tells the group's leader about itself."""

    name: str
    metadata: bytes


class ClassicMember(msgspec.Struct, frozen=True, array_like=True):
    """One member. Part of entries and snapshots: the layout is permanent."""

    id: str
    instance: str  # the name of a static member, "" for others
    client: str
    host: str
    session_ms: int
    rebalance_ms: int
    protocols: tuple[Offered, ...]
    topics: tuple[str, ...] = ()
    assignment: bytes = b""
    places: dict[str, list[int]] = {}

    def metadata_of(self, protocol: str) -> bytes:
        """Return what it says for a protocol."""
        return next((row.metadata for row in self.protocols if row.name == protocol), b"")


class Share(msgspec.Struct, frozen=True, array_like=True):
    """What the leader assigned to one member. Part of entries."""

    assignment: bytes
    places: dict[str, list[int]] = {}


# Questions to the coordinator.


class ClassicJoin(msgspec.Struct, frozen=True, array_like=True, tag="classic_join"):
    """Join, or join again. Answer, perhaps much later: ClassicJoined; MemberNamed."""

    group: str
    protocol_type: str
    protocols: tuple[Offered, ...]
    member: str = ""
    instance: str = ""
    client: str = ""
    host: str = ""
    session_ms: int = 0
    rebalance_ms: int = 0
    topics: tuple[str, ...] = ()
    is_named_first: bool = False  # a new member is told its name and joins again under it
    is_skipping: bool = False  # it knows what it means to lead and not to assign
    made_up: str = ""  # the name for a new member, by the node that takes the request


class ClassicSync(msgspec.Struct, frozen=True, array_like=True, tag="classic_sync"):
    """Ask for one's assignment; the leader brings all of them. Answer: ClassicSynced."""

    group: str
    member: str
    generation: int
    instance: str = ""
    protocol_type: str = ""  # "": not said
    protocol: str = ""
    shares: dict[str, Share] = {}


class ClassicBeat(msgspec.Struct, frozen=True, array_like=True, tag="classic_beat"):
    """Say that a member lives. Answer: Done."""

    group: str
    member: str
    generation: int
    instance: str = ""


class Leaver(msgspec.Struct, frozen=True, array_like=True):
    """Who is to go: by name, or a static member by its instance alone."""

    member: str
    instance: str = ""


class ClassicLeave(msgspec.Struct, frozen=True, array_like=True, tag="classic_leave"):
    """Take members out. Answer: ClassicLeft."""

    group: str
    leavers: tuple[Leaver, ...]


class DescribeGroup(msgspec.Struct, frozen=True, array_like=True, tag="describe"):
    """Answer: ClassicView for a classic group, GroupView for another."""

    group: str


ClassicRequest = ClassicBeat | ClassicJoin | ClassicSync | ClassicLeave


# Answers.


class ClassicJoined(msgspec.Struct, frozen=True, tag="classic_joined", tag_field="_"):
    """A generation is formed; who leads it gets its members."""

    member: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[ClassicMember, ...] = ()
    is_skipped: bool = False  # the leader does not assign: nothing changed


class MemberNamed(msgspec.Struct, frozen=True, tag="named", tag_field="_"):
    """Join again under this name."""

    member: str


class ClassicSynced(msgspec.Struct, frozen=True, tag="classic_synced", tag_field="_"):
    """A member's assignment."""

    protocol_type: str
    protocol: str
    assignment: bytes


class ClassicLeft(msgspec.Struct, frozen=True, tag="classic_left", tag_field="_"):
    """Per leaver the code of a refusal, "" for those that are gone."""

    codes: tuple[str, ...]


class ClassicView(msgspec.Struct, frozen=True, tag="classic", tag_field="_"):
    """A whole classic group, but for its cursors."""

    group: str
    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[ClassicMember, ...]


ClassicAnswer = ClassicJoined | MemberNamed | ClassicSynced | ClassicLeft | ClassicView
