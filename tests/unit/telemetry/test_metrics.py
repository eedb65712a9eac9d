"""Metrics as text: Prometheus reads what we write, and it stays within its bounds."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raftline.telemetry import metrics
from raftline.telemetry.counters import BOUNDS_MS, OTHER, Counters, GatewayCounts, Times
from raftline.telemetry.metrics import COUNTER, GAUGE, HISTOGRAM, METRICS, Board
from raftline.telemetry.process import read_process


def samples(board: Board) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(board.render().decode())
        for sample in family.samples
    }


def test_names_are_built_alike() -> None:
    units = ("_seconds", "_bytes", "_messages", "_entries", "_total", "_max", "_sum", "_info")
    for metric in METRICS.values():
        assert re.fullmatch(r"(raftline|process)_[a-z_]+", metric.name)
        assert metric.kind in (COUNTER, GAUGE, HISTOGRAM)
        assert (metric.kind == COUNTER) == metric.name.endswith("_total"), metric.name
        if metric.kind == HISTOGRAM:
            assert metric.name.endswith(units)
        assert metric.help
        assert not metric.help.endswith(".")


def test_prometheus_reads_what_we_write() -> None:
    board = Board()
    board.put("raftline_ready", 1)
    board.put("raftline_uptime_seconds", 12.5)
    odd = 'a"b\\c\nd'
    board.put("raftline_topic_in_messages_total", 10**15, odd)
    found = samples(board)
    assert found[("raftline_ready", ())] == 1
    assert found[("raftline_uptime_seconds", ())] == 12.5
    assert found[("raftline_topic_in_messages_total", (odd,))] == 10**15


def test_rows_with_the_same_labels_are_summed_or_the_greatest_stays() -> None:
    board = Board()
    for value in (3, 5, 4):
        board.put("raftline_topic_messages", value, "orders")
        board.put("raftline_group_oldest_unacked_seconds", value, "orders", "g")
    assert board.value("raftline_topic_messages", "orders") == 12
    assert board.value("raftline_group_oldest_unacked_seconds", "orders", "g") == 5


def test_a_metric_has_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ROWS_MAX", 10)
    board = Board()
    for number in range(100):
        board.put("raftline_topic_messages", 1, f"t{number}")
    found = samples(board)
    assert len(found) == 11
    assert found[("raftline_topic_messages", (OTHER,))] == 90


def test_a_histogram_counts_up_and_ends_with_everything() -> None:
    times = Times()
    for took_ms, count in ((0.05, 2), (3.0, 1), (99_999.0, 4)):
        times.note(took_ms, count)
    board = Board()
    board.put_times("raftline_append_seconds", times)
    found = samples(board)
    buckets = [found[("raftline_append_seconds_bucket", (f"{b / 1000:.9g}",))] for b in BOUNDS_MS]
    assert buckets == sorted(buckets)
    assert (buckets[0], buckets[-1]) == (2, 3)
    assert found[("raftline_append_seconds_bucket", ("+Inf",))] == 7
    assert found[("raftline_append_seconds_count", ())] == times.count == 7
    assert found[("raftline_append_seconds_sum", ())] == pytest.approx(0.0001 + 0.003 + 399.996)


def test_a_time_on_a_bound_is_within_it() -> None:
    times = Times()
    times.note(BOUNDS_MS[3])
    assert times.counts[3] == 1


def test_counts_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftline.telemetry.counters.TOPICS_MAX", 2)
    monkeypatch.setattr("raftline.telemetry.counters.GROUPS_MAX", 2)
    monkeypatch.setattr("raftline.telemetry.counters.CODES_MAX", 2)
    counters, gateway = Counters(), GatewayCounts()
    for number in range(5):
        counters.topic(f"t{number}").messages_in += 1
        counters.group("t", f"g{number}").delivered += 1
        gateway.refuse(f"c{number}")
    assert counters.topics[OTHER].messages_in == 3
    assert counters.groups[(OTHER, OTHER)].delivered == 3
    assert gateway.refused == {"c0": 1, "c1": 1, OTHER: 3}
    assert counters.topic("t1").messages_in == 1


def test_the_process_tells_of_itself() -> None:
    signs = read_process()
    assert signs.cpu_seconds > 0
    assert signs.resident_bytes == -1 or signs.resident_bytes > 1 << 20
    assert signs.open_fds == -1 or signs.open_fds > 2
    assert signs.start_seconds > 1.6e9


def test_moments_are_told_to_the_second() -> None:
    board = Board()
    board.put("process_start_time_seconds", 1_791_234_567.25)
    assert samples(board)["process_start_time_seconds", ()] == 1_791_234_567.25
