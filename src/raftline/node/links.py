"""Links to other nodes as they come and go, and what arrives by them.

Rules
    K1  A link is accepted from a node of this cluster, or from one that belongs to none yet.
    K2  A young node that was told of nodes of another cluster ends: it has the wrong directory.
    K3  A frame that does not parse closes its link, and nothing more.
    K4  A replica that hears from its leader that it lost what it acknowledged leaves service: the
        frame is sound, the log is not (storage/wal_recovery.py, "What stays undetected").
"""

from typing import TYPE_CHECKING

import msgspec

from raftline.model.errors import WrongCluster, WrongDirectory
from raftline.model.ids import CATALOG_SHARD, INCARNATION_BITS, NodeId
from raftline.raft.errors import EntryLost
from raftline.raft.rpc import RpcKind
from raftline.transport.ports import Link
from raftline.transport.rpcs import (
    FRAME_CALL,
    FRAME_FOUND,
    FRAME_HEARTBEAT,
    FRAME_QUIET,
    FRAME_REPLY,
    FRAME_RPCS,
    FRAME_UNQUIET,
    BadFrame,
    Quiet,
    decode_found,
    decode_heartbeat,
    decode_quiets,
    decode_rpcs,
    encode_quiets,
    encode_struct,
)
from raftline.transport.rpcs import Found as FoundFrame

if TYPE_CHECKING:
    from raftline.node.node import Node

_APP, _SNAP = int(RpcKind.APP), int(RpcKind.SNAP)
STRANGERS_MS = 10_000  # after the start: later a stranger at a peer's address is its problem


