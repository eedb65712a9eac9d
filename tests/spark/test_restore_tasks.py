"""What a task of a restore stages, without Spark around it."""

from pathlib import Path
from typing import Any

import pytest

from raftline.archive import manifest as manifests
from raftline.archive.live import LiveLog, LogRange
from raftline.archive.manifest import Manifest
from raftline.archive.writer import write_range
from raftline.client.fenced import Fenced
from raftline.client.line import Line
from raftline.model.limits import BATCH_BYTES_MAX
from raftline.model.records import seal_batch
from raftline.pipeline.restore_task import RESTORED_HEADER, Piece, stage_piece
from tests.spark import direct
from tests.spark.conftest import post_batch

pytestmark = pytest.mark.spark
DAY_MS = 1_790_000_000_000


def archive(servers: str, topic: str, root: Path) -> int:
    """Archive partition 0 as the job does; return its end."""
    with LiveLog(servers) as log:
        end = log.partition_bounds(topic, 0).commit_end
        files = write_range(root, topic, 0, 0, end, log.read_arrow(LogRange(topic, 0, 0, end)))
    manifests.commit(root, Manifest(topic=topic, topic_id="", partition=0, files=tuple(files)))
    return end


def restore(servers: str, source: str, target: str, root: Path, end: int) -> list[dict[str, Any]]:
    """Stage and publish all of partition 0; return what the target has since then."""
    with Fenced(servers) as fenced:
        before = fenced.bounds(target)[0].commit_end
        piece = Piece(
            servers, str(root), source, 0, 0, end, None, None, target, "again", end, 0
        )  # fmt: skip
        told = stage_piece(piece)
        winners = [(0, told.attempt, told.chunks)] if told.chunks else []
        assert fenced.publish(target, 0, "again", end, winners).count == told.messages
    return [row for row in direct.read(servers, target) if row["offset"] >= before]


def test_messages_that_only_fit_compressed_come_back(
    servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    line.topics.create(topic, partitions=1)
    large = b"x" * (BATCH_BYTES_MAX + 1)
    for value in (b"before", large, b"after"):
        post_batch(servers, topic, 0, seal_batch([(None, value, [], DAY_MS)], compression="zstd"))
    end = archive(servers, topic, tmp_path)
    line.topics.create(f"{topic}-back", partitions=1)
    rows = restore(servers, topic, f"{topic}-back", tmp_path, end)
    assert [row["value"] for row in rows] == [b"before", large, b"after"]


def test_a_topic_that_takes_small_batches_gets_small_ones(
    servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    line.topics.create(topic, partitions=1)
    values = [b"%04d" % at + b"." * 96 for at in range(200)]
    post_batch(servers, topic, 0, seal_batch([(None, value, [], DAY_MS) for value in values]))
    end = archive(servers, topic, tmp_path)
    line.topics.create(f"{topic}-back", partitions=1, batch_bytes_max=4096)
    rows = restore(servers, topic, f"{topic}-back", tmp_path, end)
    assert [row["value"] for row in rows] == values


def test_only_what_came_back_to_this_topic_stays_away(
    servers: str, line: Line, topic: str, tmp_path: Path
) -> None:
    """A copy of another topic's restored messages is a message like any other."""
    line.topics.create(topic, partitions=1)
    headers = {
        b"other": [(RESTORED_HEADER, b"other/0@5")],
        b"longer": [(RESTORED_HEADER, f"{topic}-2/0@5".encode())],
        b"own": [(RESTORED_HEADER, f"{topic}/0@5".encode())],
        b"plain": [],
    }
    batch = [(None, value, pairs, DAY_MS) for value, pairs in headers.items()]
    post_batch(servers, topic, 0, seal_batch(batch))
    end = archive(servers, topic, tmp_path)
    rows = restore(servers, topic, topic, tmp_path, end)
    assert [row["value"] for row in rows] == [b"other", b"longer", b"plain"]
    for row, offset in zip(rows, (0, 1, 3), strict=True):
        last = row["headers"][-1]
        assert (last["key"], last["value"]) == (RESTORED_HEADER, f"{topic}/0@{offset}".encode())
