"""Admissions: how the cluster takes in nodes, seen from inside (outside: founding.py).

A request goes to the catalog's leader. A name that is known with another data directory gets its
number back and new incarnations for all its replicas, unless that node is alive.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.catalog.commands import AdmitNode
from raftline.machines.catalog.state import REMOVED
from raftline.model.errors import (
    NotReady,
    RaftlineError,
)
from raftline.model.ids import CATALOG_SHARD
from raftline.node.catalog import CatalogHost
from raftline.node.command_proposal import Applied, CommandProposal
from raftline.node.founding import Admission, AdmitRequest
from raftline.node.remote import VERB_ADMIT, Reply
from raftline.node.replica import Replica

if TYPE_CHECKING:
    from raftline.node.node import Node

HOUSEKEEPING_MS = 200


class Admissions:
    """The catalog's door."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_ADMIT, self._on_admit)

    def _on_admit(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        """A fresh node, or one with new addresses, asks to be admitted."""
        request = msgspec.msgpack.decode(body, type=AdmitRequest)
        copy = [bytes(body)]

        def local(replica: Replica, left_ms: int, answer: Reply) -> None:
            self.admit(replica, request, left_ms, answer)

        self._node.router.send(
            CATALOG_SHARD, VERB_ADMIT, copy, timeout_ms, reply, local, repeatable=True
        )

    def admit(self, replica: Replica, request: AdmitRequest, timeout_ms: int, reply: Reply) -> None:
        """Propose to admit a node; as the catalog's leader."""
        host = replica.host
        assert isinstance(host, CatalogHost)
        known = host.machine.node_named(request.name)
        if (
            known is not None
            and known.directory != request.directory
            and (known.id == self._node.id or self._node.peers.is_live(known.id))
        ):
            reply(NotReady(f"node {request.name} is alive with another data directory"))
            return
        command = AdmitNode(
            request.name,
            request.directory,
            request.peer,
            request.http,
            request.grpc,
            request.kafka,
            request.rack,
            replica.time.stamp(),
        )

        def admitted(result: Applied | RaftlineError) -> None:
            if isinstance(result, RaftlineError):
                reply(result)
                return
            row = host.machine.node_named(request.name)
            assert row is not None
            seat = host.machine.shards[CATALOG_SHARD].replica_on(row.id)
            addresses = {
                n.peer: int(n.id)
                for n in host.machine.nodes.values()
                if n.state != REMOVED and n.id != row.id
            }
            reply(
                msgspec.msgpack.encode(
                    Admission(host.machine.cluster, row.id, seat or 0, addresses)
                )
            )

        deadline = self._node.clock.mono_ms() + timeout_ms
        host.propose(command, CommandProposal("catalog", deadline, timeout_ms, admitted))

    def invite(
        self,
        address: str,
        timeout_ms: int,
        done: Callable[[dict[str, object] | RaftlineError], None],
    ) -> None:
        """Call a waiting node at ``address`` into the cluster; answer once it is a member.

        It may tell others another address of its own than the one it was called at.
        """
        peers = self._node.peers
        deadline = self._node.clock.mono_ms() + timeout_ms
        peers.know(address)

        def look() -> None:
            peer = peers.at(address)
            greeted = "" if peer is None or peer.control is None else peer.control.peer.directory
            for row in self._node.catalog_machine.members():
                if address == row.peer or greeted == row.directory:
                    done({"node": int(row.id), "name": row.name})
                    return
            if self._node.clock.mono_ms() >= deadline:
                if peer is not None and not peer.node:
                    peers.drop(address)
                done(
                    NotReady(
                        f"no node at {address} joined; start one there with "
                        f"raftline serve --join {self._node.peer_address}"
                    )
                )
                return
            self._node.clock.call_later(HOUSEKEEPING_MS, look)

        look()
