"""Flags and times in the forms people write them."""

import pytest

from raftline.cli.flags import globals_first, one_form
from raftline.cli.serve import Misused, parse
from raftline.cli.times import parse_time_ms, show_time

OPTIONS = {"--follow": True, "--partition": False, "-n": False, "-m": False}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["topic", "list", "--server", "x"], ["--server", "x", "topic", "list"]),
        (["topic", "list", "-server=x", "--json"], ["--server", "x", "--json", "topic", "list"]),
        (["topic", "list", "--json=false"], ["topic", "list"]),
        (["produce", "t", "--", "--json"], ["produce", "t", "--", "--json"]),
    ],
)
def test_shared_flags_may_stand_anywhere(words, wanted) -> None:
    assert globals_first(words) == wanted


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["-follow", "-partition", "3"], ["--follow", "--partition", "3"]),
        (["--follow=true"], ["--follow"]),
        (["--follow=false"], []),
        (["--follow=perhaps"], ["--follow=perhaps"]),
        (["-m", "-follow"], ["-m", "-follow"]),
        (["-partition=3", "-n", "5"], ["--partition=3", "-n", "5"]),
        (["--", "-follow"], ["--", "-follow"]),
        (["-unknown"], ["-unknown"]),
    ],
)
def test_one_form(words, wanted) -> None:
    assert one_form(words, OPTIONS) == wanted


def test_serve_flags() -> None:
    asked = parse(
        ["-nodeid", "a", "--peers=a=h:1,b=h:2", "--bootstrap=true", "--insecure",
         "-config", "f.toml", "--set", "wal.bytes_max=2GiB", "--print-config"]
    )  # fmt: skip
    assert asked.flags == {
        "node.name": "a",
        "node.peers": "a=h:1,b=h:2",
        "node.bootstrap": "true",
        "node.insecure": "true",
        "wal.bytes_max": "2GiB",
    }
    assert str(asked.file) == "f.toml"
    assert asked.print_config


@pytest.mark.parametrize(
    "words",
    [["extra"], ["--nodid", "a"], ["--id"], ["--insecure=perhaps"], ["--set", "x"],
     ["--retention", "7"], ["--lease-timeout=30"]],
)  # fmt: skip
def test_serve_misused(words) -> None:
    with pytest.raises(Misused):
        parse(words)


def test_serve_prints_settings(raftline, monkeypatch) -> None:
    monkeypatch.setenv("RAFTLINE_RAFT_TICK_MS", "150")
    ran = raftline("serve", "--print-config", "--id", "a")
    assert ran.code == 0
    assert 'name = "a"' in ran.out
    assert "tick_ms = 150" in ran.out


def test_serve_reports_every_problem(raftline) -> None:
    ran = raftline("serve", "--http-addr", "0.0.0.0:80", "--join", "nowhere", "--id", "a")
    assert ran.code == 2
    assert ran.err.count("error: ") == 2


@pytest.mark.parametrize(
    ("text", "wanted_ms"),
    [
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
        ("2026-01-31", 1_769_817_600_000),
        ("-1h", 6_400_000),
        ("now", 10_000_000),
        ("1769860800000", 1_769_860_800_000),
    ],
)
def test_times(text, wanted_ms) -> None:
    assert parse_time_ms(text, now_ms=10_000_000) == wanted_ms


@pytest.mark.parametrize("text", ["", "soon", "-soon", "2026-13-01"])
def test_no_time(text) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_time_ms(text, now_ms=0)


def test_times_are_shown_in_utc() -> None:
    assert show_time(1_769_860_800_123) == "2026-01-31T12:00:00.123Z"


def test_a_flag_without_its_value_does_not_take_the_next_flag_for_it() -> None:
    """queue's --raft.join has no value: the address behind the next flag was blamed."""
    for words in (["--raft.join", "--grpc.listener_addr", "127.0.0.1:1"], ["--config"]):
        with pytest.raises(Misused, match=f"^{words[0]} needs a value"):
            parse(words)
    assert parse(["--max-retries", "-1"]).flags == {"delivery.retries_max": "-1"}
