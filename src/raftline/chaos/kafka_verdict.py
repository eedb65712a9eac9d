"""Judges what Kafka clients saw (``kafka_traffic``): P1, P2, P3 and GROUPS.

    P1      what a delivery report called stored is in the log, where the report says
    P2      a consumer reads nothing that is not in the log for good
    P3      an idempotent producer's message is stored once, in the order of sending
    GROUPS  the group reads every message; a member that takes a partition over begins at or after
            every cursor that was committed before, and reads on without leaving anything out

A message may be read again: by who takes a partition over, from the last committed cursor on.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from raftline.chaos.kafka_traffic import KafkaRecord, Read
from raftline.testing.checker import Violation


def judge_kafka(record: KafkaRecord) -> tuple[list[Violation], dict[str, int]]:
    """Return what is wrong, and counts."""
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for partition, rows in record.log.items():
        for offset, value in rows:
            places[value].append((partition, offset))
    violations = [
        *_stored(record, places),
        *_in_order(record, places),
        *_read_right(record),
        *_read_all(record),
        *_taken_over(record),
    ]
    again = len(record.reads) - len({(read.partition, read.offset) for read in record.reads})
    counts = {
        "sent": sum(sent.outcome == "ok" for sent in record.sent),
        "unknown": sum(sent.outcome != "ok" for sent in record.sent),
        "read": len(record.reads),
        "commits": len(record.commits),
        "assignments": sum(turn.what == "assign" for turn in record.turns),
        "again: partition taken over": again,
        "producers made anew": len(record.made_anew),
    }
    return violations, counts


def _stored(record: KafkaRecord, places: dict[str, list[tuple[int, int]]]) -> Iterator[Violation]:
    known = {sent.value for sent in record.sent}
    for sent in record.sent:
        found = places.get(sent.value, [])
        told = (sent.partition, sent.offset)
        if sent.outcome == "ok" and told not in found:
            yield Violation("P1", "an acknowledged Kafka message is lost", f"{sent} {found}")
        if len(found) > 1:
            yield Violation("P3", "a Kafka message is stored twice", f"{sent} {found}")
    for value, found in places.items():
        if value not in known:
            yield Violation("P2", "the log holds what no producer sent", f"{value} {found}")


def _in_order(record: KafkaRecord, places: dict[str, list[tuple[int, int]]]) -> Iterator[Violation]:
    last: dict[tuple[str, int], tuple[int, str]] = {}
    for sent in record.sent:  # by order of sending
        for partition, offset in places.get(sent.value, [])[:1]:
            before, value = last.get((sent.session, partition), (-1, ""))
            if offset < before:
                text = f"{sent.value} @{offset} after {value} @{before} of partition {partition}"
                yield Violation("P3", "a producer's messages changed their order", text)
            last[sent.session, partition] = (offset, sent.value)


def _read_right(record: KafkaRecord) -> Iterator[Violation]:
    log = {(p, offset): value for p, rows in record.log.items() for offset, value in rows}
    for read in record.reads:
        if log.get((read.partition, read.offset)) != read.value:
            held = log.get((read.partition, read.offset))
            yield Violation("P2", "read, and not what the log holds", f"{read}: {held}")


def _read_all(record: KafkaRecord) -> Iterator[Violation]:
    read = {(row.partition, row.offset) for row in record.reads}
    for partition, rows in record.log.items():
        missing = [offset for offset, _ in rows if (partition, offset) not in read]
        if missing:
            text = f"partition {partition}: {len(missing)}, first {missing[:5]}"
            yield Violation("GROUPS", "messages that the group never read", text)


def _taken_over(record: KafkaRecord) -> Iterator[Violation]:
    """Check where each stretch of reading begins, and that nothing is left out inside it."""
    assigned: dict[tuple[str, int], list[float]] = defaultdict(list)
    for turn in record.turns:
        if turn.what == "assign":
            for partition in turn.partitions:
                assigned[turn.member, partition].append(turn.at_ms)
    stretches: dict[tuple[str, int, int], list[Read]] = defaultdict(list)
    for read in record.reads:
        number = bisect_right(assigned[read.member, read.partition], read.at_ms)
        stretches[read.member, read.partition, number].append(read)
    for (member, partition, number), reads in stretches.items():
        offsets = [offset for offset, _ in record.log.get(partition, [])]
        began_ms = assigned[member, partition][number - 1] if number else 0.0
        cursor = max(
            (c.offset for c in record.commits if c.partition == partition and c.at_ms < began_ms),
            default=0,
        )
        if reads[0].offset < cursor:
            text = f"{member}, partition {partition}: from {reads[0].offset}, committed {cursor}"
            yield Violation("GROUPS", "reading began before a committed cursor", text)
        at = bisect_right(offsets, reads[0].offset) - 1
        wanted = offsets[at : at + len(reads)]
        if [read.offset for read in reads] != wanted:
            text = f"{member}, partition {partition}, from {reads[0].offset}"
            yield Violation("GROUPS", "a member left something out or went back", text)
