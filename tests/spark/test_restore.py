"""Restoring: a window comes back once, in order, whatever ended the job before."""

from pathlib import Path
from typing import Any

import pytest

from raftline.client.client import Client
from raftline.client.fenced import Fenced
from raftline.client.line import Line
from raftline.model.errors import Conflict, InvalidArgument, NotFound
from raftline.model.records import seal_batch
from raftline.pipeline import restore
from raftline.pipeline.job import Job
from raftline.pipeline.restore_task import RESTORED_HEADER
from tests.spark.archives import (
    archive_topic,
    archived_rows,
    bounds,
    consume,
    in_order,
    make_topic,
    trim,
)
from tests.spark.conftest import post_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NOON_MS = 1_790_000_000_000


def restored(servers: str, topic: str, root: Path, **options: Any) -> dict[str, Any]:
    with Job("restore", servers) as job:
        return restore.run(job, topic=topic, directory=str(root), **options)


def fill(servers: str, topic: str, partitions: int, count: int) -> None:
    """Put messages into each partition; message n is of NOON + n ms."""
    make_topic(servers, topic, partitions)
    for partition in range(partitions):
        messages = [
            (b"k%d" % at, b"%d:%d" % (partition, at), (("h", b"\xff"),), NOON_MS + at)
            for at in range(count)
        ]
        post_batch(servers, topic, partition, seal_batch(messages, compression="zstd"))


def read(servers: str, topic: str) -> list[dict[str, Any]]:
    return consume(servers, topic)


def values(rows: list[dict[str, Any]]) -> list[str]:
    return [row["value"] for row in rows]


