"""Ranges of offsets as Spark's partitions, large ones split so that all cores have something."""

import msgspec
from pyspark.sql.datasource import InputPartition

from raftline.client.fenced import Bounds, Fenced
from raftline.model.errors import UnknownPartition
from raftline.spark.options import EARLIEST, LATEST, Offsets, Options, bad


class LogRange(msgspec.Struct, frozen=True):
    """Offsets ``[start, end)`` of a partition's log."""

    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)


class RangePartition(InputPartition):
    """One Spark partition: ranges that one task reads, in this order."""

    def __init__(self, ranges: list[LogRange]) -> None:
        super().__init__(ranges)


def split(ranges: list[LogRange], offsets_per_split: int) -> list[LogRange]:
    """Cut ranges into pieces of about equal length, at most ``offsets_per_split`` each."""
    found: list[LogRange] = []
    for one in ranges:
        pieces = -(-len(one) // offsets_per_split)
        for number in range(pieces):
            start = one.start + len(one) * number // pieces
            end = one.start + len(one) * (number + 1) // pieces
            found.append(LogRange(one.partition, start, end))
    return found


def pack(ranges: list[LogRange], offsets_per_split: int) -> list[RangePartition]:
    """Put many small ranges of a partition into one Spark partition, in order."""
    found: list[RangePartition] = []
    group: list[LogRange] = []
    size = 0
    for one in split(ranges, offsets_per_split):
        if group and (group[0].partition != one.partition or size + len(one) > offsets_per_split):
            found.append(RangePartition(group))
            group, size = [], 0
        group.append(one)
        size += len(one)
    if group:
        found.append(RangePartition(group))
    return found


def resolve(
    log: Fenced, options: Options, bounds: list[Bounds], which: Offsets | int, time_ms: int | None
) -> dict[int, int]:
    """Return an offset for each partition: of a time, of words, or as given.

    Offsets outside the log are left as they are: what that means is the reader's to say.

    Raises:
        UnknownPartition, InvalidArgument: an offset for a partition that is not there, or none
            for one that is.
    """
    if time_ms is not None:
        return {one.partition: one.offset for one in log.bounds(options.topic, time_ms)}
    if isinstance(which, dict):
        known = {one.partition for one in bounds}
        for partition in which:
            if partition not in known:
                raise UnknownPartition(options.topic, partition, len(known))
        missing = sorted(known - which.keys())
        if missing:
            raise bad(
                f"no offset is given for {options.topic}/{missing[0]}",
                'give one for each partition, "earliest" or "latest" will do',
            )
    found: dict[int, int] = {}
    for one in bounds:
        offset = which[one.partition] if isinstance(which, dict) else which
        words = {EARLIEST: one.log_start, LATEST: one.commit_end}
        found[one.partition] = words.get(offset, offset)
    return found
