"""Durations and sizes: what is understood, what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftline.config.quantities import (
    parse_bytes,
    parse_duration_ms,
    parse_span_ms,
    show_bytes,
    show_duration,
)


@pytest.mark.parametrize(
    ("text", "wanted_ms"),
    [("30s", 30_000), ("500ms", 500), ("1h30m", 5_400_000), ("7d", 604_800_000), ("1.5s", 1_500),
     ("168h", 604_800_000), ("250", 250), ("-1", -1), (" 2 m ", 120_000), ("1w", 604_800_000)],
)  # fmt: skip
def test_durations(text: str, wanted_ms: int) -> None:
    assert parse_duration_ms(text) == wanted_ms


@pytest.mark.parametrize(
    ("text", "wanted_bytes"),
    [("10GB", 10**10), ("64MiB", 64 << 20), ("1.5kB", 1_500), ("512", 512), ("1 TiB", 1 << 40),
     ("8k", 8_000), ("-1", -1)],
)  # fmt: skip
def test_sizes(text: str, wanted_bytes: int) -> None:
    assert parse_bytes(text) == wanted_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "10 parsecs",
        "1h30",
        "--1",
        "1e3s",
        "5s6",
        "10GBs",
        "9" * 400 + "d",
        "9" * 400 + "GB",
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write for example"):
        parse_duration_ms(text)
    with pytest.raises(ValueError, match="write for example"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "wanted_ms"), [("30s", 30_000), ("1h30m", 5_400_000), ("0", 0), ("-1", -1)]
)
def test_durations_where_no_name_says_the_unit(text: str, wanted_ms: int) -> None:
    assert parse_span_ms(text) == wanted_ms


@pytest.mark.parametrize("text", ["7", " 30 ", "1_000"])
def test_a_number_without_a_unit_is_refused_where_no_name_says_it(text: str) -> None:
    with pytest.raises(ValueError, match="has no unit; write for example"):
        parse_span_ms(text)


@given(st.integers(min_value=1, max_value=10**12))
def test_a_shown_duration_reads_back(duration_ms: int) -> None:
    assert parse_duration_ms(show_duration(duration_ms)) == duration_ms


def test_sizes_are_shown_short() -> None:
    assert [show_bytes(n) for n in (-1, 0, 1023, 1536, 3 << 30)] == [
        "no bound", "0 B", "1023 B", "1.5 KiB", "3.0 GiB",
    ]  # fmt: skip
