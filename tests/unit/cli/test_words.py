"""Words of the command line that need no node: values, help, completion, what is not there."""

import os
import subprocess
import sys

import pytest
import typer

from raftline.cli import words
from raftline.cli.group import target
from raftline.cli.session import short
from raftline.cli.times import parse_time_ms, show_span
from raftline.cli.trace import detail
from raftline.cli.work import Window

GROUPS = ("topic", "group", "message", "scheduled", "dlq", "task", "cluster")
COMMANDS = (
    "up", "down", "serve", "produce", "consume", "trace", "worker", "bench", *GROUPS,
)  # fmt: skip


def test_help_names_every_command(raftline) -> None:
    ran = raftline("--help")
    assert ran.code == 0
    for name in COMMANDS:
        assert f" {name} " in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(raftline, name: str) -> None:
    ran = raftline(name, "--help")
    assert ran.code == 0
    assert "Usage: raftline" in ran.out


@pytest.mark.parametrize("name", ["", "consume", "topic", "topic create", "serve"])
def test_help_is_had_as_people_ask_for_it(raftline, name: str) -> None:
    wanted = raftline(*name.split(), "--help")
    assert wanted.code == 0
    for line in (f"{name} -h", f"help {name}"):
        ran = raftline(*line.split())
        assert (ran.code, ran.out) == (0, wanted.out), line


@pytest.mark.parametrize(
    "line",
    [
        "topic create|list|show|set|delete", "group list|show|reset|delete",
        "message get|peek|search", "scheduled list|show|cancel|move",
        "dlq list|show|redrive|purge", "task enqueue|get|list",
        "cluster status|add|remove|replace|move|transfer|verify|recover",
    ],
)  # fmt: skip
def test_every_part_has_its_commands(raftline, line: str) -> None:
    part, names = line.split()
    for name in names.split("|"):
        ran = raftline(part, name, "--help")
        assert ran.code == 0, ran.err
        assert f"raftline {part} {name}" in ran.out


@pytest.mark.parametrize(
    "line",
    [
        "produce", "produce t -m a -f b", "produce t -m a --delay 1s --deliver-at +1s",
        "produce t -m a --delay soon", "produce t -m a --header x", "produce t --prio 1",
        "consume t --from-beginning --from-time -1h", "consume t --follow --to-time now",
        "consume t --from-time yesterday", "consume t -n -1", "group reset g --topic t",
        "group reset g --topic t --to someday", "dlq redrive t", "dlq redrive t 1 --all",
        "scheduled move orders.0.w1", "scheduled show what", "message get orders",
        "task enqueue --payload 1", "worker --concurrency 0", "bench --batch 0", "nonsense",
        "chaos --preset none", "chaos --faults none", "chaos --nodes 1", "chaos --every soon",
        "pipeline sql", "pipeline nonsense", "topic create t --set x",
        "--timeout soon topic list", "topic list --timeout 0", "topic list --timeout -5",
        "cluster transfer orders/² --to 1", "up --data-dir /proc/nope --detach",
    ],
)  # fmt: skip
def test_misuse_is_code_2_with_a_sentence(raftline, line: str) -> None:
    ran = raftline(*line.split())
    assert ran.code == 2, ran
    assert ran.err.startswith("error: ")
    assert "Traceback" not in ran.err


def test_a_bug_is_told_without_a_stack_trace(raftline, monkeypatch) -> None:
    from tests.unit.cli.node_double import ScriptedServer

    monkeypatch.delenv("RAFTLINE_DEBUG", raising=False)
    with ScriptedServer(lambda *_: (200, {"odd": 1})) as server:
        ran = raftline("group", "list", "--server", server.url)
        assert ran.code == 1
        assert "a bug: KeyError" in ran.err
        assert "RAFTLINE_DEBUG" in ran.err
        monkeypatch.setenv("RAFTLINE_DEBUG", "1")
        with pytest.raises(KeyError):
            raftline("group", "list", "--server", server.url)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("raftline sch", "scheduled"),
        ("raftline dlq re", "redrive"),
        ("raftline consume t --fr", "--from-time"),
        ("raftline serve --lea", "--lease-timeout"),
    ],
)
def test_the_shell_completes(line: str, wanted: str) -> None:
    environment = {
        **os.environ,
        "_RAFTLINE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    code = "import sys; sys.argv = ['raftline']; from raftline.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert wanted in done.stdout.split(), done


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("earliest", {"to": "earliest"}), ("latest", {"to": "latest"}), ("17", {"offset": 17}),
        ("2026-01-31T12:00:00Z", {"time": 1_769_860_800_000}),
    ],
)  # fmt: skip
def test_where_a_reset_goes(text: str, wanted: dict[str, object]) -> None:
    assert target(text) == wanted


def test_values() -> None:
    assert words.priority("") is None
    assert words.priority("-10") == -10
    assert words.priority("high") == "high"
    assert words.pairs(["a=b", "c=d=e"], "--header") == {"a": "b", "c": "d=e"}
    assert words.duration_ms("", "--delay") is None
    assert words.duration_ms("5m", "--delay") == 300_000
    with pytest.raises(typer.BadParameter, match="give one of --a, --b-c"):
        words.only_one(a=1, b_c=2, d=0)
    assert parse_time_ms("+1h", now_ms=1_000) == 3_601_000


@pytest.mark.parametrize(
    ("duration_ms", "wanted"),
    [(0, "0ms"), (999, "999ms"), (61_000, "1m1s"), (3_599_999, "59m59s"), (90_061_000, "1d1h")],
)
def test_spans(duration_ms: int, wanted: str) -> None:
    assert show_span(duration_ms) == wanted


def test_short_texts_stay_in_their_line() -> None:
    assert short("a\nb\x1b[31m") == "a·b·[31m"
    assert short("x" * 70) == "x" * 59 + "…"
    assert short(None) == ""


def test_a_line_of_the_timeline() -> None:
    line = {
        "event": "REDELIVERED", "at_ms": 1, "group": "g", "member": "w-1", "attempt": 2,
        "reason": "lease expired", "until_ms": None, "nodes": ["a", "b"],
    }  # fmt: skip
    assert detail(line) == (
        'group=g  consumer=w-1  attempt=2  reason="lease expired"  nodes=[a, b]'
    )


@pytest.mark.parametrize(
    ("window", "inside"),
    [(Window(), {1, 2, 3}), (Window(2), {2, 3}), (Window(2, 3), {2}), (Window(None, 2), {1})],
)
def test_a_window_is_half_open(window: Window, inside: set[int]) -> None:
    assert {time_ms for time_ms in (1, 2, 3) if window.holds(time_ms)} == inside
