"""How a node becomes a member: founding a cluster, or being admitted to one.

A fresh directory belongs to no cluster. With no peers named it founds a cluster of one. With
``peers`` it waits until *all* of them are seen, each with an empty directory; then the first by
name is the founder: it makes the cluster's uuid and invites the others. With ``join``, or when a
named peer already belongs to a cluster (ours was wiped, or is new), it asks to be admitted.

Rules
    F1  An invitation lists directories by uuid. A wiped directory is another directory, so a node
        that lost its disk can never take up its old votes: it can only be admitted, and the
        catalog then gives all its replicas new incarnations.
    F2  The identity is on the disk before the first vote.
    F3  Founding needs everybody once; afterwards any majority is enough.
"""

from collections.abc import Callable

import msgspec

from raftline.model.errors import RaftlineError
from raftline.model.ids import NodeId, replica_id
from raftline.node.identity import Identity, save_identity
from raftline.node.ports import Clock, Rng
from raftline.node.remote import VERB_ADMIT, Answer, Remote
from raftline.storage.files import Disk
from raftline.telemetry.log import LogEvent
from raftline.transport.ports import Link
from raftline.transport.rpcs import FRAME_FOUND, Found, FoundingNode, encode_struct
from raftline.wire.peer.hello import Hello

RETRY_MS = 300
ADMIT_TIMEOUT_MS = 5_000


class Admission(msgspec.Struct, frozen=True):
    """What the catalog's leader answers a node that asks to be admitted."""

    cluster: str
    node: int
    catalog_replica: int
    addresses: dict[str, int]


class AdmitRequest(msgspec.Struct, frozen=True):
    """A fresh node's request."""

    name: str
    directory: str
    rack: str
    peer: str
    http: str
    grpc: str
    kafka: str


class Founding:
    """The time before a directory belongs to a cluster."""

    def __init__(
        self,
        clock: Clock,
        rng: Rng,
        disk: Disk,
        remote: Remote,
        log: LogEvent,
        *,
        identity: Identity,
        peers: dict[str, str],
        joining: bool,
        request: AdmitRequest,
        on_member: Callable[[Identity], None],
        fatal: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._disk = disk
        self._remote = remote
        self._log = log
        self._identity = identity
        self._peers = peers
        self._request = request
        self._on_member = on_member
        self._fatal = fatal
        self._links: dict[str, Link] = {}  # by address, links we dialed
        self._joining = joining  # told to join: never founds
        self._asking = False
        self.reason = "waiting for its cluster"
        self.done = bool(identity.cluster)

    def start(self) -> None:
        """Found a cluster of one at once, or wait for links."""
        if self.done:
            return
        if not self._peers and not self._joining:
            self._found([self._identity.name], {})
            return
        self._try()

    def link_up(self, link: Link) -> None:
        """A link we dialed is up: perhaps it is the last one missing."""
        self._links[link.address] = link
        if not self.done:
            self._try()

    def link_down(self, link: Link) -> None:
        """Forget a link."""
        if self._links.get(link.address) is link:
            del self._links[link.address]

    def _try(self) -> None:
        if self.done or self._asking:
            return
        for link in self._links.values():
            if link.peer.cluster:
                self._ask_admission(link)
                return
        if self._joining:
            self.reason = "waiting for the node it joins by"
            if self._links:
                self._clock.call_later(RETRY_MS, self._greet_again)
            return
        self._try_found()

    def _greet_again(self) -> None:
        """Hang up on nodes that were in no cluster when they greeted: by now they may be."""
        if self.done or self._asking:
            return
        for link in list(self._links.values()):
            if not link.peer.cluster:
                link.close()

    def _try_found(self) -> None:
        names = sorted(self._peers)
        seen: dict[str, Hello] = {
            link.peer.name: link.peer for link in self._links.values() if link.lane == "control"
        }
        missing = [n for n in names if n != self._identity.name and n not in seen]
        if missing:
            where = ", ".join(f"{n} at {self._peers[n]}" for n in missing)
            self.reason = f"a new cluster needs all its nodes once; not seen yet: {where}"
            return
        if names[0] != self._identity.name:
            self.reason = f"waiting for {names[0]} to found the cluster"
            return
        self._found(names, seen)

    def _found(self, names: list[str], seen: dict[str, Hello]) -> None:
        """Write our identity first (F2), then invite the others."""
        cluster = self._rng.randbytes(16).hex()
        nodes = tuple(
            FoundingNode(
                id=number,
                name=name,
                directory=seen[name].directory if name in seen else self._identity.directory,
                peer=seen[name].address if name in seen else self._request.peer,
            )
            for number, name in enumerate(names, start=1)
        )
        self._log("info", "cluster.founded", cluster=cluster, nodes=len(nodes))
        links = list(self._links.values())
        self._take(Found(cluster, nodes))
        for link in links:
            link.send(encode_struct(FRAME_FOUND, Found(cluster, nodes)))

    def invited(self, found: Found, link: Link) -> None:
        """Accept a founder's invitation if it names our directory, else ask to be admitted. F1."""
        if self.done:
            return
        if any(n.directory == self._identity.directory for n in found.nodes):
            self._take(found)
        elif not self._asking and not found.nodes:
            self._ask_admission(link)

    def _take(self, found: Found) -> None:
        ours = next(n for n in found.nodes if n.directory == self._identity.directory)
        identity = msgspec.structs.replace(
            self._identity,
            cluster=found.cluster,
            node=ours.id,
            catalog_replica=replica_id(NodeId(ours.id), 1),
            catalog_opened=0,
            founders=found.nodes,
            addresses={n.peer: n.id for n in found.nodes if n.id != ours.id},
        )
        self._become(identity)

    def _ask_admission(self, link: Link) -> None:
        self._asking = True
        self.reason = f"asking {link.peer.name} to be admitted"
        self._remote.call_link(
            link,
            VERB_ADMIT,
            [msgspec.msgpack.encode(self._request)],
            ADMIT_TIMEOUT_MS,
            self._admitted,
        )

    def _admitted(self, answer: Answer) -> None:
        self._asking = False
        if self.done:
            return
        if isinstance(answer, RaftlineError):
            self.reason = f"not admitted yet: {answer.message}"
            self._log("warning", "node.not_admitted", reason=answer.message)
            self._clock.call_later(RETRY_MS, self._try)
            return
        admission = msgspec.msgpack.decode(answer, type=Admission)
        self._become(
            msgspec.structs.replace(
                self._identity,
                cluster=admission.cluster,
                node=admission.node,
                catalog_replica=admission.catalog_replica,
                catalog_opened=0,
                addresses=admission.addresses,
            )
        )

    def _become(self, identity: Identity) -> None:
        try:
            save_identity(self._disk, identity)  # F2
        except OSError as error:
            self._fatal(f"what this node is could not be written: {error}")
            return
        self._identity = identity
        self.done = True
        self.reason = ""
        self._log("info", "node.member", cluster=identity.cluster, node=identity.node)
        self._on_member(identity)
