"""What the Kafka gateway asks of a node, besides what all gateways do."""

from collections.abc import Callable
from typing import Protocol

from raftline.gateways.ports import Calls
from raftline.model.calls import NodesView, TopicRow
from raftline.model.errors import RaftlineError
from raftline.model.groups import Answer, GroupList
from raftline.node.group_calls import GroupRequest
from raftline.node.led import LedPartition


class KafkaCalls(Calls, Protocol):
    """A node, as this gateway sees it."""

    def led_partition(self, topic: str, partition: int) -> LedPartition | RaftlineError:
        """Return a partition that is led here, else where to go (``NotLeader``)."""
        ...

    def nodes_view(self) -> NodesView:
        """Return the nodes as this one sees them (no waiting)."""
        ...

    def find_topic(self, name: str) -> TopicRow | None:
        """Return one topic as this node sees it (no waiting)."""
        ...

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 if this node knows none of that name."""
        ...

    def unknown(self, topic: str) -> RaftlineError:
        """Say that there is no such topic (UnknownTopic), or that we do not know (NotReady)."""
        ...

    def topic_names(self) -> list[str]:
        """Return the names of all topics, in order."""
        ...

    def group_here(
        self, request: GroupRequest, timeout_ms: int, done: Callable[[Answer | RaftlineError], None]
    ) -> None:
        """Answer for a group that is coordinated here, else refuse (``NotLeader``)."""
        ...

    def groups_here(
        self, timeout_ms: int, done: Callable[[GroupList | RaftlineError], None]
    ) -> None:
        """List the groups that are coordinated here."""
        ...

    def find_coordinator(
        self, group: str, timeout_ms: int, done: Callable[[int | RaftlineError], None]
    ) -> None:
        """Find the node that coordinates a group."""
        ...

    def topic_of(self, uuid: str) -> str | None:
        """Return the name of the topic with a uuid."""
        ...
