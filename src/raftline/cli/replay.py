"""``consume --include-deleted``: what was removed comes from the archive, the rest from the log."""

import base64
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from raftline.cli.archive_place import archive_dir_default
from raftline.client.core.batches import message_id
from raftline.client.messages import Message
from raftline.client.reads import ID_HEADER
from raftline.model.errors import Conflict
from raftline.model.names import place

if TYPE_CHECKING:
    from raftline.cli.session import Session
    from raftline.cli.work import Window

Row = dict[str, Any]


class Replayed(msgspec.Struct, frozen=True):
    """A message, and what of it plain JSON cannot show."""

    message: Message
    more: Row


def replay(
    session: "Session",
    topic: str,
    partitions: list[int],
    window: "Window",
    ends: dict[int, int],
    *,
    start: int = 0,
    directory: str = "",
    deleted_only: bool = False,
) -> Iterator[Replayed]:
    """Yield the messages of a window, partition by partition, each in offset order.

    ``deleted_only``: up to where the log begins; what it holds is read by somebody else. ``ends``
    is told up to where each partition was read.

    Raises:
        Conflict: pyarrow is not installed, or messages are neither in the archive nor in the log.
    """
    if find_spec("pyarrow") is None or find_spec("numpy") is None:
        raise Conflict(
            "archives are Parquet files, and pyarrow is not installed here",
            "pip install 'raftline[spark]' (no Java is needed for this)",
        )
    from raftline.archive.live import LiveLog
    from raftline.archive.replay import Replay, Stretch

    with LiveLog(session.servers, timeout_ms=session.timeout_ms) as log:
        told = log.topic(topic)
        for number in partitions:
            reader = Replay(log, _finder(directory, told), _gap_teller(session, topic, number))
            bounds = log.partition_bounds(topic, number)
            begin, end = start, bounds.log_start if deleted_only else bounds.commit_end
            while begin < end:
                times = (window.from_ms, window.to_ms)
                for batch in reader.batches(
                    Stretch(topic, told["uuid"], number, begin, end, *times)
                ):
                    yield from _messages(batch)
                begin = end
                if deleted_only:  # more may have been trimmed meanwhile
                    end = log.partition_bounds(topic, number).log_start
            ends[number] = max(begin, end)


def _finder(directory: str, told: Row) -> Callable[[], Path]:
    from raftline.archive.place import archive_dir, setting_of

    return lambda: archive_dir(directory, setting_of(told), archive_dir_default())


def _gap_teller(session: "Session", topic: str, partition: int) -> Callable[[int, int, str], None]:
    def tell(start: int, end: int, reason: str) -> None:
        session.note(f"missing: {place(topic, partition, start)} up to {end}: {reason}")

    return tell


def _messages(batch: Any) -> Iterator[Replayed]:
    from raftline.archive.writer import times_of

    names = ("topic", "partition", "offset", "key", "value", "headers")
    columns: list[list[Any]] = [batch.column(name).to_pylist() for name in names]
    for *cells, time_ms in zip(*columns, times_of(batch).tolist(), strict=True):
        topic, partition, offset, key, value, found = cells
        headers: Row = {}
        coded: Row = {}
        for header in found or ():
            _put_header(headers, coded, header["key"], header["value"])
        message = Message(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=time_ms,
            id=_id(headers, topic, partition, offset),
            key=key,
            value=value,
            headers=headers,
        )
        yield Replayed(message, {"headers_base64": coded} if coded else {})


def _id(headers: Row, topic: str, partition: int, offset: int) -> str:
    """Return the id: one that waited keeps the one it had then."""
    waited = headers.get(ID_HEADER)
    if isinstance(waited, str) and waited.startswith(f"{topic}.{partition}.w"):
        return waited
    return message_id(topic, partition, offset)


def _put_header(headers: Row, coded: Row, name: str, value: bytes | None) -> None:
    """Put one header in, as a read over HTTP shows it."""
    into = headers
    try:
        text = None if value is None else value.decode()
    except UnicodeDecodeError:
        into, text = coded, base64.b64encode(value or b"").decode()
    if name not in into:
        into[name] = text
    elif isinstance(into[name], list):
        into[name].append(text)
    else:
        into[name] = [into[name], text]
