"""The benchmark harness works: every scenario runs, in its short form. No figure is judged."""

import os
import select
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from bench.figures import Figure, Report, at_least, median_of, number, under
from bench.json_load import JsonConnection
from bench.load import Meter
from bench.publish import distant
from bench.report import page

ROOT = Path(__file__).parents[2]
SECTIONS = (
    "bare",
    "1 node, 1 x 100 B",
    "3 nodes, 1 x 100 B",
    "3 nodes, 1 x 16 KiB",
    "3 nodes, 1,000 x 100 B",
    "1 node, JSON, 100 B",
    "3 nodes, JSON, 100 B",
    "3 nodes, JSON, a client 150 ms away",
    "3 nodes, JSON, 10 x 100 B",
    "1 node, client",
    "3 nodes, client",
    "Kafka, 1 node",
    "Kafka, 3 nodes",
    "failover",
    "idle",
    "start",
    "memory",
)


@pytest.mark.timeout(1_000)
def test_every_scenario_runs_and_leaves_nothing_behind(tmp_path):
    """Acked appends are counted against the log and replicas compared by the harness itself."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.run", "--quick", "--work", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = msgspec.json.decode((tmp_path / "result.json").read_bytes(), type=Report)
    for section in SECTIONS:
        assert [f for f in report.figures if f.section.startswith(section)], section
    # What traces cost is a difference of two short runs: it may come out below nothing.
    measured = [f for f in report.figures if f.name != "cost of traces"]
    assert [f"{f.section}: {f.name}" for f in measured if f.value <= 0] == []
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert not _processes_that_name(str(tmp_path))


def test_a_client_behind_the_proxy_waits_for_both_ways_and_gets_every_byte():
    """Much more than fits a socket's buffers is on its way at once; the end comes last."""
    sent = os.urandom(8 << 20)
    with socket.create_server(("127.0.0.1", 0)) as server:
        echo = threading.Thread(target=_echo, args=(server,), daemon=True)
        echo.start()
        with (
            distant(server.getsockname()[1]) as port,
            socket.create_connection(("127.0.0.1", port), timeout=20) as client,
        ):
            for _ in range(2):
                begun = time.perf_counter()
                client.sendall(b"ping")
                assert client.recv(4) == b"ping"
                assert time.perf_counter() - begun >= 0.149
            writer = threading.Thread(target=client.sendall, args=(sent,), daemon=True)
            writer.start()
            got = bytearray()
            while len(got) < len(sent):
                got += client.recv(1 << 20)
            writer.join(10)
            assert got == sent
        echo.join(10)
        assert not echo.is_alive()


def test_replies_are_counted_however_they_are_cut():
    """Each message of each reply counts, wherever a read ends; a refused one is an error."""
    row = b'{"id":"t.0.%d","partition":0,"offset":%d,"error":null}'
    body = b'{"results":[%b]}' % b",".join(row % (n, n) for n in range(2))
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with socket.create_server(("127.0.0.1", 0)) as server, select.epoll() as poll:
        made = JsonConnection(server.getsockname()[1], b"request", poll)
        made.messages = 2
        other, _ = server.accept()
        with other, made.sock:
            for cut in range(1, 2 * len(reply)):
                counts = []
                for part in (reply * 2)[:cut], (reply * 2)[cut:]:
                    other.sendall(part)
                    select.select([made.sock], [], [], 5)
                    counts.append(made.receive())
                assert sum(counts) == 2, cut
                assert made.last_offset == 1
            other.sendall(reply.replace(b"null", b"{}", 1))
            select.select([made.sock], [], [], 5)
            with pytest.raises(SystemExit, match="refused"):
                made.receive()


def _echo(server):
    connection, _ = server.accept()
    with connection:
        while data := connection.recv(1 << 20):
            connection.sendall(data)


def test_a_goal_is_judged_by_its_direction_and_by_the_disk():
    slow, fast = under(1.0), at_least(10)
    figure = Figure(section="s", name="n", value=2.0, unit="ms", goal=slow)
    assert (figure.verdict(0.2), figure.verdict(4.0)) == ("missed", "missed")
    figure.on_disk = True
    assert (figure.verdict(0.2), figure.verdict(4.0)) == ("missed", "missed (slow disk)")
    figure.goal = fast
    assert figure.verdict(0.2) == "missed"
    figure.value = 10
    assert figure.verdict(0.2) == "met"
    assert (slow.text("ms"), fast.text("/s")) == ("< 1.00 ms", ">= 10.0 /s")
    assert number(1234567.8) == "1,234,568"


def test_quantiles_count_every_append_of_a_group():
    meter = Meter()
    meter.note(0, 1_000_000, 98, 0)
    meter.note(0, 5_000_000, 1, 0)
    meter.note(0, 9_000_000, 1, 0)
    assert meter.quantiles_ms([0.5, 0.98, 0.99, 1.0]) == [1.0, 1.0, 5.0, 9.0]


def test_the_page_shows_goals_and_all_figures():
    figure = Figure(section="s", name="rate", value=5, unit="/s", goal=at_least(3))
    report = Report(
        machine={"kernel": "6"}, command="c", sync_p50_ms=0.2, sync_p99_ms=1, figures=[figure]
    )
    text = page(report)
    assert "| s; rate | 5.00 /s |  | >= 3.00 /s | met |" in text
    assert "| kernel | 6 |" in text


def _processes_that_name(text):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if text in words and "serve" in words:
                found.append(words)
    return found


def test_of_several_rounds_the_median_counts_and_all_are_shown():
    def figure(value: float) -> Figure:
        return Figure(section="s", name="p50", value=value, unit="ms", goal=under(1.0))

    (merged,) = median_of([[figure(1.76)], [figure(0.9)], [figure(0.95)]])
    assert (merged.value, merged.rounds, merged.verdict(0.1)) == (0.95, [1.76, 0.9, 0.95], "met")
    (alone,) = median_of([[figure(1.76)]])
    assert (alone.value, alone.rounds) == (1.76, [])
    report = Report(machine={}, command="x", sync_p50_ms=0.1, sync_p99_ms=0.2, figures=[merged])
    assert "| s; p50 | 0.95 ms | 1.76 / 0.90 / 0.95 | < 1.00 ms | met |" in page(report)
