"""The workload: clients that send, read, look up and trim through random nodes.

Every call is noted in the ``History`` with its beginning and its end (clients.py).

Invariants
    K1  Every batch has a body of its own; only a repeat of the same sequence sends it again.
    K2  A producer with an id has at most one batch on its way per partition, and goes on only
        when it knows whether the last one was stored; it repeats after unknown and refused alike.
    K3  Timestamps are whatever the client's clock says: not in order, not unique.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raftline.model.batch import check_batch
from raftline.testing.batches import seal
from raftline.testing.clients import Clients
from raftline.testing.history import BODY_FROM, History, Op, Producer

if TYPE_CHECKING:
    from raftline.model.calls import Appended, Looked, ReadReply
    from raftline.testing.cluster import SimCluster
    from raftline.testing.hosts import SimHost

READ_BYTES = 32 << 10
RETRIES_MAX = 30
RETRY_MS = 300.0


class WorkloadSettings(msgspec.Struct, frozen=True):
    """What the clients do, in parts of a hundred calls."""

    topic: str = "orders"
    partitions: int = 3
    producers: int = 4  # with an id and sequences
    appends: int = 60
    reads: int = 28
    lookups: int = 6
    trims: int = 2  # the rest publishes to new topics
    new_topics_max: int = 4
    messages_max: int = 20
    value_bytes_max: int = 160
    timeout_ms: int = 3_000


class _Sender:
    """A producer with an id, on one partition (K2)."""

    __slots__ = ("epoch", "id", "next_sequence", "partition", "waiting")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.id = -1
        self.epoch = 0
        self.next_sequence = 0
        self.waiting = False


class _Batch:
    """One sealed batch with what the checker must know of it."""

    __slots__ = ("count", "data", "ident", "partition", "producer", "timestamps_ms", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        data: bytes,
        timestamps_ms: tuple[int, ...],
        producer: Producer | None,
        ident: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.data = data
        self.timestamps_ms = timestamps_ms
        self.count = len(timestamps_ms)
        self.producer = producer
        self.ident = ident


class Workload:
    """All clients of a run."""

    def __init__(
        self,
        cluster: "SimCluster",
        rng: random.Random,
        history: History,
        settings: WorkloadSettings | None = None,
    ) -> None:
        self._cluster = cluster
        self._rng = rng
        self._history = history
        self._settings = settings or WorkloadSettings()
        self._bodies = 0
        self._ends: dict[tuple[str, int], int] = {}  # highest end any client has seen
        self._senders = [
            _Sender(i % self._settings.partitions) for i in range(self._settings.producers)
        ]
        self.topics: list[str] = [self._settings.topic]
        self._clients = Clients(cluster, rng, history, self._settings.timeout_ms)

    @property
    def open(self) -> int:
        """Return how many calls are on their way."""
        return self._clients.open

    def schedule(self, operations: int, start_ms: float, end_ms: float) -> None:
        """Spread ``operations`` over an interval."""
        times = sorted(
            start_ms + self._rng.random() * (end_ms - start_ms) for _ in range(operations)
        )
        for at_ms in times:
            self._cluster.world.at(at_ms, self._one)

    # What a client does

    def _one(self) -> None:
        settings = self._settings
        host = self._clients.some_host()
        topic, partition = settings.topic, self._rng.randrange(settings.partitions)
        dice = self._rng.randrange(100) - settings.appends
        if dice < 0:
            self._append(host, partition)
        elif (dice := dice - settings.reads) < 0:
            self.read(host, topic, partition, self._some_offset(topic, partition))
        elif (dice := dice - settings.lookups) < 0:
            self._look_up(host, topic, partition)
        elif (dice := dice - settings.trims) < 0:
            self._trim(host, topic, partition)
        else:
            self._publish_elsewhere(host)

    def _append(self, host: "SimHost", partition: int) -> None:
        rng = self._rng
        if rng.randrange(2):
            sender = self._senders[rng.randrange(len(self._senders))]
            if not sender.waiting:
                self._send(host, sender)
                return
        self.append(host, self._settings.topic, partition)

    def _publish_elsewhere(self, host: "SimHost") -> None:
        """Publish to a topic that may not exist yet."""
        number = self._rng.randrange(self._settings.new_topics_max)
        topic = f"new-{number}"
        if topic not in self.topics:
            self.topics.append(topic)
        self.append(host, topic, 0)

    def append(
        self,
        host: "SimHost",
        topic: str,
        partition: int,
        *,
        calm: bool = False,
        done: Callable[[Op], None] | None = None,
    ) -> Op:
        """Send one batch without a producer id, once."""
        return self._attempt(host, self._seal(topic, partition, None), calm, done)

    def _send(self, host: "SimHost", sender: _Sender) -> None:
        """Send the producer's next batch; first ask for an id if it has none."""
        sender.waiting = True
        if sender.id < 0:
            self._ask_for_id(host, sender)
            return
        producer = Producer(sender.id, sender.epoch, sender.next_sequence)
        batch = self._seal(self._settings.topic, sender.partition, producer)
        self._insist(host, sender, batch, 0)

    def _ask_for_id(self, host: "SimHost", sender: _Sender) -> None:
        def taken(op: Op, answer: dict[str, object]) -> None:
            del op
            number = next((v for v in answer.values() if isinstance(v, int)), -1)
            found = answer.get("producer_id", answer.get("first", number))
            sender.id = found if isinstance(found, int) else -1

        def ended(op: Op) -> None:
            del op
            sender.waiting = False

        self._command(host, "producer.new", {}, taken=taken, ended=ended)

    def _insist(self, host: "SimHost", sender: _Sender, batch: _Batch, tries: int) -> None:
        """Send until it is known to be stored (K2)."""

        def ended(op: Op) -> None:
            code = op.error.partition(":")[0]
            if op.outcome == "ok":
                sender.next_sequence += batch.count
                sender.waiting = False
            elif code in ("fenced_producer", "unknown_producer") or tries >= RETRIES_MAX:
                sender.id = -1  # a new life: the old sequence is given up
                sender.next_sequence = 0
                sender.waiting = False
            else:
                self._cluster.world.after(
                    RETRY_MS * (0.5 + self._rng.random()),
                    lambda: self._insist_again(sender, batch, tries + 1),
                )

        self._attempt(host, batch, calm=False, done=ended)

    def _insist_again(self, sender: _Sender, batch: _Batch, tries: int) -> None:
        self._insist(self._clients.some_host(), sender, batch, tries)

    def _attempt(
        self,
        host: "SimHost",
        batch: _Batch,
        calm: bool,  # noqa: FBT001
        done: Callable[[Op], None] | None,
    ) -> Op:
        op = self._clients.invoke("append", host, batch.topic, batch.partition)
        op.calm = calm
        op.ident = batch.ident
        op.count = batch.count
        op.timestamps_ms = batch.timestamps_ms
        op.producer = batch.producer

        def taken(op: Op, answer: "Appended") -> None:
            op.offset = answer.base_offset
            op.duplicate = answer.duplicate
            self._saw_end(op, answer.base_offset + answer.count)

        self._clients.call(
            host,
            op,
            lambda node, answer: node.append(
                batch.topic,
                batch.partition,
                batch.data,
                check_batch(batch.data),
                int(op.timeout_ms),
                answer,
            ),
            taken,
            done,
        )
        return op

    def read(
        self,
        host: "SimHost",
        topic: str,
        partition: int,
        offset: int,
        *,
        calm: bool = False,
        nearest: bool = False,
        done: Callable[[Op], None] | None = None,
    ) -> Op:
        """Read from an offset on: at the asked node's replica (``nearest``), or as chance will."""
        op = self._clients.invoke("read", host, topic, partition)
        op.calm = calm
        op.offset = offset
        op.linearizable = not nearest and self._rng.randrange(4) == 0
        any_replica = nearest or (not op.linearizable and self._rng.randrange(2) == 0)

        def taken(op: Op, answer: "ReadReply") -> None:
            op.runs = self._history.runs_of(answer.batches)
            op.log_start = answer.log_start
            op.commit_end = answer.commit_end
            self._saw_end(op, answer.commit_end)

        self._clients.call(
            host,
            op,
            lambda node, answer: node.read(
                topic,
                partition,
                offset,
                READ_BYTES,
                0,
                int(op.timeout_ms),
                answer,
                linearizable=op.linearizable,
                any_replica=any_replica,
            ),
            taken,
            done,
        )
        return op

    def _look_up(self, host: "SimHost", topic: str, partition: int) -> None:
        op = self._clients.invoke("lookup", host, topic, partition)
        now_ms = host.wall.now_ms()
        op.time_ms = now_ms - self._rng.randrange(-2_000, 30_000)

        def taken(op: Op, answer: "Looked") -> None:
            op.offset = answer.offset
            op.commit_end = answer.commit_end

        self._clients.call(
            host,
            op,
            lambda node, answer: node.look_up_time(
                topic, partition, op.time_ms, int(op.timeout_ms), answer
            ),
            taken,
            None,
        )

    def _trim(self, host: "SimHost", topic: str, partition: int) -> None:
        """Remove up to a third of what is known to be there."""
        offset = self._rng.randrange(self._ends.get((topic, partition), 0) // 3 + 1)
        arguments: dict[str, object] = {"name": topic, "partition": partition, "offset": offset}
        op = self._clients.invoke("trim", host, topic, partition)
        op.offset = offset
        self._clients.call(
            host,
            op,
            lambda node, answer: node.command("topic.trim", arguments, int(op.timeout_ms), answer),
            _nothing,
            None,
        )

    def command(
        self,
        host: "SimHost",
        name: str,
        arguments: dict[str, object],
        ended: Callable[[Op], None] | None = None,
    ) -> None:
        """Run an administrative command as one more client."""
        self._command(host, name, arguments, taken=_nothing, ended=ended)

    def _command(
        self,
        host: "SimHost",
        name: str,
        arguments: dict[str, object],
        *,
        taken: Callable[[Op, dict[str, object]], None],
        ended: Callable[[Op], None] | None,
    ) -> None:
        op = self._clients.invoke("command", host, name, 0)
        self._clients.call(
            host,
            op,
            lambda node, answer: node.command(name, arguments, int(op.timeout_ms), answer),
            taken,
            ended,
        )

    # What a client knows

    def _some_offset(self, topic: str, partition: int) -> int:
        """Choose where to read: anywhere, at the end, or a little beyond."""
        end = self._ends.get((topic, partition), 0)
        dice = self._rng.randrange(10)
        if dice == 0:
            return end
        if dice <= 3:
            return max(0, end - self._rng.randrange(1, 60))
        return self._rng.randrange(end + 1)

    def _saw_end(self, op: Op, end: int) -> None:
        key = (op.topic, op.partition)
        self._ends[key] = max(self._ends.get(key, 0), end)

    def _seal(self, topic: str, partition: int, producer: Producer | None) -> _Batch:
        rng = self._rng
        settings = self._settings
        self._bodies += 1
        count = rng.randrange(1, settings.messages_max + 1)
        now_ms = 1_790_000_000_000 + int(self._cluster.world.now_ms)
        timestamps_ms = tuple(now_ms + rng.randrange(-500, 500) for _ in range(count))
        values = [
            b"%d.%d " % (self._bodies, i) + b"x" * rng.randrange(settings.value_bytes_max)
            for i in range(count)
        ]
        sender = (-1, -1, -1) if producer is None else (producer.id, producer.epoch, 0)
        data = seal(
            values,
            timestamps_ms,
            producer_id=sender[0],
            producer_epoch=sender[1],
            base_sequence=-1 if producer is None else producer.sequence,
        )
        ident = self._history.sent(data[BODY_FROM:])
        return _Batch(topic, partition, data, timestamps_ms, producer, ident)


def _nothing(op: Op, answer: object) -> None:
    """Take an answer that says no more than that it is done."""
    del op, answer
