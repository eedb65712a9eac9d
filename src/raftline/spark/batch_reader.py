"""A batch read: the offsets that are there when the query is planned, as Arrow.

Each task reads its range from the leader of the partition (or a copy) and opens it itself. Nothing
passes through the driver but the bounds.

Rules
    B1  Filters are taken over only where that was asked for. Spark keeps one plan of a Python
        source for all uses of a frame, and taking over a filter replaces it: another use, in the
        same query or a later one, would be without the rows that this filter leaves out.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from raftline.client.fenced import Bounds, Fenced
from raftline.model.errors import CorruptBatch, NotFound, OffsetOutOfRange
from raftline.model.names import place
from raftline.spark.archived import (
    FilesPartition,
    archived_slices,
    open_archive,
    pack_slices,
    read_slices,
    widened,
)
from raftline.spark.filters import Wanted, push
from raftline.spark.log import open_log, read_ahead
from raftline.spark.options import LATEST, Options
from raftline.spark.ranges import LogRange, RangePartition, resolve, split

if TYPE_CHECKING:
    from raftline.archive.reader import Archive, FileSlice


class RaftlineReader(DataSourceReader):
    """One batch read."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.wanted = Wanted()
        if options.archive:
            # In the archive nobody looks up offsets by time: the messages are filtered. Not said
            # in partitions(): Spark packs the reader for the tasks before it asks for those.
            self.wanted.narrow_times(options.starting_ms, options.ending_ms)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges to read, archived ones first."""
        found: list[InputPartition] = []
        with open_log(self.options) as log:
            if self.options.archive:
                archive = open_archive(self.options, log)
                live = log.bounds(self.options.topic)
                bounds = widened(archive, self.options, live)
                ranges, slices = self._split_archived(archive, self._plan(log, bounds), live)
                found += pack_slices(slices, self.options.offsets_per_split)
            else:
                ranges = self._plan(log, log.bounds(self.options.topic))
            ranges = self._later(log, ranges)
        found += [RangePartition([one]) for one in split(ranges, self.options.offsets_per_split)]
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read a range, or slices of archived files."""
        from_ms, to_ms = self.wanted.from_ms, self.wanted.to_ms
        if isinstance(partition, FilesPartition):
            return read_slices(self.options, partition.value, from_ms, to_ms)
        # Spark calls with None where there is no partition at all.
        ranges: list[LogRange] = partition.value or []
        return read_or_skip(self.options, ranges, from_ms=from_ms, to_ms=to_ms)

    def _plan(self, log: Fenced, bounds: list[Bounds]) -> list[LogRange]:
        options, wanted = self.options, self.wanted
        is_live = not options.archive
        starting_ms = options.starting_ms if is_live else None
        starts = resolve(log, options, bounds, options.starting, starting_ms)
        ends = resolve(log, options, bounds, options.ending, options.ending_ms if is_live else None)
        found: list[LogRange] = []
        for one in bounds:
            if not wanted.takes(one.partition):
                continue
            start = max(self._start(one, starts[one.partition]), wanted.start)
            end = min(self._end(one, ends[one.partition]), wanted.end)
            if start < end:
                found.append(LogRange(one.partition, start, end))
        return found

    def _later(self, log: Fenced, ranges: list[LogRange]) -> list[LogRange]:
        """Leave out what is before the first message of the wanted time."""
        from_ms = self.wanted.from_ms
        if from_ms is None or from_ms < 0:  # times before 1970 cannot be looked up
            return ranges
        first = {one.partition: one.offset for one in log.bounds(self.options.topic, from_ms)}
        return [
            LogRange(one.partition, max(one.start, first[one.partition]), one.end)
            for one in ranges
            if first[one.partition] < one.end
        ]

    def _split_archived(
        self, archive: "Archive", ranges: list[LogRange], bounds: list[Bounds]
    ) -> "tuple[list[LogRange], list[FileSlice]]":
        """Return what the log is asked for, and what the archive."""
        times = (self.wanted.from_ms, self.wanted.to_ms)
        log_starts = {one.partition: one.log_start for one in bounds}
        live: list[LogRange] = []
        files: list[FileSlice] = []
        for one in ranges:
            _, meeting = archive.span(self.options.topic, one.partition)
            meeting = max(one.start, min(meeting, one.end))
            if one.start < meeting:
                files += archived_slices(
                    archive, self.options, one.partition, one.start, meeting, times
                )
            begin = max(meeting, log_starts[one.partition])
            if begin < one.end:
                live.append(LogRange(one.partition, begin, one.end))
        return live, files

    def _start(self, bounds: Bounds, start: int) -> int:
        if start >= bounds.log_start:
            return start
        if self.options.fail_on_data_loss:
            raise gone(self.options, bounds, start)
        return bounds.log_start

    def _end(self, bounds: Bounds, end: int) -> int:
        if end <= bounds.commit_end or end == LATEST:
            return min(end, bounds.commit_end)
        is_named = self.options.ending_ms is None  # a time is looked up later: the log grows
        if is_named and self.options.fail_on_data_loss:
            where = place(self.options.topic, bounds.partition, end)
            raise NotFound(
                f"endingOffsets {where} is not written yet, the log ends at {bounds.commit_end}: "
                "give an end that is there, or failOnDataLoss=false"
            )
        return bounds.commit_end


class FilteringReader(RaftlineReader):
    """A batch read that takes over filters, for frames that are used once. B1."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take over comparisons of partition, offset and timestamp."""
        return push(self.wanted, filters)


def gone(options: Options, bounds: Bounds, start: int) -> NotFound:
    """Return the error of a range that retention or a trim has taken."""
    where = place(options.topic, bounds.partition, start)
    return NotFound(
        f"{where} is gone, the log begins at {bounds.log_start}: read the archive too "
        "(option archive), begin later (startingOffsets), or take what is left "
        "(failOnDataLoss=false)"
    )


def read_or_skip(
    options: Options,
    ranges: Iterable[LogRange],
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> Iterator[Any]:
    """Yield ranges as Arrow; what retention takes meanwhile is an error, or left out."""
    todo = list(ranges)
    while todo:
        one = todo.pop(0)
        try:
            yield from read_range(options, one, from_ms, to_ms)
        except OffsetOutOfRange:
            with open_log(options) as log:
                bounds = {found.partition: found for found in log.bounds(options.topic)}
            found = bounds.get(one.partition, Bounds(one.partition, one.end, one.end))
            if options.fail_on_data_loss or found.log_start <= one.start:
                raise gone(options, found, one.start) from None
            if found.log_start < one.end:
                todo.insert(0, LogRange(one.partition, found.log_start, one.end))


def read_range(
    options: Options, one: LogRange, from_ms: int | None, to_ms: int | None
) -> Iterator[Any]:
    """Yield the messages of a range as Arrow batches. Raises OffsetOutOfRange."""
    from raftline.archive.columns import to_arrow
    from raftline.archive.unreadable import to_arrow_anyhow

    place_of = (options.topic, one.partition, one.start, one.end)
    times = {"from_ms": from_ms, "to_ms": to_ms}
    for batches in read_ahead(options, one):
        try:
            found = to_arrow(batches, *place_of, include_value=options.include_value, **times)
        except CorruptBatch:
            # What a producer sealed badly must not end every query for ever.
            found = list(to_arrow_anyhow(batches, *place_of, **times))
            if not options.include_value:
                found = [batch.drop_columns(["value"]) for batch in found]
        yield from found
