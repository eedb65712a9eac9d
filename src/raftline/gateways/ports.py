"""The few calls a gateway may make on a node.

Every call is answered exactly once by ``done(answer)``: on the loop, perhaps before the call
returns, and within the call's ``timeout_ms`` as done (a reply), refused or unknown (a
``RaftlineError``; ``TimedOut`` is the only error after which the effect is unknown). Any node
takes any call and forwards it to the leader.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from raftline.machines.delivery.commands import START_FIRST, Settle
from raftline.machines.partition.side_car import SideCar
from raftline.model.batch import BatchInfo
from raftline.model.calls import (
    Appended,
    CatalogView,
    ClusterStatus,
    Looked,
    NewWaiting,
    ReadReply,
    Received,
    Scheduled,
    Settled,
    TopicRow,
    Verified,
)
from raftline.model.errors import RaftlineError
from raftline.model.groups import Answer, GroupList, Request
from raftline.model.overview import Overview
from raftline.model.settings import Value
from raftline.node.counter import always
from raftline.telemetry.counters import Counters
from raftline.telemetry.metrics import Board


class Calls(Protocol):
    """A node, as gateways see it."""

    counters: Counters  # where gateways count too: ``counters.gateway("http")``

    def append(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        info: BatchInfo,
        timeout_ms: int,
        done: Callable[[Appended | RaftlineError], None],
        side: SideCar | None = None,
    ) -> None:
        """Store one sealed batch. Creates the topic at first use where settings allow it.

        ``side`` has priorities and dedup keys. Remembered keys: ``DuplicateKey``, nothing stored.
        """
        ...

    def settings_of(self, topic: str) -> dict[str, Value]:
        """Return every setting of a topic as it holds; of one that is not known, the defaults."""
        ...

    def partitions_for(
        self, topic: str, keys: Sequence[bytes | None]
    ) -> list[int] | RaftlineError | None:
        """Choose partitions with the topic's partitioner; None: the topic does not exist yet."""
        ...

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        bytes_max: int,
        wait_ms: int,
        timeout_ms: int,
        done: Callable[[ReadReply | RaftlineError], None],
        *,
        linearizable: bool = False,
        any_replica: bool = False,
    ) -> None:
        """Read whole committed batches that hold ``offset`` and on; wait for more if at the end."""
        ...

    def look_up_time(
        self,
        topic: str,
        partition: int,
        time_ms: int,
        timeout_ms: int,
        done: Callable[[Looked | RaftlineError], None],
    ) -> None:
        """Find the first message with a timestamp at or after ``time_ms``."""
        ...

    def command(
        self,
        name: str,
        arguments: dict[str, object],
        timeout_ms: int,
        done: Callable[[dict[str, object] | RaftlineError], None],
    ) -> None:
        """Run an administrative command anywhere in the cluster.

        Names: topic.create {name, partitions, replication_factor, settings} · topic.delete {name,
        uuid (none: whichever has the name)} · topic.set {name, settings, unset} · topic.grow {name,
        partitions in all} · topic.trim {name, partition, offset} · cluster.add {name, address} ·
        cluster.remove {node, force} · cluster.replace {node, by} · cluster.move {topic, partition,
        from_node (none: one replica more), to_node} · cluster.transfer {topic, partition, to_node}
        · cluster.recover {accept_loss} · producer.new {}.
        """
        ...

    def receive(
        self,
        topic: str,
        group: str,
        partition: int,
        count_max: int,
        bytes_max: int,
        lease_ms: int,
        wait_ms: int,
        member: str,
        timeout_ms: int,
        done: Callable[[Received | RaftlineError], None],
        *,
        start: int = START_FIRST,
        ordered: bool = False,
        is_wanted: Callable[[], bool] = always,
    ) -> None:
        """Lease messages to a member of a work group; wait for some if there are none.

        ``partition`` -1: of whichever partition has the highest lane waiting. ``lease_ms`` 0: as
        the topic says. ``start`` and ``ordered`` hold for a group that begins with this call. Where
        ``is_wanted`` says no after a wait on this node, nothing is leased: the worker is gone.
        """
        ...

    def settle(
        self,
        topic: str,
        partition: int,
        settles: list[Settle],
        timeout_ms: int,
        done: Callable[[Settled | RaftlineError], None],
    ) -> None:
        """Ack, nack, reject or extend leased messages; answered when it is committed."""
        ...

    def schedule(
        self,
        topic: str,
        partition: int,
        items: Sequence[NewWaiting],
        timeout_ms: int,
        done: Callable[[Scheduled | RaftlineError], None],
    ) -> None:
        """Let messages wait until they are due; each has its own outcome."""
        ...

    def group(
        self, request: Request, timeout_ms: int, done: Callable[[Answer | RaftlineError], None]
    ) -> None:
        """Ask the coordinator of a stream group; the request says what it is answered with."""
        ...

    def stream_groups(
        self, timeout_ms: int, done: Callable[[GroupList | RaftlineError], None]
    ) -> None:
        """List all stream groups."""
        ...

    def ask(
        self,
        topic: str,
        partition: int,
        name: str,
        arguments: dict[str, object],
        timeout_ms: int,
        done: Callable[[dict[str, object] | RaftlineError], None],
    ) -> None:
        """Ask the leader of a partition, linearizably; repeated when an answer got lost.

        Names are those that parts of the node added (node/questions.py).
        """
        ...

    def verify(self, timeout_ms: int, done: Callable[[Verified | RaftlineError], None]) -> None:
        """Compare the digests of all replicas of all shards."""
        ...

    def metrics(self, done: Callable[[Board], None]) -> None:
        """Put the values of all metrics of this node together, a little at a time."""
        ...

    def overview(self, timeout_ms: int, done: Callable[[Overview], None]) -> None:
        """Ask all live nodes what they lead; costs no consensus and wakes no shard."""
        ...

    @property
    def is_sure(self) -> bool:
        """Say whether the catalog's leader was heard since the start, and when last asked."""
        ...

    def check_catalog(self, timeout_ms: int, done: Callable[[RaftlineError | None], None]) -> None:
        """Bring this node's catalog up to now; callers share it (node/catalog_check.py)."""
        ...

    def locate(self, topic: str, partition: int) -> int | RaftlineError:
        """Return the shard of a partition, or why there is none (no waiting)."""
        ...

    def known_topic(self, name: str) -> TopicRow:
        """Return one topic (no waiting). Raises UnknownTopic; NotReady: this node may be behind."""
        ...

    def known_topics(self) -> tuple[TopicRow, ...]:
        """Return all topics (no waiting). Raises NotReady until the catalog's leader was heard."""
        ...

    def catalog(self) -> CatalogView:
        """Return this node's view of topics and nodes (no waiting)."""
        ...

    def status(self) -> ClusterStatus:
        """Return nodes, shards, leaders and health as this node sees them (no waiting)."""
        ...
