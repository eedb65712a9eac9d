"""``raftline chaos`` as people run it: faults of many kinds, a verdict, evidence."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raftline.chaos.faults import BY_NAME
from raftline.chaos.rig import wait_for
from tests.cluster.conftest import MakeRig

KEYS = {
    "acked", "lost", "duplicated", "reordered", "early", "fenced_accepted", "late", "outage_ms_max",
    "outages", "clean", "faults", "left_out", "seed",
}  # fmt: skip
HISTORIES = (
    "log-history.jsonl",
    "catalog-history.jsonl",
    "queue-history.jsonl",
    "keyed-history.jsonl",
)


def chaos(*words: str, seconds: float) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "raftline", "chaos", *words],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


@pytest.mark.parametrize(
    ("faults_s", "seed"),
    [
        pytest.param(60, 11, marks=pytest.mark.timeout(400)),
        pytest.param(
            900, 12, marks=[pytest.mark.full, pytest.mark.longest, pytest.mark.timeout(1500)]
        ),
    ],
)
def test_every_promise_is_kept_under_faults_of_every_kind(
    tmp_path: Path, faults_s: int, seed: int
) -> None:
    home = tmp_path / "run"
    words = ["--seconds", str(faults_s), "--seed", str(seed), "--data-dir", str(home), "--json"]
    ran = chaos(*words, seconds=faults_s + 240)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    verdict = json.loads(ran.stdout.splitlines()[-1])
    assert set(verdict) >= KEYS
    assert verdict["clean"] is True
    assert (verdict["lost"], verdict["duplicated"], verdict["early"]) == (0, 0, 0)
    assert (verdict["reordered"], verdict["fenced_accepted"]) == (0, 0)
    assert verdict["acked"] > 100
    assert sum(verdict["faults"].values()) >= 4
    print({name: verdict[name] for name in ("acked", "outage_ms_max", "faults", "left_out")})
    assert verdict["outage_ms_max"] < 30_000
    for name in ("verdict.json", "faults.jsonl", *HISTORIES):
        assert (home / name).stat().st_size, name
    assert not any(os.path.ismount(home / name) for name in ("node-1", "node-2", "node-3"))
    if "Kafka clients" not in verdict["left_out"]:
        assert verdict["counts"]["kafka sent"] > 50
        assert verdict["counts"]["kafka read"] >= verdict["counts"]["kafka sent"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_a_run_its_nodes_end_with_it(tmp_path: Path, number: signal.Signals) -> None:
    home = tmp_path / "run"
    words = ("--seconds", "300", "--faults", "transfer", "--data-dir", str(home))
    command = [sys.executable, "-m", "raftline", "chaos", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            assert "3 nodes" in running.stderr.readline()
            assert len(nodes_in(home)) == 3
            running.send_signal(number)
            said = running.communicate(timeout=40)[1]
        finally:
            running.kill()
    assert running.returncode == (-number if number == signal.SIGKILL else 130)
    assert number == signal.SIGKILL or "nothing was judged" in said
    wait_for(lambda: not nodes_in(home), 10, lambda: f"{nodes_in(home)} still run")


def nodes_in(home: Path) -> list[str]:
    """Return the processes that work in a directory."""
    shown = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True)
    return [row for row in shown.stdout.splitlines() if " serve " in row and str(home) in row]


def test_a_larger_cluster_takes_one_node_more_and_gives_it_back(tmp_path: Path) -> None:
    words = ("--nodes", "4", "--faults", "members", "--seconds", "1", "--json")
    ran = chaos(*words, "--data-dir", str(tmp_path / "run"), seconds=200)
    assert ran.returncode == 0, ran.stderr
    told = (tmp_path / "run" / "faults.jsonl").read_text()
    assert "node-5 joined" in told
    assert "node-4 joined" not in told


def test_the_catalogue_is_shown() -> None:
    ran = chaos("--list", "--json", seconds=60)
    assert ran.returncode == 0, ran.stderr
    assert [row["fault"] for row in json.loads(ran.stdout)] == list(BY_NAME)


def test_a_cluster_that_is_there_is_loaded_and_judged_and_left_alone(
    make_rig: MakeRig, tmp_path: Path
) -> None:
    rig = make_rig()
    server = ",".join(rig.node(name).http for name in rig.names)
    words = ("--server", server, "chaos", "--take", "--seconds", "6", "--json")
    command = [sys.executable, "-m", "raftline", *words, "--data-dir", str(tmp_path / "run")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    wait_for((tmp_path / "run").exists, 20)
    time.sleep(3)
    rig.kill("node-2")  # who hurts it is not its business
    rig.restart("node-2")
    said, _ = running.communicate(timeout=120)
    verdict = json.loads(said.splitlines()[-1])
    assert running.returncode == 0, verdict["violations"]
    assert verdict["faults"]["transfer"] >= 1
    assert verdict["counts"]["queue acked"] > 10
    assert len(rig.running()) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--faults", "kill,earthquake"), "no fault 'earthquake'"),
        (("--preset", "friday"), "no preset friday"),
        (("--nodes", "2"), "--nodes"),
        (("--seconds", "0"), "--seconds"),
    ],
)
def test_options_that_make_no_sense_start_nothing(words: tuple[str, ...], said: str) -> None:
    ran = chaos(*words, seconds=60)
    assert ran.returncode == 2, ran.stdout
    assert said in ran.stderr


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    for place in ("/proc/raftline", str(tmp_path / "file")):
        ran = chaos("--data-dir", place, seconds=60)
        assert ran.returncode == 2, ran.stderr
        assert f"{place} cannot be written" in ran.stderr


def test_a_directory_with_a_cluster_in_it_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "node-1").mkdir()
    ran = chaos("--data-dir", str(tmp_path), seconds=60)
    assert ran.returncode == 2, ran.stderr
    assert "holds a cluster already" in ran.stderr
