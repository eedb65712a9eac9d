"""Judges what became of every message of a work group: P1, P3, P4, P5, P6 and P8, from outside.

It knows what senders and workers were told (``queue_traffic``), what the log holds in the end and
what the dead-letter topic holds. What may come twice, comes twice for a reason; it is counted:

    an answer got lost      the ack may have been taken or not, so the message may come again
    the lease ran out       while nobody could take the ack
    the leader was gone     before the first lease was committed: the same attempt, delivered anew
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator

import msgspec

from raftline.chaos.queue_traffic import (
    PARTITIONS,
    TOPIC,
    Delivery,
    QueueRecord,
    QueueTraffic,
    Sending,
)
from raftline.chaos.rig import Rig
from raftline.client.line import Line
from raftline.testing.checker import Violation

EARLY_MS_MAX = 50  # log time may run a tenth faster than the sender's clock, and clocks have steps
EARLY_SHARE_MAX = 0.1
LATE_MS = 1_000
PAGE = 1_000
UNEXPLAINED = "without a reason"


class QueueVerdict(msgspec.Struct, frozen=True):
    """What was found."""

    violations: tuple[Violation, ...]
    counts: dict[str, int]
    late_ms_max: int


def judge_queue(rig: Rig, traffic: QueueTraffic) -> QueueVerdict:
    """Read everything back and check it."""
    bodies, letters = _read_back(rig)
    return judge(QueueRecord(traffic.sendings, dict(traffic.deliveries), bodies, letters))


def judge(record: QueueRecord) -> QueueVerdict:
    """Check what was seen against what is stored."""
    violations = [
        *_stored(record),
        *_worked_off(record),
        *_settled_once(record),
        *_unexplained(record),
        *_fenced(record),
        *_attempts(record),
        *_times(record),
        *_dead(record),
    ]
    late = [
        row[0].at_ms - sending.due_ms
        for body, sending in record.sendings.items()
        if sending.due_ms and (row := record.deliveries.get(body))
    ]
    deliveries = [row for rows in record.deliveries.values() for row in rows]
    counts = {
        "sent": sum(s.outcome == "ok" for s in record.sendings.values()),
        "unknown": sum(s.outcome == "unknown" for s in record.sendings.values()),
        "delivered": len(deliveries),
        "acked": sum((d.verb, d.outcome) == ("ack", "ok") for d in deliveries),
        "fenced": sum(d.outcome == "lost" for d in deliveries),
        "dead": sum(record.letters.values()),
        "cancelled": sum(s.cancelled for s in record.sendings.values()),
        "late": sum(ms > LATE_MS for ms in late),
        **_again(record),
    }
    return QueueVerdict(tuple(violations), counts, max(late, default=0))


def _read_back(rig: Rig) -> tuple[dict[str, list[tuple[int, int]]], dict[str, int]]:
    line = Line([rig.node(name).http for name in rig.running()], timeout="20s")
    bodies: dict[str, list[tuple[int, int]]] = defaultdict(list)
    letters: Counter[str] = Counter()
    try:
        for partition in range(PARTITIONS):
            for body, offset in _messages(line, TOPIC, partition):
                bodies[body].append((partition, offset))
        dead = f"{TOPIC}.dlq"
        if any(topic["name"] == dead for topic in line.topics.list()):
            for partition in range(len(line.topics.show(dead)["partitions"])):
                letters.update(body for body, _ in _messages(line, dead, partition))
    finally:
        line.close()
    return dict(bodies), dict(letters)


def _messages(line: Line, topic: str, partition: int) -> Iterator[tuple[str, int]]:
    offset = int(line.offsets(topic, partition)["log_start"])
    while True:
        page = line.read(topic, partition=partition, offset=offset, count=PAGE)
        if not page.messages:
            return
        for message in page.messages:
            yield (message.value or b"").decode(), message.offset
        offset = page.next_offset


def _stored(record: QueueRecord) -> Iterator[Violation]:
    for body, sending in record.sendings.items():
        places = record.bodies.get(body, [])
        may_be_gone = sending.cancelled or sending.cancel_in_doubt
        if sending.outcome == "ok" and not places and not may_be_gone:
            yield Violation("P1", "an acknowledged message is not in the log", _told(sending))
        if sending.outcome == "refused" and places:
            yield Violation("P10", "a refused message is in the log", f"{_told(sending)} {places}")
        if len(places) > 1:
            promise = "P8" if sending.dedup_key else "P3"
            yield Violation(promise, "one message is stored twice", f"{_told(sending)} {places}")
        if sending.second_id and sending.second_id != sending.id:
            yield Violation("P8", "a repeat got another id", _told(sending))
    for body in record.bodies:
        if body not in record.sendings:
            yield Violation("P2", "the log holds what nobody sent", body)


def _worked_off(record: QueueRecord) -> Iterator[Violation]:
    for body in record.bodies:
        if not record.deliveries.get(body):
            yield Violation("P4", "a message was never delivered", body)


def _settled_once(record: QueueRecord) -> Iterator[Violation]:
    for body, rows in record.deliveries.items():
        done = [row for row in rows if row.verb in ("ack", "reject") and row.outcome == "ok"]
        if len(done) > 1:
            yield Violation("P5", "two workers were told that they settled it", f"{body} {done}")


def _fenced(record: QueueRecord) -> Iterator[Violation]:
    """A settle that began when a later attempt was already with somebody must be refused."""
    for body, rows in record.deliveries.items():
        for row in rows:
            later = [o for o in rows if o.attempt > row.attempt and o.at_ms < row.at_ms]
            if row.outcome == "ok" and later:
                text = f"{body}: {row} after {later[0]}"
                yield Violation("P5", "a settle was accepted although its lease had moved on", text)


def _attempts(record: QueueRecord) -> Iterator[Violation]:
    for body, rows in record.deliveries.items():
        nacked: list[Delivery] = [r for r in rows if (r.verb, r.outcome) == ("nack", "ok")]
        for row in nacked:
            if sum(other.attempt == row.attempt and other in nacked for other in rows) > 1:
                yield Violation("P4", "one attempt was nacked twice", f"{body} {rows}")
                break


def _times(record: QueueRecord) -> Iterator[Violation]:
    for body, sending in record.sendings.items():
        rows = record.deliveries.get(body, [])
        if sending.cancelled and rows:
            yield Violation("P6", "delivered although its cancel was answered", _told(sending))
        if sending.due_ms and rows:
            early_ms = sending.due_ms - min(row.at_ms for row in rows)
            if early_ms > EARLY_MS_MAX + EARLY_SHARE_MAX * sending.delay_ms:
                yield Violation("P6", f"delivered {early_ms} ms early", _told(sending))


def _dead(record: QueueRecord) -> Iterator[Violation]:
    rejected = {
        body
        for body, rows in record.deliveries.items()
        if any((row.verb, row.outcome) == ("reject", "ok") for row in rows)
    }
    for body in rejected:
        if not record.letters.get(body):
            yield Violation("P4", "a rejected message is no dead letter", body)
    for body, count in record.letters.items():
        if count > 1:
            yield Violation("P4", f"a dead letter is there {count} times", body)


def _again(record: QueueRecord) -> dict[str, int]:
    """Count deliveries after the first, by why."""
    found: Counter[str] = Counter()
    for rows in record.deliveries.values():
        for before, after in itertools.pairwise(sorted(rows, key=lambda row: row.at_ms)):
            found[f"again: {_why_again(before, after)}"] += 1
    return dict(sorted(found.items()))


def _why_again(before: Delivery, after: Delivery) -> str:
    if before.verb == "nack" and before.outcome == "ok":
        return "nacked"
    if after.attempt <= before.attempt:
        return "leader gone before the lease was committed"
    if before.outcome == "unknown":
        return "answer to the settle lost"
    return "lease ran out before the settle" if before.outcome == "lost" else UNEXPLAINED


def _unexplained(record: QueueRecord) -> Iterator[Violation]:
    for body, rows in record.deliveries.items():
        for before, after in itertools.pairwise(sorted(rows, key=lambda row: row.at_ms)):
            if _why_again(before, after) == UNEXPLAINED:
                yield Violation("P4", "delivered anew after it was settled", f"{body} {rows}")
                break


def _told(sending: Sending) -> str:
    return f"{sending.body!r} id {sending.id}: {sending.outcome}"
