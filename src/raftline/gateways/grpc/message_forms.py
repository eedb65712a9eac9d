"""Messages between the node and the contract."""

from collections.abc import Iterable

from raftline.gateways.message_ids import message_id
from raftline.gateways.new_messages import ID_HEADER, PRIORITY_HEADER
from raftline.model.batch import split_batches
from raftline.model.message import Message
from raftline.model.records import open_batch
from raftline.wire.proto.raftline.v1 import messages_pb2 as pb

PRIORITY_BYTES_MAX = 4


def to_message(topic: str, partition: int, message: Message) -> pb.Message:
    """Return a stored message as replies carry it."""
    shown = pb.Message(
        id=message_id(topic, partition, message.offset),
        topic=topic,
        partition=partition,
        offset=message.offset,
        timestamp_ms=message.timestamp_ms,
        key=message.key,
        value=message.value,
    )
    for name, value in message.headers:
        shown.headers.append(pb.Header(name=name, value=value))
        if name == PRIORITY_HEADER:
            shown.priority = _priority(value)
        elif name == ID_HEADER:
            shown.id = _waiting_id(value, f"{topic}.{partition}.w") or shown.id
    return shown


def open_from(batches: bytes, offset: int) -> Iterable[tuple[list[Message], int]]:
    """Yield the messages of each batch from ``offset`` on, and the offset after the batch."""
    view = memoryview(batches)
    for start, length in split_batches(batches):
        batch = view[start : start + length]
        end = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1
        yield [message for message in open_batch(batch) if message.offset >= offset], end


def _priority(value: bytes | None) -> int:
    digits = (value or b"").removeprefix(b"-")
    return int(value or b"0") if digits.isdigit() and len(digits) < PRIORITY_BYTES_MAX else 0


def _waiting_id(value: bytes | None, waited: str) -> str:
    text = (value or b"").decode("utf-8", "replace")
    return text if text.startswith(waited) else ""
