"""Peers: links to the other nodes, their heartbeats, and who is alive.

State
    One ``Peer`` per known address: its control link (the one we dialed), its bulk link (dialed
    when catch-up needs it), when it was last heard and what it said.

Rules
    E1  Frames go out only on links we dialed; answers to calls go back on the link they came by.
    E2  A peer is *gone* when our link closed and the redial was refused: its process is dead.
        A peer is *silent* when no heartbeat came for an election timeout: nobody knows.
    E3  Each peer gets one heartbeat an interval, whatever the number of shards.
    E4  A number is at one address and an address has one number: that of whoever greeted there, as
        long as it is linked, whatever an older catalog says.
"""

from collections.abc import Callable, Sequence

from raftline.node.log_time import ClusterTime
from raftline.node.ports import Clock, Timer
from raftline.transport.ports import Buffer, Link, Network
from raftline.transport.rpcs import FRAME_HEARTBEAT, Heartbeat, encode_struct

REDIAL_MS = 100
REDIAL_MS_MAX = 1000


class Peer:
    """One other node."""

    __slots__ = (
        "address",
        "bulk",
        "control",
        "dialing",
        "gone",
        "heard_mono",
        "heartbeat",
        "node",
        "process",
        "redial_ms",
        "silent",
        "timer",
    )

    def __init__(self, address: str) -> None:
        self.address = address
        self.node = 0
        self.process = ""
        self.control: Link | None = None
        self.bulk: Link | None = None
        self.dialing: set[str] = set()
        self.heartbeat: Heartbeat | None = None
        self.heard_mono = float("-inf")
        self.silent = True
        self.gone = False
        self.redial_ms = REDIAL_MS
        self.timer: Timer | None = None


