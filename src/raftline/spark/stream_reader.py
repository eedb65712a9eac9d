"""A stream read: micro-batches of offset ranges, with the next offsets in Spark's checkpoint.

An offset of the stream is ``{"0": next, "1": next}``, one number a partition. Everything a
micro-batch reads follows from the two that Spark hands over, so a batch that is run again reads
the same messages.

Rules
    R1  A partition that is not in the older offset is new: it is read from 0 on.
    R2  A message that retention took before it was read ends the query, unless it was told
        ``failOnDataLoss=false``: then it goes on with what is left.
    R3  ``start`` of the next batch is what Spark is done with: only that moves the cursors of
        ``progressGroup``.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from raftline.client import clock
from raftline.client.fenced import Bounds, Fenced
from raftline.model.errors import NotFound, RaftlineError
from raftline.model.names import place
from raftline.spark.batch_reader import gone, read_or_skip
from raftline.spark.log import open_log
from raftline.spark.options import Options
from raftline.spark.ranges import LogRange, RangePartition, resolve, split

PAUSE_MS = 100
IDLE_PAUSE_MS = 20  # Spark asks again at once where there was nothing new

StreamOffset = dict[str, int]


class RaftlineStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream read; lives in a process beside the driver for as long as the query runs."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._log: Fenced | None = None
        self._initial: StreamOffset | None = None
        self._target: StreamOffset | None = None  # of a query that ends: AvailableNow
        self._told: StreamOffset | None = None  # cursors of the progress group

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options only."""
        return {**self.__dict__, "_log": None}

    # ------------------------------------------------------------------ offsets

    def initialOffset(self) -> StreamOffset:  # noqa: N802
        """Return where a new query begins. Spark asks twice, and the answers must agree."""
        if self._initial is None:
            options, log = self.options, self._open()
            bounds = log.bounds(options.topic)
            found = resolve(log, options, bounds, options.starting, options.starting_ms)
            self._initial = {str(partition): offset for partition, offset in found.items()}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the most messages of one micro-batch."""
        most = self.options.offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where the log ends now: the query ends there."""
        self._target = _ends(self._open().bounds(self.options.topic))

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:  # noqa: N802
        """Return where the next micro-batch ends."""
        self._tell(start)  # R3
        ends = self._target
        if ends is None:
            ends = _ends(self._bounds(start))
        elif any(ends.get(key, 0) < offset for key, offset in start.items()):
            self._bounds(start)
        found = {
            partition: max(ends.get(partition, 0), start.get(partition, 0))
            for partition in sorted({*start, *ends}, key=int)
        }
        if isinstance(limit, ReadMaxRows):
            found = share(start, found, limit.max_rows)
        if found == start:
            clock.pause(IDLE_PAUSE_MS)
            return start
        return found

    def reportLatestOffset(self) -> StreamOffset | None:  # noqa: N802
        """Return the ends of the log, for the progress of the query."""
        with contextlib.suppress(RaftlineError):
            return _ends(self._open().bounds(self.options.topic))
        return None

    def commit(self, end: StreamOffset) -> None:
        """Spark is done with everything below ``end``."""
        self._tell(end)

    def stop(self) -> None:
        """Hang up."""
        if self._log is not None:
            self._log.close()
            self._log = None

    # ------------------------------------------------------------------ reading

    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """Return the ranges of one micro-batch."""
        bounds = {one.partition: one for one in self._bounds(end)}
        ranges: list[LogRange] = []
        for key, ends in end.items():
            number, begin = int(key), start.get(key, 0)  # R1
            if begin >= ends:
                continue
            one = bounds.get(number, Bounds(number, ends, ends))
            if begin < one.log_start:
                if self.options.fail_on_data_loss:
                    raise gone(self.options, one, begin)
                begin = one.log_start  # R2
            ranges.append(LogRange(number, begin, ends))
        return [RangePartition([one]) for one in split(ranges, self.options.offsets_per_split)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read ranges, in a task."""
        return read_or_skip(self.options, partition.value or [])

    # ------------------------------------------------------------------ private

    def _open(self) -> Fenced:
        if self._log is None:
            self._log = open_log(self.options)
        return self._log

    def _bounds(self, reached: Mapping[str, int]) -> list[Bounds]:
        """Return what the log holds; it reaches where it has reached before.

        A new leader may need a moment until it knows how far its log is committed.
        """
        until_ms = clock.mono_ms() + self.options.timeout_ms
        while True:
            bounds = self._open().bounds(self.options.topic)
            ends = _ends(bounds)
            behind = [key for key, offset in reached.items() if ends.get(key, 0) < offset]
            if not behind or not self.options.fail_on_data_loss:
                return bounds
            if clock.mono_ms() > until_ms:
                raise _shorter(self.options, int(behind[0]), reached[behind[0]])
            clock.pause(PAUSE_MS)

    def _tell(self, offset: StreamOffset) -> None:
        """Move the cursors of the progress group; where nobody leads it now, the next time."""
        group = self.options.progress_group
        if not group or offset == self._told:
            return
        cursors = {int(partition): at for partition, at in offset.items()}
        try:
            self._open().commit(group, self.options.topic, cursors)
        except RaftlineError as error:
            if not error.retry:
                raise
        else:
            self._told = dict(offset)


def share(start: Mapping[str, int], end: StreamOffset, most: int) -> StreamOffset:
    """Return ends so that at most ``most`` offsets lie between, shared out by what is there."""
    behind = {key: max(0, ends - start.get(key, 0)) for key, ends in end.items()}
    total = sum(behind.values())
    if total <= most:
        return end
    given = {key: count * most // total for key, count in behind.items()}
    left = most - sum(given.values())
    for key in sorted(behind, key=lambda one: (given[one] - behind[one], int(one))):
        if left and given[key] < behind[key]:
            given[key] += 1
            left -= 1
    return {key: start.get(key, 0) + given[key] for key in end}


def _ends(bounds: Sequence[Bounds]) -> StreamOffset:
    return {str(one.partition): one.commit_end for one in bounds}


def _shorter(options: Options, partition: int, offset: int) -> NotFound:
    where = place(options.topic, partition, offset)
    return NotFound(
        f"the log ends before {where}, which the checkpoint names: the topic was deleted and "
        "created anew, or this is another cluster; begin with a new checkpoint"
    )
