"""Arguments of the client's calls: what is sent, what is refused before anything is sent."""

from datetime import UTC, datetime, timedelta

import pytest

import raftline
from raftline.client import asks
from raftline.client.core.batches import Handle
from raftline.client.drafts import full_row
from raftline.client.leased import duration_ms
from raftline.client.servers import server_list
from raftline.model.errors import InvalidArgument, InvalidTopic, TooLarge


def row(value=b"v", topic="t", **wishes):
    given = {
        "key": None,
        "headers": None,
        "priority": 0,
        "delay": None,
        "deliver_at": None,
        "dedup_key": None,
        "partition": None,
        **wishes,
    }
    return full_row(Handle(), topic, value, deadline_ms=9.0, wall_ms=5, **given)


def test_a_plain_message_is_sealed_here() -> None:
    _, topic, key, value, headers, priority, partition, size, deadline, time_ms, item = row(
        "text", key="k", headers={"a": "1", "b": None}, priority="high"
    )
    assert (topic, key, value, priority, partition) == ("t", b"k", b"text", "high", -1)
    assert headers == [("a", b"1"), ("b", None)]
    assert (deadline, time_ms, item) == (9.0, 5, None)
    assert size > 64


def test_wishes_make_it_json() -> None:
    item = row(
        b"\xff",
        key=b"k",
        headers=[("a", "1"), ("a", "2"), ("raw", b"\xfe"), ("two", b"\xfe"), ("two", b"\xff")],
        delay="5m",
        dedup_key="d",
        partition=3,
        priority=7,
    )[10]
    assert item == {
        "timestamp": 5,
        "value_base64": "/w==",
        "key": "k",
        "headers": {"a": ["1", "2"]},
        "headers_base64": {"raw": "/g==", "two": ["/g==", "/w=="]},
        "delay": 300_000,
        "dedup_key": "d",
        "partition": 3,
        "priority": 7,
    }


def test_a_moment_may_be_a_datetime() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert row(deliver_at=at)[10]["deliverAt"] == "2030-01-01T00:00:00+00:00"
    assert row(deliver_at="2030-01-01T00:00:00Z")[10]["deliverAt"] == "2030-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("wishes", "problem"),
    [
        ({"value": 7}, InvalidArgument),
        ({"key": ["k"]}, InvalidArgument),
        ({"topic": "a/b"}, InvalidTopic),
        ({"priority": 128}, InvalidArgument),
        ({"partition": -2}, InvalidArgument),
        ({"delay": "soon"}, InvalidArgument),
        ({"delay": "1s", "deliver_at": 5}, InvalidArgument),
        ({"dedup_key": "ä" * 513}, TooLarge),
        ({"dedup_key": "k", "key": b"k" * 65_537}, TooLarge),
        ({"dedup_key": "k", "headers": {"h": b"v" * 65_536}}, TooLarge),
        ({"dedup_key": "k", "headers": [("h", b"")] * 101}, TooLarge),
    ],
    ids=lambda case: str(case)[:40],
)
def test_what_cannot_be_sent_is_refused_at_once(wishes, problem) -> None:
    with pytest.raises(problem):
        row(**wishes)


@pytest.mark.parametrize(
    ("given", "ms"),
    [("30s", 30_000), ("5m", 300_000), (2, 2000), (0.25, 250), (timedelta(seconds=3), 3000)],
)
def test_durations(given, ms: int) -> None:
    assert duration_ms(given) == ms


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("orders.2.17", ("orders", 2, "17")),
        ("orders/2@17", ("orders", 2, "17")),
        ("a.b-c.0.w9", ("a.b-c", 0, "w9")),
    ],
)
def test_ids(given: str, parts: tuple[str, int, str]) -> None:
    assert asks.split_id(given) == parts


@pytest.mark.parametrize("given", ["orders", "orders.x.1", ".1.2", "a.1.w", ""])
def test_what_is_no_id(given: str) -> None:
    with pytest.raises(InvalidArgument):
        asks.split_id(given)


def test_a_message_that_does_not_wait_cannot_be_cancelled() -> None:
    with pytest.raises(InvalidArgument):
        asks.cancel("orders.2.17")


def test_asks_are_plain() -> None:
    ask = asks.letters("a b", 5, None, group="g", from_time=datetime(2030, 1, 1, tzinfo=UTC)).ask
    assert ask.path == "/v1/topics/a%20b/dlq?limit=5&group=g&from=2030-01-01T00%3A00%3A00%2B00%3A00"
    assert ask.is_repeatable
    made = asks.create_topic("t", 0, 0, {}).ask
    assert made.body == b'{"name":"t"}'
    assert not made.is_repeatable


def test_servers_as_text_or_list() -> None:
    assert server_list("http://a:1, b:2") == (["a:1", "b:2"], False)
    assert server_list(["grpc://[::1]:9000", "grpc://b:1"]) == (["[::1]:9000", "b:1"], True)
    with pytest.raises(InvalidArgument):
        server_list([])
    with pytest.raises(InvalidArgument, match="two kinds"):
        server_list("http://a:1,grpc://b:2")


def test_the_package_names_load_on_first_use() -> None:
    assert raftline.connect.__module__ == "raftline.client.line"
    assert set(raftline.__all__) >= {"connect", "connect_async", "App", "Message"}
    with pytest.raises(AttributeError):
        raftline.nothing  # noqa: B018


@pytest.mark.parametrize("name", [b"bytes", 7, "half \ud800"], ids=repr)
def test_a_header_that_no_batch_can_hold_is_refused_at_once(name) -> None:
    """It ended in the thread that seals batches, and with it all messages of its batch."""
    with pytest.raises(InvalidArgument):
        row(headers=[(name, b"1")])


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), b"5s", [5], "300"], ids=repr)
def test_what_is_no_duration_is_refused_as_such(delay) -> None:
    with pytest.raises(InvalidArgument, match="is not a duration"):
        row(delay=delay)


class Whole:
    """A whole number of somebody else's."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __le__(self, other: int) -> bool:
        return self.number <= other

    def __ge__(self, other: int) -> bool:
        return self.number >= other

    def __int__(self) -> int:
        return self.number


@pytest.mark.parametrize(
    "wishes",
    [
        {"deliver_at": 1_800_000_000.5},
        {"deliver_at": Whole(5)},
        {"deliver_at": True},
        {"deliver_at": 10**20},
        {"deliver_at": "\ud800"},
        {"deliver_at": "tomorrow"},
        {"deliver_at": -1},
        {"delay": 1, "partition": 1 << 31},
        {"delay": 1e30},
        {"delay": "999999999999999999w"},
        {"delay": 1, "priority": "\ud800"},
    ],
)
def test_what_would_spoil_the_request_of_others_is_refused_at_once(wishes) -> None:
    """The thread that wrote the request raised, and the request with all in it never ended."""
    with pytest.raises(InvalidArgument):
        row(**wishes)


def test_a_partition_may_be_any_whole_number() -> None:
    assert row(delay=1, partition=Whole(2))[10]["partition"] == 2
    place = row(partition=2.0)[6]  # beside 2 it is the same place, and its path is another one
    assert (place, type(place)) == (2, int)


@pytest.mark.parametrize("partition", [1.5, float("nan"), float("inf")])
def test_a_partition_that_is_no_whole_number_is_refused(partition: float) -> None:
    for wishes in ({}, {"delay": 1}):
        with pytest.raises(InvalidArgument):
            row(partition=partition, **wishes)
