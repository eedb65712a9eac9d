"""The verdict over a work group: a clean history is clean, and each planted fault has its name."""

import copy
from collections.abc import Callable

import pytest

from raftline.chaos.queue_traffic import Delivery, QueueRecord, Sending
from raftline.chaos.queue_verdict import judge

NOW = 1_000_000


def delivery(body: str, at_ms: int, **what: object) -> Delivery:
    fields = {"partition": 0, "offset": 0, "attempt": 1, "verb": "ack", "outcome": "ok"}
    return Delivery(body=body, at_ms=at_ms, **{**fields, **what})  # type: ignore[arg-type]


def clean() -> QueueRecord:
    """Return a history with everything in it that may happen."""
    record = QueueRecord({}, {}, {}, {})
    plain = ("acked", "nacked", "rejected", "unknown ack", "lease lost", "failover", "not told")
    for offset, body in enumerate(plain):
        record.sendings[body] = Sending(body, outcome="ok", id=f"jobs/0/{offset}")
        record.bodies[body] = [(0, offset)]
    record.sendings["not told"].outcome = "unknown"
    record.sendings["refused"] = Sending("refused", outcome="refused")
    record.sendings["never came"] = Sending("never came", outcome="unknown")
    record.sendings["twice"] = Sending(
        "twice", outcome="ok", id="jobs/0/20", dedup_key="k", second_id="jobs/0/20"
    )
    record.sendings["later"] = Sending(
        "later", outcome="ok", id="w1", delay_ms=2_000, due_ms=NOW + 2_000, dedup_key="later"
    )
    record.sendings["cancelled"] = Sending(
        "cancelled", outcome="ok", id="w2", delay_ms=2_000, due_ms=NOW + 2_000, cancelled=True
    )
    record.sendings["perhaps cancelled"] = Sending(
        "perhaps cancelled", outcome="ok", id="w3", delay_ms=9, due_ms=NOW, cancel_in_doubt=True
    )
    record.bodies |= {"twice": [(0, 20)], "later": [(1, 4)]}
    record.letters = {"rejected": 1}
    record.deliveries = {
        "acked": [delivery("acked", NOW)],
        "not told": [delivery("not told", NOW)],
        "twice": [delivery("twice", NOW)],
        "nacked": [delivery("nacked", NOW, verb="nack"), delivery("nacked", NOW + 200, attempt=2)],
        "rejected": [delivery("rejected", NOW, verb="reject")],
        "later": [delivery("later", NOW + 2_010)],
        "unknown ack": [
            delivery("unknown ack", NOW, outcome="unknown"),
            delivery("unknown ack", NOW + 5_000, attempt=2),
        ],
        "lease lost": [  # noted in the order in which settles ended
            delivery("lease lost", NOW + 5_000, attempt=2),
            delivery("lease lost", NOW, outcome="lost"),
        ],
        "failover": [
            delivery("failover", NOW, outcome="lost"),
            delivery("failover", NOW + 900),
        ],
    }
    return record


def test_a_clean_history_is_clean_and_its_repeats_are_explained():
    verdict = judge(clean())
    assert not verdict.violations
    assert verdict.counts["sent"] == 10
    assert verdict.counts["fenced"] == 2
    assert verdict.counts["dead"] == 1
    assert {k: v for k, v in verdict.counts.items() if k.startswith("again")} == {
        "again: answer to the settle lost": 1,
        "again: leader gone before the lease was committed": 1,
        "again: lease ran out before the settle": 1,
        "again: nacked": 1,
    }
    assert verdict.late_ms_max == 10


def lost(record: QueueRecord) -> None:
    del record.bodies["acked"]


def lost_waiting(record: QueueRecord) -> None:
    del record.bodies["later"]


def refused_and_stored(record: QueueRecord) -> None:
    record.bodies["refused"] = [(0, 30)]
    record.deliveries["refused"] = [delivery("refused", NOW)]


def stored_twice(record: QueueRecord) -> None:
    record.bodies["acked"].append((0, 31))


def dedup_stored_twice(record: QueueRecord) -> None:
    record.bodies["twice"].append((0, 31))


def dedup_other_id(record: QueueRecord) -> None:
    record.sendings["twice"].second_id = "jobs/0/21"


def alien(record: QueueRecord) -> None:
    record.bodies["nobody sent this"] = [(2, 9)]
    record.deliveries["nobody sent this"] = [delivery("nobody sent this", NOW)]


def never_delivered(record: QueueRecord) -> None:
    record.deliveries["acked"] = []


def settled_twice(record: QueueRecord) -> None:
    record.deliveries["failover"][0] = delivery("failover", NOW)


def delivered_after_ack(record: QueueRecord) -> None:
    row = delivery("acked", NOW + 5_000, attempt=2, outcome="unknown")
    record.deliveries["acked"].append(row)


def fenced_ack(record: QueueRecord) -> None:
    """A worker whose lease ran out acks after the next one got it, and hears yes."""
    record.deliveries["lease lost"] = [
        delivery("lease lost", NOW + 5_000, attempt=2, outcome="lost"),
        delivery("lease lost", NOW + 6_000, attempt=1),
    ]


def fenced_nack(record: QueueRecord) -> None:
    record.deliveries["lease lost"].append(
        delivery("lease lost", NOW + 5_500, attempt=1, verb="nack")
    )


def attempt_lost(record: QueueRecord) -> None:
    record.deliveries["nacked"].insert(1, delivery("nacked", NOW + 150, verb="nack"))


def early(record: QueueRecord) -> None:
    record.deliveries["later"] = [delivery("later", NOW + 1_500)]


def cancelled_yet_delivered(record: QueueRecord) -> None:
    record.bodies["cancelled"] = [(0, 33)]
    record.deliveries["cancelled"] = [delivery("cancelled", NOW + 2_100)]


def no_dead_letter(record: QueueRecord) -> None:
    record.letters = {}


def dead_twice(record: QueueRecord) -> None:
    record.letters = {"rejected": 2}


@pytest.mark.parametrize(
    ("plant", "promise", "words"),
    [
        (lost, "P1", "not in the log"),
        (lost_waiting, "P1", "not in the log"),
        (refused_and_stored, "P10", "refused message is in the log"),
        (stored_twice, "P3", "stored twice"),
        (dedup_stored_twice, "P8", "stored twice"),
        (dedup_other_id, "P8", "another id"),
        (alien, "P2", "nobody sent"),
        (never_delivered, "P4", "never delivered"),
        (settled_twice, "P5", "two workers"),
        (delivered_after_ack, "P4", "anew after it was settled"),
        (fenced_ack, "P5", "lease had moved on"),
        (fenced_nack, "P5", "lease had moved on"),
        (attempt_lost, "P4", "nacked twice"),
        (early, "P6", "ms early"),
        (cancelled_yet_delivered, "P6", "cancel was answered"),
        (no_dead_letter, "P4", "no dead letter"),
        (dead_twice, "P4", "2 times"),
    ],
)
def test_a_planted_fault_is_named(plant: Callable[[QueueRecord], None], promise: str, words: str):
    record = copy.deepcopy(clean())
    plant(record)
    found = [(v.promise, v.text) for v in judge(record).violations]
    assert any(p == promise and words in text for p, text in found), found
    assert {p for p, _ in found} == {promise}, found


def test_a_delay_may_be_a_tenth_shorter_by_the_clocks_of_others():
    record = clean()
    record.deliveries["later"] = [delivery("later", NOW + 2_000 - 240)]
    assert not judge(record).violations
    record.deliveries["later"] = [delivery("later", NOW + 2_000 - 260)]
    assert [v.promise for v in judge(record).violations] == ["P6"]
