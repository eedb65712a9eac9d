"""Promises about what is kept, through every driver: dead letters, delays, dedup, replay."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from raftline.chaos.rig import wait_for
from tests.conformance.promises.conftest import MakeTopic
from tests.conformance.promises.driver import LEASE_LOST, Driver, Letter, Moved, Refused

GROUP = "workers"
WAIT_MS = 8_000
LEASE_MS = 250
PACE = 0.9  # log time is at most a tenth faster than ours


def code_of(call: Callable[..., Any], *words: Any, **wishes: Any) -> str:
    """Return the code with which a call is refused."""
    with pytest.raises(Refused) as refused:
        call(*words, **wishes)
    return refused.value.code


def letters(driver: Driver, topic: str, count: int) -> list[Letter]:
    """Return the dead letters once there are so many."""
    wait_for(lambda: len(driver.letters(topic)) >= count, 8, lambda: str(driver.letters(topic)))
    found = driver.letters(topic)
    assert len(found) == count
    return found


def drain(driver: Driver, topic: str, group: str = GROUP) -> list[str]:
    """Work off what there is; return the values in order."""
    seen: list[str] = []
    while found := driver.receive(topic, group, wait_ms=100):
        for message in found:
            seen.append(message.value)
            driver.settle(message, "ack")
    return seen


# ---------------------------------------------------------------------- dead letters


def test_after_its_retries_a_message_is_a_dead_letter_once(
    driver: Driver, topic: MakeTopic
) -> None:
    name = topic(max_retries=2, backoff_ms=0)
    driver.send(name, "x", key="k")
    driver.send(name, "y")
    for attempt in (1, 2, 3):  # x is nacked, y is left lying
        found = driver.receive(name, GROUP, count=1, wait_ms=WAIT_MS, member="ann")
        found += driver.receive(
            name, GROUP, count=1, wait_ms=WAIT_MS, lease_ms=LEASE_MS, member="bob"
        )
        assert [(message.value, message.attempt) for message in found] == [
            ("x", attempt),
            ("y", attempt),
        ]
        driver.settle(found[0], "nack", reason="too hot")
    x, y = sorted(letters(driver, name, 2), key=lambda letter: letter.value)
    assert (x.state, x.origin, x.group, x.generation) == ("dead", f"{name}.0.0", GROUP, 0)
    assert (x.reason, x.attempts, x.error, x.member) == ("MAX_RETRIES", 3, "too hot", "ann")
    assert (x.key, x.value) == ("k", "x")
    assert (y.reason, y.attempts, y.member, y.key) == ("EXPIRED", 3, "bob", None)
    assert drain(driver, name) == [], "what is given up on is not delivered"
    assert len(driver.read(f"{name}.dlq")) == 2, "each is there once"
    assert driver.read(name) == ["x", "y"], "and where it was"


def test_a_redriven_letter_begins_anew(driver: Driver, topic: MakeTopic) -> None:
    name = topic()
    driver.send(name, "x")
    driver.send(name, "y")
    found = driver.receive(name, GROUP, wait_ms=WAIT_MS, member="ann")
    driver.settle(found[0], "reject", reason="not ours")
    driver.settle(found[1], "ack")
    (letter,) = letters(driver, name, 1)
    assert (letter.id, letter.origin) == (f"{name}.dlq.0.0", f"{name}.0.0")
    assert (letter.reason, letter.attempts, letter.error) == ("REJECTED", 1, "not ours")
    assert driver.redrive(name) == 1
    assert [row.state for row in driver.letters(name)] == ["redriven"]
    assert driver.redrive(name) == 0, "once is enough"
    (again,) = driver.receive(name, GROUP, wait_ms=WAIT_MS)
    assert (again.value, again.offset, again.attempt) == ("x", 0, 1)
    driver.settle(again, "reject")
    old, new = letters(driver, name, 2)
    assert (old.state, old.generation) == ("redriven", 0)
    assert (new.state, new.generation) == ("dead", 1)
    assert driver.redrive(name) == 1
    assert drain(driver, name) == ["x"]


# ---------------------------------------------------------------------- delays


def test_a_delayed_message_never_comes_early(driver: Driver, topic: MakeTopic) -> None:
    name = topic()
    delays = {"late": 1_000, "soon": 500, "gone": 700}
    began = time.monotonic()
    sent = {value: driver.send(name, value, delay_ms=ms) for value, ms in delays.items()}
    assert [place.offset for place in sent.values()] == [-1, -1, -1]
    driver.cancel(sent["gone"].id)
    driver.send(name, "now")
    arrived: dict[str, float] = {}
    for _ in range(3):
        (message,) = driver.receive(name, GROUP, count=1, wait_ms=WAIT_MS)
        arrived[message.value] = (time.monotonic() - began) * 1000
        assert message.value == "now" or message.id == sent[message.value].id
        driver.settle(message, "ack")
    assert list(arrived) == ["now", "soon", "late"]
    for value in ("soon", "late"):
        assert arrived[value] >= delays[value] * PACE, f"{value} came after {arrived[value]} ms"
    assert driver.read(name) == ["now", "soon", "late"], "what was cancelled never is there"
    assert code_of(driver.cancel, sent["soon"].id) == "not_waiting"


# ---------------------------------------------------------------------- dedup


def test_a_dedup_key_gives_the_first_id_and_stores_nothing(
    driver: Driver, topic: MakeTopic
) -> None:
    name = topic(partitions=3)
    first = driver.send(name, "first", dedup_key="order-1")
    other = driver.send(name, "other", dedup_key="order-2")
    again = [driver.send(name, f"again {n}", dedup_key="order-1") for n in range(3)]
    assert not first.is_duplicate
    assert not other.is_duplicate
    for place in again:
        assert (place.id, place.partition, place.offset) == (
            first.id,
            first.partition,
            first.offset,
        )
        assert place.is_duplicate
    stored = [value for partition in range(3) for value in driver.read(name, partition)]
    assert sorted(stored) == ["first", "other"]


# ---------------------------------------------------------------------- replay


def test_a_reset_group_replays_from_an_offset_or_a_time(driver: Driver, topic: MakeTopic) -> None:
    name = topic()
    times: list[int] = []
    for n in range(6):
        time.sleep(0.005)
        times.append(time.time_ns() // 1_000_000)
        time.sleep(0.005)
        driver.send(name, f"{n}")
    assert [driver.offset_at(name, moment) for moment in times] == [0, 1, 2, 3, 4, 5]
    assert drain(driver, name) == ["0", "1", "2", "3", "4", "5"]
    dry = driver.reset(name, GROUP, offset=4, dry_run=True)
    assert dry == [Moved(partition=0, start=6, to=4)]
    assert drain(driver, name) == [], "a dry run moves nothing"
    assert driver.reset(name, GROUP, offset=4) == dry
    assert drain(driver, name) == ["4", "5"]
    assert driver.reset(name, GROUP, time_ms=times[2]) == [Moved(partition=0, start=6, to=2)]
    assert drain(driver, name) == ["2", "3", "4", "5"]
    assert driver.reset(name, GROUP) == [Moved(partition=0, start=6, to=0)]
    assert drain(driver, name) == ["0", "1", "2", "3", "4", "5"]


def test_a_new_group_replays_from_an_offset_or_a_time(driver: Driver, topic: MakeTopic) -> None:
    name = topic()
    for n in range(3):
        driver.send(name, f"{n}")
    time.sleep(0.01)
    moment = time.time_ns() // 1_000_000
    time.sleep(0.01)
    for n in range(3, 5):
        driver.send(name, f"{n}")
    assert drain(driver, name, "all") == ["0", "1", "2", "3", "4"]
    assert code_of(driver.reset, name, "by-offset", offset=1) == "unknown_group"
    assert [row.to for row in driver.reset(name, "by-offset", offset=1, create=True)] == [1]
    assert drain(driver, name, "by-offset") == ["1", "2", "3", "4"]
    assert [row.to for row in driver.reset(name, "by-time", time_ms=moment, create=True)] == [3]
    assert drain(driver, name, "by-time") == ["3", "4"]


def test_a_reset_ends_the_leases_before_it(driver: Driver, topic: MakeTopic) -> None:
    name = topic()
    driver.send(name, "x")
    (before,) = driver.receive(name, GROUP, wait_ms=WAIT_MS)
    driver.reset(name, GROUP, offset=0)
    (after,) = driver.receive(name, GROUP, wait_ms=WAIT_MS)
    assert (after.value, after.attempt) == ("x", 1)
    assert code_of(driver.settle, before, "ack") == LEASE_LOST
    driver.settle(after, "ack")
    assert drain(driver, name) == []


# ---------------------------------------------------------------------- refusals


def test_what_cannot_be_is_refused_in_the_same_words(driver: Driver, topic: MakeTopic) -> None:
    name = topic(delay_ms_max=60_000)
    assert code_of(driver.create, name, partitions=1) == "topic_exists"
    assert code_of(driver.create, f"{name}-2", partitions=1, lease_ms=1) == "invalid_argument"
    assert code_of(driver.send, name, "x", delay_ms=60_001) == "invalid_argument"
    assert code_of(driver.send, name, "x", priority=128) == "invalid_argument"
    assert code_of(driver.send, name, "x", dedup_key="k" * 1025) == "too_large"
    assert code_of(driver.send, name, "x", key="k" * 65_537) == "too_large"
    assert code_of(driver.send, name, "x", headers={"h": "v" * 65_536}) == "too_large"
    assert code_of(driver.send, "no/topic", "x") == "invalid_topic"
    assert code_of(driver.receive, f"{name}-3", GROUP, wait_ms=100) == "unknown_topic"
    assert code_of(driver.receive, name, GROUP, lease_ms=99) == "invalid_argument"
    assert code_of(driver.receive, name, GROUP, member="m" * 250) == "too_large"
    assert code_of(driver.read, name, 7) == "unknown_partition"
    assert code_of(driver.letters, f"{name}-3") == "unknown_topic"
    assert code_of(driver.cancel, f"{name}.0.w9") == "unknown_message"
    assert driver.read(name) == []
    assert driver.letters(name) == []
    assert driver.redrive(name) == 0
