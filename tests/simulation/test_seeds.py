"""Seeds through the production node: 200 in ``make test``, in shards so that all cores work.

The failing seed is the last line of a failure; ``make sim SEED=n`` runs it again with its story.
Seeds that ever failed are kept in ``regressions/seeds.txt`` with what they found.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raftline.testing.faults import FAULTS_MIN
from raftline.testing.sim import Plan, Report, count_faults, run_seed

SHARDS = 8
SEEDS_PER_SHARD = 25
REGRESSIONS = Path(__file__).parent / "regressions" / "seeds.txt"


def regressions() -> list[int]:
    lines = REGRESSIONS.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def complain(report: Report) -> str:
    return "\n".join([*report.lines, str(report.verdict), f"SEED {report.seed}"])


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_seeds_are_clean(shard: int, record_property) -> None:
    first = 1 + shard * SEEDS_PER_SHARD
    reports: list[Report] = []
    for seed in range(first, first + SEEDS_PER_SHARD):
        report = run_seed(seed)
        assert report.verdict.clean, complain(report)
        assert report.sim_ms >= 60_000.0, complain(report)
        assert report.verdict.counts["ops"] >= 2_000, complain(report)
        assert report.verdict.counts["deliveries"] >= 100, complain(report)
        assert len(report.faults) >= FAULTS_MIN, complain(report)
        reports.append(report)
    counts = count_faults(reports)
    record_property("faults by class", counts)
    missing = [name for name, count in counts.items() if not count]
    assert not missing, f"never occurred in seeds {first}..: {missing}"


@pytest.mark.parametrize("seed", regressions())
def test_a_seed_that_once_failed_is_clean(seed: int) -> None:
    report = run_seed(seed)
    assert report.verdict.clean, complain(report)


PROGRAM = """
from raftline.testing.sim import Plan, run_seed
print(run_seed(3, Plan(seconds=30.0, operations=300, queue_operations=200)).digest)
"""


def digest_under(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.strip()


def test_the_same_seed_gives_the_same_digest_under_another_hash_seed() -> None:
    first = digest_under("1")
    assert len(first) == 32
    assert digest_under("2") == first
    plan = Plan(seconds=30.0, operations=300, queue_operations=200)
    assert run_seed(3, plan).digest == first
