"""What a run chooses, and how it explains what it saw."""

import os
import random
import re
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from raftline.chaos import run
from raftline.chaos.faults import ALL, BY_NAME
from raftline.chaos.loads import not_exercised
from raftline.chaos.network_faults import cut_one_way
from raftline.chaos.rig import ChaosProblem, Rig
from raftline.chaos.run import PRESETS, Happened, Plan, _choose, _explain
from raftline.chaos.scene import Scene
from raftline.chaos.wires import Wires
from raftline.cli import main


def test_what_cannot_be_had_here_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    usable, left_out = _choose(Plan())
    assert {"power-cut", "power-cut-all", "eio", "packet-loss", "full-disk"} <= set(left_out)
    assert all("root" in why or "/dev" in why for why in left_out.values()), left_out
    assert {"kill", "pause", "flip", "clock", "members"} <= set(usable)
    with pytest.raises(ChaosProblem, match="no fault can be had here"):
        _choose(Plan(faults=("power-cut",)))


def test_a_run_that_names_no_faults_has_all_but_those_on_request():
    assert set(Plan().faults) == {fault.name for fault in ALL} - {"clock-faketime"}
    assert all(name in BY_NAME for plan in PRESETS.values() for name in plan.faults)


def test_of_a_cluster_that_is_not_ours_nothing_is_killed():
    usable, left_out = _choose(Plan(servers="http://10.0.0.1:8080"))
    assert list(usable) == ["transfer"]
    assert set(left_out.values()) == {"the cluster is not ours"}


def test_an_outage_is_explained_by_the_faults_at_that_time():
    faults = [
        Happened("kill", "node-1", 10.0, 4.0),
        Happened("cut", "node-2", 20.0, 2.0),
        Happened("wipe", "node-3", 30.0, 5.0),
    ]
    text = _explain(("orders/0", 1_011_000.0, 1_021_000.0), 1_000_000.0, faults)
    assert text == "orders/0 10.0 s from 11 s on: kill node-1, cut node-2"
    text = _explain(("orders/0", 1_025_000.0, 1_026_000.0), 1_000_000.0, faults)
    assert text.endswith("no fault at that time")


def test_a_load_that_got_nothing_acknowledged_is_no_proof_of_anything():
    counts = {"append_ok": 7, "queue sent": 0, "keyed sent": 3, "catalog_calls": 1}
    assert [v.promise for v in not_exercised(counts)] == ["P10"]
    assert "senders to the queue" in not_exercised(counts)[0].text
    assert not_exercised({**counts, "queue sent": 1}) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_one_way_cut_says_what_it_cuts(tmp_path: Path, seed: int):
    rig = Rig(tmp_path, wired=True)
    wires = rig.wires
    assert isinstance(wires, Wires)
    said: list[str] = []
    cut: set[tuple[str, str]] = set()
    scene = Scene(rig, random.Random(seed), "orders", 0.3, said.append)
    thread = threading.Thread(target=cut_one_way, args=(scene,))
    thread.start()
    while thread.is_alive():
        cut |= set(wires._cut)
    rig.close()
    assert len(cut) == 2
    pairs = re.findall(r"(node-\d) does not hear (node-\d)", said[0])
    assert {(source, target) for target, source in pairs} == cut


def test_all_nodes_are_all_nodes_of_the_beginning(tmp_path: Path):
    rig = Rig(tmp_path, nodes=5)
    scene = Scene(rig, random.Random(1), "orders", 0.0, print)
    assert sorted(scene.victims()) == [f"node-{n}" for n in range(1, 6)]
    rig.plan.plan(6, None, ())  # a node that joined later comes and goes
    assert len(scene.victims()) == 5


def test_a_run_of_nothing_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(tmp_path / "run"))
    assert main(["chaos", "--faults", "eio,packet-loss"]) == 2
    said = capfd.readouterr().err
    assert "no fault can be had here: eio: " in said
    assert "packet-loss: " in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "Broken pipe"), OSError(110, "no answer"), ChaosProblem("why")]
)
def test_a_run_without_a_verdict_is_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
):
    """A broken pipe to a helper process that died looked like a reader who had enough."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(run, "run_chaos", fail)
    assert main(["chaos", "--data-dir", str(tmp_path / "run")]) == 9


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_run_under_nohup_outlives_its_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: signal.Handlers
):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    known = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGHUP, before)
        assert main(["chaos", "--faults", "eio", "--data-dir", str(tmp_path / "run")]) == 2
        is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert is_ignored is (before is signal.SIG_IGN)
    finally:
        for number, handler in known.items():
            signal.signal(number, handler)


def test_a_node_that_nobody_hears_is_not_whole_and_no_error(tmp_path: Path):
    """Others may kill a node of a cluster that was taken while it is looked at."""
    assert not Rig(tmp_path)._is_whole("node-1")
