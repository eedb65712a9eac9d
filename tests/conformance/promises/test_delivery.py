"""Promises about deliveries, the same through every driver: order, redelivery, leases, priority."""

import time

import pytest

from tests.conformance.promises.conftest import MakeTopic
from tests.conformance.promises.driver import LEASE_LOST, Driver, Leased, Refused

GROUP = "workers"
WAIT_MS = 8_000  # for what must come; it comes much sooner
LEASE_MS = 250  # of what is to run out
PACE = 0.9  # log time is at most a tenth faster than ours


def one(driver: Driver, name: str, lease_ms: int = 10_000) -> Leased:
    """Receive what must come, one message."""
    found = driver.receive(name, GROUP, count=1, wait_ms=WAIT_MS, lease_ms=lease_ms)
    assert len(found) == 1, f"nothing came of {name}"
    return found[0]


def refusal(driver: Driver, message: Leased, verb: str) -> str:
    """Settle what must not be settled; return the code of the refusal."""
    with pytest.raises(Refused) as refused:
        driver.settle(message, verb, lease_ms=5_000 if verb == "extend" else 0)
    return refused.value.code


def test_what_is_sent_arrives_whole(driver: Driver, topic: MakeTopic) -> None:
    name = topic()
    sent = driver.send(name, "grüße", key="k", headers={"colour": "blau"}, priority=7)
    assert (sent.id, sent.partition, sent.offset) == (f"{name}.0.0", 0, 0)
    assert not sent.is_duplicate
    got = one(driver, name)
    assert (got.id, got.partition, got.offset) == (sent.id, 0, 0)
    assert (got.key, got.value, got.headers) == ("k", "grüße", {"colour": "blau"})
    assert (got.priority, got.attempt) == (7, 1)


def test_messages_of_a_key_keep_their_partition_and_order(driver: Driver, topic: MakeTopic) -> None:
    name = topic(partitions=3)
    sent = [driver.send(name, f"k{n % 4}-{n}", key=f"k{n % 4}") for n in range(16)]
    wanted = {key: [f"k{key}-{n}" for n in range(key, 16, 4)] for key in range(4)}
    assert [sent[n].partition for n in range(4)] * 4 == [place.partition for place in sent]
    assert len({place.partition for place in sent}) > 1
    logs = [driver.read(name, partition) for partition in range(3)]
    for key, values in wanted.items():
        log = logs[sent[key].partition]
        assert [value for value in log if value in values] == values
    assert sum(map(len, logs)) == 16


def test_an_ordered_group_has_one_message_of_a_key_at_a_time(
    driver: Driver, topic: MakeTopic
) -> None:
    name = topic()
    for value in ("a1", "a2", "b1", "a3", "b2"):
        driver.send(name, value, key=value[0])
    first = driver.receive(name, GROUP, ordered=True, wait_ms=WAIT_MS)
    assert [message.value for message in first] == ["a1", "b1"]
    assert driver.receive(name, GROUP, ordered=True) == []
    driver.settle(first[0], "nack", delay_ms=700)
    assert driver.receive(name, GROUP, ordered=True) == [], "a2 overtook a1"
    driver.settle(first[1], "ack")
    seen: list[tuple[str, int]] = []
    for _ in range(4):
        (message,) = driver.receive(name, GROUP, ordered=True, wait_ms=WAIT_MS)
        seen.append((message.value, message.attempt))
        driver.settle(message, "ack")
    assert seen == [("b2", 1), ("a1", 2), ("a2", 1), ("a3", 1)]


def test_what_is_nacked_comes_again_with_growing_attempts(driver: Driver, topic: MakeTopic) -> None:
    name = topic(max_retries=9, backoff_ms=100)
    driver.send(name, "x")
    message = one(driver, name)
    assert message.attempt == 1
    for attempt, delay_ms, rest_ms in ((1, None, 100), (2, None, 200), (3, 0, 0), (4, 300, 300)):
        began = time.monotonic()
        driver.settle(message, "nack", delay_ms=delay_ms, reason="not today")
        message = one(driver, name)
        took_ms = (time.monotonic() - began) * 1000
        assert (message.offset, message.attempt) == (0, attempt + 1)
        assert took_ms >= rest_ms * PACE, "it came before its rest was over"
    driver.settle(message, "ack")
    assert driver.receive(name, GROUP, wait_ms=200) == []


