"""Which dead letters a redrive means, and what becomes of each: Spark's part of the job."""

# pyright: basic
# Spark says too little of its types for more.

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.model.errors import InvalidArgument
from raftline.model.message import Header
from raftline.model.names import dead_letter_topic
from raftline.pipeline.sql import Desk

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PARTS = ("key", "value", "headers")
STATE = "dead"


class Content(msgspec.Struct, frozen=True):
    """What a message says."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter that was chosen."""

    offset: int  # in the dead-letter topic
    topic: str  # where it comes from
    partition: int
    origin_offset: int
    group: str
    generation: int
    reason: str
    priority: int
    before: Content
    after: Content

    @property
    def is_changed(self) -> bool:
        """Whether the transform changes it."""
        return self.before != self.after

    @property
    def origin(self) -> str:
        """Where it comes from, for people."""
        return f"{self.topic}/{self.partition}@{self.origin_offset}"


def choose(
    desk: Desk, topic: str, where: str, transform: Mapping[str, str], limit: int
) -> "DataFrame":
    """Return the letters of ``topic`` that are dead and fit ``where``, in raw and changed form.

    Args:
        desk: where tables are.
        topic: the source.
        where: a predicate of SQL over the columns of the table of dead letters.
        transform: ``key``, ``value``, ``headers`` -> an expression of SQL.
        limit: letters at most; 0: all.
    """
    from pyspark.sql import functions as f

    unknown = set(transform) - set(PARTS)
    if unknown:
        raise InvalidArgument(f"{sorted(unknown)[0]} cannot be changed", f"{', '.join(PARTS)} can")
    letters = dead_letter_topic(topic)
    tables = desk.tables
    if letters not in tables.topic_names():
        tables.check_topic(topic)
        table = tables.no_letters(raw=True)
    else:
        table = tables.letters(letters, source=topic, raw=True)
    view = desk.view(letters, table)
    # Spark reads "where (name)" as an alias with a column, so a word stands between.
    changes = ", ".join(_changes(transform))
    chosen = desk.resolve(f"select *, {changes} from {view} where true and ({where or 'true'})")
    chosen = chosen.where(f.col("state") == STATE)
    for part in transform:
        chosen = chosen.withColumn(f"_new_{part}", _coded(chosen, part))
    columns = ["offset", "origin_topic", "origin_partition", "origin_offset", "group"]
    columns += ["generation", "reason", "priority", *(f"_{part}" for part in PARTS)]
    chosen = chosen.select(*columns, *(f"_new_{part}" for part in transform))
    return chosen.limit(limit) if limit else chosen


def letters_of(table: "DataFrame", transform: Mapping[str, str]) -> Iterator[Letter]:
    """Return the letters of a choice, one Spark partition at a time."""
    for row in table.toLocalIterator(prefetchPartitions=True):
        yield _letter(row, transform)


def _changes(transform: Mapping[str, str]) -> list[str]:
    return [f"({text}) as `_new_{part}`" for part, text in transform.items()] or ["true as _same"]


def _coded(table: "DataFrame", part: str) -> "Column":
    """Return what an expression gave, as it is stored."""
    from pyspark.sql import functions as f

    column = f.col(f"_new_{part}")
    kind = table.schema[f"_new_{part}"].dataType.typeName()
    if part == "headers":
        if kind != "map":
            raise InvalidArgument(
                f"the expression for headers gives {kind}",
                "a map of texts is needed: map('source', 'redrive'), map_concat(headers, …)",
            )
        return column.cast("map<string,string>")
    if kind == "binary":
        return column
    if kind in ("struct", "map", "array"):
        column = f.to_json(column)
    return column.cast("string").cast("binary")


def _letter(row: Any, transform: Mapping[str, str]) -> Letter:
    before = Content(_bytes(row["_key"]), _bytes(row["_value"]), _headers(row["_headers"]))
    changed: dict[str, Any] = {}
    for part in transform:
        new = row[f"_new_{part}"]
        if part == "headers":
            changed[part] = _changed_headers(before.headers, new or {})
        else:
            changed[part] = _bytes(new)
    return Letter(
        offset=row["offset"],
        topic=row["origin_topic"],
        partition=row["origin_partition"],
        origin_offset=row["origin_offset"],
        group=row["group"],
        generation=row["generation"],
        reason=row["reason"],
        priority=row["priority"] or 0,
        before=before,
        after=msgspec.structs.replace(before, **changed),
    )


def _changed_headers(before: tuple[Header, ...], new: Mapping[str, str | None]) -> Any:
    """Return new headers; one whose text is as before keeps its bytes and its place."""
    left = dict(new)
    found: list[Header] = []
    for name, value in before:
        text = None if value is None else value.decode("utf-8", "replace")
        if name in left and left[name] == text:
            found.append((name, value))
            del left[name]
    found += [(name, None if value is None else value.encode()) for name, value in left.items()]
    return tuple(found)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _headers(rows: Any) -> tuple[Header, ...]:
    return tuple((row["key"], _bytes(row["value"])) for row in rows or ())
