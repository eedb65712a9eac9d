"""Planted bugs of the work queue, each caught by the seeds under the name of its promise."""

import pytest

from raftline.testing.sim import Plan, run_seed
from tests.simulation import planted_queue as planted
from tests.simulation.planted import Plant

SEEDS_MAX = 8
CALM = ("delay", "drop", "pause", "slow disk")
FAILOVER = ("kill", "transfer", "partition", "pause")

BY_SEED = [
    (planted.attempts_forgotten_at_failover, "P4", FAILOVER),
    (planted.a_dead_letter_twice, "P4", CALM),
    (planted.a_dead_letter_never, "P4", CALM),
    (planted.leased_twice, "P5", CALM),
    (planted.a_stale_settle_accepted, "P5", CALM),
    (planted.released_early, "P6", CALM),
    (planted.cancelled_yet_delivered, "P6", CALM),
    (planted.a_lane_skipped, "P7", CALM),
    (planted.a_parked_key_overtaken, "P7", CALM),
    (planted.a_dedup_key_forgotten, "P8", CALM),
    (planted.a_member_expired_early, "GROUPS", CALM),
]


def name_of(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("bug", "promise", "faults"), BY_SEED, ids=name_of)
def test_seeds_catch_a_planted_bug(bug: Plant, promise: str, faults: tuple[str, ...]) -> None:
    plan = Plan(seconds=30.0, operations=60, queue_operations=300, faults=faults)
    seen: list[tuple[str, ...]] = []
    with bug():
        for seed in range(1, SEEDS_MAX + 1):
            seen.append(run_seed(seed, plan).verdict.promises)
            if promise in seen[-1]:
                return
    pytest.fail(f"{promise} was not named in {SEEDS_MAX} seeds: {seen}")


@pytest.mark.parametrize("faults", [CALM, FAILOVER], ids=("calm", "failover"))
def test_the_same_seeds_are_clean_without_a_bug(faults: tuple[str, ...]) -> None:
    plan = Plan(seconds=30.0, operations=60, queue_operations=300, faults=faults)
    for seed in (1, 2):
        report = run_seed(seed, plan)
        assert report.verdict.clean, "\n".join([*report.lines, str(report.verdict)])
