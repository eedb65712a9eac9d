"""Records of a trace as rows: one for each event and range of offsets.

A record holds ranges (``model/trace.py``), and so do the rows; whoever needs single messages has
Spark spread them out (``tables.py``), which it does without Python.
"""

# pyright: basic
# Arrow says too little of its types for more.

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from raftline.machines.delivery.commands import ACK, EXTEND, NACK, REJECT, RELEASE
from raftline.model.trace import (
    CalledOff,
    Died,
    Ended,
    Event,
    Forgotten,
    Given,
    LetGo,
    Replayed,
    Revived,
    Waits,
    WaitsUntil,
    decode_record,
)

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("record", pa.int64()),  # the offset in the trace
        ("time", pa.timestamp("us", tz="UTC")),  # log time
        ("event", pa.string()),
        ("group", pa.string()),
        ("member", pa.string()),
        ("start", pa.int64()),  # offsets of messages, half-open; null: of a waiting message
        ("end", pa.int64()),
        ("attempt", pa.int32()),
        ("generation", pa.int32()),
        ("reason", pa.string()),
        ("delay_ms", pa.int64()),
        ("until", pa.timestamp("us", tz="UTC")),  # a lease's deadline, or when it is due
        ("number", pa.int64()),  # of a waiting message
    ]
)
SQL_SCHEMA = (
    "partition int, record long, time timestamp, event string, `group` string, member string, "
    "start long, `end` long, attempt int, generation int, reason string, delay_ms long, "
    "until timestamp, number long"
)
ENDED = {
    ACK: "ACKNOWLEDGED", NACK: "NACKED", REJECT: "REJECTED", EXTEND: "EXTENDED",
    RELEASE: "GIVEN_BACK",
}  # fmt: skip

Row = dict[str, Any]


def to_events(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn messages of a trace (partition, offset, value) into events. For ``mapInArrow``."""
    for batch in batches:
        columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        places = zip(
            batch.column("partition").to_pylist(),
            batch.column("offset").to_pylist(),
            batch.column("value").to_pylist(),
            strict=True,
        )
        for partition, offset, value in places:
            if value is None:
                continue
            record = decode_record(value)
            for row in (row for event in record.events for row in rows_of(event)):
                columns["partition"].append(partition)
                columns["record"].append(offset)
                columns["time"].append(record.at_ms * 1000)
                for name in SCHEMA.names[3:]:
                    columns[name].append(row.get(name))
        arrays = [pa.array(columns[field.name], type=field.type) for field in SCHEMA]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def rows_of(event: Event) -> Iterator[Row]:
    """Return the rows of one event, in the words of a timeline."""
    match event:
        case Given():
            for at in range(0, len(event.spans), 4):
                start, end, attempt, generation = event.spans[at : at + 4]
                yield {
                    "event": "DELIVERED" if attempt == 1 else "REDELIVERED",
                    "group": event.group,
                    "member": event.member,
                    "start": start,
                    "end": end,
                    "attempt": attempt,
                    "generation": generation,
                    "until": event.deadline_ms * 1000,
                }
        case Ended():
            told: Row = {
                "event": ENDED.get(event.verb, "ENDED"),
                "group": event.group,
                "attempt": event.attempt,
                "reason": event.reason or None,
                "delay_ms": event.delay_ms,
            }
            yield from _ranges(told, event.ranges)
        case Died():
            yield {
                "event": "DEAD_LETTERED",
                "group": event.group,
                "start": event.start,
                "end": event.end,
                "attempt": event.attempts,
                "reason": event.reason.upper(),
            }
        case Revived():
            yield from _ranges({"event": "REDRIVEN", "group": event.group}, event.ranges)
        case Forgotten():
            yield from _ranges({"event": "PURGED", "group": event.group}, event.ranges)
        case Replayed():
            yield {"event": "REPLAYED", "group": event.group, "start": event.offset}
        case _:
            yield from _waiting_rows(event)


def _waiting_rows(event: Waits | WaitsUntil | CalledOff | LetGo) -> Iterator[Row]:
    match event:
        case Waits():
            for at in range(0, len(event.waiting), 2):
                number, due_ms = event.waiting[at : at + 2]
                yield {"event": "SCHEDULED", "number": number, "until": due_ms * 1000}
        case WaitsUntil():
            yield {"event": "MOVED", "number": event.number, "until": event.due_ms * 1000}
        case CalledOff():
            for number in event.numbers:
                yield {"event": "CANCELLED", "number": number}
        case LetGo():
            for step, number in enumerate(event.numbers):
                start = event.base_offset + step
                yield {"event": "RELEASED", "number": number, "start": start, "end": start + 1}


def _ranges(told: Row, ranges: list[int]) -> Iterator[Row]:
    for at in range(0, len(ranges), 2):
        yield {**told, "start": ranges[at], "end": ranges[at + 1]}
