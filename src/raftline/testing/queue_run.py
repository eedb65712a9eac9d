"""The queue's part of a simulated run: a topic, its clients, the drain at the end, the verdict.

After the faults have ended *drainers* receive and ack whatever comes, and the dead are revived,
until no group owes anybody anything: everything that was ever stored must then be settled or dead,
and every death must be in the dead-letter topic once.
"""

import random
from typing import TYPE_CHECKING, Any

from raftline.machines.delivery.selection import AGED
from raftline.machines.partition.machine import AppendedEntry, PartitionMachine
from raftline.model.dead_letter import read_letter
from raftline.model.names import dead_letter_topic
from raftline.model.records import open_batch
from raftline.testing.batches import open_batches
from raftline.testing.checker import Violation
from raftline.testing.cluster import SimError
from raftline.testing.history import History
from raftline.testing.queue_checker import check_queue
from raftline.testing.queue_history import (
    DeadLetter,
    Delivery,
    QueueFinal,
    QueueHistory,
    Stored,
    number_of,
)
from raftline.testing.queue_replay import Replay
from raftline.testing.queue_workload import QueueSettings, QueueWorkload
from raftline.testing.tape import Tape

if TYPE_CHECKING:
    from raftline.model.calls import PartitionRow
    from raftline.testing.cluster import SimCluster
    from raftline.testing.history import Op
    from raftline.testing.hosts import SimHost

DRAIN_MS_MAX = 40_000.0  # leases of the workload end within five seconds
LOOK_MS = 500.0
PAUSE_MS = 100.0
REVIVE_MS = 1_500.0


