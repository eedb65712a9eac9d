"""The workload of the queue: producers, workers and people who look after them, by chance.

Producers send messages with keys, priorities and dedup keys; workers receive some of them in a
plain or an ordered group and ack, nack, reject, extend, do nothing or come too late. What they do
and hear is noted in the ``QueueHistory``.

Invariants
    V1  Every message has a number of its own in its value; a dedup key is sent again with another.
    V2  A worker settles only what it received, under the lease it received it with, as often and
        as late as chance will.
"""

import random
from typing import TYPE_CHECKING

import msgspec

from raftline.machines.delivery.commands import VERBS
from raftline.testing.clients import Clients
from raftline.testing.group_members import GroupMembers
from raftline.testing.queue_history import Delivery, Item, QueueHistory
from raftline.testing.queue_keepers import Keepers
from raftline.testing.queue_producers import Producers
from raftline.testing.queue_workers import Workers

if TYPE_CHECKING:
    from raftline.testing.cluster import SimCluster
    from raftline.testing.hosts import SimHost


class QueueSettings(msgspec.Struct, frozen=True):
    """What the clients of the queue do, in parts of a hundred calls."""

    topic: str = "jobs"
    partitions: int = 3
    max_retries: int = 2
    backoff_ms: int = 300
    groups: tuple[tuple[str, bool], ...] = (("plain", False), ("line", True))  # name, ordered
    sends: int = 36
    receives: int = 44
    schedules: int = 8
    changes: int = 8  # cancels and moves; the rest: a trim, a reset, redrives and purges
    messages_max: int = 3
    receive_max: int = 12
    keys: int = 6
    dedup_keys: int = 40
    delay_ms_max: int = 12_000
    members: int = 3  # of a stream group on the same topic
    priorities: tuple[int, ...] = (0, 0, 0, 5, -3)
    mode: str = ""  # how lanes are served; empty: the seed says
    timeout_ms: int = 3_000


