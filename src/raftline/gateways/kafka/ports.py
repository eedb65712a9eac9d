"""What the Kafka gateway asks of a node, besides what all gateways do."""

from typing import Protocol

from raftline.gateways.ports import Calls
from raftline.model.calls import NodesView, TopicRow
from raftline.model.errors import RaftlineError
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

    def topic_names(self) -> list[str]:
        """Return the names of all topics, in order."""
        ...

    def topic_of(self, uuid: str) -> str | None:
        """Return the name of the topic with a uuid."""
        ...
