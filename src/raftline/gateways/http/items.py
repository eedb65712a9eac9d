"""One message between JSON and a batch.

Text that is not UTF-8 travels as base64 in a field of its own; a header that comes more than once
has a list of values.
"""

import binascii
from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from raftline.gateways.http.fields import Int
from raftline.gateways.message_ids import message_id
from raftline.gateways.new_messages import (
    ID_HEADER,
    PRIORITY_HEADER,
    check_headers,
    check_key,
    check_timestamp,
)
from raftline.model.errors import InvalidArgument
from raftline.model.message import Header, Message, NewMessage

HeaderValues = str | list[str | None] | None
CodedValues = str | list[str]


class NewItem(msgspec.Struct, forbid_unknown_fields=True):
    """One message as a client sends it."""

    value: str | UnsetType | None = UNSET
    value_base64: str | UnsetType = UNSET
    key: str | None = None
    key_base64: str | UnsetType = UNSET
    headers: dict[str, HeaderValues] | None = None
    headers_base64: dict[str, CodedValues] | None = None
    timestamp: Int | None = None
    partition: Int | None = None
    encoding: Literal["text", "base64"] | None = None  # of value
    priority: Int | str | None = None
    delay: Int | str | None = None  # milliseconds, or text such as 5m
    deliverAt: str | Int | None = None  # noqa: N815
    deliver_at: str | Int | None = None
    dedup_key: str | None = None


class ReadItem(msgspec.Struct, gc=False):
    """One message as a client reads it."""

    id: str
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: dict[str, HeaderValues]
    key_base64: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    headers_base64: dict[str, CodedValues] | UnsetType = UNSET
    priority: int | UnsetType = UNSET  # other than 0, as its sender said


def to_message(item: NewItem, now_ms: int) -> NewMessage:
    """Return the message to seal. Raises RaftlineError."""
    timestamp_ms = now_ms if item.timestamp is None else check_timestamp(item.timestamp)
    key = item.key.encode() if item.key is not None else None
    if item.key_base64 is not UNSET:
        key = _base64("key_base64", item.key_base64)
    check_key(key)
    return key, _value(item), _headers(item), timestamp_ms


def _value(item: NewItem) -> bytes | None:
    if item.value_base64 is not UNSET:
        if item.value is not UNSET and item.value is not None:
            raise InvalidArgument("value and value_base64 are both there", "send one of them")
        return _base64("value_base64", item.value_base64)
    if item.value is UNSET:
        raise InvalidArgument("the message has no value", "send value or value_base64")
    if item.value is None:
        return None
    return _base64("value", item.value) if item.encoding == "base64" else item.value.encode()


def _headers(item: NewItem) -> list[Header]:
    headers: list[Header] = []
    for name, values in (item.headers or {}).items():
        for value in values if isinstance(values, list) else [values]:
            content = None if value is None else value.encode()
            headers.append((name, content))
    for name, coded in (item.headers_base64 or {}).items():
        texts = coded if isinstance(coded, list) else [coded]
        headers += [(name, _base64(f"headers_base64.{name[:40]}", text)) for text in texts]
    check_headers(headers)
    return headers


def _base64(name: str, text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise InvalidArgument(f"{name} is not base64: {error}") from error


def to_item(topic: str, partition: int, message: Message) -> ReadItem:
    """Return ``message`` as a client reads it."""
    return fill_item(ReadItem, topic, partition, message)


Item = TypeVar("Item", bound=ReadItem)


def fill_item(kind: type[Item], topic: str, partition: int, message: Message) -> Item:
    """Return ``message`` in a form that begins like ``ReadItem``."""
    item = kind(
        message_id(topic, partition, message.offset),
        message.offset,
        message.timestamp_ms,
        None,
        None,
        {},
    )
    if message.key is not None:
        try:
            item.key = message.key.decode()
        except UnicodeDecodeError:
            item.key_base64 = _to_base64(message.key)
    if message.value is not None:
        try:
            item.value = message.value.decode()
        except UnicodeDecodeError:
            item.value_base64 = _to_base64(message.value)
    for name, value in message.headers:
        _put_header(item, name, value)
    if message.headers:
        _take_marks(item, f"{topic}.{partition}.w")
    return item


def _take_marks(item: ReadItem, waited: str) -> None:
    """Show what the gateway and the release wrote into headers: priority, the id it waited by."""
    priority = item.headers.get(PRIORITY_HEADER)
    if isinstance(priority, str) and priority.removeprefix("-").isdecimal() and len(priority) < 5:
        item.priority = int(priority)
    waiting_id = item.headers.get(ID_HEADER)
    if isinstance(waiting_id, str) and waiting_id.startswith(waited):
        item.id = waiting_id


def _put_header(item: ReadItem, name: str, value: bytes | None) -> None:
    """Put one header in; a name that comes again gets a list of values."""
    try:
        text = None if value is None else value.decode()
    except UnicodeDecodeError:
        coded = {} if item.headers_base64 is UNSET else item.headers_base64
        one, known = _to_base64(value or b""), coded.get(name)
        if known is None:
            coded[name] = one
        else:
            coded[name] = [*known, one] if isinstance(known, list) else [known, one]
        item.headers_base64 = coded
        return
    if name not in item.headers:
        item.headers[name] = text
        return
    before = item.headers[name]
    item.headers[name] = [*before, text] if isinstance(before, list) else [before, text]


def _to_base64(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode()