class QueueRun:
    """Topic, clients, drain and verdict."""

    def __init__(
        self,
        cluster: "SimCluster",
        history: History,
        rng: random.Random,
        tape: Tape,
        settings: QueueSettings | None = None,
    ) -> None:
        self._cluster = cluster
        self._rng = rng
        self._tape = tape
        self.settings = settings or QueueSettings()
        self.history = QueueHistory(history)
        self.workload = QueueWorkload(cluster, rng, self.history, self.settings)
        self.final = QueueFinal()
        self._replays: dict[int, Replay] = {}  # by shard
        self._draining = False

    def create(self) -> None:
        """Create the topic."""
        settings = self.settings
        self._cluster.create_topic(
            settings.topic,
            settings.partitions,
            settings={
                "max_retries": settings.max_retries,
                "backoff_ms": settings.backoff_ms,
                **({"priorities": settings.mode} if settings.mode else {}),
            },
        )

    # The end

    def calm(self) -> None:
        """The faults are over."""
        self.workload.members.calm()

    def drain(self) -> None:
        """Let workers take whatever is left, until nothing is."""
        world = self._cluster.world
        limit_ms = world.now_ms + DRAIN_MS_MAX
        self._draining = True
        members = self.workload.members
        members.commit_all()
        for partition in range(self.settings.partitions):
            for group, ordered in self.settings.groups:
                self._take(partition, group, ordered=ordered)
        self._revive()
        while world.now_ms < limit_ms:
            world.run_to(world.now_ms + LOOK_MS)
            if self._is_drained():
                break
        self._draining = False
        members.show()
        members.stop()
        world.run_until(lambda: not self.workload.open, world.now_ms + self.settings.timeout_ms)

    def _take(self, partition: int, group: str, *, ordered: bool) -> None:
        """Receive and ack, again and again."""
        if not self._draining:
            return
        cluster = self._cluster
        host = self._some_host()

        def got(delivery: Delivery) -> None:
            self.workload.workers.settle(host, delivery, "ack", delivery.items, calm=True)

        def ended(op: "Op") -> None:
            del op
            cluster.world.after(PAUSE_MS, lambda: self._take(partition, group, ordered=ordered))

        self.workload.workers.receive(
            host, partition, group, 100, ordered=ordered, wait_ms=300, lease_ms=3_000,
            member="drainer", calm=True, got=got, ended=ended,
        )  # fmt: skip

    def _revive(self) -> None:
        """Have the dead delivered again, so that their keys go on."""
        if self._draining and self._partitions(dead_letter_topic(self.settings.topic)):
            host = self._some_host()
            self.workload.keepers.redrive(host, "redrive", calm=True)
        if self._draining:
            self._cluster.world.after(REVIVE_MS, self._revive)

    def _some_host(self) -> "SimHost":
        hosts = [host for host in self._cluster.hosts.values() if host.running]
        return hosts[self._rng.randrange(len(hosts))]

    def _is_drained(self) -> bool:
        """Say whether nobody is owed anything, and nothing waits."""
        left = [left for replay in self._feed() for left in replay.left()]
        return not left and not any(replay.waiting for replay in self._replays.values())

    def _feed(self) -> list[Replay]:
        """Replay what was committed since."""
        sent = self.history.sent()
        for row in self._partitions(self.settings.topic):
            replay = self._replays.get(row.shard)
            if replay is None:
                replay = self._replays[row.shard] = Replay(
                    self.settings.topic, row.partition, is_aged=self.settings.mode in ("", AGED)
                )
            replay.sent = sent
            replay.feed(self._tape.entries(row.shard, replay.index))
        return list(self._replays.values())

    # The verdict

    def read(self) -> None:
        """Read the logs and the dead letters."""
        cluster, topic = self._cluster, self.settings.topic
        for partition in range(self.settings.partitions):
            replies = list(cluster.replies(topic, partition))
            start = replies[-1].log_start
            name = f"{topic}/{partition}"
            self.final.log_starts[name] = start
            self.final.logs[name] = tuple(
                Stored(m.offset, number_of(m.value), m.key)
                for reply in replies
                for m in open_batches(reply.batches)
                if m.offset >= start
            )
        self.final.letters = tuple(self._letters())

    def _letters(self) -> list[DeadLetter]:
        """Return every dead letter that was ever stored: a purge trims the topic."""
        found: list[DeadLetter] = []
        for row in self._partitions(dead_letter_topic(self.settings.topic)):
            machine = PartitionMachine()
            for index, term, data in self._tape.entries(row.shard):
                for event in machine.apply(index, term, data):
                    if isinstance(event, AppendedEntry):
                        for batch in event.stored:
                            piece = data[batch.start : batch.start + batch.length]
                            found += _letters_in(piece)
        return found

    def _differences(self) -> list[Violation]:
        """Compare the replayed state with that of every replica, restored or not."""
        found: list[Violation] = []
        for shard, replay in self._replays.items():
            for host in self._cluster.hosts.values():
                shards: Any = getattr(host.node, "shards", None)
                replica = shards.get(shard) if shards is not None else None
                if replica is None or replica.frozen or replica.applied_index < replay.index:
                    continue
                digest = replica.host.machine.digest()
                if digest != replay.digest:
                    text = f"the state of {replay.name} on {host.name} is not what its log says"
                    found.append(Violation("P2", text, f"{digest}, replayed {replay.digest}"))
        return found

    def _partitions(self, topic: str) -> tuple["PartitionRow", ...]:
        try:
            return self._cluster.partitions(topic)
        except SimError:
            return ()

    def check(self) -> list[Violation]:
        """Judge what was seen and what was committed."""
        found: list[Violation] = []
        for replay in self._feed():
            found += replay.found
            found += replay.check_letters(self.final.letters)
            self.final.left = (*self.final.left, *replay.left())
            self.final.granted.update(replay.granted)
            self.final.ever[replay.name] = replay.stored
            if replay.waiting:
                text = f"{replay.waiting} messages of {replay.name}"
                self.final.waiting = (*self.final.waiting, text)
        found += self._differences()
        for text in self._tape.conflicts[:5]:
            found.append(Violation("P2", "replicas apply different entries", text))
        found += self.workload.members.check(self.settings.partitions)
        return found + check_queue(self.history, self.final)


def _letters_in(batch: bytes) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    for message in open_batch(batch):
        letter = read_letter(message)
        if letter is not None:
            story = letter.story
            found.append(
                DeadLetter(
                    story.topic,
                    story.partition,
                    story.group,
                    story.offset,
                    story.generation,
                    story.attempts,
                    number_of(message.value),
                )
            )
    return found
