"""Pieces of streams on their way from one partition to another (machines/partition/streams.py).

Any node sends a piece to the leader of the partition that takes it. A piece may be sent as often
as its sender likes: the answer is where the stream stands, stored or not.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.partition.commands import encode_append
from raftline.machines.partition.streams import Streamed, StreamHead, encode_stream_append
from raftline.model.batch import check_batch
from raftline.model.errors import Internal, InvalidArgument, RaftlineError
from raftline.model.limits import PIECE_BYTES_MAX
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.partition import PartitionHost
from raftline.node.remote import VERB_STREAM, Reply
from raftline.node.replica import Replica

if TYPE_CHECKING:
    from raftline.node.node import Node

Done = Callable[[Streamed | RaftlineError], None]


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """One piece between nodes."""

    shard: int  # the partition that takes it
    head: StreamHead
    batch: bytes


class Pieces:
    """Sends pieces, and takes those of others."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_STREAM, self._on_piece)

    def send(
        self,
        topic: str,
        partition: int,
        head: StreamHead,
        batch: bytes,
        timeout_ms: int,
        done: Done,
    ) -> None:
        """Have the leader of a partition store one sealed batch as a piece of a stream."""
        shard = self._node.locate(topic, partition)
        if isinstance(shard, RaftlineError):
            done(shard)
            return
        piece = Piece(shard, head, batch)

        def local(replica: Replica, left_ms: int, answer: Done) -> None:
            self._take(replica, piece, left_ms, answer)

        self._node.router.send(
            shard,
            VERB_STREAM,
            [_pack(piece)],
            timeout_ms,
            lambda answer: done(_decode_streamed(answer) if isinstance(answer, bytes) else answer),
            local,
            repeatable=True,
        )

    def _on_piece(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        piece = _decode_piece(body)
        replica = self._node.led(piece.shard)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        self._take(
            replica,
            piece,
            timeout_ms,
            lambda answer: reply(answer if isinstance(answer, RaftlineError) else _pack(answer)),
        )

    def _take(self, replica: Replica, piece: Piece, timeout_ms: int, done: Done) -> None:
        """Propose a piece; whether it is the next one is decided when it is applied."""
        host = replica.host
        if not isinstance(host, PartitionHost):
            done(InvalidArgument(f"{replica.name} holds no messages"))
            return
        refusal = self._node.upkeep.admission(replica)
        if refusal is not None:
            done(refusal)
            return
        try:
            info = check_batch(piece.batch, replica.name, bytes_max=PIECE_BYTES_MAX)
        except RaftlineError as error:
            done(error)
            return

        def applied(answer: Applied | RaftlineError) -> None:
            if isinstance(answer, RaftlineError):
                done(answer)
                return
            found = [event for event in answer.events if isinstance(event, Streamed)]
            done(found[0] if found else Internal(f"a piece of a stream to {host.name} is lost"))

        append = encode_append(replica.time.stamp(), [(piece.batch, info)])
        deadline = self._node.clock.mono_ms() + timeout_ms
        proposal = CommandProposal(host.name, deadline, timeout_ms, applied)
        replica.propose(encode_stream_append(piece.head, append), proposal)


_pack = msgspec.msgpack.encode
_decode_piece = msgspec.msgpack.Decoder(Piece).decode
_decode_streamed = msgspec.msgpack.Decoder(Streamed).decode
