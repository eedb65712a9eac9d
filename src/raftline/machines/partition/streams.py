"""Streams: what other shards send here, each number once. The dead-letter side of an outbox.

The leader of a source shard sends the messages of its outbox as numbered pieces and repeats them
until it hears that they are here. So may its successor, who does not know what arrived. This part
remembers, for each stream, the last number that is in the log::

    0x05  head     B tag  B name bytes  H 0  I shard  q first  q last  q buried      32 bytes
          name     uuid of the topic the source shard belongs to
          Append   an ordinary Append (commands.py), tag and all

State
    For each stream (source shard, topic uuid): its last number. In the order of last use.

Invariants
    F1  A piece ``first..last`` is stored only if ``first`` follows the last number; then the
        stream stands at ``last``. No number is stored twice, none is passed over.
    F2  Numbers up to ``buried`` were confirmed to the source and let go there. If this log does
        not know of them (its topic was deleted and created anew, or recovered with loss), they
        are gone from here for good: the stream goes on after them instead of waiting for ever.
    F3  At most ``STREAMS_MAX`` streams are kept; the longest unused is forgotten first. A topic
        has fewer partitions than that, so only streams of deleted topics go.

Whatever becomes of a piece, the answer is where the stream stands now; the source goes on there.
"""

import struct

import msgspec

from raftline.machines.partition.commands import AppendView, Malformed, decode_append
from raftline.machines.partition.parts import Freeze
from raftline.model.limits import ENTRY_BYTES_MAX, STREAMS_MAX

STREAM_TAG = 0x05

_HEAD = struct.Struct("<BBHIqqq")

StreamKey = tuple[int, str]  # source shard, uuid of its topic


class StreamHead(msgspec.Struct, frozen=True, gc=False):
    """Which piece of which stream."""

    shard: int
    topic_uuid: str
    first: int
    last: int
    buried: int = 0  # confirmed and let go by the source; below ``first``

    @property
    def stream(self) -> StreamKey:
        """Return the name of the stream."""
        return self.shard, self.topic_uuid


class Streamed(msgspec.Struct, frozen=True, gc=False):
    """Where a stream stands after a piece of it was applied, and whether that was stored."""

    last: int
    is_stored: bool


def encode_stream_append(head: StreamHead, append: bytes) -> bytes:
    """Return the entry data of a piece: ``append`` is what ``encode_append`` returned."""
    name = head.topic_uuid.encode()
    fields = _HEAD.pack(STREAM_TAG, len(name), 0, head.shard, head.first, head.last, head.buried)
    return b"".join((fields, name, append))


def decode_stream_append(data: bytes) -> tuple[StreamHead, AppendView]:
    """Read a piece of a stream; the batches stay where they are in ``data``.

    Raises:
        Malformed: it is none.
    """
    if not _HEAD.size <= len(data) <= ENTRY_BYTES_MAX:
        raise Malformed(f"a piece of a stream of {len(data)} bytes")
    tag, name_bytes, zero, shard, first, last, buried = _HEAD.unpack_from(data)
    start = _HEAD.size + name_bytes
    if tag != STREAM_TAG or zero or not 0 <= buried < first <= last:
        raise Malformed(f"a piece of a stream of shard {shard} from {first} to {last}")
    try:
        name = data[_HEAD.size : start].decode()
    except UnicodeDecodeError as error:
        raise Malformed("a piece of a stream whose topic is no text") from error
    return StreamHead(shard, name, first, last, buried), decode_append(data, start)


class Streams:
    """Where the streams into one partition stand."""

    __slots__ = ("_last", "_streams_max")

    def __init__(self, streams_max: int = STREAMS_MAX) -> None:
        self._last: dict[StreamKey, int] = {}
        self._streams_max = streams_max

    def last(self, stream: StreamKey) -> int:
        """Return the last number of a stream that is here; 0: none."""
        return self._last.get(stream, 0)

    def takes(self, head: StreamHead) -> bool:
        """Say whether the piece is the next one. F1, F2."""
        return head.first == max(self.last(head.stream), head.buried) + 1

    def stored(self, head: StreamHead) -> None:
        """The piece is in the log: move the stream on."""
        self._last.pop(head.stream, None)
        self._last[head.stream] = head.last  # last in order: the last to be forgotten
        if len(self._last) > self._streams_max:
            del self._last[next(iter(self._last))]  # F3

    def freeze(self) -> Freeze:
        """Hold the state; the callable returns its bytes."""
        rows = [(shard, name, last) for (shard, name), last in self._last.items()]
        return lambda: msgspec.msgpack.encode(rows) if rows else b""

    def restore(self, data: bytes) -> None:
        """Take over what ``freeze`` returned elsewhere."""
        rows = _decode_rows(data) if data else []
        self._last = {(shard, name): last for shard, name, last in rows}

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert len(self._last) <= self._streams_max  # F3
        assert all(last > 0 for last in self._last.values())

    def __len__(self) -> int:
        return len(self._last)


_decode_rows = msgspec.msgpack.Decoder(list[tuple[int, str, int]]).decode
