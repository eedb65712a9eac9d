"""``raftline.spark.reject``: bad rows of a queue read go to the dead letters.

A frame of a queue read knows where it came from: the metadata of its column ``offset`` names the
servers, the group and the query. That survives filters and selects. Which lease the rows belong to
is what the query holds now: it holds one at a time.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any, cast

from raftline.client.fenced import Fenced
from raftline.model.errors import Conflict
from raftline.model.limits import REASON_CHARS_MAX
from raftline.model.names import place
from raftline.spark.options import bad

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

METADATA = "raftline"
RANGES_PER_CALL = 1_000
_NEEDED = ("topic", "partition", "offset")


def reject(frame: "DataFrame", reason: "str | Column") -> int:
    """Send the messages of these rows to the dead-letter topic; return how many rows there were.

    For ``foreachBatch`` of a queue read: ``reject(rows.where("value is null"), "no value")``.
    A micro-batch that comes again may reject the same rows again: each is one dead letter.

    Args:
        frame: rows of a queue read, with its columns topic, partition and offset.
        reason: shown with the dead letter; a text, or a column with a text for each row.

    Raises:
        InvalidArgument: the frame is not of a queue read.
        Conflict: its rows are not leased any more.
    """
    from pyspark.sql import functions

    origin = _origin(frame)
    told = functions.lit(reason) if isinstance(reason, str) else reason
    rows = frame.select(*_NEEDED, told.cast("string").alias("reason")).collect()
    wanted: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for row in rows:
        text = (row["reason"] or "rejected")[:REASON_CHARS_MAX]
        wanted[row["topic"], row["partition"], text].append(row["offset"])
    for (topic, partition, text), offsets in sorted(wanted.items()):
        _reject(origin, topic, partition, text, runs(sorted(set(offsets))))
    return len(rows)


def runs(offsets: list[int]) -> list[tuple[int, int]]:
    """Return sorted offsets as half-open ranges."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


def _origin(frame: "DataFrame") -> dict[str, str]:
    if frame.isStreaming:
        raise bad("a stream cannot be rejected as a whole", "reject rows within foreachBatch")
    names = set(frame.columns)
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise bad(f"the rows have no column {missing[0]}", "keep topic, partition and offset")
    found: Any = (frame.schema["offset"].metadata or {}).get(METADATA)
    if not isinstance(found, dict):
        raise bad(
            "these rows are not of a queue read",
            'read with .option("group", …) and keep the column offset as it is',
        )
    return cast("dict[str, str]", found)


def _reject(
    origin: dict[str, str], topic: str, partition: int, reason: str, ranges: list[tuple[int, int]]
) -> None:
    group, query = origin["group"], origin["query"]
    with Fenced(origin["servers"]) as fenced:
        held = fenced.held(topic, partition, group, query)
        if held is None or held.acked:
            raise Conflict(
                f"{place(topic, partition, ranges[0][0])} is not leased to query {query!r} any "
                "more: reject rows within the foreachBatch that got them"
            )
        for at in range(0, len(ranges), RANGES_PER_CALL):
            some = ranges[at : at + RANGES_PER_CALL]
            fenced.reject(topic, partition, group, query, held.n, some, reason)
