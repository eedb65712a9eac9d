"""Commands in the log of a coordination shard: tagged msgpack structs, stamped by the leader.

Tags and the meaning of fields are permanent (golden bytes in tests/unit/machines/golden); a new
meaning is a new tag. ``at_ms`` is the leader's log time. ``generation`` is what a member was told
last: the epoch of its group at that moment.
"""

import msgspec

from raftline.model.classic_groups import ClassicMember, Share
from raftline.model.groups import Offsets, Places
from raftline.model.limits import REVOKE_MS_DEFAULT, SESSION_MS_DEFAULT


class TopicSize(msgspec.Struct, frozen=True, array_like=True):
    """A topic as the leader's catalog has it; ``count`` 0: the one of this uuid was deleted."""

    uuid: str
    count: int
    created_ms: int = 0  # tells which of two topics of the same name is the later one


class Join(msgspec.Struct, frozen=True, tag="join"):
    """Become a member, or take a member's place over (same id, other ``nonce``)."""

    group: str
    member: str
    nonce: str  # the same Join again is recognised by it
    client: str
    topics: tuple[str, ...]
    sizes: dict[str, TopicSize]
    assignor: str = ""  # "": as it is, sticky in a new group
    session_ms: int = SESSION_MS_DEFAULT
    revoke_ms: int = REVOKE_MS_DEFAULT
    at_ms: int = 0


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """Stop being a member; its partitions are free at once. Generation -1: somebody's order."""

    group: str
    member: str
    generation: int = -1
    at_ms: int = 0


class Expire(msgspec.Struct, frozen=True, tag="expire"):
    """Take members out that were silent, or did not give up what was revoked, for too long.

    ``members`` has the epoch each joined at: who joined again meanwhile stays.
    """

    group: str
    members: dict[str, int]
    at_ms: int = 0


class Acknowledge(msgspec.Struct, frozen=True, tag="acknowledge"):
    """A heartbeat that changes something: the member gave up ``revoked``, or has news to hear."""

    group: str
    member: str
    generation: int
    revoked: Places = {}
    at_ms: int = 0


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """Move cursors. Without a member: only while the group has none."""

    group: str
    member: str
    generation: int
    offsets: Offsets
    sizes: dict[str, TopicSize] = {}  # of topics the group may not know yet
    at_ms: int = 0


class SetTopics(msgspec.Struct, frozen=True, tag="set_topics"):
    """The catalog changed: topics came, went, or have more partitions."""

    group: str
    sizes: dict[str, TopicSize]
    at_ms: int = 0


class Reset(msgspec.Struct, frozen=True, tag="reset"):
    """Set cursors of a group without members."""

    group: str
    offsets: Offsets
    sizes: dict[str, TopicSize] = {}
    at_ms: int = 0


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Forget a group without members; with ``idle_since_ms`` only if untouched since."""

    group: str
    idle_since_ms: int = -1
    at_ms: int = 0


class DropCursors(msgspec.Struct, frozen=True, tag="drop_cursors"):
    """Forget cursors of partitions that no member reads."""

    group: str
    places: Places
    at_ms: int = 0


class Form(msgspec.Struct, frozen=True, tag="form"):
    """Begin a generation of a classic group, one later than the one before."""

    group: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[ClassicMember, ...]
    at_ms: int = 0


class Assign(msgspec.Struct, frozen=True, tag="assign"):
    """What the leader of a classic group's generation assigned to its members."""

    group: str
    generation: int
    shares: dict[str, Share]
    at_ms: int = 0


class Dismiss(msgspec.Struct, frozen=True, tag="dismiss"):
    """Take members out of a classic group: they left, or were silent for too long."""

    group: str
    members: tuple[str, ...]
    at_ms: int = 0


class Substitute(msgspec.Struct, frozen=True, tag="substitute"):
    """A static member of a classic group came back under another name."""

    group: str
    old: str
    member: ClassicMember
    at_ms: int = 0


class Noop(msgspec.Struct, frozen=True, tag="noop"):
    """Change nothing but time: every replica marks its digest."""

    at_ms: int = 0


Command = (
    Commit
    | Acknowledge
    | Join
    | Leave
    | Expire
    | SetTopics
    | Reset
    | Delete
    | DropCursors
    | Form
    | Assign
    | Dismiss
    | Substitute
    | Noop
)


class Malformed(Exception):
    """An entry whose bytes are no command: refused."""


def encode_command(command: Command) -> bytes:
    """Return the entry data of ``command``."""
    return _encoder.encode(command)


def decode_command(data: bytes) -> Command:
    """Read entry data.

    Raises:
        Malformed: no known command.
    """
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Malformed(str(error)) from error


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
