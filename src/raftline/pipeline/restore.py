"""``raftline pipeline restore``: archived messages back into a topic, the same or another, once.

Messages keep their partition, order, key, headers, timestamp and priority; they get new offsets.
Those that go back into their own topic carry where they were in the header ``raftline-restored``,
and are not brought back as themselves again.

Invariants
    S1  Each partition is restored in numbered batches under one query. A batch's number is the
        archived offset it reaches to, so the fence of the query says how far a partition came:
        a job that is run again goes on there, one that was done adds nothing.
    S2  The query is made of what is asked for, and of both topics' ids.
    S3  A batch follows the one that its job knows of, or is refused: of two jobs with one wish, at
        the same time and in steps of their own, one ends with an error and nothing comes twice.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.archive.place import archive_dir, setting_of
from raftline.model.errors import (
    Conflict,
    FencedQuery,
    InvalidArgument,
    NotFound,
    StageMissing,
    UnknownTopic,
)
from raftline.model.names import TRACES
from raftline.pipeline.restore_task import Piece, Staged, stage_piece

if TYPE_CHECKING:
    from raftline.archive.reader import Archive
    from raftline.client.client import Client
    from raftline.client.fenced import Fenced
    from raftline.pipeline.job import Job
    from raftline.pipeline.progress import Bar

PIECE_BYTES = 32 << 20  # archived bytes of one task, about
PIECE_MESSAGES_MIN, PIECE_MESSAGES_MAX = 1_000, 50_000
PIECES_PER_SLOT = 2  # of one round, for each task that Spark runs at the same time


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be restored, and where to."""

    topic: str
    target: str
    from_ms: int | None = None
    to_ms: int | None = None
    from_offset: int = 0
    to_offset: int | None = None
    partition: int | None = None


class Part:
    """One partition while it is restored: archived offsets [next, end) are left."""

    __slots__ = ("end", "fence", "next", "partition", "step")

    def __init__(self, partition: int, fence: int, start: int, end: int, step: int) -> None:
        self.partition = partition
        self.fence = fence  # the last batch that is published; -1: none
        self.next = start
        self.end = end
        self.step = step

    @property
    def is_done(self) -> bool:
        """Say whether nothing is left."""
        return self.next >= self.end


def run(
    job: "Job",
    *,
    topic: str,
    to: str = "",
    directory: str = "",
    directory_default: str = "",
    from_ms: int | None = None,
    to_ms: int | None = None,
    from_offset: int = 0,
    to_offset: int | None = None,
    partition: int | None = None,
) -> dict[str, Any]:
    """Restore a window of time or of offsets."""
    from raftline.archive.reader import Archive
    from raftline.client.client import Client
    from raftline.client.fenced import Fenced

    wish = Wish(
        topic=topic,
        target=to or topic,
        from_ms=from_ms,
        to_ms=to_ms,
        from_offset=from_offset,
        to_offset=to_offset,
        partition=partition,
    )
    _check(wish)
    with Client(job.servers) as client, Fenced(job.servers) as fenced:
        archive = Archive(_root(client, wish, directory, directory_default))
        query = _prepare(client, archive, wish)
        parts = _parts(archive, fenced, wish, query)
        total = sum(max(0, part.end - part.next) for part in parts)
        messages = 0
        with job.progress("offsets", total) as bar:
            while any(not part.is_done for part in parts) and not job.is_stopping:
                messages += _round(job, fenced, archive.root, wish, query, parts, bar)
    return {
        "topic": wish.topic,
        "to": wish.target,
        "messages": messages,
        "partitions": [part.partition for part in parts],
        "job": query,
        "stopped": job.is_stopping,
    }


def query_of(wish: Wish, source_id: str, target_id: str) -> str:
    """Return the name under which a wish is fulfilled once. S2."""
    told = msgspec.json.encode([wish, source_id, target_id])
    return f"restore-{hashlib.sha256(told).hexdigest()[:32]}"


def _check(wish: Wish) -> None:
    if wish.target.endswith(TRACES):
        raise InvalidArgument(
            f"nobody can write to {wish.target!r}: it is the trace of a topic",
            "restore it under another name: --to NAME",
        )
    for name, start, end in (
        ("time", wish.from_ms, wish.to_ms),
        ("offset", wish.from_offset, wish.to_offset),
    ):
        if start is not None and end is not None and start >= end:
            raise InvalidArgument(f"the window is empty: --from-{name} is not before --to-{name}")


def _root(client: "Client", wish: Wish, directory: str, default: str) -> Path:
    setting = ""
    if not directory:
        try:
            setting = setting_of(client.topic(wish.topic))
        except UnknownTopic:
            setting = ""  # deleted; its archive may still be there
    return archive_dir(directory, setting, default)


