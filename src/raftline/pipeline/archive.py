"""``raftline pipeline archive``: topics to Parquet files, without a shuffle.

The driver plans offset ranges, executors read each one from the node that leads it and write its
files, the driver commits a manifest per partition. That, and nothing else, makes the files count
(``archive_parts``). Spark is started when there is something to do.

Invariants
    J3  The archived mark of a partition is moved after the manifest is durable, never before.
    J5  Everything up to the end that the logs had when a pass began is archived by that pass; what
        is published meanwhile is for the next one, so that a pass ends.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.client import clock
from raftline.model.errors import (
    InvalidArgument,
    TimedOut,
    Unavailable,
    UnknownRoute,
    UnknownTopic,
)
from raftline.model.names import DEAD_LETTERS, TRACES
from raftline.pipeline.archive_parts import Part, Tally, Target
from raftline.pipeline.archive_task import Piece, Written, write_piece
from raftline.pipeline.failures import explain

if TYPE_CHECKING:
    from raftline.archive.live import LiveLog
    from raftline.pipeline.job import Job
    from raftline.pipeline.progress import Bar

RANGES_PER_SLOT = 4  # tasks of one round, for each that Spark runs at the same time
PAUSE_MS = 100
LOST_MAX = 100  # times that retention may overtake a pass


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be archived, and where to."""

    topics: tuple[str, ...] = ()  # empty: those with archive=required
    directory: str = ""
    directory_default: str = ""
    dead_letters: bool = True
    traces: bool = True


def run(
    job: "Job",
    *,
    topics: Sequence[str] = (),
    directory: str = "",
    directory_default: str = "",
    dead_letters: bool = True,
    traces: bool = True,
    every_ms: int | None = None,
) -> dict[str, Any]:
    """Archive what the topics hold now; with ``every_ms`` again and again, until it is stopped."""
    from raftline.archive.live import LiveLog

    wish = Wish(
        topics=tuple(dict.fromkeys(topics)),
        directory=directory,
        directory_default=directory_default,
        dead_letters=dead_letters,
        traces=traces,
    )
    tally = Tally()
    with LiveLog(job.servers) as log:
        targets = find_targets(log, wish)
        archive_pass(job, log, targets, tally)
        while every_ms is not None and not job.is_stopping:
            _rest(job, every_ms)
            targets = _again(job, log, wish, tally) or targets
    return {
        "topics": [target.topic for target in targets],
        "directories": sorted({str(target.root) for target in targets}),
        **msgspec.to_builtins(tally),
        "stopped": job.is_stopping,
    }


def find_targets(log: "LiveLog", wish: Wish) -> list[Target]:
    """Return what to archive: the topics, their dead letters, their traces.

    Raises:
        UnknownTopic, InvalidArgument: what is missing.
    """
    there = log.topics()
    named = list(wish.topics)
    if not named:
        named = [name for name in there if log.topic(name)["settings"].get("archive") == "required"]
    if not named:
        raise InvalidArgument(
            "no topic is named, and none has archive=required",
            "name topics: raftline pipeline archive orders; or: raftline topic set orders"
            " archive=required",
        )
    found: dict[str, Target] = {}
    for name in named:
        found[name] = _target(log, name, wish)
        if name.endswith((DEAD_LETTERS, TRACES)):
            continue
        if wish.dead_letters and name + DEAD_LETTERS in there:
            found.setdefault(name + DEAD_LETTERS, _target(log, name + DEAD_LETTERS, wish))
        if wish.traces:
            found.setdefault(name + TRACES, _target(log, name + TRACES, wish))
    return list(found.values())


def archive_pass(job: "Job", log: "LiveLog", targets: Sequence[Target], tally: Tally) -> None:
    """Archive everything up to the end that the logs have now. J5."""
    parts = [part for target in targets for part in _parts(log, target)]
    total = sum(part.end - part.next for part in parts)
    losses = 0
    with job.progress("messages", total) as bar:
        while any(not part.is_done for part in parts) and not job.is_stopping:
            losses += _round(job, log, parts, tally, bar)
            if losses > LOST_MAX:
                raise Unavailable(
                    "retention removes messages faster than they are archived",
                    "keep them longer (retention), or until they are archived: archive=required",
                )
            _mark(log, parts)
    _mark(log, parts)


