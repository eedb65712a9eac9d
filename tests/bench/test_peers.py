"""The comparison with other systems works: with Raftline alone, which is always there; and what a
report says of figures that are known. No figure is judged."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.peers import plots, report, results
from bench.peers.adapters import SYSTEMS
from bench.peers.results import Piece
from bench.peers.workloads import REPLICATED, SINGLE, Sample

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
def test_a_quick_turn_of_raftline_measures_every_workload(tmp_path):
    out, page = tmp_path / "raw.json", tmp_path / "peers.md"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.peers.run", "--quick", "--only", "raftline"),
            *("--rounds", "1", "--work", str(tmp_path / "data"), "--out", str(out)),
            *("--report", "--from", str(out), "--page", str(page)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    piece = msgspec.json.decode(out.read_bytes(), type=Piece)
    assert piece.failures == []
    measured = {(sample.nodes, sample.workload) for sample in piece.samples}
    wanted = {(1, name) for name in SINGLE if name != "restart"}
    wanted |= {(3, name) for name in REPLICATED} | {(1, "start"), (1, "memory"), (3, "start")}
    assert wanted <= measured
    assert [sample for sample in piece.samples if sample.value < 0] == []
    for metric in ("per_s", "p50_ms", "start_ms", "restart_ms", "idle_mb", "outage_ms"):
        found = [sample.value for sample in piece.samples if sample.metric == metric]
        assert found, metric
        assert min(found) > 0, metric
    assert not list((tmp_path / "data").iterdir())
    text = page.read_text()
    for image in page.parent.glob("*.svg"):
        assert image.name in text


def piece_of(*rows: tuple[str, str, str, float]) -> Piece:
    samples = [
        Sample(system=system, nodes=1, workload=workload, metric=metric, value=value)
        for system, workload, metric, value in rows
    ]
    return Piece(
        at="2026-01-01T00:00:00Z",
        command="",
        commit="abc",
        machine={"processor": "one"},
        sync_p50_ms=0.2,
        sync_p99_ms=0.5,
        load_before="0.0 0.0 0.0",
        samples=samples,
        failures=["kafka: there is no mvn"],
    )


def test_runs_merge_into_medians_with_their_spread():
    pieces = [piece_of(("redis", "bulk", "per_s", value)) for value in (10.0, 30.0, 20.0)]
    row = results.rows(pieces)["redis", 1, "bulk", "per_s"]
    assert (row.median, row.low, row.high, row.count) == (20.0, 10.0, 30.0, 3)


def test_a_factor_says_how_many_times_better_raftline_is_whichever_way_a_metric_goes(tmp_path):
    piece = piece_of(
        ("raftline", "bulk", "per_s", 300.0),
        ("redis", "bulk", "per_s", 100.0),
        ("raftline", "single", "p50_ms", 2.0),
        ("redis", "single", "p50_ms", 1.0),
    )
    report.write([piece], tmp_path / "peers.md")
    text = (tmp_path / "peers.md").read_text()
    assert "| Redis Streams | 100 (100 to 100) **x3.00** |" in text
    assert "| Redis Streams | 1.00 (1.00 to 1.00) **x0.50** |" in text
    assert "| a. One publish at a time: p50, ms | - | - | - | - | **x0.50** | - | - |" in text
    assert "| c. Bulk publish: messages/s | - | - | - | - | x3.00 | - | - |" in text
    assert "ahead or level in 1 of 2 cells" in text
    assert "kafka: there is no mvn" in text
    assert "(peers-bulk-per-s.svg)" in text


def test_a_plot_is_well_formed_and_escapes_names():
    from xml.etree import ElementTree

    drawn = plots.bars("a < b", [plots.Bar(label="x & y", value=2, low=1, high=3, ours=True)])
    words = [text.text for text in ElementTree.fromstring(drawn).iter() if text.text]
    assert "a < b" in words
    assert "x & y" in words


def test_every_system_says_what_durable_means_and_has_both_halves(tmp_path):
    for system in SYSTEMS.values():
        assert system.durable
        assert system.acks
        assert system.servers(tmp_path, 1).count == 1
        client = system.connect("127.0.0.1:1")
        for name in ("create", "publish", "pace", "bulk", "consume", "join", "work", "leader"):
            assert callable(getattr(client, name)), (system.name, name)
