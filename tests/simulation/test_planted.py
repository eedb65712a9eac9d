"""For each promise at least one planted bug, caught and named by the checker.

Some bugs show in any seed with the right faults; others need a sequence of events that chance
brings about too rarely, so a story tells it. Every story is clean without its bug.
"""

from collections.abc import Callable

import pytest

from raftline.testing.sim import Plan, Report, run_seed
from tests.simulation import planted, story
from tests.simulation.story import Story

SEEDS_MAX = 8
CALM = ("delay", "drop", "transfer", "kill", "pause")

BY_SEED = [
    (planted.skip_fsync, "P1", ("all at once", "power loss", "kill", "drop", "delay")),
    (planted.reuse_an_offset, "P3", CALM),
    (planted.store_a_repeat_again, "P3", ("kill", "partition", "broken links", "pause")),
    (planted.skip_an_entry_on_one_replica, "P2", CALM),
    (planted.refuse_to_forward, "P9", CALM),
]

STORIES = [
    (planted.ack_before_majority, "P1", story.ack_alone_and_lose_the_leader),
    (planted.vote_twice_after_a_wipe, "P1", story.wipe_a_follower_and_lose_the_leader),
    (planted.cut_acked_entries_as_a_torn_tail, "P1", story.lose_a_bit_of_the_wal_and_the_leader),
    (planted.recycle_a_pinned_wal_file, "P1", story.fill_the_wal_beside_a_still_shard),
    (planted.serve_a_bad_crc, "P11", story.read_a_damaged_segment),
    (
        planted.never_answer_the_overdue,
        "P10",
        story.cut_off_a_leader_for_longer_than_a_call_waits,
    ),
]


def name_of(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("bug", "promise", "faults"), BY_SEED, ids=name_of)
def test_seeds_catch_a_planted_bug(
    bug: planted.Plant, promise: str, faults: tuple[str, ...]
) -> None:
    plan = Plan(seconds=35.0, operations=700, queue_operations=0, faults=faults)
    seen: list[tuple[str, ...]] = []
    with bug():
        for seed in range(1, SEEDS_MAX + 1):
            seen.append(run_seed(seed, plan).verdict.promises)
            if promise in seen[-1]:
                return
    pytest.fail(f"{promise} was not named in {SEEDS_MAX} seeds: {seen}")


@pytest.mark.parametrize(("bug", "promise", "tell"), STORIES, ids=name_of)
def test_a_story_catches_a_planted_bug(
    bug: planted.Plant, promise: str, tell: Callable[[Story], Report]
) -> None:
    with bug():
        verdict = tell(_story(tell)).verdict
    assert promise in verdict.promises, verdict


@pytest.mark.parametrize("tell", [tell for _, _, tell in STORIES], ids=name_of)
def test_a_story_is_clean_without_its_bug(tell: Callable[[Story], Report]) -> None:
    report = tell(_story(tell))
    assert report.verdict.clean, "\n".join([*report.lines, str(report.verdict)])


def _story(tell: Callable[[Story], Report]) -> Story:
    big = tell is story.fill_the_wal_beside_a_still_shard
    return Story(seed=1, value_bytes_max=12_000 if big else 160)
