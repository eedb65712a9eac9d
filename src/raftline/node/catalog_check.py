"""Whether this node's catalog is as new as a question: asked before anything is denied.

What is not in the catalog here may be all the same: made while the node was down, or a moment ago
elsewhere (a follower hears of a commit with the next rpc, some milliseconds later). A check asks
the catalog's leader how far it is, confirmed by a majority, and waits until that is applied here.

State
    ``_asked`` wait for the check that is under way, ``_next`` for the one after it: a check that
    was begun before a question does not answer it.

Rules
    Q1  One check of a node is under way at a time, and they begin ``EVERY_MS`` apart: names that
        nobody knows are no way to load the leader. All who came meanwhile share the next one.
    Q2  Who cannot be told in time hears that the node is not ready: no word on what there is.
    Q3  At most ``CALLERS_MAX`` wait; one more is told so at once.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.model.errors import NotFound, NotReady, RaftlineError
from raftline.model.ids import CATALOG_SHARD
from raftline.node.remote import VERB_FRESH, Reply
from raftline.node.replica import Replica
from raftline.node.waiters import Told, Waiters

if TYPE_CHECKING:
    from raftline.node.node import Node

EVERY_MS = 10
CHECK_MS_MAX = 3_000
CALLERS_MAX = 10_000
LATE_TEXT = "the catalog's leader was not heard from in time"


class CatalogCheck:
    """Brings the catalog here up to now, for all who ask."""

    __slots__ = ("_asked", "_begun_mono", "_next", "_node", "_timer_is_set", "is_heard", "is_sure")

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._asked: Waiters | None = None
        self._next = Waiters(node.clock, LATE_TEXT)
        self._begun_mono = node.clock.mono_ms() - EVERY_MS
        self._timer_is_set = False
        self.is_heard = False  # the catalog here is no older than our start
        self.is_sure = False  # that, and the latest check came through

    def serve(self) -> None:
        """Answer other nodes."""
        self._node.remote.handle(VERB_FRESH, self._on_asked)

    def run(self, timeout_ms: int, done: Told) -> None:
        """Tell ``done`` when the catalog here has all that was committed when this was called."""
        node = self._node
        if not node.is_ready:
            done(NotReady(node.reason))
        elif len(self._next) >= CALLERS_MAX:  # Q3
            done(NotReady(f"{CALLERS_MAX} calls wait for the catalog already"))
        else:
            self._next.add(timeout_ms, done)
            self._begin()

    def before(
        self,
        timeout_ms: int,
        refuse: Callable[[RaftlineError], None],
        then: Callable[[int], None],
    ) -> None:
        """Check, then go on with the milliseconds that are left; or refuse."""
        clock = self._node.clock
        deadline = clock.mono_ms() + timeout_ms

        def checked(error: RaftlineError | None) -> None:
            left_ms = int(deadline - clock.mono_ms())
            if error is None and left_ms > 0:
                then(left_ms)
            else:
                refuse(error or NotReady(LATE_TEXT))

        self.run(timeout_ms, checked)

    def find(
        self,
        topic: str,
        partition: int,
        timeout_ms: int,
        refuse: Callable[[RaftlineError], None],
        then: Callable[[int], None],
    ) -> None:
        """Go on with the milliseconds that are left once a partition is known here, or refuse."""
        locate = self._node.locate

        def checked(left_ms: int) -> None:
            shard = locate(topic, partition)
            if isinstance(shard, RaftlineError):
                refuse(shard)
            else:
                then(left_ms)

        if isinstance(locate(topic, partition), NotFound):
            self.before(timeout_ms, refuse, checked)
        else:
            checked(timeout_ms)

    def _begin(self) -> None:
        """Begin the next check, unless one is under way or the last is too near. Q1."""
        if self._asked is not None or self._timer_is_set or not len(self._next):
            return
        clock = self._node.clock
        wait_ms = self._begun_mono + EVERY_MS - clock.mono_ms()
        if wait_ms > 0:
            self._timer_is_set = True
            clock.call_later(wait_ms, self._rested)
            return
        self._begun_mono = clock.mono_ms()
        self._asked, self._next = self._next, Waiters(clock, LATE_TEXT)
        self._node.router.send(
            CATALOG_SHARD, VERB_FRESH, [], CHECK_MS_MAX, self._answered, _applied, repeatable=True
        )

    def _rested(self) -> None:
        self._timer_is_set = False
        self._begin()

    def _answered(self, answer: int | bytes | RaftlineError) -> None:
        if isinstance(answer, RaftlineError):
            self._finish(NotReady(f"the catalog cannot be asked: {answer.message}"))
            return
        index = _decode_index(answer) if isinstance(answer, bytes) else answer

        def reached(ok: bool) -> None:  # noqa: FBT001
            self._finish(None if ok else NotReady("the catalog is catching up here"))

        self._node.wait_catalog(index, self._node.clock.mono_ms() + CHECK_MS_MAX, reached)

    def _finish(self, error: NotReady | None) -> None:
        self.is_sure = error is None
        self.is_heard = self.is_heard or self.is_sure
        asked, self._asked = self._asked, None
        assert asked is not None
        asked.tell(error)
        self._begin()

    def _on_asked(self, _body: memoryview, timeout_ms: int, reply: Reply) -> None:
        replica = self._node.led(CATALOG_SHARD)
        if isinstance(replica, RaftlineError):
            reply(replica)
            return
        _applied(
            replica,
            timeout_ms,
            lambda at: reply(at if isinstance(at, RaftlineError) else msgspec.msgpack.encode(at)),
        )


_decode_index = msgspec.msgpack.Decoder(int).decode


def _applied(
    replica: Replica, _timeout_ms: int, answer: Callable[[int | RaftlineError], None]
) -> None:
    """Answer with the index that all that was committed until now has been applied up to."""
    replica.read_index(lambda error: answer(replica.applied_index if error is None else error))
