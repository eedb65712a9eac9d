"""From the arguments of ``send`` to a message for the core."""

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from raftline.client.asks import Moment, moment
from raftline.client.core.batches import Handle, size_of
from raftline.client.core.sends import Row
from raftline.client.leased import Duration, duration_ms
from raftline.client.messages import put_bytes
from raftline.config.moments import parse_moment_ms
from raftline.model.errors import InvalidArgument, TooLarge
from raftline.model.limits import (
    DEDUP_KEY_BYTES_MAX,
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    KEY_BYTES_MAX,
)
from raftline.model.message import Header
from raftline.model.names import check_topic_name
from raftline.model.priorities import parse_priority

Bytes = bytes | bytearray | memoryview | str
"""Text is sent as UTF-8."""
Headers = Mapping[str, Bytes | None] | Sequence[tuple[str, Bytes | None]]

NO_HEADERS: tuple[Header, ...] = ()
TOPICS_CHECKED_MAX = 10_000
PARTITION_MAX = (1 << 31) - 1  # more than a request can say

CHECKED: set[str] = set()  # topics whose names are good


def full_row(
    handle: Handle,
    topic: str,
    value: Bytes | None,
    *,
    key: Bytes | None,
    headers: Headers | None,
    priority: int | str,
    delay: Duration | None,
    deliver_at: Moment | None,
    dedup_key: str | None,
    partition: int | None,
    deadline_ms: float,
    wall_ms: int,
) -> Row:
    """Return a message with whatever it wishes.

    Raises:
        InvalidArgument, TooLarge: it cannot be sent like that.
    """
    check_topic(topic)
    content, name = to_bytes("value", value), to_bytes("key", key)
    pairs = header_pairs(headers)
    size = size_of(name, content, pairs)
    if type(priority) is int:
        parse_priority(priority)
    elif not isinstance(priority, str):
        raise InvalidArgument(f"priority {priority!r} is no number and no name", "leave it out")
    if partition is not None:
        if not 0 <= partition <= PARTITION_MAX or not int(partition) >= partition:
            raise InvalidArgument(
                f"partition {partition} cannot be"[:100], "from 0 on; or leave it out"
            )
        partition = int(partition)  # whatever kind of whole number: 2.0 and 2 are one lane
    if delay is None and deliver_at is None and dedup_key is None:
        place = -1 if partition is None else partition
        row = (handle, topic, name, content, pairs, priority, place)
        return (*row, size, deadline_ms, wall_ms, None)
    if delay is not None and deliver_at is not None:
        raise InvalidArgument("delay and deliver_at are both there", "give one of them")
    _check_bounds(name, pairs, dedup_key)
    item: dict[str, Any] = {"timestamp": wall_ms}
    put_bytes(item, "value", content)
    if name is not None:
        put_bytes(item, "key", name)
    if pairs:
        _put_headers(item, pairs)
    if priority:
        item["priority"] = priority
    if partition is not None:
        item["partition"] = partition
    if dedup_key is not None:
        item["dedup_key"] = dedup_key
    if delay is not None:
        item["delay"] = duration_ms(delay)
    if deliver_at is not None:
        item["deliverAt"] = _moment(deliver_at)
    try:
        msgspec.json.encode(item)  # others share the request: what it cannot carry is refused here
    except ValueError as error:
        raise InvalidArgument(f"the message cannot be sent as JSON: {error}") from error
    return (handle, topic, name, content, pairs, 0, -1, size, deadline_ms, wall_ms, item)


def check_topic(topic: str) -> None:
    """Refuse what cannot be a topic's name, before anything is sent. Raises InvalidTopic."""
    if topic not in CHECKED:
        check_topic_name(topic)
        if len(CHECKED) < TOPICS_CHECKED_MAX:
            CHECKED.add(topic)


def _check_bounds(name: bytes | None, pairs: Sequence[Header], dedup_key: str | None) -> None:
    """Refuse here what no node ever takes."""
    found = (
        ("bytes of a key", len(name or b""), KEY_BYTES_MAX),
        ("bytes of a dedup key", len((dedup_key or "").encode()), DEDUP_KEY_BYTES_MAX),
        ("headers of a message", len(pairs), HEADERS_MAX),
        (
            "bytes of a message's headers",
            sum(len(header.encode()) + len(content or b"") for header, content in pairs),
            HEADER_BYTES_MAX,
        ),
    )
    for what, asked, most in found:
        if asked > most:
            raise TooLarge(what, asked, most)


def to_bytes(name: str, value: Bytes | None) -> bytes | None:
    """Return bytes; text becomes UTF-8. Raises InvalidArgument."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
        return bytes(value)
    raise InvalidArgument(
        f"{name} is a {type(value).__name__}", "send bytes or text, for instance json.dumps(...)"
    )


def header_pairs(headers: Headers | None) -> list[Header] | tuple[Header, ...]:
    """Return headers as a batch has them."""
    if not headers:
        return NO_HEADERS
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(_header_name(name), to_bytes(f"header {name}", content)) for name, content in pairs]


def _moment(deliver_at: object) -> str | int:
    """Refuse here what no node can read: others share the request. Raises InvalidArgument."""
    if isinstance(deliver_at, bool) or not isinstance(deliver_at, str | int | datetime):
        text = f"deliver_at is a {type(deliver_at).__name__}"
        raise InvalidArgument(text, "a datetime, RFC 3339, or Unix milliseconds")
    found = moment(deliver_at)
    is_number = isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 19
    parse_moment_ms("deliver_at", int(found) if is_number else found)
    return found


def _header_name(name: object) -> str:
    """Refuse here what no batch can be sealed with: others share the batch."""
    if not isinstance(name, str):
        raise InvalidArgument(f"the header {name!r} is a {type(name).__name__}", "name it in text")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"the header {name!r} is no text: {error}") from error
    return name


def _put_headers(item: dict[str, Any], pairs: Sequence[Header]) -> None:
    texts: dict[str, Any] = {}
    coded: dict[str, Any] = {}
    for name, content in pairs:
        into = texts
        try:
            text = None if content is None else content.decode()
        except UnicodeDecodeError:
            into, text = coded, base64.b64encode(content or b"").decode()
        if name in into:
            before = into[name]
            into[name] = [*before, text] if isinstance(before, list) else [before, text]  # pyright: ignore[reportUnknownVariableType]
        else:
            into[name] = text
    if texts:
        item["headers"] = texts
    if coded:
        item["headers_base64"] = coded
