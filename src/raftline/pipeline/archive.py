"""``raftline pipeline archive``: topics to Parquet files, without a shuffle.

The driver plans offset ranges, executors read each one from the node that leads it and write its
files, the driver commits a manifest per partition. That, and nothing else, makes the files count.

Invariants
    J1  A range is planned from the end of the newest manifest, so a job that is run again goes on
        where the last one came to: nothing twice, nothing left out.
    J2  Only the unbroken beginning of a round is committed; the rest is planned again.
    J3  The archived mark of a partition is moved after the manifest is durable, never before.
    J4  What the log lost before it could be archived is written down as a gap.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.client import clock
from raftline.model.errors import Conflict, RaftlineError
from raftline.model.names import place
from raftline.pipeline.archive_task import Piece, Written, write_piece

if TYPE_CHECKING:
    from raftline.archive.live import LiveLog
    from raftline.archive.manifest import ArchiveFile, Gap, Manifest
    from raftline.pipeline.job import Job
    from raftline.pipeline.progress import Bar

RANGE_BYTES = 192 << 20  # of stored batches in one task, about
RANGE_MESSAGES_MIN, RANGE_MESSAGES_MAX = 10_000, 1_000_000
RANGES_PER_SLOT = 4  # tasks of one round, for each that Spark runs at the same time
PAUSE_MS = 200


class Target(msgspec.Struct, frozen=True):
    """A topic to archive and the directory it goes to."""

    topic: str
    topic_id: str
    root: Path
    is_marked: bool  # this is the archive that retention waits for


class Tally(msgspec.Struct):
    """What a job did so far."""

    messages: int = 0
    files: int = 0
    bytes: int = 0
    lost: int = 0
    rounds: int = 0


class Part(msgspec.Struct):
    """A partition while a job works on it: what is archived, and up to where it shall be."""

    target: Target
    partition: int
    manifest: "Manifest | None"
    next: int  # first offset that is not planned yet
    end: int
    gap: "Gap | None"
    step: int  # messages of one range

    @property
    def name(self) -> str:
        """Return its name for people."""
        return place(self.target.topic, self.partition)


def run(job: "Job", *, topics: Sequence[str], directory: str = "") -> dict[str, Any]:
    """Archive what the topics hold now."""
    from raftline.archive.layout import local_root
    from raftline.archive.live import LiveLog

    tally = Tally()
    root = local_root(directory)
    with LiveLog(job.servers) as log:
        targets = [Target(name, log.topic(name)["uuid"], root, True) for name in topics]
        archive_now(job, log, targets, tally)
    return {
        "topics": len(targets),
        **msgspec.to_builtins(tally),
        "directory": str(root),
        "stopped": job.is_stopping,
    }


def archive_now(job: "Job", log: "LiveLog", targets: Sequence[Target], tally: Tally) -> None:
    """Archive everything up to the end that the logs have now."""
    parts = [part for target in targets for part in plan(log, target)]
    total = sum(part.end - part.next for part in parts)
    with job.progress("messages", total) as bar:
        while any(part.next < part.end for part in parts) and not job.is_stopping:
            _round(job, log, parts, tally, bar)


def plan(log: "LiveLog", target: Target) -> list[Part]:
    """Return what is to be archived of each partition. J1, J4."""
    from raftline.archive import manifest as manifests

    found: list[Part] = []
    for bounds in log.bounds(target.topic):
        manifest = manifests.load(target.root, target.topic, bounds.partition)
        part = Part(
            target, bounds.partition, manifest, bounds.log_start, bounds.commit_end, None, 0
        )
        if manifest is not None:
            _follow_on(part, manifest, bounds.log_start)
        if part.next < part.end:
            part.step = _step(log, part)
            found.append(part)
    return found


def _follow_on(part: Part, manifest: "Manifest", log_start: int) -> None:
    """Go on after what is archived."""
    from raftline.archive.manifest import Gap

    if manifest.topic_id != part.target.topic_id:
        raise Conflict(
            f"{part.target.root} holds another topic that was called {part.target.topic!r}",
            "archive the new one elsewhere (--dir, archive_dir), or move the old files away",
        )
    if manifest.end > part.end:
        raise Conflict(
            f"the archive of {part.name} reaches to {manifest.end}, its log only to {part.end}",
            "is this the right cluster? nothing was changed",
        )
    part.next = max(manifest.end, log_start)
    if manifest.end < log_start:
        part.gap = Gap(manifest.end, log_start, "removed from the log before it was archived")


def _step(log: "LiveLog", part: Part) -> int:
    """Return how many messages make a task, by the size of the first ones."""
    size = log.message_bytes(part.target.topic, part.partition, part.next)
    return min(max(int(RANGE_BYTES / size), RANGE_MESSAGES_MIN), RANGE_MESSAGES_MAX)


def _round(job: "Job", log: "LiveLog", parts: list[Part], tally: Tally, bar: "Bar") -> None:
    """Write one round of ranges and commit it."""
    context = job.spark.sparkContext
    pieces = list(_pieces(job, parts, context.defaultParallelism * RANGES_PER_SLOT))
    written: list[Written] = context.parallelize(pieces, len(pieces)).map(write_piece).collect()
    tally.rounds += 1
    for part in parts:
        own = [one for one in written if _is_of(one.piece, part)]
        if own:
            _commit(log, part, own, tally, bar)


def _pieces(job: "Job", parts: list[Part], count: int) -> Iterator[Piece]:
    """Yield the next ranges, taking turns between partitions so that all of them get on."""
    starts = [part.next for part in parts]
    while count > 0 and any(start < part.end for start, part in zip(starts, parts, strict=True)):
        for number, part in enumerate(parts):
            start = starts[number]
            if start >= part.end or count <= 0:
                continue
            end = min(start + part.step, part.end)
            target = part.target
            yield Piece(job.servers, str(target.root), target.topic, part.partition, start, end)
            starts[number] = end
            count -= 1


def _is_of(piece: Piece, part: Part) -> bool:
    return (piece.topic, piece.partition) == (part.target.topic, part.partition)


def _commit(log: "LiveLog", part: Part, written: list[Written], tally: Tally, bar: "Bar") -> None:
    """Make the files of a partition count. J2, J3."""
    from raftline.archive import manifest as manifests
    from raftline.archive.layout import partition_folder
    from raftline.archive.manifest import Gap, Manifest

    target, before = part.target, part.manifest
    files: list[ArchiveFile] = []
    gaps = [part.gap] if part.gap is not None else []
    for one in sorted(written, key=lambda one: one.piece.start):
        if one.is_lost or one.piece.start != part.next:
            break
        files += one.files
        if not one.files:
            gaps.append(Gap(one.piece.start, one.piece.end, "holds no messages"))
        part.next = one.piece.end
        bar.advance(one.piece.end - one.piece.start)
    if files or gaps:
        after = Manifest(
            version=before.version + 1 if before else 1,
            topic=target.topic,
            topic_id=target.topic_id,
            partition=part.partition,
            written_ms=clock.wall_ms(),
            files=(*(before.files if before else ()), *files),
            gaps=(*(before.gaps if before else ()), *gaps),
            retired=before.retired if before else (),
        )
        try:
            manifests.commit(target.root, after)
        except RaftlineError:
            folder = partition_folder(target.root, target.topic, part.partition)
            for one in written:
                for file in one.files:
                    (folder / file.path).unlink(missing_ok=True)
            raise
        part.manifest, part.gap = after, None
    tally.files += len(files)
    tally.messages += sum(file.count for file in files)
    tally.bytes += sum(file.bytes for file in files)
    tally.lost += sum(gap.end - gap.start for gap in gaps)
