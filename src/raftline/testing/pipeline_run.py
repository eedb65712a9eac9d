"""The part of jobs in a simulated run: one that writes, one that reads, and what must come of it.

Some seeds have it (sim.py): it costs as much as a tenth of a run.
"""

import random
from typing import TYPE_CHECKING, Any

from raftline.testing.batches import open_batches
from raftline.testing.checker import Violation
from raftline.testing.clients import Clients
from raftline.testing.history import History
from raftline.testing.pipeline_asks import JobAsks
from raftline.testing.pipeline_reader import Reader
from raftline.testing.pipeline_writer import Writer

if TYPE_CHECKING:
    from raftline.testing.cluster import SimCluster

TOPIC = "pipe"
TIMEOUT_MS = 3_000
DRAIN_MS_MAX = 30_000.0
LOOK_MS = 500.0


class PipelineRun:
    """Topic, jobs, drain and verdict."""

    def __init__(self, cluster: "SimCluster", history: History, rng: random.Random) -> None:
        self._cluster = cluster
        clients = Clients(cluster, rng, history, TIMEOUT_MS)
        self._asks = JobAsks(clients, TOPIC)
        self.writer = Writer(self._asks, rng)
        self.reader = Reader(self._asks, rng)
        self._log: list[tuple[int, bytes]] = []

    @property
    def open(self) -> int:
        """Return how many calls are on their way."""
        return self._asks.clients.open

    def create(self) -> None:
        """Create the topic."""
        self._cluster.create_topic(TOPIC, 1)

    def start(self) -> None:
        """Let the jobs run."""
        self.writer.begin()
        self.reader.begin()
        self.reader.work()

    def drain(self) -> None:
        """Let the writer end its batch and the reader take the rest."""
        world = self._cluster.world
        limit_ms = world.now_ms + DRAIN_MS_MAX
        self.writer.is_ending = self.reader.is_ending = True
        while world.now_ms < limit_ms:
            world.run_to(world.now_ms + LOOK_MS)
            if self.writer.is_idle and self._is_read():
                break
        self._asks.is_over = True
        world.run_until(lambda: not self.open, world.now_ms + TIMEOUT_MS)

    def _is_read(self) -> bool:
        """Say whether nothing waits and everything is settled, as the leaders see it."""
        shards = [row.shard for row in self._cluster.partitions(TOPIC)]
        for host in self._cluster.hosts.values():
            held: Any = getattr(host.node, "shards", None)
            replica = held.get(shards[0]) if held is not None else None
            if replica is not None and replica.is_leader:
                machine = replica.host.machine
                return not machine.waiting.count and self.reader.is_done(machine.next_offset)
        return False

    def read(self) -> None:
        """Read the log."""
        for reply in self._cluster.replies(TOPIC, 0):
            self._log += [(m.offset, m.value or b"") for m in open_batches(reply.batches)]

    def counts(self) -> dict[str, int]:
        """Return what there was to judge."""
        reader = self.reader
        return {
            "published batches": len(self.writer.answers),
            "query leases": len(reader.known),
            "committed messages": len(reader.committed),
        }

    def check(self) -> list[Violation]:
        """Judge what was seen and what was committed."""
        found = list(self.writer.check(self._log))
        if not self.writer.is_idle:
            found.append(Violation("STAGE", f"batch {self.writer.batch} never ended", ""))
        return found + list(self.reader.check(offset for offset, _ in self._log))