def test_a_window_comes_back_into_a_new_topic_once(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    fill(servers, topic, 2, 300)
    line.send(topic, b"last", partition=1, key="k", priority=10, wait=True)
    archive_topic(servers, topic, tmp_path)
    for partition in (0, 1):
        trim(servers, topic, partition, 300)
    window = {"from_ms": NOON_MS + 100, "to_ms": NOON_MS + 250}
    told = restored(servers, topic, tmp_path, to=f"{topic}.back", **window)
    assert (told["messages"], told["stopped"]) == (300, False)
    rows = read(servers, f"{topic}.back")
    assert values(rows) == [f"{part}:{at}" for part in (0, 1) for at in range(100, 250)]
    assert [row["timestamp"] for row in rows] == [*range(NOON_MS + 100, NOON_MS + 250)] * 2
    assert in_order(rows) == {0: list(range(150)), 1: list(range(150))}

    again = restored(servers, topic, tmp_path, to=f"{topic}.back", **window)
    assert (again["messages"], again["job"]) == (0, told["job"])
    assert len(read(servers, f"{topic}.back")) == 300
    other = restored(servers, topic, tmp_path, to=f"{topic}.back", from_offset=300, partition=1)
    assert other["messages"] == 1
    archive_topic(servers, f"{topic}.back", tmp_path)
    last = archived_rows(tmp_path, f"{topic}.back")[-1]
    assert (last["value"], last["key"], last["priority"]) == (b"last", b"k", 10)


def test_messages_that_go_home_say_where_they_were_and_come_once(
    spark: Any, servers: str, topic: str, tmp_path: Path
) -> None:
    fill(servers, topic, 1, 20)
    archive_topic(servers, topic, tmp_path)
    trim(servers, topic, 0, 20)
    assert restored(servers, topic, tmp_path)["messages"] == 20
    rows = read(servers, topic)
    assert values(rows) == [f"0:{at}" for at in range(20)]
    assert [row["offset"] for row in rows] == list(range(20, 40))
    assert [row["headers"][RESTORED_HEADER] for row in rows] == [
        f"{topic}/0@{at}" for at in range(20)
    ]
    archive_topic(servers, topic, tmp_path)  # what came back is archived as well
    assert restored(servers, topic, tmp_path)["messages"] == 0
    assert len(read(servers, topic)) == 20


@pytest.mark.parametrize("step", ["staged", "published"])
def test_a_job_that_ends_between_its_steps_goes_on(
    spark: Any, servers: str, topic: str, tmp_path: Path, monkeypatch: Any, step: str
) -> None:
    monkeypatch.setattr(restore, "PIECE_MESSAGES_MIN", 10)
    monkeypatch.setattr(restore, "PIECE_MESSAGES_MAX", 10)
    fill(servers, topic, 2, 200)
    archive_topic(servers, topic, tmp_path)
    real, calls = Fenced.publish, 0

    def fatal(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3 and step == "published":
            real(*args, **options)
        if calls == 3:
            raise OSError("the machine is gone")
        return real(*args, **options)

    target = f"{topic}.back"
    with monkeypatch.context() as patch:
        patch.setattr(Fenced, "publish", fatal)
        with pytest.raises(OSError, match="gone"):
            restored(servers, topic, tmp_path, to=target)
    found = sum(row["commit_end"] for row in bounds(servers, target))
    assert 0 < found < 400
    told = restored(servers, topic, tmp_path, to=target)
    assert told["messages"] == 400 - found
    assert values(read(servers, target)) == [f"{p}:{at}" for p in (0, 1) for at in range(200)]


def test_of_two_jobs_at_the_same_time_one_is_told(
    spark: Any, servers: str, topic: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """The second cuts its batches elsewhere, and gets ahead while the first has staged."""
    fill(servers, topic, 1, 400)
    archive_topic(servers, topic, tmp_path)
    real, target, reached = Fenced.publish, f"{topic}.back", list[int]()

    def overtaken(fenced: Fenced, *args: Any, **options: Any) -> Any:
        monkeypatch.setattr(Fenced, "publish", real)
        steps_of(monkeypatch, 10)
        with Job("restore", servers) as job:
            monkeypatch.setattr(Fenced, "publish", stopping(job, real))
            restore.run(job, topic=topic, to=target, directory=str(tmp_path))
        monkeypatch.setattr(Fenced, "publish", real)
        reached.append(bounds(servers, target)[0]["commit_end"])
        return real(fenced, *args, **options)

    steps_of(monkeypatch, 20)
    monkeypatch.setattr(Fenced, "publish", overtaken)
    with pytest.raises(Conflict, match="another job restores the same window"):
        restored(servers, topic, tmp_path, to=target)
    assert 0 < reached[0] < 400
    assert bounds(servers, target)[0]["commit_end"] == reached[0]
    assert restored(servers, topic, tmp_path, to=target)["messages"] == 400 - reached[0]
    assert values(read(servers, target)) == [f"0:{at}" for at in range(400)]


def steps_of(monkeypatch: Any, messages: int) -> None:
    monkeypatch.setattr(restore, "PIECE_MESSAGES_MIN", messages)
    monkeypatch.setattr(restore, "PIECE_MESSAGES_MAX", messages)


def stopping(job: Job, real: Any) -> Any:
    """Return a publish after which the job ends, as after Ctrl-C."""

    def publish(*args: Any, **options: Any) -> Any:
        job.is_stopping = True
        return real(*args, **options)

    return publish


def test_bad_wishes_are_refused(spark: Any, servers: str, topic: str, tmp_path: Path) -> None:
    fill(servers, topic, 2, 3)
    archive_topic(servers, topic, tmp_path)
    with pytest.raises(NotFound, match="not archived"):
        restored(servers, f"{topic}-other", tmp_path)
    with pytest.raises(NotFound, match="/7 is not archived"):
        restored(servers, topic, tmp_path, partition=7)
    with pytest.raises(InvalidArgument, match="window is empty"):
        restored(servers, topic, tmp_path, from_ms=5, to_ms=5)
    with pytest.raises(InvalidArgument, match="trace"):
        restored(servers, topic, tmp_path, to=f"{topic}.trace")
    make_topic(servers, f"{topic}.narrow", 1)
    with pytest.raises(InvalidArgument, match="has 1 partitions"):
        restored(servers, topic, tmp_path, to=f"{topic}.narrow")
    assert (
        restored(servers, topic, tmp_path, from_ms=NOON_MS + 99, to=f"{topic}.b")["messages"] == 0
    )


def test_a_topic_that_was_deleted_comes_back_from_its_archive(
    spark: Any, servers: str, topic: str, tmp_path: Path
) -> None:
    fill(servers, topic, 2, 30)
    archive_topic(servers, topic, tmp_path)
    with Client(servers) as client:
        client.delete_topic(topic)
    assert restored(servers, topic, tmp_path)["messages"] == 60
    assert values(read(servers, topic)) == [f"{p}:{at}" for p in (0, 1) for at in range(30)]
