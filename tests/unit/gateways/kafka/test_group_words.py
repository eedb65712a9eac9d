"""What consumers tell each other, and configs under Kafka's names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftline.gateways.kafka.configs_names import FIXED, IDLE, KNOWN, to_settings
from raftline.gateways.kafka.groups_words import assignment, places_of, subscription, topics_of
from raftline.model.errors import InvalidArgument

names = st.text("abc.-", min_size=1, max_size=9)


@given(st.sets(names, max_size=9))
def test_a_subscription_is_read_as_it_was_written(topics: set[str]) -> None:
    assert topics_of(subscription(tuple(sorted(topics)))) == tuple(sorted(topics))


@given(st.dictionaries(names, st.sets(st.integers(0, 99), max_size=9), max_size=5))
def test_an_assignment_is_read_as_it_was_written(places: dict[str, set[int]]) -> None:
    wanted = {topic: sorted(rows) for topic, rows in places.items()}
    assert places_of(assignment(wanted)) == wanted


@given(st.binary(max_size=60))
def test_other_bytes_read_as_something_or_nothing(data: bytes) -> None:
    assert isinstance(topics_of(data), tuple)
    assert isinstance(places_of(data), dict)


def test_more_topics_than_a_group_has_read_as_nothing() -> None:
    assert topics_of(subscription(tuple(f"t{i}" for i in range(101)))) == ()
    assert places_of(assignment({"t": list(range(10_001))})) == {}


def test_known_names_mean_settings_of_ours() -> None:
    given_ = {"retention.ms": "60000", "max.message.bytes": "2048", "headers": "true"}
    assert to_settings(given_, 3) == {
        "batch_bytes_max": 2048,
        "headers": True,
        "retention_ms": 60_000,
    }
    forever = to_settings({"retention.ms": str(2**63 - 1), "retention.bytes": "-1"}, 3)
    assert forever == {"retention_ms": -1, "retention_bytes": -1}
    assert to_settings({"segment.bytes": "16384"}, 3) == {"segment_bytes": 1 << 20}
    assert not {*KNOWN, *FIXED} & set(IDLE)


def test_what_always_holds_may_be_said_and_nothing_else() -> None:
    for name, fixed in FIXED.items():
        assert to_settings({name: fixed.value}, 3) == {}
        with pytest.raises(InvalidArgument):
            to_settings({name: "other"}, 3)
    assert to_settings({"min.insync.replicas": "2"}, 3) == {}


@pytest.mark.parametrize(
    "config",
    [
        {"min.insync.replicas": "3"},
        {"min.insync.replicas": "0"},
        {"min.insync.replicas": "many"},
        {"retention.ms": None},
        {"retention.ms": "soon"},
        {"max.message.bytes": "99999999999"},
        {"no.such.config": "1"},
    ],
    ids=str,
)
def test_the_rest_is_refused(config: dict[str, str | None]) -> None:
    with pytest.raises(InvalidArgument):
        to_settings(config, 3)