def test_what_is_not_settled_comes_again_when_its_lease_is_over(
    driver: Driver, topic: MakeTopic
) -> None:
    name = topic(max_retries=9)
    driver.send(name, "x")
    began = time.monotonic()
    for attempt in (1, 2, 3):
        message = one(driver, name, LEASE_MS)
        assert (message.offset, message.attempt) == (0, attempt)
        took_ms = (time.monotonic() - began) * 1000
        assert took_ms >= (attempt - 1) * LEASE_MS * PACE, "two had it at a time"
    last = one(driver, name)
    assert last.attempt == 4
    driver.settle(last, "ack")
    assert driver.receive(name, GROUP, wait_ms=LEASE_MS) == []


def test_every_group_gets_every_message_and_each_once(driver: Driver, topic: MakeTopic) -> None:
    name = topic()
    for n in range(5):
        driver.send(name, f"{n}")
    for group in ("these", "those"):
        seen: list[str] = []
        while found := driver.receive(name, group, count=2, wait_ms=0 if seen else WAIT_MS):
            assert len(found) <= 2
            for message in found:
                seen.append(message.value)
                driver.settle(message, "ack")
        assert seen == ["0", "1", "2", "3", "4"]
    assert driver.receive(name, "these") == []


def test_the_highest_priority_comes_first(driver: Driver, topic: MakeTopic) -> None:
    name = topic()
    for value, priority in (("low", -10), ("n1", 0), ("top", 127), ("n2", 0), ("high", 10)):
        driver.send(name, value, priority=priority)
    seen: list[tuple[str, int]] = []
    for _ in range(2):
        message = one(driver, name)
        seen.append((message.value, message.priority))
    rest = driver.receive(name, GROUP)
    seen += [(message.value, message.priority) for message in rest]
    assert seen == [("top", 127), ("high", 10), ("n1", 0), ("n2", 0), ("low", -10)]
    assert driver.read(name) == ["low", "n1", "top", "n2", "high"], "the log keeps its order"


def test_a_lease_that_moved_on_settles_nothing(driver: Driver, topic: MakeTopic) -> None:
    name = topic()
    verbs = ("extend", "ack", "nack", "reject", "release")
    for verb in verbs:
        driver.send(name, verb)
    stale = driver.receive(name, GROUP, wait_ms=WAIT_MS, lease_ms=LEASE_MS)
    assert [message.value for message in stale] == list(verbs)
    held = [one(driver, name) for _ in verbs]
    assert [(message.value, message.attempt) for message in held] == [(verb, 2) for verb in verbs]
    assert [refusal(driver, message, message.value) for message in stale] == [LEASE_LOST] * 5
    for message in held:  # nothing of what the late ones said has come true
        driver.settle(message, "ack")
    assert driver.receive(name, GROUP, wait_ms=LEASE_MS) == []
    assert driver.letters(name) == []


def test_what_is_released_was_not_delivered(driver: Driver, topic: MakeTopic) -> None:
    name = topic(max_retries=0)
    driver.send(name, "x")
    for _ in range(3):
        message = one(driver, name)
        assert message.attempt == 1
        driver.settle(message, "release")
    last = one(driver, name)
    assert refusal(driver, message, "extend") == LEASE_LOST
    driver.settle(last, "ack")
    assert driver.receive(name, GROUP, wait_ms=200) == []
    assert driver.letters(name) == []


def test_what_is_settled_is_settled(driver: Driver, topic: MakeTopic) -> None:
    name = topic()
    driver.send(name, "x")
    message = one(driver, name)
    driver.settle(message, "ack")
    # The client does not ask the cluster where it settled a message itself.
    by_client = not isinstance(message.handle, str)
    assert refusal(driver, message, "nack") == ("invalid_argument" if by_client else LEASE_LOST)
    assert refusal(driver, message, "extend") == LEASE_LOST
    assert driver.receive(name, GROUP, wait_ms=200) == []


def test_an_extended_lease_lasts_as_long_as_it_was_extended(
    driver: Driver, topic: MakeTopic
) -> None:
    name = topic()
    driver.send(name, "x")
    message = one(driver, name, 700)
    driver.settle(message, "extend", lease_ms=20_000)
    assert driver.receive(name, GROUP, wait_ms=900) == [], "it came although it was extended"
    began = time.monotonic()
    driver.settle(message, "extend", lease_ms=LEASE_MS)  # from now on, so it may be shorter
    again = one(driver, name)
    assert again.attempt == 2
    assert LEASE_MS * PACE <= (time.monotonic() - began) * 1000 < WAIT_MS
    assert refusal(driver, message, "extend") == LEASE_LOST
    driver.settle(again, "ack")
