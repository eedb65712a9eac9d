"""Messages as JSON carries them: text as it is, other bytes in base64 under ``…_base64``."""

import base64
from typing import Any

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message as it is read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    id: str = ""
    key: bytes | None = None
    value: bytes | None = None
    headers: dict[str, Any] = {}
    headers_base64: dict[str, Any] = {}  # those that are not text, as they came


def put_bytes(row: dict[str, Any], name: str, value: bytes | None) -> None:
    """Put ``value`` into a JSON object, readable where it is text."""
    if value is None:
        row[name] = None
        return
    try:
        row[name] = value.decode()
    except UnicodeDecodeError:
        row[f"{name}_base64"] = base64.b64encode(value).decode()


def take_bytes(row: dict[str, Any], name: str) -> bytes | None:
    """Read what ``put_bytes`` (here or at the node) wrote."""
    coded = row.get(f"{name}_base64")
    if coded is not None:
        return base64.b64decode(coded)
    text = row.get(name)
    return None if text is None else str(text).encode()


def from_json(topic: str, partition: int, row: dict[str, Any]) -> Message:
    """Return the message a read reply holds in ``row``."""
    return Message(
        topic=topic,
        partition=partition,
        offset=row["offset"],
        timestamp_ms=row["timestamp"],
        id=row.get("id", ""),
        key=take_bytes(row, "key"),
        value=take_bytes(row, "value"),
        headers=row.get("headers") or {},
        headers_base64=row.get("headers_base64") or {},
    )


def to_json(message: Message) -> dict[str, Any]:
    """Return the JSON form of a message for programs that read our output."""
    row: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
        "id": message.id,
    }
    put_bytes(row, "key", message.key)
    put_bytes(row, "value", message.value)
    row["headers"] = message.headers
    if message.headers_base64:
        row["headers_base64"] = message.headers_base64
    return row
