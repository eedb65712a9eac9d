"""The archive and the live log as one table.

What is archived is read from the files, what came later from the log; the two meet at one offset,
which is chosen when the query is planned, so nothing comes twice and nothing is left out. Offsets
that neither has are an error, unless ``failOnDataLoss=false``.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from raftline.client.fenced import Bounds, Fenced
from raftline.model.errors import Conflict, NotFound
from raftline.model.names import place
from raftline.spark.options import Options

if TYPE_CHECKING:
    from raftline.archive.reader import Archive, FileSlice

WHERE_THE_TOPIC_SAYS = "true"


class FilesPartition(InputPartition):
    """One Spark partition: slices of archived files that one task reads, in this order."""

    def __init__(self, slices: "list[FileSlice]") -> None:
        super().__init__(slices)


def open_archive(options: Options, log: Fenced) -> "Archive":
    """Return the archive that the option or the topic names.

    Raises:
        NotFound, InvalidArgument: there is none.
        Conflict: it holds another topic, one of that name that was deleted.
    """
    from raftline.archive.place import archive_dir, setting_of
    from raftline.archive.reader import Archive

    is_named = options.archive.lower() != WHERE_THE_TOPIC_SAYS
    told = log.topic(options.topic)
    given, setting = (options.archive, "") if is_named else ("", setting_of(told))
    archive = Archive(archive_dir(given, setting))
    for partition in archive.partitions(options.topic):
        manifest = archive.manifest(options.topic, partition)
        if manifest is not None and manifest.topic_id not in ("", told["uuid"]):
            raise Conflict(
                f"{archive.root} holds another topic that was called {options.topic!r}: name the "
                "archive of this one, or read without the option archive"
            )
    return archive


def widened(archive: "Archive", options: Options, bounds: list[Bounds]) -> list[Bounds]:
    """Return what archive and log hold together.

    Raises:
        NotFound: there is a hole between them.
    """
    found: list[Bounds] = []
    for one in bounds:
        start, end = archive.span(options.topic, one.partition)
        if end == 0:
            found.append(one)
            continue
        if one.log_start > end and options.fail_on_data_loss:
            raise _hole(options, one.partition, end, one.log_start)
        found.append(Bounds(one.partition, min(start, one.log_start), max(end, one.commit_end)))
    return found


def archived_slices(
    archive: "Archive",
    options: Options,
    partition: int,
    start: int,
    end: int,
    times: tuple[int | None, int | None],
) -> "list[FileSlice]":
    """Return the files that hold ``[start, end)``. Raises NotFound where there is a gap."""
    manifest = archive.manifest(options.topic, partition)
    if manifest is None:
        return []
    for gap in manifest.gaps:
        if gap.start < end and gap.end > start and options.fail_on_data_loss:
            raise _hole(options, partition, max(gap.start, start), gap.end)
    from_ms, to_ms = times
    return archive.slices(
        options.topic, partition, start=start, end=end, from_ms=from_ms, to_ms=to_ms
    )


def pack_slices(slices: "list[FileSlice]", offsets_per_split: int) -> list[FilesPartition]:
    """Put small files together, so that a task has something to do."""
    found: list[FilesPartition] = []
    group: list[FileSlice] = []
    size = 0
    for one in slices:
        count = one.end - one.start
        if group and size + count > offsets_per_split:
            found.append(FilesPartition(group))
            group, size = [], 0
        group.append(one)
        size += count
    if group:
        found.append(FilesPartition(group))
    return found


def read_slices(
    options: Options, slices: "list[FileSlice]", from_ms: int | None, to_ms: int | None
) -> Iterator[Any]:
    """Yield the messages of archived files as Arrow batches."""
    from raftline.archive.reader import read_slice
    from raftline.archive.schema import NAMES

    names = [name for name in NAMES if options.include_value or name != "value"]
    for one in slices:
        yield from read_slice(one, columns=names, from_ms=from_ms, to_ms=to_ms)


def _hole(options: Options, partition: int, start: int, end: int) -> NotFound:
    where = place(options.topic, partition, start)
    return NotFound(
        f"neither archive nor log have {where} up to {end}: read what there is with "
        "failOnDataLoss=false"
    )
