"""Node-to-node frames: Raft rpcs of many shards in one frame, heartbeats, calls and replies.

The first byte of a frame is its kind. One RPCS frame carries what all shards of a node have to
say to one peer in one turn. Entry bodies are passed by reference, never copied, on the way out,
and copied once on the way in (the receive buffer is reused).
"""

import struct
from collections.abc import Sequence

import msgspec
from crc32c import crc32c

from raftline.model.errors import RaftlineError
from raftline.raft.rpc import ConfState, Entry, Rpc, RpcKind, Snapshot

FRAME_RPCS = 1
FRAME_HEARTBEAT = 2
FRAME_CALL = 3
FRAME_REPLY = 4
FRAME_QUIET = 5
FRAME_UNQUIET = 6
FRAME_FOUND = 7

COPIED_BYTES_MAX = 2048  # of an entry that shares a buffer with its neighbours
_KIND_RPCS = bytes([FRAME_RPCS])
# shard kind flags to sender term log_term index commit reject_hint vote entries context
_RPC = struct.Struct("<IBBQQQQQQQQHH")
_ENTRY = struct.Struct("<QQBII")  # term index kind crc length
_SNAPSHOT_LENGTH = struct.Struct("<I")
_REJECT = 1
_SNAPSHOT = 2

_CALL = struct.Struct("<BQBI")  # frame kind, call, verb, timeout_ms
_REPLY = struct.Struct("<BQB")  # frame kind, call, ok

_KINDS = {int(kind): kind for kind in RpcKind}


class BadFrame(Exception):
    """The peer sent bytes that are not a frame of ours."""


class Heartbeat(msgspec.Struct, frozen=True, array_like=True):
    """What a node tells every peer once an interval."""

    node: int
    process: str
    wall_ms: int
    free_bytes: int
    total_bytes: int
    leading: int  # shards led, for placing leadership
    healthy: bool = True
    mono_ms: float = -1.0  # the sender's monotonic clock, read with wall_ms; -1: an older node


class Quiet(msgspec.Struct, frozen=True, array_like=True):
    """The leader's word that nothing is going on in a shard: all replicas are level."""

    shard: int
    to: int
    sender: int
    term: int
    last: int
    commit: int


class Found(msgspec.Struct, frozen=True):
    """The founder's invitation: these directories make up a new cluster."""

    cluster: str
    nodes: tuple["FoundingNode", ...]


class FoundingNode(msgspec.Struct, frozen=True):
    """One member of a cluster that is being founded."""

    id: int
    name: str
    directory: str
    peer: str


def encode_rpcs(rpcs: Sequence[tuple[int, Rpc]]) -> list[bytes]:
    """Return the buffers of one RPCS frame for ``(shard, rpc)`` pairs."""
    buffers: list[bytes] = []
    head: list[bytes] = [_KIND_RPCS]
    for shard, rpc in rpcs:
        snapshot = rpc.snapshot
        entries = rpc.entries
        head.append(
            _RPC.pack(
                shard,
                rpc.kind,
                (_REJECT if rpc.reject else 0) | (_SNAPSHOT if snapshot is not None else 0),
                rpc.to,
                rpc.sender,
                rpc.term,
                rpc.log_term,
                rpc.index,
                rpc.commit,
                rpc.reject_hint,
                rpc.vote,
                len(entries),
                len(rpc.context),
            )
        )
        if rpc.context:
            head.append(rpc.context)
        if snapshot is not None:
            packed = msgspec.msgpack.encode(
                (snapshot.index, snapshot.term, snapshot.conf, snapshot.data)
            )
            head.append(_SNAPSHOT_LENGTH.pack(len(packed)))
            head.append(packed)
        for entry in entries:
            data = entry.data
            if entry.crc < 0:
                entry.crc = crc32c(data)
            head.append(_ENTRY.pack(entry.term, entry.index, entry.kind, entry.crc, len(data)))
            if len(data) > COPIED_BYTES_MAX:  # big bodies go out by reference
                buffers.append(b"".join(head))
                head.clear()
                buffers.append(data)
            else:
                head.append(data)
    if head:
        buffers.append(b"".join(head))
    return buffers


def decode_rpcs(frame: memoryview) -> list[tuple[int, Rpc]]:
    """Return the ``(shard, rpc)`` pairs of an RPCS frame. Raises BadFrame."""
    try:
        return _decode_rpcs(frame)
    except (struct.error, msgspec.DecodeError, IndexError, KeyError, ValueError) as error:
        raise BadFrame(f"an rpc frame of {len(frame)} bytes does not parse: {error}") from error


