"""``raftline pipeline optimize``: small files of an archive into large ones, old ones removed.

Executors merge runs of neighbouring files, the driver commits them; readers and archive jobs that
run meanwhile are not disturbed (``archive.compaction``). Spark is started if there is something to
merge. Nothing is asked of the cluster where the directory is named.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.archive import compaction
from raftline.archive import manifest as manifests
from raftline.archive.compaction import Merge, Merged, merge_files
from raftline.client import clock
from raftline.model.errors import InvalidArgument

if TYPE_CHECKING:
    from raftline.pipeline.job import Job
    from raftline.pipeline.progress import Bar

GRACE_MS = 3_600_000
MERGES_PER_SLOT = 4  # of one round, for each task that Spark runs at the same time


class Tally(msgspec.Struct):
    """What a job did."""

    files_merged: int = 0
    files_made: int = 0
    messages: int = 0
    files_removed: int = 0
    bytes_removed: int = 0


def run(
    job: "Job",
    *,
    topics: Sequence[str] = (),
    directory: str = "",
    directory_default: str = "",
    grace_ms: int = GRACE_MS,
    orphan_ms: int = compaction.ORPHAN_MS,
    file_bytes: int = compaction.FILE_BYTES,
) -> dict[str, Any]:
    """Optimize the archives of some topics, or of all that a directory holds."""
    if grace_ms < 0 or file_bytes < 1:
        raise InvalidArgument("the grace period and the size of files cannot be negative")
    places = _places(job, topics, directory, directory_default)
    tally = Tally()
    merges = [merge for place in places for merge in _merges(*place, file_bytes)]
    with job.progress("files", sum(len(merge.files) for merge in merges)) as bar:
        while merges and not job.is_stopping:
            slots = job.spark.sparkContext.defaultParallelism
            merges = _round(job, merges, slots * MERGES_PER_SLOT, tally, bar)
    for place in places:
        _clean(*place, tally, grace_ms, max(orphan_ms, grace_ms))
    return {
        "topics": sorted({topic for _, topic, _ in places}),
        **msgspec.to_builtins(tally),
        "stopped": job.is_stopping,
    }


def _places(
    job: "Job", topics: Sequence[str], directory: str, default: str
) -> list[tuple[Path, str, int]]:
    """Return the partitions that are meant: directory, topic, partition."""
    from raftline.archive.live import LiveLog
    from raftline.archive.place import archive_dir, setting_of
    from raftline.archive.reader import Archive

    found: list[tuple[Path, str, int]] = []
    if directory or (default and not topics):
        archive = Archive(directory or default)
        names = list(topics) or archive.topics()
        found = [(archive.root, name, one) for name in names for one in archive.partitions(name)]
    else:
        with LiveLog(job.servers) as log:
            for name in topics:
                archive = Archive(archive_dir("", setting_of(log.topic(name)), default))
                found += [(archive.root, name, one) for one in archive.partitions(name)]
    if not found:
        raise InvalidArgument(
            "there is nothing to optimize",
            "name topics that are archived, or the archive: --dir DIR",
        )
    return found


def _merges(root: Path, topic: str, partition: int, file_bytes: int) -> list[Merge]:
    found = manifests.load(root, topic, partition)
    return [] if found is None else list(compaction.plan_merges(root, found, file_bytes))


def _round(job: "Job", merges: list[Merge], count: int, tally: Tally, bar: "Bar") -> list[Merge]:
    """Merge the first of them; return the rest."""
    now, later = merges[:count], merges[count:]
    context = job.spark.sparkContext
    merged: list[Merged] = context.parallelize(now, len(now)).map(merge_files).collect()
    by_partition: dict[tuple[str, str, int], list[Merged]] = {}
    for one in merged:
        key = (one.merge.root, one.merge.topic, one.merge.partition)
        by_partition.setdefault(key, []).append(one)
    for (root, _, _), own in by_partition.items():
        if compaction.commit_merges(Path(root), own, clock.wall_ms()) is not None:
            tally.files_merged += sum(len(one.merge.files) for one in own)
            tally.files_made += sum(len(one.files) for one in own)
            tally.messages += sum(file.count for one in own for file in one.files)
        bar.advance(sum(len(one.merge.files) for one in own))
    return later


def _clean(
    root: Path, topic: str, partition: int, tally: Tally, grace_ms: int, orphan_ms: int
) -> None:
    now_ms = clock.wall_ms()
    for gone in (
        compaction.remove_retired(root, topic, partition, now_ms, grace_ms),
        compaction.remove_orphans(root, topic, partition, now_ms, orphan_ms),
    ):
        tally.files_removed += gone.files
        tally.bytes_removed += gone.bytes
