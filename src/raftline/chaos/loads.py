"""All the load of a run on a cluster: to start, to bring to its end, to judge, to write down."""

from pathlib import Path
from typing import Any

import msgspec

from raftline.chaos import kafka_traffic
from raftline.chaos.catalog_traffic import CatalogTraffic
from raftline.chaos.kafka_traffic import KafkaTraffic
from raftline.chaos.kafka_verdict import judge_kafka
from raftline.chaos.keyed_traffic import KeyedTraffic, judge_keyed
from raftline.chaos.linear import check_partitions
from raftline.chaos.queue_traffic import QueueTraffic
from raftline.chaos.queue_verdict import judge_queue
from raftline.chaos.rig import Rig
from raftline.chaos.traffic import Judgement, Traffic
from raftline.testing.checker import Violation

TOPIC = "chaos-log"
SENDERS = {
    "append_ok": "producers",
    "queue sent": "senders to the queue",
    "keyed sent": "senders to the ordered group",
    "kafka sent": "Kafka producers",
    "catalog_calls": "creators of topics",
}


class Loads:
    """Everything that works on the cluster during a run."""

    def __init__(
        self, rig: Rig, left_out: dict[str, str], *, seed: int, queue: bool, kafka: bool
    ) -> None:
        self._rig = rig
        self.log = Traffic(rig, topic=TOPIC, partitions=2, pause_s=0.02, seed=seed).start()
        self.queue = QueueTraffic(rig, seed=seed) if queue else None
        self.keyed = KeyedTraffic(rig, seed=seed) if queue else None
        self.kafka = None
        if kafka:
            why = kafka_traffic.why_not()
            if why:
                left_out["Kafka clients"] = why
            else:
                self.kafka = KafkaTraffic(rig, seed=seed)
        for crowd in (self.queue, self.keyed, self.kafka):
            if crowd is not None:
                crowd.start()
        self.catalog = CatalogTraffic(rig, seed=seed).start()

    def judge(self) -> tuple[Judgement, list[Violation], dict[str, int]]:
        """Let everything heal and come to its end, then judge it."""
        self.catalog.stop()
        judged = self.log.judge(allowed_bugs=("node.failed", "process.failed"))
        found = [
            *judged.verdict.violations,
            *check_partitions(self.log.history),
            *self.catalog.judge(),
        ]
        changes = [change for same in self.catalog.changes.values() for change in same]
        calls = sum(change.told is not None for change in changes)
        counts = {**judged.verdict.counts, "catalog_calls": calls}
        if self.queue is not None:
            self.queue.drain()
            judged_queue = judge_queue(self._rig, self.queue)
            _add("queue", (list(judged_queue.violations), judged_queue.counts), found, counts)
            counts["queue late_ms_max"] = judged_queue.late_ms_max
        if self.keyed is not None:
            self.keyed.drain()
            _add("keyed", judge_keyed(self.keyed.record), found, counts)
        if self.kafka is not None:
            self.kafka.drain()
            _add("kafka", judge_kafka(self.kafka.record), found, counts)
        for load in (self.queue, self.keyed, self.kafka):
            found += [Violation("P10", text) for text in (load.problems if load else ())]
        return judged, [*found, *not_exercised(counts)], counts

    def hush(self) -> None:
        """Tell every client to end, all at once; returns at once."""
        for load in (self.log, self.catalog, self.queue, self.keyed, self.kafka):
            if load is not None:
                load.hush()

    def keep(self, directory: Path) -> None:
        """Write the histories down, as evidence."""
        write_lines(directory / "log-history.jsonl", self.log.history.ops)
        changes = [change for same in self.catalog.changes.values() for change in same]
        write_lines(directory / "catalog-history.jsonl", changes)
        if self.queue is not None:
            sendings = list(self.queue.sendings.values())
            deliveries = [row for rows in list(self.queue.deliveries.values()) for row in rows]
            write_lines(directory / "queue-history.jsonl", [*sendings, *deliveries])
        if self.keyed is not None:
            write_lines(directory / "keyed-history.jsonl", self.keyed.record.handed)
        if self.kafka is not None:
            seen = self.kafka.record
            rows = [*seen.sent, *seen.reads, *seen.turns, *seen.commits]
            write_lines(directory / "kafka-history.jsonl", rows)


def not_exercised(counts: dict[str, int]) -> list[Violation]:
    """Return the loads that ran and got nothing acknowledged: of them nothing could be judged."""
    return [
        Violation("P10", f"{words} got nothing acknowledged: nothing of theirs was judged")
        for name, words in SENDERS.items()
        if counts.get(name) == 0
    ]


def _add(
    name: str,
    judged: tuple[list[Violation], dict[str, int]],
    found: list[Violation],
    counts: dict[str, int],
) -> None:
    found += judged[0]
    counts.update({f"{name} {what}": count for what, count in judged[1].items()})


def write_lines(file: Path, rows: list[Any]) -> None:
    """Write one line of JSON for each row."""
    file.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in list(rows)))
