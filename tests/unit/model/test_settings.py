"""Settings of topics, names and amounts."""

import pytest

from raftline.model.errors import InvalidArgument, InvalidTopic
from raftline.model.names import check_node_name, check_topic_name, place
from raftline.model.settings import (
    SETTINGS,
    check_settings,
    effective,
    parse_duration_ms,
    parse_size_bytes,
)


def test_defaults_of_the_outside_page():
    held = effective({})
    assert held["retention_ms"] == 168 * 3600 * 1000
    assert held["retention_bytes"] == 10_000_000_000
    assert (held["lease_ms"], held["max_retries"]) == (30_000, 3)
    assert (held["backoff_ms"], held["backoff_ms_max"]) == (1000, 60_000)
    assert (held["partitioner"], held["headers"]) == ("murmur2", False)


def test_defaults_are_themselves_allowed():
    assert check_settings(effective({})) == dict(sorted(effective({}).items()))


def test_text_becomes_plain_and_order_does_not_matter():
    given = {"retention_ms": "7d", "headers": "true", "retention_bytes": "2GiB", "lanes": "3"}
    plain = {"headers": True, "lanes": 3, "retention_bytes": 2 << 30, "retention_ms": 604_800_000}
    assert list(check_settings(given).items()) == list(plain.items())
    assert list(check_settings(dict(reversed(given.items()))).items()) == list(plain.items())
    assert check_settings(plain) == plain


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("colour", "red", "retention_ms"),  # the hint lists what is known
        ("retention_ms", "soon", "soon"),
        ("retention_ms", -2, "-1"),
        ("retention_ms", True, "whole number"),
        ("retention_ms", 1.5, "whole number"),
        ("headers", "yes", "true or false"),
        ("headers", 1, "true or false"),
        ("headers", [], "true or false"),
        ("partitioner", "md5", "murmur2, crc32, consistent"),
        ("partitioner", [], "murmur2"),
        ("segment_bytes", 10, "1048576"),
        ("lanes", "3s", "whole number"),
    ],
)
def test_a_bad_value_is_named(name, value, said):
    with pytest.raises(InvalidArgument) as caught:
        check_settings({name: value})
    assert said in caught.value.message + caught.value.hint


def test_a_setting_of_a_later_level_is_not_known_before():
    assert all(setting.since == 1 for setting in SETTINGS.values())
    with pytest.raises(InvalidArgument, match="'lanes' is not a setting"):
        check_settings({"lanes": 3}, feature_level=0)


def test_amounts():
    texts = ("500ms", "30s", "5m", "12h", "7d", "1w", "1500", "-1")
    assert [parse_duration_ms(text) for text in texts] == [
        500, 30_000, 300_000, 43_200_000, 604_800_000, 604_800_000, 1500, -1,
    ]  # fmt: skip
    assert [parse_size_bytes(text) for text in ("10GB", "64KiB", "4096", "1 ".strip() + "b")] == [
        10**10, 65536, 4096, 1,
    ]  # fmt: skip
    for bad in ("", "s", "1.5s", "5 parsecs", "1e3", "\u0663s"):
        with pytest.raises(InvalidArgument):
            parse_duration_ms(bad)


def test_durations_of_calls_may_have_several_units():
    texts = ("1h30m", " 1H30M ", "1d12h", "1m500ms")
    assert [parse_duration_ms(text) for text in texts] == [
        5_400_000, 5_400_000, 129_600_000, 60_500,
    ]  # fmt: skip
    for bad in ("1h30", "1h-30m", "-1h30m", "1h 30x", "1h\u0663m", "1s" * 7):
        with pytest.raises(InvalidArgument, match="is not a duration such as"):
            parse_duration_ms(bad)


def test_durations_in_settings_have_one_unit_on_every_build():
    assert check_settings({"lease_ms": "90m"}) == {"lease_ms": 5_400_000}
    with pytest.raises(InvalidArgument, match="'1h30m' is not a duration"):
        check_settings({"lease_ms": "1h30m"})


def test_names():
    for good in ("a", "orders.dlq", "A-b_c.9", "x" * 249):
        check_topic_name(good)
        check_node_name(good)
    for bad in ("", ".", "..", "a/b", "a b", "x" * 250, "\u00e4", "a\n"):
        with pytest.raises(InvalidTopic):
            check_topic_name(bad)
    for bad in ("", "a/b", "x" * 250, "a\n"):
        with pytest.raises(InvalidArgument):
            check_node_name(bad)
    assert place("orders", 2) == "orders/2"
    assert place("orders", 2, 45678) == "orders/2@45678"
