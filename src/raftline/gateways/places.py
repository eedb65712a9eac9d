"""Where a question about groups goes: the partitions of one topic or of all, and their bounds."""

from raftline.gateways.fan import Call
from raftline.gateways.ports import Calls
from raftline.model.message import FIRST_MS

Place = tuple[str, int]  # topic, partition


class Places:
    """The partitions this node's catalog knows, and questions to them."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def of(self, topic: str) -> list[Place]:
        """Return the partitions of a topic, or of all. Raises UnknownTopic."""
        rows = [self._calls.known_topic(topic)] if topic else self._calls.known_topics()
        return [(row.name, p.partition) for row in rows for p in row.partitions]

    def asking(
        self, place: Place, name: str, arguments: dict[str, object], timeout_ms: int
    ) -> Call:
        """Return the call that asks a partition's leader."""
        topic, partition = place
        return lambda take: self._calls.ask(topic, partition, name, arguments, timeout_ms, take)

    def looking(self, place: Place, time_ms: int, timeout_ms: int) -> Call:
        """Return the call that looks a time up; 0: where what is kept begins, and its end."""
        topic, partition = place
        since_ms = time_ms or FIRST_MS
        return lambda take: self._calls.look_up_time(topic, partition, since_ms, timeout_ms, take)