def _decode_rpcs(frame: memoryview) -> list[tuple[int, Rpc]]:
    found: list[tuple[int, Rpc]] = []
    at, end = 1, len(frame)
    unpack_rpc, unpack_entry = _RPC.unpack_from, _ENTRY.unpack_from
    while at < end:
        (shard, kind, flags, to, sender, term, log_term, index, commit, hint, vote, count, size) = (
            unpack_rpc(frame, at)
        )
        at += _RPC.size
        context = b""
        if size:
            context = bytes(frame[at : at + size])
            at += size
        snapshot = None
        if flags & _SNAPSHOT:
            (length,) = _SNAPSHOT_LENGTH.unpack_from(frame, at)
            at += 4
            snapshot = _decode_snapshot(frame[at : at + length])
            at += length
        entries: list[Entry] = []
        for _ in range(count):
            entry_term, entry_index, entry_kind, crc, length = unpack_entry(frame, at)
            at += _ENTRY.size
            if at + length > end:
                raise BadFrame(f"entry {entry_index} of shard {shard} is cut short")
            entries.append(
                Entry(entry_index, entry_term, entry_kind, bytes(frame[at : at + length]), crc)
            )
            at += length
        found.append(
            (
                shard,
                Rpc(
                    _KINDS[kind],
                    to,
                    sender,
                    term,
                    log_term,
                    index,
                    entries,
                    commit,
                    vote,
                    snapshot,
                    bool(flags & _REJECT),
                    hint,
                    context,
                ),
            )
        )
    return found


def _decode_snapshot(packed: memoryview) -> Snapshot:
    index, term, conf, data = msgspec.msgpack.decode(packed, type=tuple[int, int, ConfState, bytes])
    return Snapshot(index=index, term=term, conf=conf, data=data)


def encode_struct(kind: int, value: msgspec.Struct) -> list[bytes]:
    """Return a frame that carries one struct (heartbeat, quiet, found)."""
    return [bytes([kind]) + msgspec.msgpack.encode(value)]


def decode_heartbeat(frame: memoryview) -> Heartbeat:
    """Return the heartbeat of a frame. Raises BadFrame."""
    try:
        return msgspec.msgpack.decode(frame[1:], type=Heartbeat)
    except msgspec.DecodeError as error:
        raise BadFrame(f"a heartbeat does not parse: {error}") from error


def decode_quiets(frame: memoryview) -> list[Quiet]:
    """Return what a QUIET or UNQUIET frame says, one row a shard. Raises BadFrame."""
    try:
        return msgspec.msgpack.decode(frame[1:], type=list[Quiet])
    except msgspec.DecodeError as error:
        raise BadFrame(f"a quiet frame does not parse: {error}") from error


def encode_quiets(kind: int, rows: Sequence[Quiet]) -> list[bytes]:
    """Return a QUIET or UNQUIET frame."""
    return [bytes([kind]) + msgspec.msgpack.encode(rows)]


def decode_found(frame: memoryview) -> Found:
    """Return the invitation of a FOUND frame. Raises BadFrame."""
    try:
        return msgspec.msgpack.decode(frame[1:], type=Found)
    except msgspec.DecodeError as error:
        raise BadFrame(f"an invitation does not parse: {error}") from error


def encode_call(call: int, verb: int, timeout_ms: int, body: Sequence[bytes]) -> list[bytes]:
    """Return a CALL frame."""
    return [_CALL.pack(FRAME_CALL, call, verb, timeout_ms), *body]


def decode_call(frame: memoryview) -> tuple[int, int, int, memoryview]:
    """Return (call, verb, timeout_ms, body view). Raises BadFrame."""
    if len(frame) < _CALL.size:
        raise BadFrame("a call frame is cut short")
    _, call, verb, timeout_ms = _CALL.unpack_from(frame)
    return call, verb, timeout_ms, frame[_CALL.size :]


def encode_reply(call: int, answer: bytes | RaftlineError) -> list[bytes]:
    """Return a REPLY frame with an answer or a refusal."""
    if isinstance(answer, RaftlineError):
        refusal = msgspec.msgpack.encode(answer.to_wire())
        return [_REPLY.pack(FRAME_REPLY, call, 0), refusal]
    return [_REPLY.pack(FRAME_REPLY, call, 1), answer]


def decode_reply(frame: memoryview) -> tuple[int, bytes | RaftlineError]:
    """Return (call, answer bytes or refusal). Raises BadFrame."""
    if len(frame) < _REPLY.size:
        raise BadFrame("a reply frame is cut short")
    _, call, ok = _REPLY.unpack_from(frame)
    body = frame[_REPLY.size :]
    if ok:
        return call, bytes(body)
    try:
        return call, RaftlineError.from_wire(msgspec.msgpack.decode(body))
    except (msgspec.DecodeError, TypeError, ValueError, KeyError) as error:
        raise BadFrame(f"the refusal of call {call} does not parse: {error}") from error
