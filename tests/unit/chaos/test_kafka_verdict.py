"""The verdicts over Kafka clients and over an ordered group: clean is clean, faults have names."""

import copy
from collections.abc import Callable

import pytest

from raftline.chaos.kafka_traffic import Commit, KafkaRecord, Read, Sent, Turn
from raftline.chaos.kafka_verdict import judge_kafka
from raftline.chaos.keyed_traffic import Handed, KeyedRecord, judge_keyed


def clean() -> KafkaRecord:
    """Two members; the second takes partition 0 over and reads one message again."""
    log = {0: [(n, f"s/{n}") for n in range(6)], 1: [(n, f"s/1{n}") for n in range(3)]}
    sent = [
        Sent(value, "s", number, 0.0, 1.0, "ok", partition, offset)
        for number, (partition, offset, value) in enumerate(
            [(p, o, v) for p, rows in log.items() for o, v in rows]
        )
    ]
    sent[2].outcome = "unknown"  # stored although nobody was told
    sent.append(Sent("s/lost on its way", "s", 99, 0.0, 1.0))
    reads = [Read("a", 0, n, f"s/{n}", 10.0 + n) for n in range(4)]
    reads += [Read("b", 1, n, f"s/1{n}", 10.0 + n) for n in range(3)]
    reads += [Read("b", 0, n, f"s/{n}", 30.0 + n) for n in range(3, 6)]
    turns = [
        Turn("a", "assign", (0, 1), 5.0),
        Turn("a", "revoke", (1,), 6.0),
        Turn("b", "assign", (1,), 7.0),
        Turn("a", "revoke", (0,), 20.0),
        Turn("b", "assign", (0,), 25.0),
    ]
    return KafkaRecord(sent, reads, turns, [Commit("a", 0, 3, 18.0)], log)


def test_a_clean_history_is_clean():
    violations, counts = judge_kafka(clean())
    assert not violations
    assert (counts["sent"], counts["unknown"], counts["read"]) == (8, 2, 10)
    assert counts["again: partition taken over"] == 1
    assert counts["assignments"] == 3


def lost(record: KafkaRecord) -> None:
    record.log[1].pop()
    record.reads = [read for read in record.reads if read.value != "s/12"]


def elsewhere(record: KafkaRecord) -> None:
    record.sent[0].offset = 5


def twice(record: KafkaRecord) -> None:
    record.log[0].append((6, "s/5"))
    record.reads.append(Read("b", 0, 6, "s/5", 40.0))


def swapped(record: KafkaRecord) -> None:
    record.sent[0], record.sent[1] = record.sent[1], record.sent[0]


def alien(record: KafkaRecord) -> None:
    record.log[0].append((6, "who?"))
    record.reads.append(Read("b", 0, 6, "who?", 40.0))


def read_uncommitted(record: KafkaRecord) -> None:
    record.reads[3] = Read("a", 0, 3, "s/other", 13.0)


def unread(record: KafkaRecord) -> None:
    record.reads.pop()


def cursor_forgotten(record: KafkaRecord) -> None:
    record.commits.append(Commit("a", 0, 4, 19.0))


def skipped(record: KafkaRecord) -> None:
    del record.reads[1]
    record.reads.insert(0, Read("c", 0, 1, "s/1", 1.0))


@pytest.mark.parametrize(
    ("plant", "promise", "words"),
    [
        (lost, "P1", "lost"),
        (elsewhere, "P1", "lost"),
        (twice, "P3", "stored twice"),
        (swapped, "P3", "order"),
        (alien, "P2", "no producer sent"),
        (read_uncommitted, "P2", "not what the log holds"),
        (unread, "GROUPS", "never read"),
        (cursor_forgotten, "GROUPS", "before a committed cursor"),
        (skipped, "GROUPS", "left something out"),
    ],
)
def test_a_planted_fault_is_named(plant: Callable[[KafkaRecord], None], promise: str, words: str):
    record = copy.deepcopy(clean())
    plant(record)
    violations, _ = judge_kafka(record)
    assert any(v.promise == promise and words in v.text for v in violations), violations
    assert {v.promise for v in violations} == {promise}


def keyed() -> KeyedRecord:
    log = [(0, 0, "k", "a"), (0, 1, "other", "b"), (0, 2, "k", "c")]
    handed = [
        Handed("a", 1.0, 2.0, "nack", "ok"),
        Handed("a", 10.0, 11.0, "ack", "unknown"),
        Handed("b", 1.0, 3.0, "ack", "ok"),
        Handed("c", 20.0, 21.0, "ack", "ok"),
        Handed("a", 22.0, 23.0, "ack", "lost"),  # once more, by a leader that was deposed
    ]
    return KeyedRecord({"a", "c"}, handed, log)


def test_an_ordered_group_is_judged_by_the_order_of_its_log():
    assert judge_keyed(keyed()) == ([], {"sent": 2, "delivered": 5})
    record = keyed()
    record.handed[3] = Handed("c", 5.0, 6.0, "ack", "ok")  # a was nacked, and waits
    assert [v.promise for v in judge_keyed(record)[0]] == ["P7"]
    record = keyed()
    record.log.pop()
    assert [v.promise for v in judge_keyed(record)[0]] == ["P1"]
    record = keyed()
    del record.handed[2]
    assert [v.promise for v in judge_keyed(record)[0]] == ["P4"]
