"""A batch read: the offsets that are there when the query is planned, as Arrow.

Each task reads its range from the leader of the partition (or a copy) and opens it itself. Nothing
passes through the driver but the bounds.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from raftline.model.errors import NotFound
from raftline.model.names import place
from raftline.spark.filters import Wanted, push
from raftline.spark.log import Bounds, Log
from raftline.spark.options import LATEST, Options
from raftline.spark.ranges import LogRange, RangePartition, resolve, split


class RaftlineReader(DataSourceReader):
    """One batch read."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.wanted = Wanted()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take over comparisons of partition, offset and timestamp."""
        return push(self.wanted, filters)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges to read."""
        with open_log(self.options) as log:
            ranges = self._plan(log)
        return [RangePartition([one]) for one in split(ranges, self.options.offsets_per_split)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read a range."""
        # Spark calls with None where there is no partition at all.
        ranges: list[LogRange] = partition.value or []
        wanted = self.wanted
        return read_ranges(self.options, ranges, from_ms=wanted.from_ms, to_ms=wanted.to_ms)

    def _plan(self, log: Log) -> list[LogRange]:
        options, wanted = self.options, self.wanted
        bounds = log.bounds(options.topic)
        starts = resolve(log, options, bounds, options.starting, options.starting_ms)
        ends = resolve(log, options, bounds, options.ending, options.ending_ms)
        found: list[LogRange] = []
        for one in bounds:
            if not wanted.takes(one.partition):
                continue
            start = max(self._start(one, starts[one.partition]), wanted.start)
            end = min(self._end(one, ends[one.partition]), wanted.end)
            if wanted.from_ms is not None and start < end:
                start = max(start, log.look_up_time(options.topic, one.partition, wanted.from_ms))
            if start < end:
                found.append(LogRange(one.partition, start, end))
        return found

    def _start(self, bounds: Bounds, start: int) -> int:
        if start >= bounds.log_start:
            return start
        if self.options.fail_on_data_loss:
            raise gone(self.options, bounds, start)
        return bounds.log_start

    def _end(self, bounds: Bounds, end: int) -> int:
        if end <= bounds.commit_end or end == LATEST:
            return min(end, bounds.commit_end)
        if self.options.fail_on_data_loss:
            where = place(self.options.topic, bounds.partition, end)
            raise NotFound(
                f"endingOffsets {where} is not written yet, the log ends at {bounds.commit_end}: "
                "give an end that is there, or failOnDataLoss=false"
            )
        return bounds.commit_end


def gone(options: Options, bounds: Bounds, start: int) -> NotFound:
    """Return the error of a range that retention or a trim has taken."""
    where = place(options.topic, bounds.partition, start)
    return NotFound(
        f"{where} is gone, the log begins at {bounds.log_start}: read the archive too "
        "(option archive), begin later (startingOffsets), or take what is left "
        "(failOnDataLoss=false)"
    )


def open_log(options: Options) -> Log:
    """Return a log reader for these options."""
    return Log(
        options.servers,
        timeout_ms=options.timeout_ms,
        fetch_bytes=options.fetch_bytes,
        any_replica=options.read_from == "any",
    )


def read_ranges(
    options: Options,
    ranges: Iterable[LogRange],
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> Iterator[Any]:
    """Yield the messages of ranges as Arrow batches."""
    from raftline.archive.columns import to_arrow

    topic = options.topic
    with open_log(options) as log:
        for one in ranges:
            for batches in log.read(topic, one.partition, one.start, one.end):
                yield from to_arrow(
                    batches,
                    topic,
                    one.partition,
                    one.start,
                    one.end,
                    include_value=options.include_value,
                    from_ms=from_ms,
                    to_ms=to_ms,
                )
