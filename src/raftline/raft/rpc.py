"""What replicas send each other, and what a replica hands to its own disk.

An rpc is never changed after it was sent: it is passed by reference inside a process, and several
may share one list of entries. Two pseudo replicas stand for the local helpers: ``LOCAL_APPEND``
writes entries and votes durably, ``LOCAL_APPLY`` applies committed entries.
"""

from enum import IntEnum

import msgspec

NOBODY = 0  # no replica has this number
LOCAL_APPEND = (1 << 64) - 1
LOCAL_APPLY = (1 << 64) - 2
NO_LIMIT = 1 << 63  # bytes
APPEND_ENTRIES_MAX = (1 << 16) - 1  # in one append: the wire counts them in two bytes

ENTRY_HEAD_BYTES = 6  # counted per entry beside its data; an empty entry has no data head
EMPTY_ENTRY_BYTES = 4


class EntryKind(IntEnum):
    """What the data of an entry is."""

    NORMAL = 0
    CONF_CHANGE = 1
    CONF_CHANGE_V2 = 2


class Entry(msgspec.Struct, gc=False):
    """One slot of a shard's log. Only ``crc`` may be filled in later."""

    index: int
    term: int
    kind: int = 0
    data: bytes = b""
    crc: int = -1  # crc32c of data; -1 until storage or wire computed it


class ConfState(msgspec.Struct, frozen=True):
    """Who takes part. Joint while ``voters_outgoing`` is not empty. All ids sorted."""

    voters: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    voters_outgoing: tuple[int, ...] = ()
    learners_next: tuple[int, ...] = ()
    auto_leave: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """The state of the machine after the entry at ``index``."""

    index: int = 0
    term: int = 0
    conf: ConfState = ConfState()
    data: bytes = b""


class HardState(msgspec.Struct, frozen=True):
    """What must survive a crash beside the entries (the commit mark need not)."""

    term: int = 0
    vote: int = 0
    commit: int = 0


class RpcKind(IntEnum):
    """What an rpc asks or answers. The numbers are permanent."""

    HUP = 0
    BEAT = 1
    PROPOSE = 2
    APP = 3
    APP_RESP = 4
    VOTE = 5
    VOTE_RESP = 6
    SNAP = 7
    HEARTBEAT = 8
    HEARTBEAT_RESP = 9
    UNREACHABLE = 10
    SNAP_STATUS = 11
    CHECK_QUORUM = 12
    TRANSFER_LEADER = 13
    TIMEOUT_NOW = 14
    READ_INDEX = 15
    READ_INDEX_RESP = 16
    PRE_VOTE = 17
    PRE_VOTE_RESP = 18
    STORAGE_APPEND = 19
    STORAGE_APPEND_RESP = 20
    STORAGE_APPLY = 21
    STORAGE_APPLY_RESP = 22
    FORGET_LEADER = 23


KIND_COUNT = len(RpcKind)


class Rpc(msgspec.Struct):
    """One rpc; which fields mean something depends on the kind. ``term`` 0 means local."""

    kind: int
    to: int = NOBODY
    sender: int = NOBODY
    term: int = 0
    log_term: int = 0  # term of the entry at index
    index: int = 0
    entries: list[Entry] = []
    commit: int = 0
    vote: int = NOBODY
    snapshot: Snapshot | None = None
    reject: bool = False
    reject_hint: int = 0
    context: bytes = b""
    responses: list["Rpc"] = []


def entries_bytes(entries: list[Entry]) -> int:
    """Return what ``entries`` count against the limits on rpcs and on applying."""
    total = 0
    for entry in entries:
        size = len(entry.data)
        total += size + ENTRY_HEAD_BYTES if size else EMPTY_ENTRY_BYTES
    return total


def payload_bytes(entries: list[Entry]) -> int:
    """Return the bytes of data in ``entries``."""
    if len(entries) == 1:
        return len(entries[0].data)
    return sum([len(entry.data) for entry in entries])


def limit_bytes(entries: list[Entry], bytes_max: int) -> list[Entry]:
    """Return the longest head of ``entries`` within ``bytes_max``, at least one entry."""
    if bytes_max >= NO_LIMIT or len(entries) < 2:
        return entries
    total = 0
    for position, entry in enumerate(entries):
        size = len(entry.data)
        total += size + ENTRY_HEAD_BYTES if size else EMPTY_ENTRY_BYTES
        if total > bytes_max and position:
            return entries[:position]
    return entries