def _prepare(client: "Client", archive: "Archive", wish: Wish) -> str:
    """Make the target where it is not there; return the query. Raises NotFound, InvalidArgument."""
    there = archive.partitions(wish.topic)
    if not there or (wish.partition is not None and wish.partition not in there):
        what = wish.topic if not there else f"{wish.topic}/{wish.partition}"
        raise NotFound(
            f"{what} is not archived in {archive.root}",
            f"what there is: {', '.join(archive.topics()[:20]) or 'nothing'}",
        )
    first = archive.manifest(wish.topic, there[0])
    assert first is not None
    count = max(there) + 1
    try:
        target = client.topic(wish.target)
    except UnknownTopic:
        client.create_topic(wish.target, partitions=count, replication_factor=0, settings={})
        target = client.topic(wish.target)
    if target["num_partitions"] < count:
        raise InvalidArgument(
            f"{wish.target} has {target['num_partitions']} partitions, the archived topic {count}",
            f"give it {count}, or restore to a topic that is not there yet",
        )
    return query_of(wish, first.topic_id, target["uuid"])


def _parts(archive: "Archive", fenced: "Fenced", wish: Wish, query: str) -> list[Part]:
    """Return what is left to restore of each partition. S1."""
    found: list[Part] = []
    for partition in archive.partitions(wish.topic):
        if wish.partition not in (None, partition):
            continue
        slices = archive.slices(
            wish.topic,
            partition,
            start=wish.from_offset,
            end=wish.to_offset,
            from_ms=wish.from_ms,
            to_ms=wish.to_ms,
        )
        if not slices:
            continue
        size = sum(piece.bytes for piece in slices) / max(1, sum(piece.count for piece in slices))
        step = min(max(int(PIECE_BYTES / max(size, 1)), PIECE_MESSAGES_MIN), PIECE_MESSAGES_MAX)
        fence = fenced.fence(wish.target, partition, query)
        start = max(slices[0].start, fence)
        found.append(Part(partition, fence, start, slices[-1].end, step))
    return found


def _round(
    job: "Job",
    fenced: "Fenced",
    root: Path,
    wish: Wish,
    query: str,
    parts: list[Part],
    bar: "Bar",
) -> int:
    """Stage one batch of each partition and publish it; return how many messages that were."""
    context = job.spark.sparkContext
    left = [part for part in parts if not part.is_done]
    each = max(1, context.defaultParallelism * PIECES_PER_SLOT // len(left))
    pieces = [
        piece for part in left for piece in _pieces(job.servers, root, wish, query, part, each)
    ]
    staged: list[Staged] = context.parallelize(pieces, len(pieces)).map(stage_piece).collect()
    messages = 0
    for part in left:
        own = [one for one in staged if one.piece.partition == part.partition]
        batch = own[0].piece.batch
        winners = [(one.piece.task, one.attempt, one.chunks) for one in own if one.chunks]
        messages += _publish(fenced, wish, query, part, batch, sorted(winners))
        bar.advance(batch - part.next)
        part.next = part.fence = batch
    return messages


def _publish(
    fenced: "Fenced",
    wish: Wish,
    query: str,
    part: Part,
    batch: int,
    winners: list[tuple[int, int, int]],
) -> int:
    """Publish a batch; return how many messages that were. Raises Conflict. S3."""
    place = (wish.target, part.partition)
    try:
        told = fenced.publish(*place, query, batch, winners, after=part.fence)
    except (FencedQuery, StageMissing) as error:
        fence = fenced.fence(*place, query)
        if fence == part.fence:
            raise
        raise Conflict(
            f"another job restores the same window of {wish.topic} to {wish.target}: "
            f"partition {part.partition} is at {fence} there, and was at {part.fence} here",
            "let one of them end; the same command again goes on where that came to",
        ) from error
    return 0 if told.already else told.count


def _pieces(
    servers: str, root: Path, wish: Wish, query: str, part: Part, count: int
) -> Iterator[Piece]:
    """Yield the tasks of a partition's next batch."""
    batch = min(part.next + count * part.step, part.end)
    for task, start in enumerate(range(part.next, batch, part.step)):
        yield Piece(
            servers=servers,
            root=str(root),
            source=wish.topic,
            partition=part.partition,
            start=start,
            end=min(start + part.step, batch),
            from_ms=wish.from_ms,
            to_ms=wish.to_ms,
            target=wish.target,
            query=query,
            batch=batch,
            task=task,
        )
