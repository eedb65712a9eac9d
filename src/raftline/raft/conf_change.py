"""Changes of the configuration, as they stand in the log.

A change of the first form holds one step and is made at once. The second form holds several: it
goes through a joint configuration, in which both the old and the new majority must agree. An
empty change of the second form leaves a joint configuration; so does an entry without data.
"""

from enum import IntEnum

import msgspec

from raftline.raft.errors import ConfChangeFault, RaftFault, Trouble
from raftline.raft.rpc import Entry, EntryKind


class ChangeKind(IntEnum):
    """What happens to a replica."""

    ADD_VOTER = 0
    REMOVE = 1
    UPDATE = 2  # nothing, for the core; the caller may act on the context
    ADD_LEARNER = 3


class Transition(IntEnum):
    """How a change of the second form is made."""

    AUTO = 0  # at once if it is one step, else joint and left by the leader
    JOINT_IMPLICIT = 1  # joint, left by the leader
    JOINT_EXPLICIT = 2  # joint, left by a later empty change


class Change(msgspec.Struct, frozen=True, array_like=True):
    """One step: what happens to which replica."""

    kind: int
    replica: int


class ConfChange(msgspec.Struct, frozen=True, array_like=True):
    """A change of the first form: one step."""

    kind: int
    replica: int
    context: bytes = b""


class ConfChangeV2(msgspec.Struct, frozen=True, array_like=True):
    """A change of the second form: any number of steps, taken together."""

    changes: tuple[Change, ...] = ()
    transition: int = Transition.AUTO
    context: bytes = b""

    def leaves_joint(self) -> bool:
        """Say whether this change ends a joint configuration."""
        return self.transition == Transition.AUTO and not self.changes

    def enters_joint(self) -> bool:
        """Say whether this change begins a joint configuration."""
        return self.transition != Transition.AUTO or len(self.changes) > 1

    def leaves_by_itself(self) -> bool:
        """Say whether the leader ends the joint configuration this change begins."""
        return self.transition != Transition.JOINT_EXPLICIT


_encode = msgspec.msgpack.Encoder().encode
_decode_v1 = msgspec.msgpack.Decoder(ConfChange).decode
_decode_v2 = msgspec.msgpack.Decoder(ConfChangeV2).decode


def as_v2(change: ConfChange | ConfChangeV2) -> ConfChangeV2:
    """Return ``change`` in the second form."""
    if isinstance(change, ConfChange):
        return ConfChangeV2((Change(change.kind, change.replica),), context=change.context)
    return change


def encode_conf_change(change: ConfChange | ConfChangeV2) -> tuple[EntryKind, bytes]:
    """Return the kind and the data of an entry that holds ``change``."""
    if isinstance(change, ConfChange):
        return EntryKind.CONF_CHANGE, _encode(change)
    return EntryKind.CONF_CHANGE_V2, _encode(change)


def decode_conf_change(entry: Entry) -> ConfChangeV2:
    """Return the change in ``entry``, in the second form.

    Raises:
        RaftFault: the entry holds no change, or damaged bytes.
    """
    try:
        if entry.kind == EntryKind.CONF_CHANGE:
            change = as_v2(_decode_v1(entry.data))
        elif entry.kind != EntryKind.CONF_CHANGE_V2:
            raise RaftFault(f"entry {entry.index} of kind {entry.kind} holds no change")
        else:
            change = _decode_v2(entry.data) if entry.data else ConfChangeV2()
    except msgspec.DecodeError as error:
        raise RaftFault(f"the change at index {entry.index} is damaged") from error
    _check_kinds(change)
    return change


def _check_kinds(change: ConfChangeV2) -> None:
    if change.transition not in (0, 1, 2):
        raise ConfChangeFault(Trouble.UNKNOWN_KIND, f"transition {change.transition}")
    for step in change.changes:
        if step.kind not in (0, 1, 2, 3):
            raise ConfChangeFault(Trouble.UNKNOWN_KIND, str(step.kind))
