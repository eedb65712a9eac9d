"""Archiving with Spark: everything once, whatever ends the job; marks, gaps, dead letters."""

import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from raftline.archive import manifest as manifests
from raftline.archive.live import Bounds, LiveLog
from raftline.archive.reader import Archive
from raftline.archive.unreadable import HEADER
from raftline.client import clock
from raftline.client.client import Client
from raftline.client.line import Line
from raftline.model.errors import Conflict, InvalidArgument, NotArchived, UnknownTopic
from raftline.model.records import seal_batch
from raftline.pipeline import archive, archive_parts, optimize
from raftline.pipeline.job import Job
from tests.spark.archives import (
    archive_topic,
    archived_rows,
    archived_values,
    bounds,
    consume,
    in_order,
    make_topic,
    trim,
)
from tests.spark.conftest import post_batch, publish

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def test_what_was_sent_is_archived_once(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    make_topic(servers, topic, 3)
    sent = [
        line.send(topic, b"v%d" % at, key=f"k{at % 7}", headers={"n": str(at)}, priority=at % 3)
        for at in range(900)
    ]
    for one in sent:
        one.result()
    told = archive_topic(servers, topic, tmp_path)
    assert (told["messages"], told["lost"], told["stopped"]) == (900, 0, False)
    rows = archived_rows(tmp_path, topic)
    assert {row["value"]: (row["key"], row["priority"], row["topic"]) for row in rows} == {
        b"v%d" % at: (b"k%d" % (at % 7), at % 3, topic) for at in range(900)
    }
    assert all({"key": "n", "value": row["value"][1:]} in row["headers"] for row in rows)
    ends = {row["partition"]: row["commit_end"] for row in bounds(servers, topic)}
    assert in_order(rows) == {p: list(range(end)) for p, end in ends.items() if end}

    again = archive_topic(servers, topic, tmp_path)
    assert (again["messages"], again["rounds"]) == (0, 0)
    publish(line, topic, numbers(50))
    assert archive_topic(servers, topic, tmp_path)["messages"] == 50
    assert len(archived_rows(tmp_path, topic)) == 950


def test_rounds_and_ranges_fit_together(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(archive_parts, "RANGE_MESSAGES_MIN", 40)
    monkeypatch.setattr(archive_parts, "RANGE_MESSAGES_MAX", 40)
    make_topic(servers, topic, 2)
    publish(line, topic, numbers(1000))
    told = archive_topic(servers, topic, tmp_path)
    assert told["rounds"] > 2
    assert sorted(map(int, archived_values(tmp_path, topic))) == list(range(1000))


@pytest.mark.parametrize("step", ["written", "committed"])
def test_a_job_that_ends_anywhere_is_run_again(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path, monkeypatch: Any, step: str
) -> None:
    make_topic(servers, topic, 2)
    publish(line, topic, numbers(300))
    real = manifests.commit

    def fatal(*args: Any) -> Any:
        if step == "committed":
            real(*args)
        raise OSError("the machine is gone")

    with monkeypatch.context() as patch:
        patch.setattr(manifests, "commit", fatal)
        with pytest.raises(OSError, match="gone"):
            archive_topic(servers, topic, tmp_path)
    told = archive_topic(servers, topic, tmp_path)
    assert told["messages"] < 300 if step == "committed" else told["messages"] == 300
    assert sorted(map(int, archived_values(tmp_path, topic))) == list(range(300))


def test_a_continuous_job_outlives_nodes_that_are_away_while_tasks_read(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path, monkeypatch: Any
) -> None:
    make_topic(servers, topic, 1)
    publish(line, topic, numbers(30))
    real, passes = archive._pieces, 0

    def cut_off(*args: Any) -> Any:
        nonlocal passes
        passes += 1
        pieces = list(real(*args))
        if passes == 2:
            return [msgspec.structs.replace(one, servers="http://127.0.0.1:9") for one in pieces]
        return pieces

    def rest(job: Job, _ms: int) -> None:
        if passes == 1:
            publish(line, topic, numbers(30, 30))
        job.is_stopping = passes == 3

    monkeypatch.setattr(archive, "_pieces", cut_off)
    monkeypatch.setattr(archive, "_rest", rest)
    assert archive_topic(servers, topic, tmp_path, every_ms=10)["messages"] == 60
    assert archived_values(tmp_path, topic) == numbers(60)


def test_messages_that_were_removed_first_are_written_down_as_a_gap(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    make_topic(servers, topic, 1)
    publish(line, topic, numbers(30))
    archive_topic(servers, topic, tmp_path)
    publish(line, topic, numbers(30, 30))
    trim(servers, topic, 0, 45)
    with pytest.raises(AssertionError, match="removed from the log before it was archived"):
        consume(servers, topic, "--include-deleted", "--archive", str(tmp_path))
    told = archive_topic(servers, topic, tmp_path)
    assert (told["messages"], told["lost"]) == (15, 15)
    found = Archive(tmp_path).manifest(topic, 0)
    assert found is not None
    assert [(gap.start, gap.end) for gap in found.gaps] == [(30, 45)]
    assert in_order(archived_rows(tmp_path, topic)) == {0: [*range(30), *range(45, 60)]}
    rows = consume(servers, topic, "--include-deleted", "--archive", str(tmp_path))
    assert in_order(rows) == {0: [*range(30), *range(45, 60)]}


def test_a_trim_in_the_middle_of_a_job_is_planned_around(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path, monkeypatch: Any
) -> None:
    make_topic(servers, topic, 1)
    publish(line, topic, numbers(200))
    monkeypatch.setattr(archive_parts, "RANGE_MESSAGES_MIN", 50)
    monkeypatch.setattr(archive_parts, "RANGE_MESSAGES_MAX", 50)
    real = archive._pieces
    is_first = True

    def trimmed(*args: Any) -> Any:
        nonlocal is_first
        pieces = list(real(*args))
        if is_first:
            trim(servers, topic, 0, 120)
        is_first = False
        return pieces

    monkeypatch.setattr(archive, "_pieces", trimmed)
    told = archive_topic(servers, topic, tmp_path)
    assert told["messages"] == 80
    assert in_order(archived_rows(tmp_path, topic)) == {0: list(range(120, 200))}


def test_a_trim_just_before_a_range_is_planned_is_planned_around(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path, monkeypatch: Any
) -> None:
    make_topic(servers, topic, 1)
    publish(line, topic, numbers(200))
    real = LiveLog.bounds

    def trimmed(log: LiveLog, name: str) -> list[Bounds]:
        found = real(log, name)
        trim(servers, topic, 0, 120)
        return found

    monkeypatch.setattr(LiveLog, "bounds", trimmed)
    assert archive_topic(servers, topic, tmp_path)["messages"] == 80
    assert in_order(archived_rows(tmp_path, topic)) == {0: list(range(120, 200))}


def test_the_mark_follows_the_manifest_and_trims_stop_at_it(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    make_topic(servers, topic, 1, archive="required", archive_dir=str(tmp_path))
    publish(line, topic, numbers(10))
    with pytest.raises(NotArchived):
        trim(servers, topic, 0, 5)
    with Job("archive", servers) as job:  # elsewhere: retention does not wait for that one
        elsewhere = tmp_path / "elsewhere"
        archive.run(job, topics=[topic], directory=str(elsewhere), traces=False)
    assert bounds(servers, topic)[0]["archived"] == 0
    with Job("archive", servers) as job:
        told = archive.run(job, traces=False)
    assert topic in told["topics"]
    assert bounds(servers, topic)[0]["archived"] == 10
    assert trim(servers, topic, 0, 10) == 10
    rows = consume(servers, topic, "--from-snapshot", "2026-01-01", "--include-deleted")
    assert [row["value"] for row in rows] == [text.decode() for text in numbers(10)]


def test_dead_letters_and_traces_are_archived_too(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    make_topic(servers, topic, 1)
    publish(line, topic, numbers(4))
    for message in line.receive(topic, group="workers", wait="2s"):
        if message.value == b"2":
            message.reject("broken", wait=True)
        else:
            message.ack(wait=True)
    with Client(servers) as client:
        until_ms = clock.mono_ms() + 20_000
        while f"{topic}.dlq" not in [row["name"] for row in client.topics()]:
            assert clock.mono_ms() < until_ms
            clock.pause(50)
    archive_topic(servers, topic, tmp_path, dead_letters=True, traces=True)
    assert [row["value"] for row in archived_rows(tmp_path, f"{topic}.dlq")] == [b"2"]
    assert archived_rows(tmp_path, f"{topic}.trace")
    assert f"{topic}.trace" in Archive(tmp_path).topics()


def test_another_topic_of_the_same_name_is_refused(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    make_topic(servers, topic, 1)
    publish(line, topic, numbers(10))
    archive_topic(servers, topic, tmp_path)
    with Client(servers) as client:
        client.delete_topic(topic)
    make_topic(servers, topic, 1)
    publish(line, topic, numbers(20))
    with pytest.raises(Conflict, match="another topic"):
        archive_topic(servers, topic, tmp_path)
    assert len(archived_values(tmp_path, topic)) == 10


def test_a_batch_that_nobody_can_open_is_kept_and_passed(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    make_topic(servers, topic, 1)
    publish(line, topic, numbers(5))
    broken = bytearray(seal_batch([(b"k", b"value", (), 1_790_000_000_000)] * 3))
    broken[61:] = b"\xff" * (len(broken) - 61)
    struct.pack_into(">I", broken, 17, crc32c(bytes(broken[21:])))
    post_batch(servers, topic, 0, bytes(broken))
    publish(line, topic, numbers(5))
    assert archive_topic(servers, topic, tmp_path)["messages"] == 13
    rows = archived_rows(tmp_path, topic)
    assert [row["offset"] for row in rows] == list(range(13))
    assert rows[5]["headers"][0]["key"] == HEADER
    assert rows[5]["headers"][0]["value"][16:] == bytes(broken[16:])


def test_large_messages_null_keys_and_all_codecs(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    make_topic(servers, topic, 1)
    wanted: list[tuple[bytes | None, bytes | None]] = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        pairs = [(None, codec.encode() * 100), (b"k", None), (b"", b"")]
        now_ms = 1_790_000_000_000
        batch = [(key, value, (), now_ms) for key, value in pairs]
        post_batch(servers, topic, 0, seal_batch(batch, compression=codec))
        wanted += pairs
    large = bytes(range(256)) * 30_000
    line.send(topic, large, wait=True)
    archive_topic(servers, topic, tmp_path)
    rows = archived_rows(tmp_path, topic)
    assert [(row["key"], row["value"]) for row in rows] == [*wanted, (None, large)]


def test_optimize_leaves_the_messages_and_few_files(
    spark: Any, servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    make_topic(servers, topic, 2)
    for start in range(0, 500, 100):
        publish(line, topic, numbers(100, start))
        archive_topic(servers, topic, tmp_path)
    reader = Archive(tmp_path)
    before = archived_rows(tmp_path, topic)
    old = [piece for partition in (0, 1) for piece in reader.slices(topic, partition)]
    with Job("optimize", servers) as job:
        told = optimize.run(job, directory=str(tmp_path))
    assert told["files_merged"] == len(old)
    assert told["files_made"] < len(old)
    assert told["files_removed"] == 0
    assert all(Path(piece.path).exists() for piece in old)
    assert archived_rows(tmp_path, topic) == before
    with Job("optimize", servers) as job:
        told = optimize.run(job, directory=str(tmp_path), grace_ms=0)
    assert (told["files_merged"], told["files_removed"]) == (0, len(old))
    assert archived_rows(tmp_path, topic) == before
    publish(line, topic, numbers(100, 500))
    assert archive_topic(servers, topic, tmp_path)["messages"] == 100
    assert sorted(map(int, archived_values(tmp_path, topic))) == list(range(600))


def test_bad_wishes_cost_no_spark(servers: str, topic: str, tmp_path: Path) -> None:
    make_topic(servers, topic, 1)
    with Job("archive", servers) as job:
        with pytest.raises(UnknownTopic):
            archive.run(job, topics=["no-such-topic"], directory=str(tmp_path))
        with pytest.raises(InvalidArgument, match="no directory"):
            archive.run(job, topics=[topic], directory="s3://bucket")
        with pytest.raises(InvalidArgument, match="no archive is named"):
            archive.run(job, topics=[topic])
    with Job("optimize", servers) as job, pytest.raises(InvalidArgument, match="nothing to"):
        optimize.run(job, topics=["no-such-topic"], directory=str(tmp_path))
