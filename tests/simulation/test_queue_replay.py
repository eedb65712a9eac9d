"""The replay of a committed log on entries written by hand, and the readings of a stream group."""

import pytest

from raftline.machines.delivery import leases
from raftline.machines.delivery.commands import (
    ACK,
    REJECT,
    START_FIRST,
    Command,
    Grant,
    OpenGroup,
    Policy,
    Settle,
    encode_deliver,
)
from raftline.machines.partition.commands import encode_append
from raftline.model.batch import check_batch
from raftline.model.limits import WAIT_BOUND_MS
from raftline.testing.batches import seal
from raftline.testing.checker import Violation
from raftline.testing.clients import Clients
from raftline.testing.cluster import SimCluster
from raftline.testing.group_members import GroupMembers, Reading
from raftline.testing.history import History
from raftline.testing.queue_history import DeadLetter, Sent
from raftline.testing.queue_replay import GRANT_LATE_MS, Replay

TERM = 1


class Log:
    """A log with messages of key k, and a group on it."""

    def __init__(self, *, ordered: bool = False) -> None:
        self.replay = Replay("jobs", 0)
        self.index = 0
        self.sent = 0
        self.ordered = ordered
        self.deliver(0, OpenGroup("g", Policy(ordered=ordered), START_FIRST))

    def append(self, at_ms: int, key: bytes | None = None) -> None:
        self.sent += 1
        sent = Sent(op=0, number=self.sent, topic="jobs", partition=0, key=key)
        self.replay.sent = {**self.replay.sent, self.sent: sent}
        batch = seal([b"job %d " % self.sent], [at_ms], keys=[key])
        self.feed(encode_append(at_ms, [(batch, check_batch(batch))]))

    def deliver(self, at_ms: int, *commands: Command) -> None:
        self.feed(encode_deliver(at_ms, list(commands)))

    def grant(self, at_ms: int, offset: int, sequence: int, attempt: int = 1) -> None:
        spans = [offset, offset + 1, attempt, 0]
        keys = [0] if self.ordered else None
        self.deliver(at_ms, Grant("g", sequence, "m", at_ms + 1_000, spans, keys))

    def settle(self, at_ms: int, offset: int, sequence: int, verb: int = ACK) -> None:
        ranges = [offset, offset + 1]
        self.deliver(at_ms, Settle("g", verb, TERM, sequence, 1, 0, ranges))

    def feed(self, data: bytes) -> None:
        self.index += 1
        self.replay.feed([(self.index, TERM, data)])

    def promises(self) -> list[str]:
        return sorted({violation.promise for violation in self.replay.found})


def test_a_good_log_is_clean_and_says_what_is_left() -> None:
    log = Log()
    log.append(1)
    log.append(2)
    log.append(3)
    log.grant(10, 0, 1)
    log.settle(20, 0, 1)
    log.grant(30, 1, 2)
    assert log.promises() == []
    left = [(left.offset, left.state, left.delivered) for left in log.replay.left()]
    assert left == [(1, "leased", True), (2, "fresh", False)]
    assert len(log.replay.granted) == 2


def test_p5_the_machine_leases_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.append(1)
    log.grant(10, 0, 1)
    monkeypatch.setattr(leases, "is_free", lambda *words: True)
    log.grant(20, 0, 2)
    assert log.promises() == ["P5"]


def test_p4_the_machine_forgets_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.append(1)
    log.grant(10, 0, 1)
    monkeypatch.setattr(leases, "is_free", lambda *words: True)
    log.grant(5_000, 0, 2, attempt=1)
    assert log.promises() == ["P4"]


def test_p5_the_machine_takes_a_stale_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.append(1)
    log.grant(10, 0, 1)
    monkeypatch.setattr(leases, "_is_adopted", lambda *words: True)
    log.settle(20, 0, 7)
    assert log.promises() == ["P5"]


def test_p7_a_leader_that_does_not_know_the_keys_lets_one_overtake() -> None:
    log = Log(ordered=True)
    log.append(1, b"k")
    log.append(2, b"other")
    log.append(3, b"k")
    log.grant(10, 0, 1)
    log.grant(20, 1, 2)
    assert log.promises() == []
    log.grant(30, 2, 3)
    assert log.promises() == ["P7"]


def test_p7_the_first_of_a_key_is_passed_over() -> None:
    log = Log(ordered=True)
    log.append(1, b"k")
    log.append(2, b"k")
    log.grant(20, 1, 1)
    assert log.promises() == ["P7"]


def test_p7_a_message_waits_longer_than_the_bound() -> None:
    log = Log()
    log.append(1)
    log.append(2)
    log.append(3)
    log.append(4)
    log.grant(WAIT_BOUND_MS, 1, 1)
    assert log.promises() == []
    log.grant(2 * WAIT_BOUND_MS, 2, 2)
    assert log.promises() == []
    log.grant(2 * WAIT_BOUND_MS + 2 * GRANT_LATE_MS, 3, 3)
    assert log.promises() == ["P7"]


def test_p7_grants_of_one_moment_may_come_in_another_order() -> None:
    """Seed 100481: the older message was chosen first, and had to be read from the disk."""
    log = Log()
    for number in range(1, 5):
        log.append(number)
    log.grant(2 * WAIT_BOUND_MS, 1, 1)
    log.grant(2 * WAIT_BOUND_MS + 5, 0, 2)
    log.grant(2 * WAIT_BOUND_MS + 2 * GRANT_LATE_MS, 2, 3)
    assert log.promises() == []


def test_p4_what_died_is_a_dead_letter_once() -> None:
    log = Log()
    log.append(1)
    log.grant(10, 0, 1)
    log.settle(20, 0, 1, REJECT)
    letter = DeadLetter("jobs", 0, "g", 0, 0, 1, 1)
    another = DeadLetter("jobs", 0, "g", 1, 0, 1, 2)
    assert list(log.replay.check_letters([letter])) == []
    for letters in ([], [letter, letter], [letter, another]):
        assert [v.promise for v in log.replay.check_letters(letters)] == ["P4"]


def members(*readings: Reading) -> list[Violation]:
    cluster = SimCluster(1, 1)
    group = GroupMembers(Clients(cluster, cluster.rng, History(), 1_000), cluster.rng, "g", "t", 0)
    group.readings = list(readings)
    cluster.world.now_ms = 90.0
    group.stop()
    return group.check(1)


def test_members_that_take_turns_are_well() -> None:
    assert members(Reading(0, "a", 0, 50), Reading(0, "b", 50, 70), Reading(0, "b", 60, 95)) == []


def test_two_members_read_at_once() -> None:
    assert len(members(Reading(0, "a", 0, 50), Reading(0, "b", 49, 95))) == 1


def test_nobody_reads_in_the_end() -> None:
    assert len(members(Reading(0, "a", 0, 50))) == 1
