"""Nothing is denied before the catalog's leader was asked: what a gateway does with a "no".

A node knows topics from its own copy of the catalog, which may be behind. So a request that ends
with "there is no such topic" (or partition) is held back once, until the copy is up to now
(node/catalog_check.py): the denial then holds, or the request is run again. Such a refusal means
that nothing was done. Requests that are answered cost nothing.
"""

from collections.abc import Callable

from raftline.gateways.ports import Calls
from raftline.model.errors import NotReady, RaftlineError, UnknownPartition, UnknownTopic
from raftline.model.names import traced_topic
from raftline.node.ports import Clock

LOOK_MS_MAX = 2_000

Judged = Callable[[RaftlineError | None], None]


class SecondLook:
    """Judges denials."""

    __slots__ = ("_calls", "mono_ms")

    def __init__(self, clock: Clock, calls: Calls) -> None:
        self._calls = calls
        self.mono_ms = clock.mono_ms

    def is_due(self, error: RaftlineError) -> bool:
        """Say whether a refusal may be for want of knowing."""
        if isinstance(error, NotReady):
            return not self._calls.is_sure
        return isinstance(error, UnknownTopic | UnknownPartition)

    def take(self, error: RaftlineError, timeout_ms: int, judged: Judged) -> None:
        """Look again; ``judged`` hears what to say, or None: the request is worth another try."""

        def checked(problem: RaftlineError | None) -> None:
            judged(problem or (None if self._is_outdated(error) else error))

        self._calls.check_catalog(max(1, min(timeout_ms, LOOK_MS_MAX)), checked)

    def verdict(self, error: RaftlineError, timeout_ms: int, say: Callable[..., None]) -> None:
        """Look again for a request that cannot be run again: its caller may."""

        def judged(told: RaftlineError | None) -> None:
            say(told or NotReady(f"this node heard of it only now ({error.message})"))

        self.take(error, timeout_ms, judged)

    def _is_outdated(self, error: RaftlineError) -> bool:
        if isinstance(error, NotReady):
            return True
        topic, partition = str(error.extras["topic"]), error.extras.get("partition", 0)
        assert isinstance(partition, int)
        names = (topic, traced_topic(topic))
        return any(isinstance(self._calls.locate(name, partition), int) for name in names if name)