def _target(log: "LiveLog", name: str, wish: Wish) -> Target:
    from raftline.archive.place import archive_dir, setting_of, source_of

    told = log.topic(name)
    setting = setting_of(told)
    if not setting and source_of(name):
        try:
            setting = setting_of(log.topic(source_of(name)))
        except UnknownTopic:
            setting = ""  # a topic that only looks like dead letters
    root = archive_dir(wish.directory, setting, wish.directory_default)
    is_its_own = not setting or archive_dir(setting) == root
    return Target(name, told["uuid"], root, is_its_own and not name.endswith(TRACES))


def _parts(log: "LiveLog", target: Target) -> Iterator[Part]:
    for bounds in log.bounds(target.topic):
        part = Part(target, bounds.partition, bounds.commit_end)
        part.look(log, bounds)
        yield part


def _round(job: "Job", log: "LiveLog", parts: list[Part], tally: Tally, bar: "Bar") -> int:
    """Write one round of ranges and commit it; return how many ranges had been removed."""
    written: list[Written] = []
    if any(part.next < part.end for part in parts):  # else only gaps are to be written down
        context = job.spark.sparkContext
        pieces = list(_pieces(job, parts, context.defaultParallelism * RANGES_PER_SLOT))
        written = context.parallelize(pieces, len(pieces)).map(write_piece).collect()
    tally.rounds += 1
    losses = 0
    for part in parts:
        own = [one for one in written if _is_of(one.piece, part)]
        if own or not part.is_done:
            bar.advance(part.take(own, tally))
        if any(one.is_lost for one in own):
            losses += 1
            bounds = {row.partition: row for row in log.bounds(part.target.topic)}
            part.look(log, bounds[part.partition])
    return losses


def _pieces(job: "Job", parts: list[Part], count: int) -> Iterator[Piece]:
    """Yield the next ranges, taking turns between partitions so that all of them get on."""
    starts = {part.name: part.next for part in parts if part.next < part.end}
    while starts:
        for part in parts:
            if part.name not in starts:
                continue
            if count == 0:
                return
            piece = part.piece(job.servers, starts[part.name])
            yield piece
            count -= 1
            starts[part.name] = piece.end
            if piece.end >= part.end:
                del starts[part.name]


def _is_of(piece: Piece, part: Part) -> bool:
    return (piece.topic, piece.partition) == (part.target.topic, part.partition)


def _mark(log: "LiveLog", parts: list[Part]) -> None:
    """Tell the cluster what is archived. J3. Nodes of before there were marks wait for none."""
    for part in parts:
        topic, end = part.target.topic, part.archived_end
        if not part.target.is_marked or part.marked_end >= end:
            continue
        with contextlib.suppress(UnknownRoute):
            part.marked_end = log.archived_mark(topic, part.partition)
            if part.marked_end < end:
                part.marked_end = log.mark_archived(topic, part.partition, end)


def _again(job: "Job", log: "LiveLog", wish: Wish, tally: Tally) -> list[Target]:
    """Run a pass; a cluster that is away for a while is waited for."""
    try:
        targets = find_targets(log, wish)
        archive_pass(job, log, targets, tally)
    except Exception as error:
        told = explain(error) or error  # that of a task is wrapped in Spark's
        if not isinstance(told, Unavailable | TimedOut):
            raise
        job.note(f"{told.message}; trying again")
        return []
    return targets


def _rest(job: "Job", duration_ms: int) -> None:
    until_ms = clock.mono_ms() + duration_ms
    while clock.mono_ms() < until_ms and not job.is_stopping:
        clock.pause(PAUSE_MS)
