"""Topics that come into being when somebody first publishes to them.

State: who waits for which topic. One creation serves all who publish to it meanwhile, each waits
no longer than it may take. One that was not answered in its time is begun again for those who came
later and have time left.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.model.errors import RaftlineError, TimedOut, TopicExists
from raftline.node.router import DEFINITE
from raftline.node.waiters import Told, Waiters

if TYPE_CHECKING:
    from raftline.node.node import Node

CREATE_TIMEOUT_MS = 5_000  # one creation serves callers with more and with less time
AGAIN_MS = 20
PASSING = (*DEFINITE, TimedOut)  # a creation can be repeated: a topic that exists will do


class FirstUse:
    """Creates topics at their first publish."""

    __slots__ = ("_creating", "_node")

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._creating: dict[str, Waiters] = {}  # by topic

    def may_create(self, topic: str) -> bool:
        """Say whether a topic that is not known here may be created, or found to be there.

        A catalog from before our start is no hindrance: creating asks the one that holds.
        """
        node = self._node
        return (
            node.is_ready
            and node.settings.topics.auto_create
            and topic not in node.catalog_machine.topics
        )

    def find(
        self,
        topic: str,
        partition: int,
        timeout_ms: int,
        refuse: Callable[[RaftlineError], None],
        then: Callable[[int], None],
    ) -> None:
        """Go on with the time that is left once a partition is there, made for it or not.

        ``then`` looks again, and comes back if it still is not: the catalog here may be behind.
        """
        if not self.may_create(topic):
            self._node.catalog_check.find(topic, partition, timeout_ms, refuse, then)
            return
        clock = self._node.clock
        deadline = clock.mono_ms() + timeout_ms

        def created(error: RaftlineError | None) -> None:
            left_ms = int(deadline - clock.mono_ms())
            if error is not None:
                refuse(error)
            elif left_ms <= 0:
                refuse(TimedOut(f"creating {topic}", timeout_ms))
            else:
                then(left_ms)

        self.create(topic, timeout_ms, created)

    def create(self, topic: str, timeout_ms: int, done: Told) -> None:
        """Create a topic once for all who wait for it, each no longer than it may take."""
        waiting = self._creating.get(topic)
        if waiting is not None:
            waiting.add(timeout_ms, done)
            return
        late_text = f"topic {topic} is being created; nothing was stored"
        waiting = self._creating[topic] = Waiters(self._node.clock, late_text)
        waiting.add(timeout_ms, done)
        self._begin(topic, waiting, max(timeout_ms, CREATE_TIMEOUT_MS))

    def _begin(self, topic: str, waiting: Waiters, create_ms: int) -> None:
        node = self._node

        def again() -> None:
            self._begin(topic, waiting, create_ms)

        def created(answer: dict[str, object] | RaftlineError) -> None:
            if isinstance(answer, PASSING) and len(waiting) and not node.is_stopping:
                node.clock.call_later(AGAIN_MS, again)
                return
            error = answer if isinstance(answer, RaftlineError) else None
            if isinstance(error, TopicExists):
                error = None
            del self._creating[topic]
            waiting.tell(error)

        node.command("topic.create", {"name": topic}, create_ms, created)
