"""Planted bugs of staged writes and query leases, each caught by the seeds under its promise."""

import pytest

from raftline.testing.sim import Plan, run_seed
from tests.simulation import planted_pipeline as planted
from tests.simulation.planted import Plant

SEEDS_MAX = 6
FAILOVER = ("kill", "transfer", "partition", "pause")
PLAN = Plan(seconds=30.0, operations=40, queue_operations=0, pipeline=1, faults=FAILOVER)

BUGS = [
    (planted.a_batch_published_again, "STAGE"),
    (planted.a_loser_published, "STAGE"),
    (planted.a_piece_skipped, "STAGE"),
    (planted.a_number_leased_anew, "LEASE"),
    (planted.acked_when_leased, "LEASE"),
    (planted.a_stale_number_taken, "LEASE"),
]


@pytest.mark.parametrize(("bug", "promise"), BUGS, ids=lambda value: getattr(value, "__name__", ""))
def test_seeds_catch_a_planted_bug(bug: Plant, promise: str) -> None:
    seen: list[tuple[str, ...]] = []
    with bug():
        for seed in range(1, SEEDS_MAX + 1):
            seen.append(run_seed(seed, PLAN).verdict.promises)
            if promise in seen[-1]:
                return
    pytest.fail(f"{promise} was not named in {SEEDS_MAX} seeds: {seen}")


def test_the_same_seeds_are_clean_without_a_bug() -> None:
    for seed in range(1, SEEDS_MAX + 1):
        report = run_seed(seed, PLAN)
        assert report.verdict.clean, "\n".join([*report.lines, str(report.verdict)])
        assert report.verdict.counts["published batches"] > 5
        assert report.verdict.counts["committed messages"] > 5
