"""``raftline chaos`` as people run it: faults of many kinds, a verdict, evidence."""

import json
import os
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


def test_a_directory_with_a_cluster_in_it_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "node-1").mkdir()
    ran = chaos("--data-dir", str(tmp_path), seconds=60)
    assert ran.returncode == 2, ran.stderr
    assert "holds a cluster already" in ran.stderr