class QueueWorkload:
    """All clients of the queue in one run."""

    def __init__(
        self,
        cluster: "SimCluster",
        rng: random.Random,
        history: QueueHistory,
        settings: QueueSettings | None = None,
    ) -> None:
        self._cluster = cluster
        self._rng = rng
        self._settings = settings or QueueSettings()
        self._clients = Clients(cluster, rng, history.history, self._settings.timeout_ms)
        topic = self._settings.topic
        self.producers = Producers(self._clients, history, topic, self._settings.keys)
        self.workers = Workers(self._clients, history, topic)
        self.keepers = Keepers(self._clients, history, topic)
        self._history = history
        settings = self._settings
        self.members = GroupMembers(self._clients, rng, "readers", topic, settings.members)

    @property
    def open(self) -> int:
        """Return how many calls are on their way."""
        return self._clients.open

    def schedule(self, operations: int, start_ms: float, end_ms: float) -> None:
        """Spread ``operations`` over an interval."""
        rng = self._rng
        times = sorted(start_ms + rng.random() * (end_ms - start_ms) for _ in range(operations))
        for at_ms in times:
            self._cluster.world.at(at_ms, self._one)
        self.members.start()

    def _one(self) -> None:
        settings, rng = self._settings, self._rng
        host = self._clients.some_host()
        partition = rng.randrange(settings.partitions)
        dice = rng.randrange(100) - settings.sends
        if dice < 0:
            self._send_some(host, partition)
        elif (dice := dice - settings.schedules) < 0:
            self._schedule_one(host, partition)
        elif (dice := dice - settings.changes) < 0:
            self._change_one(host)
        elif (dice := dice - settings.receives) == 0:
            self._trim_some(host, partition)
        elif dice == 1:
            group = settings.groups[rng.randrange(len(settings.groups))][0]
            offset = rng.randrange(-10, self._end_of(partition) + 1)
            self.keepers.restart_group(host, partition, group, max(-1, offset))
        elif dice > 1:
            group = settings.groups[rng.randrange(len(settings.groups))][0]
            verb = "redrive" if rng.randrange(3) else "purge"
            self.keepers.redrive(host, verb, group=group if rng.randrange(2) else "")
        else:
            group, ordered = settings.groups[rng.randrange(len(settings.groups))]
            if rng.randrange(3) == 0:
                partition = -1
            self._work(host, partition, group, ordered=ordered)

    # Producers

    def _send_some(self, host: "SimHost", partition: int) -> None:
        """Send a few messages, or one with a dedup key that others may have used."""
        settings, rng = self._settings, self._rng
        if rng.randrange(4) == 0:
            dedup_key = f"d{rng.randrange(settings.dedup_keys)}"
            self.producers.send(host, partition, [self._priority()], dedup_key=dedup_key)
        else:
            count = rng.randrange(1, settings.messages_max + 1)
            self.producers.send(host, partition, [self._priority() for _ in range(count)])

    def _priority(self) -> int:
        return self._settings.priorities[self._rng.randrange(len(self._settings.priorities))]

    # Keepers

    def _schedule_one(self, host: "SimHost", partition: int) -> None:
        settings, rng = self._settings, self._rng
        delay_ms = 1 + int(rng.random() ** 2 * settings.delay_ms_max)
        dedup_key = f"d{rng.randrange(settings.dedup_keys)}" if rng.randrange(4) == 0 else ""
        key = b"k%d" % rng.randrange(settings.keys) if rng.randrange(3) else None
        self.keepers.schedule(
            host, partition, delay_ms, priority=self._priority(), key=key, dedup_key=dedup_key
        )

    def _change_one(self, host: "SimHost") -> None:
        """Cancel or move one of the last messages that were to wait."""
        rng = self._rng
        waiting = [s for s in self._history.sends if s.waiting >= 0 and not s.duplicate][-12:]
        if waiting:
            sent = waiting[rng.randrange(len(waiting))]
            if rng.randrange(2):
                self.keepers.change(host, sent, "cancel")
            else:
                delay_ms = 1 + rng.randrange(self._settings.delay_ms_max)
                self.keepers.change(host, sent, "move", delay_ms)

    def _trim_some(self, host: "SimHost", partition: int) -> None:
        """Remove up to a third of what is known to be there."""
        self.keepers.trim(host, partition, self._rng.randrange(self._end_of(partition) // 3 + 1))

    def _end_of(self, partition: int) -> int:
        ends = [s.offset for s in self._history.sends if s.partition == partition]
        return max(0, *ends, 0)

    # Workers

    def _work(self, host: "SimHost", partition: int, group: str, *, ordered: bool) -> None:
        rng = self._rng
        count = 1 + int(rng.random() ** 2 * self._settings.receive_max)
        wait_ms = rng.randrange(3) * rng.randrange(800)
        lease_ms = 500 + rng.randrange(4_000)
        self.workers.receive(
            host, partition, group, count, ordered=ordered, wait_ms=wait_ms, lease_ms=lease_ms,
            member=f"w{rng.randrange(6)}", got=self._treat,
        )  # fmt: skip

    def _treat(self, delivery: Delivery) -> None:
        """Do what a worker may do with its messages; some it forgets. V2."""
        rng, world = self._rng, self._cluster.world
        if rng.randrange(12) == 0:
            return  # it crashed
        parts: dict[tuple[str, int], list[Item]] = {}
        for item in delivery.items:
            dice = rng.randrange(100)
            if dice < 70:
                verb = "ack"
            elif dice < 84:
                verb = "nack"
            elif dice < 88:
                verb = "reject"
            elif dice < 94:
                verb = "extend"
            elif dice < 97:
                verb = "release"
            else:
                continue
            parts.setdefault((verb, rng.randrange(2)), []).append(item)
        for (verb, _), items in parts.items():
            delay_ms = rng.random() ** 3 * 5_000.0
            world.after(delay_ms, lambda v=verb, i=items: self._settle_some(delivery, v, i))

    def _settle_some(self, delivery: Delivery, verb: str, items: list[Item]) -> None:
        rng, world = self._rng, self._cluster.world
        self.workers.settle(self._clients.some_host(), delivery, verb, items)
        if verb == "extend":
            world.after(rng.random() * 2_000.0, lambda: self._settle_some(delivery, "ack", items))
        elif rng.randrange(10) == 0:  # again: it lost the answer, or changed its mind
            again = VERBS[rng.randrange(3)]
            world.after(rng.random() * 3_000.0, lambda: self._settle_some(delivery, again, items))
