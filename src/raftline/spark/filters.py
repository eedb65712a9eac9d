"""Filters that Spark pushes down, as bounds: which partitions, offsets and times are wanted.

Comparisons of ``partition``, ``offset`` and ``timestamp`` with constants are done here, exactly;
all others are Spark's. Timestamps of messages are whole milliseconds.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pyspark.sql import datasource as spark

from raftline.model.limits import OFFSET_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Wanted(msgspec.Struct):
    """Half-open bounds; empty ones mean that nothing is wanted."""

    partitions: set[int] | None = None  # None: all
    start: int = 0
    end: int = OFFSET_MAX + 1
    from_ms: int | None = None
    to_ms: int | None = None

    def takes(self, partition: int) -> bool:
        """Say whether messages of a partition are wanted."""
        return self.partitions is None or partition in self.partitions

    def narrow_times(self, from_ms: int | None, to_ms: int | None) -> None:
        """Want only messages of ``[from_ms, to_ms)`` too."""
        if from_ms is not None:
            self.from_ms = max(from_ms, self.from_ms if self.from_ms is not None else from_ms)
        if to_ms is not None:
            self.to_ms = min(to_ms, self.to_ms if self.to_ms is not None else to_ms)


def push(wanted: Wanted, filters: Iterable[spark.Filter]) -> list[spark.Filter]:
    """Narrow ``wanted`` by the filters it can express; return the others, for Spark."""
    return [one for one in filters if not _push_one(wanted, one)]


def _push_one(wanted: Wanted, one: spark.Filter) -> bool:
    column = getattr(one, "attribute", ())
    value = getattr(one, "value", None)
    match column, one:
        case (("partition" | "offset" | "timestamp" | "topic",), spark.IsNotNull()):
            return column != ("topic",)  # these are never null
        case (("partition",), spark.In()):
            return _partitions(wanted, [v for v in one.value if v is not None])
        case (("partition" | "offset",), _) if not _is_whole(value):
            return False
        case (("partition",), spark.EqualTo()):
            return _partitions(wanted, [value])
        case (("offset",), _):
            span = _span(one, int(value or 0))
            if span is not None:
                wanted.start, wanted.end = max(wanted.start, span[0]), min(wanted.end, span[1])
            return span is not None
        case (("timestamp",), _) if isinstance(value, datetime):
            return _times(wanted, one, value)
        case _:
            return False


def _partitions(wanted: Wanted, values: list[Any]) -> bool:
    before = wanted.partitions
    wanted.partitions = set(values) if before is None else before.intersection(values)
    return True


def _span(one: spark.Filter, value: int) -> tuple[int, int] | None:
    """Return the whole numbers that a comparison lets through."""
    match one:
        case spark.EqualTo():
            return value, value + 1
        case spark.GreaterThan():
            return value + 1, OFFSET_MAX + 1
        case spark.GreaterThanOrEqual():
            return value, OFFSET_MAX + 1
        case spark.LessThan():
            return 0, value
        case spark.LessThanOrEqual():
            return 0, value + 1
        case _:
            return None


def _times(wanted: Wanted, one: spark.Filter, value: datetime) -> bool:
    """A moment between two milliseconds equals none; bounds go to the right side of it."""
    if value.tzinfo is None:
        value = value.astimezone(UTC)  # then it is local time of the process
    micros = (value - _EPOCH) // timedelta(microseconds=1)
    down, up = micros // 1000, -(-micros // 1000)
    match one:
        case spark.EqualTo():
            wanted.narrow_times(up, down + 1)
        case spark.GreaterThan():
            wanted.narrow_times(down + 1, None)
        case spark.GreaterThanOrEqual():
            wanted.narrow_times(up, None)
        case spark.LessThan():
            wanted.narrow_times(None, up)
        case spark.LessThanOrEqual():
            wanted.narrow_times(None, down + 1)
        case _:
            return False
    return True


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
