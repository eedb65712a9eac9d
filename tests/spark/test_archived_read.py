"""Archive and live log as one table."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource as filters

import raftline
from raftline.archive import manifest as manifests
from raftline.archive.columns import to_arrow
from raftline.archive.manifest import Gap, Manifest
from raftline.archive.writer import write_range
from raftline.client.caller import Caller
from raftline.client.fenced import Fenced
from raftline.client.line import Line
from raftline.model.records import seal_batch
from tests.spark import direct
from tests.spark.conftest import post_batch

pytestmark = pytest.mark.spark
DAY_MS = 1_790_000_000_000
SENT = [b"%04d" % number for number in range(100)]


@pytest.fixture
def sent(line: Line, servers: str, topic: str) -> None:
    """Ten batches of ten messages, a second apart."""
    line.topics.create(topic, partitions=1)
    for start in range(0, 100, 10):
        batch = [(None, SENT[n], [], DAY_MS + 1000 * n) for n in range(start, start + 10)]
        post_batch(servers, topic, 0, seal_batch(batch))


def archive(
    root: Path,
    servers: str,
    topic: str,
    *ranges: tuple[int, int],
    gaps: tuple[Gap, ...] = (),
    topic_id: str = "",
) -> None:
    """Archive ranges of the log as the job does."""
    files: list[Any] = []
    with Fenced(servers) as log:
        for start, end in ranges:
            batches = [
                batch
                for stored in log.read(topic, 0, start, end)
                for batch in to_arrow(stored, topic, 0, start, end)
            ]
            files += write_range(root, topic, 0, start, end, batches)
    made = Manifest(topic=topic, topic_id=topic_id, partition=0, files=tuple(files), gaps=gaps)
    manifests.commit(root, made)


def trim(servers: str, topic: str, offset: int) -> None:
    with Caller(servers) as caller:
        caller.call("POST", f"/v1/topics/{topic}/partitions/0/trim", {"offset": offset})


def test_both_are_one_table_also_past_what_was_deleted(
    servers: str, topic: str, sent: None, tmp_path: Path
):
    archive(tmp_path, servers, topic, (0, 35), (35, 60))
    for end in (0, 20, 60):
        if end:
            trim(servers, topic, end)
        rows = direct.read(servers, topic, archive=tmp_path, offsetsPerSplit=7)
        assert [row["value"] for row in rows] == SENT
        assert [row["offset"] for row in rows] == list(range(100))
    rows = direct.read(servers, topic, archive=tmp_path, includeValue="false")
    assert len(rows) == 100
    assert "value" not in rows[0]


@pytest.mark.parametrize(
    ("options", "wanted", "found"),
    [
        ({"startingOffsets": '{"0": 30}', "endingOffsets": '{"0": 70}'}, [], (30, 70)),
        ({"startingOffsets": '{"0": 30}', "endingOffsets": '{"0": 50}'}, [], (30, 50)),
        ({"startingOffsets": '{"0": 80}'}, [], (80, 100)),
        ({"startingTimestamp": DAY_MS + 25_000, "endingTimestamp": DAY_MS + 75_000}, [], (25, 75)),
        ({}, [filters.GreaterThanOrEqual(("offset",), 55)], (55, 100)),
        ({}, [filters.LessThan(("offset",), 5)], (0, 5)),
    ],
)
def test_bounds_and_filters_are_for_both(
    servers: str,
    topic: str,
    sent: None,
    tmp_path: Path,
    options: dict[str, Any],
    wanted: list[Any],
    found: tuple[int, int],
):
    archive(tmp_path, servers, topic, (0, 60))
    trim(servers, topic, 50)
    rows = direct.read(servers, topic, wanted, archive=tmp_path, **options)
    assert [row["offset"] for row in rows] == list(range(*found))


def test_a_hole_is_told_or_left_out(servers: str, topic: str, sent: None, tmp_path: Path):
    archive(tmp_path, servers, topic, (0, 35))
    trim(servers, topic, 60)
    with pytest.raises(raftline.RaftlineError, match=rf"neither .* have {topic}/0@35 up to 60"):
        direct.read(servers, topic, archive=tmp_path)
    rows = direct.read(servers, topic, archive=tmp_path, failOnDataLoss="false")
    assert [row["offset"] for row in rows] == [*range(35), *range(60, 100)]


def test_a_gap_of_the_archive_is_told_or_left_out(
    servers: str, topic: str, sent: None, tmp_path: Path
):
    archive(tmp_path, servers, topic, (0, 20), (30, 60), gaps=(Gap(20, 30, "deleted"),))
    trim(servers, topic, 60)
    with pytest.raises(raftline.RaftlineError, match=rf"neither .* have {topic}/0@20 up to 30"):
        direct.read(servers, topic, archive=tmp_path)
    rows = direct.read(servers, topic, archive=tmp_path, failOnDataLoss="false")
    assert [row["offset"] for row in rows] == [*range(20), *range(30, 100)]
    after = direct.read(servers, topic, archive=tmp_path, startingOffsets='{"0": 40}')
    assert len(after) == 60


def test_where_the_archive_is(servers: str, line: Line, topic: str, sent: None, tmp_path: Path):
    with pytest.raises(raftline.RaftlineError, match="there is no archive at"):
        direct.read(servers, topic, archive=tmp_path / "nowhere")
    archive(tmp_path, servers, topic, (0, 60))
    trim(servers, topic, 60)
    line.topics.set(topic, archive_dir=str(tmp_path))
    assert len(direct.read(servers, topic, archive="true")) == 100


def test_the_archive_of_another_topic_of_that_name_is_refused(
    servers: str, line: Line, topic: str, sent: None, tmp_path: Path
):
    with Fenced(servers) as log:
        own = log.topic(topic)["uuid"]
    archive(tmp_path, servers, topic, (0, 60), topic_id=own)
    assert len(direct.read(servers, topic, archive=tmp_path)) == 100
    line.topics.delete(topic)
    line.topics.create(topic, partitions=1)
    post_batch(servers, topic, 0, seal_batch([(None, b"new", [], DAY_MS)]))
    with pytest.raises(raftline.RaftlineError, match=f"holds another topic .*{topic}"):
        direct.read(servers, topic, archive=tmp_path)


def test_what_is_not_archived_is_read_from_the_log(
    servers: str, topic: str, sent: None, tmp_path: Path
):
    assert len(direct.read(servers, topic, archive=tmp_path)) == 100


def test_a_batch_that_nobody_can_open_ends_no_query(servers: str, line: Line, topic: str):
    import struct

    from crc32c import crc32c

    line.topics.create(topic, partitions=1)
    post_batch(servers, topic, 0, seal_batch([(None, b"before", [], DAY_MS)]))
    bad = bytearray(seal_batch([(None, b"x" * 50, [], DAY_MS)] * 3))
    bad[61:] = random.Random(1).randbytes(len(bad) - 61)
    struct.pack_into(">I", bad, 17, crc32c(bytes(bad[21:])))
    post_batch(servers, topic, 0, bytes(bad))
    post_batch(servers, topic, 0, seal_batch([(None, b"after", [], DAY_MS)]))
    rows = direct.read(servers, topic)
    assert [row["value"] for row in rows] == [b"before", None, None, None, b"after"]
    assert rows[1]["headers"][0]["key"] == "raftline-unreadable"
    assert len(direct.read(servers, topic, includeValue="false")) == 5
