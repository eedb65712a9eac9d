"""From checked messages to batches, and from batches to the node."""

from collections.abc import Callable

from raftline.gateways.ports import Calls
from raftline.gateways.publication import Group
from raftline.gateways.topic_finder import TopicFinder
from raftline.gateways.wanted import Settings
from raftline.machines.partition.side_car import SideCar
from raftline.model.batch import check_batch
from raftline.model.calls import Appended, NewWaiting, Scheduled
from raftline.model.errors import RaftlineError
from raftline.model.message import NewMessage
from raftline.model.records import seal_batch
from raftline.node.ports import Clock


class NodePublisher:
    """What a publication needs (publication.Publisher), on a node."""

    __slots__ = ("_batch_bytes_max", "_calls", "_clock", "_finder")

    def __init__(
        self, clock: Clock, calls: Calls, finder: TopicFinder, *, batch_bytes_max: int
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._finder = finder
        self._batch_bytes_max = batch_bytes_max

    def wall_ms(self) -> int:
        """Return the time for messages that come without one."""
        return self._clock.wall_ms()

    def mono_ms(self) -> float:
        """Return the time that timeouts go by."""
        return self._clock.mono_ms()

    def settings_of(self, topic: str) -> Settings:
        """Return a way to the topic's settings."""
        return lambda: self._calls.settings_of(topic)

    def choose(
        self,
        topic: str,
        keys: list[bytes | None],
        timeout_ms: int,
        done: Callable[[list[int] | RaftlineError], None],
    ) -> None:
        """Choose a partition for each key."""
        self._finder.choose(topic, keys, timeout_ms, done)

    def append(
        self,
        topic: str,
        group: Group,
        timeout_ms: int,
        done: Callable[[Appended | RaftlineError], None],
    ) -> None:
        """Seal and store the messages of ``group``."""
        messages = [draft.message for draft in group.drafts]
        self.append_messages(topic, group.partition, messages, timeout_ms, done, group.side())

    def append_messages(
        self,
        topic: str,
        partition: int,
        messages: list[NewMessage],
        timeout_ms: int,
        done: Callable[[Appended | RaftlineError], None],
        side: SideCar | None = None,
    ) -> None:
        """Seal messages into one batch and store it."""
        try:
            batch = seal_batch(messages)
            info = check_batch(batch, bytes_max=self._batch_bytes_max)
        except RaftlineError as error:
            done(error)
            return
        self._calls.append(topic, partition, batch, info, timeout_ms, done, side)

    def schedule(
        self,
        topic: str,
        group: Group,
        timeout_ms: int,
        done: Callable[[Scheduled | RaftlineError], None],
    ) -> None:
        """Seal the messages of ``group`` one by one and let them wait."""
        items: list[NewWaiting] = []
        try:
            for draft in group.drafts:
                wanted, batch = draft.wanted, seal_batch([draft.message])
                check_batch(batch, bytes_max=self._batch_bytes_max)
                dedup = wanted.key_hash or b""
                items.append(NewWaiting(batch, wanted.due_ms, wanted.priority, dedup))
        except RaftlineError as error:
            done(error)
            return
        self._calls.schedule(topic, group.partition, items, timeout_ms, done)
