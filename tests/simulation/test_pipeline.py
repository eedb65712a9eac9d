"""The whole pipeline on the toy: workload, nemesis, healing, reading, verdict, determinism.

The toy's planted bugs show that each part of the pipeline can fail, without the production node.
"""

import os
import subprocess
import sys

import pytest

from raftline.testing.faults import FAULTS, FAULTS_MIN
from raftline.testing.sim import Plan, Report, Simulation, count_faults, run_seed
from tests.simulation.toy import ToyStore, toy_builder

SHORT = Plan(seconds=25.0, operations=600)


def run_toy(seed: int, store: ToyStore | None = None) -> Report:
    return run_seed(seed, SHORT, toy_builder(store))


def test_a_full_run_is_clean_and_has_its_size() -> None:
    report = run_seed(1, None, toy_builder())
    assert report.verdict.clean, report.verdict
    assert report.verdict.counts["ops"] >= 1_700
    assert report.sim_ms >= 60_000.0
    assert len(report.faults) >= FAULTS_MIN


def test_many_seeds_meet_every_class_of_fault() -> None:
    reports = [run_toy(seed) for seed in range(40)]
    assert [r.seed for r in reports if not r.verdict.clean] == []
    counts = count_faults(reports)
    # The toy has no checkpoints and no segments to flip bits in.
    missing = [name for name, count in counts.items() if not count]
    assert missing == ["bit flip in a checkpoint", "bit flip in a segment"]
    assert set(counts) == set(FAULTS)
    assert all(len(report.faults) >= FAULTS_MIN for report in reports)


def test_the_same_seed_gives_the_same_digest() -> None:
    assert run_toy(5).digest == run_toy(5).digest
    assert run_toy(5).digest != run_toy(6).digest


@pytest.mark.parametrize(
    ("bug", "promise"),
    [
        ({"forget_acked_every": 40}, "P1"),
        ({"stamp_twice": True}, "P3"),
        ({"flip": True}, "P11"),
        ({"silent": True}, "P10"),
        ({"refuse": True}, "P9"),
    ],
)
def test_a_planted_bug_is_named(bug: dict[str, object], promise: str) -> None:
    store = ToyStore()
    for name, value in bug.items():
        setattr(store, name, value)
    assert promise in run_toy(3, store).verdict.promises


def test_a_cluster_that_does_not_boot_breaks_p9(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(1, SHORT, toy_builder())
    monkeypatch.setattr(simulation.cluster, "is_ready", lambda name: False)
    assert simulation.run().verdict.promises == ("P9",)


PROGRAM = """
from raftline.testing.sim import Plan, run_seed
from tests.simulation.toy import toy_builder
print(run_seed(11, Plan(seconds=25.0, operations=600), toy_builder()).digest)
"""


def digest_under(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def test_the_digest_does_not_depend_on_the_hash_seed() -> None:
    assert digest_under("1") == digest_under("2") != ""
