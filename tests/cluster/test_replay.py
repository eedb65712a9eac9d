"""``consume --include-deleted``: the archive, then the log; in order, nothing twice, no silence.

The archive is written here by the same code that Spark's tasks run, without Spark.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from raftline.archive import manifest as manifests
from raftline.archive.live import LiveLog, LogRange
from raftline.archive.manifest import Manifest
from raftline.archive.writer import write_range
from raftline.chaos.rig import Rig
from raftline.client.fenced import Fenced
from tests.cluster.shell import Shell

TIME_MS = 1_790_000_000_000


@pytest.fixture(scope="module")
def rig(module_path: Path) -> Iterator[Rig]:
    rig = Rig(module_path / "replay", nodes=1)
    try:
        rig.start_all()
        yield rig
    finally:
        rig.close()


@pytest.fixture
def shell(rig: Rig, capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(rig, capfd)


def servers_of(rig: Rig) -> str:
    return ",".join(rig.node(name).http for name in rig.names)


def fill(rig: Rig, topic: str, count: int = 10, partitions: int = 2) -> None:
    """Message n of partition p is ``p:n`` and was sent n ms after a moment."""
    with rig.client() as client:
        client.create_topic(topic, partitions=partitions, replication_factor=0, settings={})
        for partition in range(partitions):
            rows = [
                {"value": f"{partition}:{at}", "timestamp": TIME_MS + at} for at in range(count)
            ]
            path = f"/v1/topics/{topic}/partitions/{partition}/messages"
            client._caller.call("POST", path, {"messages": rows})


def archive(rig: Rig, topic: str, root: Path, start: int, end: int) -> None:
    """Archive [start, end) of each partition, as one more version."""
    with LiveLog(servers_of(rig)) as log:
        told = log.topic(topic)
        for row in told["partitions"]:
            number = row["partition"]
            rows = log.read_arrow(LogRange(topic, number, start, end))
            files = write_range(root, topic, number, start, end, rows)
            before = manifests.load(root, topic, number) or Manifest(
                topic=topic, topic_id=told["uuid"], partition=number
            )
            fields = {"version": before.version + 1, "files": (*before.files, *files)}
            manifests.commit(root, manifests.msgspec.structs.replace(before, **fields))


def trim(rig: Rig, topic: str, offset: int, partitions: int = 2) -> None:
    with Fenced(servers_of(rig)) as fenced:
        for partition in range(partitions):
            fenced.trim(topic, partition, offset)


def wanted(start: int, end: int, partitions: int = 2) -> list[str]:
    return [f"{partition}:{at}" for partition in range(partitions) for at in range(start, end)]


def test_the_archive_comes_first_then_the_log(rig: Rig, shell: Shell, tmp_path: Path) -> None:
    fill(rig, "whole")
    archive(rig, "whole", tmp_path, 0, 4)
    archive(rig, "whole", tmp_path, 4, 8)
    trim(rig, "whole", 6)
    told = ("consume", "whole", "--include-deleted", "--archive", tmp_path)
    assert shell.lines(*told) == wanted(0, 10)
    assert shell.lines("consume", "whole") == wanted(6, 10)
    assert shell.lines(*told, "--from-offset", 3) == wanted(3, 10)
    assert shell.lines(*told, "--partition", 1) == [f"1:{at}" for at in range(10)]
    assert shell.lines(*told, "-n", 7) == wanted(0, 10)[:7]
    assert shell.lines(*told, "--from-snapshot", TIME_MS + 2) == wanted(2, 10)
    window = ("--from-time", TIME_MS + 2, "--to-time", TIME_MS + 9)
    assert shell.lines(*told, *window) == wanted(2, 9)
    assert shell.lines(*told, "--from-snapshot", TIME_MS + 99) == []


def test_rows_look_the_same_wherever_they_come_from(rig: Rig, shell: Shell, tmp_path: Path) -> None:
    fill(rig, "alike", 2, 1)
    shell.run("produce", "alike", "--key", "k", "--priority", "high", "-m", "third")
    row = {"value": "x", "headers": {"a": "1"}, "headers_base64": {"b": "/w=="}}
    with rig.client() as client:
        client._caller.call("POST", "/v1/topics/alike/messages", {"messages": [row]})
    archive(rig, "alike", tmp_path, 0, 4)
    told = ("consume", "alike", "--include-deleted", "--archive", tmp_path)
    before = shell.rows(*told)
    trim(rig, "alike", 4, 1)
    after = shell.rows(*told)
    assert after == before
    assert [one["id"] for one in after] == [f"alike.0.{at}" for at in range(4)]
    assert after[3]["headers_base64"] == {"b": "/w=="}
    plain = [{k: v for k, v in one.items() if k != "headers_base64"} for one in before]
    assert [one["headers"].get("raftline-priority") for one in plain] == [None, None, "10", None]


def test_a_group_is_shown_what_is_deleted_and_delivered_the_rest(
    rig: Rig, shell: Shell, tmp_path: Path
) -> None:
    fill(rig, "audited")
    archive(rig, "audited", tmp_path, 0, 8)
    trim(rig, "audited", 5)
    shell.run("topic", "set", "audited", f"archive_dir={tmp_path}")
    told = ("consume", "audited", "--group", "audit", "--from-snapshot", "2026-01-01")
    for _ in range(2):  # the same command replays the same messages
        lines = shell.lines(*told, "--include-deleted")
        assert lines[:10] == wanted(0, 5)
        assert sorted(lines[10:]) == sorted(wanted(5, 10))
    assert shell.lines("consume", "audited", "--group", "audit") == []


def test_what_neither_has_is_refused_or_told(rig: Rig, shell: Shell, tmp_path: Path) -> None:
    fill(rig, "holes")
    told = ("consume", "holes", "--include-deleted")
    assert shell.lines(*told) == wanted(0, 10)  # nothing is deleted: no archive is needed
    archive(rig, "holes", tmp_path, 2, 4)
    trim(rig, "holes", 6)
    nowhere = shell.command(*told)
    assert (nowhere.exit, "no archive is named" in nowhere.err) == (2, True)
    missing = shell.command(*told, "--archive", tmp_path / "nowhere")
    assert (missing.exit, "there is no archive" in missing.err) == (4, True)
    (tmp_path / "empty").mkdir()
    never = shell.command(*told, "--archive", tmp_path / "empty")
    assert (never.exit, "never archived" in never.err) == (6, True)
    hole = shell.command(*told, "--archive", tmp_path)
    assert hole.exit == 6
    assert "holes/0@4 up to 6" in hole.err
    late = shell.run(*told, "--archive", tmp_path, "--from-offset", 6)
    assert late.out.splitlines() == wanted(6, 10)
    for partition in (0, 1):
        before = manifests.load(tmp_path, "holes", partition)
        assert before is not None
        fields = {"version": 2, "gaps": (manifests.Gap(4, 6, "too late"),)}
        manifests.commit(tmp_path, manifests.msgspec.structs.replace(before, **fields))
    gaps = shell.run(*told, "--archive", tmp_path)
    assert gaps.out.splitlines() == [
        f"{partition}:{at}" for partition in (0, 1) for at in (2, 3, 6, 7, 8, 9)
    ]
    assert "holes/0@0 up to 2" in gaps.err
    assert "holes/1@4 up to 6: too late" in gaps.err


def test_another_topic_of_the_same_name_is_refused(rig: Rig, shell: Shell, tmp_path: Path) -> None:
    fill(rig, "twice")
    archive(rig, "twice", tmp_path, 0, 10)
    shell.run("topic", "delete", "twice")
    fill(rig, "twice")
    trim(rig, "twice", 5)
    told = shell.command("consume", "twice", "--include-deleted", "--archive", tmp_path)
    assert told.exit == 6
    assert "another topic" in told.err
