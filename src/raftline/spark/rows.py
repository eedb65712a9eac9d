"""Rows that are to be written, column by column: what each means, and clear words for bad ones.

| column | type | means |
|---|---|---|
| `value` | binary or string | the message; null is a message without a value |
| `key` | binary or string | |
| `headers` | array<struct<key, value>> or map | |
| `topic` | string | where it goes, unless the option `topic` says |
| `partition` | int | where it goes; else the key chooses |
| `timestamp` | timestamp | of the message; else now |
| `priority` | int or string | -128 to 127, or a name |
| `deliver_at` | timestamp | it waits until then |
| `dedup_key` | binary or string | |

`offset` is ignored, so that what was read can be written. Other columns are refused.
"""

# pyright: basic
# Arrow says too little of its types for more.

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from raftline.model.message import Header
from raftline.model.priorities import parse_priority
from raftline.spark.options import bad

PRIORITY_HEADER = "raftline-priority"
_BYTES = (BinaryType, StringType)
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
COLUMNS: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": (_BYTES, "binary or string"),
    "key": (_BYTES, "binary or string"),
    "headers": ((ArrayType, MapType), "array<struct<key: string, value: binary>> or a map"),
    "topic": ((StringType,), "string"),
    "partition": (_WHOLE, "int"),
    "timestamp": ((TimestampType,), "timestamp"),
    "priority": ((*_WHOLE, StringType), "int or string"),
    "deliver_at": ((TimestampType,), "timestamp"),
    "dedup_key": (_BYTES, "binary or string"),
    "offset": (_WHOLE, "bigint (it is ignored)"),
}


def check_columns(schema: StructType, topic: str) -> None:
    """Refuse a frame that cannot be written.

    Raises:
        InvalidArgument: which column is wrong, and what it should be.
    """
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise bad(f"column {field.name!r} is not known", f"there are {', '.join(COLUMNS)}")
        kinds, words = COLUMNS[field.name]
        if not isinstance(field.dataType, kinds) or not _are_headers(field.name, field.dataType):
            raise bad(f"column {field.name} is {field.dataType.simpleString()}", f"make it {words}")
    names = schema.fieldNames()
    if "value" not in names:
        raise bad("there is no column value", "name the column that holds the message value")
    if not topic and "topic" not in names:
        raise bad("where to write is not said", 'give .option("topic", …) or a column topic')


def _are_headers(name: str, kind: DataType) -> bool:
    if name != "headers":
        return True
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _BYTES)
    assert isinstance(kind, ArrayType)
    pair = kind.elementType
    if not isinstance(pair, StructType) or len(pair.fields) != 2:
        return False
    key, value = pair.fields
    return isinstance(key.dataType, StringType) and isinstance(value.dataType, _BYTES)


class Rows(msgspec.Struct):
    """The columns of one Arrow batch as lists; None where a column is not there."""

    count: int
    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[list[Header]] | None
    topics: list[str | None] | None
    partitions: list[int | None] | None
    times_ms: list[int | None] | None
    priorities: list[int] | None
    dues_ms: list[int | None] | None
    dedup_keys: list[bytes | None] | None


def to_rows(batch: Any) -> Rows:
    """Take the columns of an Arrow batch apart. Raises InvalidArgument."""
    found = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
    return Rows(
        count=batch.num_rows,
        values=_bytes(found["value"]),
        keys=_bytes(found.get("key")),
        headers=_headers(found.get("headers"), has_priority="priority" in found),
        topics=_list(found.get("topic")),
        partitions=_list(found.get("partition")),
        times_ms=_milliseconds(found.get("timestamp")),
        priorities=_priorities(found.get("priority")),
        dues_ms=_milliseconds(found.get("deliver_at"), up=True),
        dedup_keys=_bytes(found.get("dedup_key")),
    )


def _list(column: Any) -> Any:
    """Return a column as a list; None where it is not there or has nothing."""
    return None if column is None or column.null_count == len(column) > 0 else column.to_pylist()


def _bytes(column: Any) -> Any:
    if column is None:
        return None
    return column.cast(pa.binary()).to_pylist()


def _milliseconds(column: Any, *, up: bool = False) -> Any:
    """Return whole milliseconds; a due time is never made earlier."""
    if column is None or column.null_count == len(column) > 0:
        return None
    micros = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    missing = micros.is_null().to_numpy(zero_copy_only=False)
    numbers = micros.fill_null(0).to_numpy(zero_copy_only=False)
    whole = -(-numbers // 1000) if up else numbers // 1000
    found = whole.astype(object)
    found[missing] = None
    return found.tolist()


def _priorities(column: Any) -> list[int] | None:
    if column is None or column.null_count == len(column) > 0:
        return None
    found = [0 if one is None else one for one in column.to_pylist()]
    known = {one: parse_priority(one) for one in set(found)}
    numbers = [known[one] for one in found]
    return numbers if np.any(numbers) else None


def _headers(column: Any, *, has_priority: bool) -> list[list[Header]] | None:
    """Return headers as pairs. The priority's own header is written anew from its column."""
    if column is None or column.null_count == len(column) > 0:
        return None
    if not pa.types.is_map(column.type) and len(column.values) == 0:
        return None
    found: list[list[Header]] = []
    for row in column.to_pylist():
        pairs: list[Header] = []
        for one in row or ():
            name, content = one if isinstance(one, tuple) else one.values()
            if name is None:
                raise bad("a header has no name", "name every header")
            if isinstance(content, str):
                content = content.encode()
            if not (has_priority and name == PRIORITY_HEADER):
                pairs.append((name, content))
        found.append(pairs)
    return found