class Links:
    """Takes what the network tells of links."""

    __slots__ = ("_at_home", "_node", "_strangers")

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._at_home = False  # a node of our cluster was met
        self._strangers: set[str] = set()  # addresses of nodes of another cluster

    def up(self, link: Link) -> str:
        """Accept a link to a node of ours, or to a fresh one."""
        node = self._node
        refusal = self._refuse_link(link)
        if refusal:
            if link.dialed:
                node.peers.dial_failed(link.address, refused=False)
            return refusal
        peer = link.peer
        if not link.dialed:
            if peer.cluster == node.identity.cluster and peer.node:
                node.peers.know(peer.address, peer.node)
            return ""
        node.peers.up(link)
        self._at_home = self._at_home or bool(peer.cluster)
        if not peer.cluster and self._is_founder_of(peer.directory):
            found = FoundFrame(node.identity.cluster, node.identity.founders)
            link.send(encode_struct(FRAME_FOUND, found))
        elif not peer.cluster and node.identity.cluster:
            link.send(encode_struct(FRAME_FOUND, FoundFrame(node.identity.cluster, ())))
        if link.lane == "control":
            node.founding.link_up(link)
        return ""

    def _refuse_link(self, link: Link) -> str:
        node = self._node
        peer = link.peer
        if node.is_stopping:
            return "the node is stopping"
        if peer.cluster and node.identity.cluster and peer.cluster != node.identity.cluster:
            wrong = WrongCluster(node.identity.cluster, peer.cluster)
            return f"{wrong.code}: {wrong.message}"
        if peer.directory == node.identity.directory:
            node.peers.drop(link.address)
            return "this is the same node"
        row = node.catalog_machine.nodes.get(NodeId(peer.node)) if peer.node else None
        if row is not None and row.directory != peer.directory:
            return f"node {peer.name} was taken back with another data directory"
        return ""

    def _is_founder_of(self, directory: str) -> bool:
        return any(n.directory == directory for n in self._node.identity.founders)

    def down(self, link: Link) -> None:
        """An accepted link is gone."""
        self._node.remote.on_link_down(link)
        self._node.founding.link_down(link)
        if link.dialed and not self._node.is_stopping:
            self._node.peers.down(link)

    def dial_failed(self, address: str, reason: str, *, refused: bool) -> None:
        """A dial did not become a link."""
        if self._node.is_stopping:
            return
        self._node.peers.dial_failed(address, refused=refused)
        if WrongCluster.code in reason:
            self._met_stranger(address)

    def _met_stranger(self, address: str) -> None:
        """End a young node when most of those it was told of belong to another cluster."""
        node = self._node.settings.node
        named = {*node.peers.values(), node.join} - {"", self._node.peer_address}
        self._strangers.add(address)
        met = sorted(self._strangers & named)
        age = self._node.clock.mono_ms() - self._node.started_mono
        if self._at_home or age > STRANGERS_MS or 2 * len(met) <= len(named):
            return
        self._node.is_stopping = True
        self._node.on_refused(
            WrongDirectory(
                f"the data directory belongs to cluster {self._node.identity.cluster}, "
                f"{' and '.join(met)} to another",
                "start with the --data-dir of that cluster, or name nodes of this one with "
                "--peers or --join",
            )
        )

    def take(self, link: Link, frame: memoryview) -> None:
        """Take one frame. What does not parse closes the link."""
        if self._node.is_stopping or not len(frame):
            return
        try:
            self._take_frame(link, frame)
        except (BadFrame, msgspec.DecodeError, ValueError) as error:
            self._node.log("warning", "link.bad_frame", peer=link.peer.name, reason=str(error))
            link.close()

    def _take_frame(self, link: Link, frame: memoryview) -> None:
        node = self._node
        kind = frame[0]
        if kind == FRAME_RPCS:
            self._on_rpcs(link, frame)
        elif kind == FRAME_REPLY:
            node.remote.on_reply(frame)
        elif kind == FRAME_CALL:
            node.remote.on_call(link, frame)
        elif kind == FRAME_HEARTBEAT:
            node.peers.heard(decode_heartbeat(frame))
        elif kind == FRAME_QUIET:
            self._on_quiet(link, decode_quiets(frame))
        elif kind == FRAME_UNQUIET:
            self._on_unquiet(decode_quiets(frame))
        elif kind == FRAME_FOUND:
            node.founding.invited(decode_found(frame), link)
        else:
            raise BadFrame(f"frames of kind {kind} are unknown")

    def _on_rpcs(self, link: Link, frame: memoryview) -> None:
        node = self._node
        sender = link.peer.node
        for shard, rpc in decode_rpcs(frame):
            if rpc.sender >> INCARNATION_BITS != sender:  # node_of, for every rpc
                raise BadFrame(f"an rpc of replica {rpc.sender:#x} came from node {sender}")
            replica = node.shards.get(shard)
            if replica is None or replica.id != rpc.to:
                if rpc.kind == _SNAP:
                    node.catch_ups.not_here(shard, rpc)
                continue
            if rpc.kind == _SNAP:
                node.catch_ups.offered(replica, rpc)
            elif (
                node.upkeep.is_short_of_room
                and rpc.kind == _APP
                and shard != CATALOG_SHARD
                and not node.upkeep.takes(rpc.entries)
            ):
                continue  # no room: as if it had not come
            else:
                try:
                    replica.step(rpc)
                except EntryLost as error:
                    node.shards.stop_replica(replica, str(error))  # K4

    # ------------------------------------------------------------------ quiet

    def _on_quiet(self, link: Link, rows: list[Quiet]) -> None:
        node = self._node
        refused = [
            row for row in rows if not node.elections.told_quiet(node.shards.get(row.shard), row)
        ]
        if refused:
            link.send(encode_quiets(FRAME_UNQUIET, refused))

    def _on_unquiet(self, rows: list[Quiet]) -> None:
        node = self._node
        for row in rows:
            replica = node.shards.get(row.shard)
            if replica is None or row.term != replica.raft.term:
                continue
            if row.to == replica.id and row.sender == replica.raft.leader:
                node.elections.resigned(replica)
            elif replica.quiet:
                replica.wake()
