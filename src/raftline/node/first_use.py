"""Topics that come into being when somebody first publishes to them.

State: who waits for which topic. One creation serves all who publish to it meanwhile, each waits
no longer than it may take.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftline.model.errors import NotReady, RaftlineError

if TYPE_CHECKING:
    from raftline.node.node import Node

Created = Callable[[RaftlineError | None], None]
Waiting = dict[int, Created]
CREATE_TIMEOUT_MS = 5_000  # one creation serves callers with more and with less time


class FirstUse:
    """Creates topics at their first publish."""

    __slots__ = ("_count", "_creating", "_node")

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._creating: dict[str, Waiting] = {}  # by topic
        self._count = 0

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

    def create(self, topic: str, timeout_ms: int, done: Created) -> None:
        """Create a topic once for all who wait for it, each no longer than it may take."""
        waiting = self._creating.get(topic)
        if waiting is not None:
            self._wait(waiting, topic, timeout_ms, done)
            return
        waiting = self._creating[topic] = {}

        def created(answer: dict[str, object] | RaftlineError) -> None:
            error = answer if isinstance(answer, RaftlineError) else None
            if error is not None and error.code == "topic_exists":
                error = None
            calls = list(waiting.values())
            waiting.clear()
            del self._creating[topic]
            for call in calls:
                call(error)

        self._wait(waiting, topic, timeout_ms, done)
        create_ms = max(timeout_ms, CREATE_TIMEOUT_MS)
        self._node.command("topic.create", {"name": topic}, create_ms, created)

    def _wait(self, waiting: Waiting, topic: str, timeout_ms: int, done: Created) -> None:
        self._count += 1
        number = self._count

        def late() -> None:
            call = waiting.pop(number, None)
            if call is not None:
                call(NotReady(f"topic {topic} is being created; nothing was stored"))

        timer = self._node.clock.call_later(timeout_ms, late)

        def answered(error: RaftlineError | None) -> None:
            timer.cancel()
            done(error)

        waiting[number] = answered
