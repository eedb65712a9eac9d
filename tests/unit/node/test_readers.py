"""Who reads a partition: what is done in the lane and what on the loop."""

from types import SimpleNamespace
from typing import Any

import pytest

from raftline.model.calls import Looked
from raftline.model.errors import StorageFault
from raftline.model.records import seal_batch
from raftline.node import readers
from raftline.node.readers import Readers
from raftline.storage.log_words import TimeHit
from raftline.testing import cluster
from tests.unit.node.work import TOPIC, question


class Lane:
    """Keeps jobs until they are run."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Any, Any]] = []

    def run(self, job: Any, done: Any) -> None:
        self.jobs.append((job, done))


def looking(hit: TimeHit | None, time_ms: int, log_start: int = 0) -> tuple[Lane, list[Any]]:
    """Ask for a moment; nothing is done yet."""
    log = SimpleNamespace(log_end=100, log_start=log_start, find_time=lambda _: lambda: hit)
    lane, answers = Lane(), []
    host: Any = SimpleNamespace(log=log, name="t/0")
    Readers(host, lane, 10).look_up_time(time_ms, answers.append)  # type: ignore[arg-type]
    return lane, answers


def hit_of(times: list[int]) -> TimeHit:
    return TimeHit(0, seal_batch([(None, b"v", (), time_ms) for time_ms in times]))


def test_a_batch_is_opened_in_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a million messages: the loop must not wait for them."""
    opened: list[bytes] = []
    real = readers.open_batch
    monkeypatch.setattr(readers, "open_batch", lambda batch: opened.append(batch) or real(batch))
    lane, answers = looking(hit_of([5, 15, 25]), 10)
    assert (opened, answers) == ([], [])
    ((job, done),) = lane.jobs
    looked = job()
    assert len(opened) == 1
    done(looked, None)
    assert len(opened) == 1
    assert answers == [Looked(1, 15, 100)]


@pytest.mark.parametrize(
    ("hit", "log_start", "expected"),
    [
        (None, 0, Looked(-1, -1, 100)),
        (hit_of([5, 15, 25]), 2, Looked(2, 25, 100)),
        (TimeHit(7, b"what nobody can read"), 0, Looked(7, 10, 100)),
    ],
)
def test_what_is_answered(hit: TimeHit | None, log_start: int, expected: Looked) -> None:
    lane, answers = looking(hit, 10, log_start)
    ((job, done),) = lane.jobs
    done(job(), None)
    assert answers == [expected]


def test_a_failure_is_told() -> None:
    lane, answers = looking(None, 10)
    lane.jobs[0][1](None, OSError("gone"))
    assert isinstance(answers[0], StorageFault)


def test_what_was_trimmed_of_a_batch_answers_no_look_up_by_time() -> None:
    """The trim is inside the batch that the index finds: what comes after it counts."""
    with cluster(nodes=1, seed=12) as sim:
        sim.create_topic(TOPIC, partitions=1)
        sim.append(TOPIC, [b"late", b"early"], timestamps_ms=[100, 50])
        sim.append(TOPIC, [b"later"], timestamps_ms=[90])
        assert sim.look_up_time(TOPIC, 0, 80) == Looked(0, 100, 3)
        assert question(sim, "log.trim", offset=1) == {"log_start": 1}
        assert sim.look_up_time(TOPIC, 0, 80) == Looked(2, 90, 3)
        assert sim.look_up_time(TOPIC, 0, 95) == Looked(-1, -1, 3)
        bounds = question(sim, "log.bounds", time=80)
        assert (bounds["offset"], bounds["timestamp"]) == (2, 90)
        bounds = question(sim, "log.bounds", time=95)
        assert (bounds["offset"], bounds["timestamp"]) == (3, -1)
