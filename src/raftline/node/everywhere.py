"""Changes of topics that every node knows before their caller hears of them.

A follower learns of a commit with the next append, some milliseconds later. Who created a topic and
went to another node with it would be told that there is none; who deleted one would still see it
listed there. So the asked node asks the others whether they have come so far.

Rules
    E1  Only nodes that are heard from are waited for, and none for longer than ``REACH_MS_MAX``:
        one that hangs does not hold up a change that is committed.
    E2  A node that answers has applied the change, or is too late: the change stands either way.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.model.errors import TimedOut
from raftline.node.remote import VERB_REACHED, Answer, Reply

if TYPE_CHECKING:
    from raftline.node.node import Node

REACH_MS_MAX = 1_000

_pack = msgspec.msgpack.encode
_decode_index = msgspec.msgpack.Decoder(int).decode


class Everywhere:
    """Waits until the catalogs of others have applied an index."""

    __slots__ = ("_node",)

    def __init__(self, node: "Node") -> None:
        self._node = node

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_REACHED, self._on_asked)

    def wait(self, index: int, left_ms: float, done: Callable[[], None]) -> None:
        """Call ``done`` once every live node has applied ``index`` of the catalog. E1."""
        node = self._node
        others = [
            int(number)
            for number in sorted(node.catalog_machine.nodes)
            if number != node.id and node.peers.is_live(int(number))
        ]
        missing = len(others)
        if not missing:
            done()
            return

        def answered(_answer: Answer) -> None:  # E2
            nonlocal missing
            missing -= 1
            if not missing:
                done()

        body, timeout_ms = [_pack(index)], max(1, int(min(left_ms, REACH_MS_MAX)))
        for number in others:
            node.remote.call(number, VERB_REACHED, body, timeout_ms, answered)

    def _on_asked(self, body: memoryview, timeout_ms: int, reply: Reply) -> None:
        index = _decode_index(body)
        deadline = self._node.clock.mono_ms() + timeout_ms

        def reached(ok: bool) -> None:  # noqa: FBT001
            late = TimedOut("the catalog to reach this node", timeout_ms)
            reply(b"" if ok else late)

        self._node.wait_catalog(index, deadline, reached)
