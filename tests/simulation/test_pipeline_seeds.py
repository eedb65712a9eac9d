"""Seeds with little but jobs in them: many faults to few calls. What once failed stays."""

import pytest

from raftline.testing.sim import Plan, run_seed

PLAN = Plan(seconds=40.0, operations=60, queue_operations=0, pipeline=1)
ONCE_FAILED = {
    197: "a node that joined by one that was being admitted itself waited for ever",
    132: "a disk that failed while the catalog was made anew ended the node by an exception",
}


@pytest.mark.parametrize("seed", [1, 2, 3, *ONCE_FAILED])
def test_jobs_under_all_faults(seed: int) -> None:
    report = run_seed(seed, PLAN)
    assert report.verdict.clean, "\n".join([*report.lines, str(report.verdict)])
    assert report.verdict.counts["query leases"] > 5


def test_the_same_seed_is_the_same_run() -> None:
    assert run_seed(2, PLAN).digest == run_seed(2, PLAN).digest