class Peers:
    """All other nodes."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        time: ClusterTime,
        *,
        heartbeat_ms: int,
        silent_ms: int,
        on_gone: Callable[[int], None],
        on_silent: Callable[[int], None],
        on_heard: Callable[[int, bool], None],
    ) -> None:
        self._clock = clock
        self._network = network
        self._time = time
        self._heartbeat_ms = heartbeat_ms
        self.silent_ms = silent_ms
        self._on_gone = on_gone
        self._on_silent = on_silent
        self._on_heard = on_heard
        self._by_address: dict[str, Peer] = {}
        self._by_node: dict[int, Peer] = {}
        self._stopped = False
        self.us = ""  # our own peer address: never dialed

    def __iter__(self):
        return iter(self._by_address.values())

    def know(self, address: str, node: int = 0) -> Peer | None:
        """Keep a link to ``address``; ``node`` once its number is known. E4."""
        if not address or address == self.us or self._stopped:
            return None
        peer = self._by_address.get(address)
        if peer is None:
            peer = self._by_address[address] = Peer(address)
            self._dial(peer, "control")
        there = 0 if peer.control is None else peer.control.peer.node
        if node and there in (0, node):
            self._name(peer, node)
        return peer

    def _name(self, peer: Peer, node: int) -> None:
        if peer.node not in (0, node):
            self._unname(peer)
        old = self._by_node.get(node)
        if old is not None and old is not peer:  # the node moved to another address
            peer.heartbeat, peer.heard_mono = old.heartbeat, old.heard_mono
            peer.silent = old.silent
            old.silent = True  # what was heard of it goes on there
            self.drop(old.address)
        peer.node = node
        self._by_node[node] = peer

    def _unname(self, peer: Peer) -> None:
        """Another node is at this address now: what was heard there was not of that one. E4."""
        node, was_silent = peer.node, peer.silent
        peer.node, peer.heartbeat, peer.heard_mono = 0, None, float("-inf")
        peer.silent = True
        if self._by_node.get(node) is peer:
            del self._by_node[node]
            self._time.forget(node)
            if not was_silent:
                self._on_silent(node)

    def drop(self, address: str) -> None:
        """Forget a peer and hang up."""
        peer = self._by_address.pop(address, None)
        if peer is None:
            return
        if self._by_node.get(peer.node) is peer:
            del self._by_node[peer.node]
            self._time.forget(peer.node)
        if not peer.silent and not self._stopped:
            self._silence(peer)
            self._on_silent(peer.node)
        if peer.timer is not None:
            peer.timer.cancel()
        for link in (peer.control, peer.bulk):
            if link is not None:
                link.close()

    def at(self, address: str) -> Peer | None:
        """Return the peer at this address."""
        return self._by_address.get(address)

    def get(self, node: int) -> Peer | None:
        """Return the peer with this number."""
        return self._by_node.get(node)

    def is_live(self, node: int) -> bool:
        """Say whether a heartbeat came within the last election timeout."""
        peer = self._by_node.get(node)
        return peer is not None and not peer.silent

    def send(self, node: int, buffers: Sequence[Buffer]) -> bool:
        """Send one control frame; False if there is no link (the caller's protocol repeats)."""
        peer = self._by_node.get(node)
        if peer is None or peer.control is None:
            return False
        return peer.control.send(buffers)

    def bulk_link(self, node: int) -> Link | None:
        """Return the second link for catch-up bytes, dialing it if need be."""
        peer = self._by_node.get(node)
        if peer is None:
            return None
        if peer.bulk is None and peer.control is not None:
            self._dial(peer, "bulk")
        return peer.bulk

    # ------------------------------------------------------------------ what the network says

    def up(self, link: Link) -> None:
        """Take a link we dialed into use."""
        peer = self._by_address.get(link.address)
        if peer is None:
            link.close()
            return
        lane = link.lane
        peer.dialing.discard(lane)
        peer.gone = False
        peer.redial_ms = REDIAL_MS
        if link.peer.node:
            self._name(peer, link.peer.node)
        if lane == "bulk":
            peer.bulk = link
            return
        if peer.control is not None and peer.control is not link:
            peer.control.close()
        peer.control = link
        if peer.process != link.peer.process:
            peer.process = link.peer.process

    def down(self, link: Link) -> None:
        """A link is gone: redial, so as to learn whether the process is."""
        peer = self._by_address.get(link.address)
        if peer is None:
            return
        if peer.bulk is link:
            peer.bulk = None
        if peer.control is link:
            peer.control = None
            self._dial(peer, "control")

    def dial_failed(self, address: str, *, refused: bool) -> None:
        """A dial came to nothing. Refused after a closed link: the process is gone (E2)."""
        peer = self._by_address.get(address)
        if peer is None:
            return
        had_control = "control" in peer.dialing
        peer.dialing.clear()
        if not had_control and peer.control is not None:
            return  # only the bulk lane failed; it is dialed again when needed
        if refused and not peer.gone:
            peer.gone = True
            self._silence(peer)
            if peer.node:
                self._on_gone(peer.node)
        if not self._stopped:
            peer.timer = self._clock.call_later(peer.redial_ms, lambda: self._redial(peer))
            peer.redial_ms = min(peer.redial_ms * 2, REDIAL_MS_MAX)

    def _redial(self, peer: Peer) -> None:
        if self._by_address.get(peer.address) is peer and peer.control is None:
            self._dial(peer, "control")

    def _dial(self, peer: Peer, lane: str) -> None:
        if self._stopped or lane in peer.dialing:
            return
        peer.dialing.add(lane)
        self._network.dial(peer.address, lane)

    # ------------------------------------------------------------------ heartbeats

    def heard(self, heartbeat: Heartbeat) -> None:
        """Take in a peer's heartbeat."""
        peer = self._by_node.get(heartbeat.node)
        if peer is None:
            return
        restarted = peer.heartbeat is not None and peer.heartbeat.process != heartbeat.process
        was_silent = peer.silent
        peer.heartbeat = heartbeat
        peer.heard_mono = self._clock.mono_ms()
        peer.silent = False
        if restarted:
            self._time.forget(heartbeat.node)
        self._time.heard(heartbeat.node, heartbeat.wall_ms, heartbeat.mono_ms)
        if was_silent or restarted:
            self._on_heard(heartbeat.node, restarted)

    def beat(self, heartbeat: Heartbeat) -> None:
        """Send our heartbeat to everybody and notice who has gone silent."""
        frame = encode_struct(FRAME_HEARTBEAT, heartbeat)
        deadline = self._clock.mono_ms() - self.silent_ms
        for peer in list(self._by_address.values()):
            if peer.control is not None:
                peer.control.send(frame)
            if not peer.silent and peer.heard_mono < deadline:
                self._silence(peer)
                self._on_silent(peer.node)

    def _silence(self, peer: Peer) -> None:
        peer.silent = True
        self._time.forget(peer.node)

    def stop(self) -> None:
        """Hang up everywhere."""
        self._stopped = True
        for address in list(self._by_address):
            self.drop(address)
