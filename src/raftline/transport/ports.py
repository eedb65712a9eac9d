"""What a node asks of the network: links to other nodes.

Two implementations: TCP (transport/tcp.py) and the simulated network of ``raftline.testing``.
Frames of one link arrive whole and in order, or the link goes down.
"""

from collections.abc import Sequence
from typing import Protocol

from raftline.wire.peer.hello import Hello

Buffer = bytes | bytearray | memoryview


class Link(Protocol):
    """One connection to another node, up since both hellos passed. Frames arrive in order."""

    peer: Hello
    dialed: bool  # we called them
    address: str  # what we dialed; "" on a link they dialed
    lane: str  # "control" or "bulk", as the caller asked for

    def send(self, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame (the joined buffers). False: over the limit or closed, nothing sent."""
        ...

    def close(self) -> None:
        """Hang up. ``link_down`` follows."""
        ...


class LinkEvents(Protocol):
    """What the network tells the node, always on the loop."""

    def hello(self) -> Hello:
        """Return what to say on a new connection."""
        ...

    def link_up(self, link: Link) -> str:
        """Both hellos are exchanged. Return "" to accept, else the reason for refusing."""
        ...

    def link_frame(self, link: Link, frame: memoryview) -> None:
        """One whole frame arrived. The view is valid only during the call: copy what is kept."""
        ...

    def link_down(self, link: Link) -> None:
        """An accepted link is gone."""
        ...

    def dial_failed(self, address: str, refused: bool, reason: str) -> None:  # noqa: FBT001
        """A dial did not become a link. ``refused``: the host said nobody listens there."""
        ...


class Network(Protocol):
    """Calls out. Listening is started by whoever builds the process."""

    def dial(self, address: str, lane: str = "control") -> None:
        """Try once to make a link; ``link_up`` or ``dial_failed`` follows. The node redials."""
        ...
