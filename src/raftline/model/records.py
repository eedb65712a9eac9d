"""Sealing messages into a record batch and opening one again. For the edges only.

Two codecs that give the same bytes: the compiled one inside the aiokafka wheel (about 0.4 us a
message) and a plain one of our own (about 4 us), which is the fallback where the wheel has no
compiled part and the oracle in tests. The compiled one is loaded on first use, without the Kafka
client around it: that would take 180 ms instead of 40.

A message in a batch: length varint, attributes 0, timestamp delta varint, offset delta varint,
key, value (varint length or -1, bytes), header count varint, then name and value of each.
"""

import importlib
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from crc32c import crc32c

from raftline.model.batch import (
    COMPRESSION_MASK,
    COMPRESSIONS,
    CRC_FROM,
    LENGTH_FROM,
    MAGIC,
    NO_PRODUCER,
    Buffer,
    split_batches,
)
from raftline.model.compression import compress, decompress
from raftline.model.errors import CorruptBatch, InvalidArgument, TooLarge
from raftline.model.limits import (
    BATCH_HEADER_BYTES,
    BATCH_MESSAGES_MAX,
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    KEY_BYTES_MAX,
)
from raftline.model.message import Header, Message, NewMessage
from raftline.model.varint import get_varint, put_varint

_HEAD = struct.Struct(">qiibIhiqqqhii")
_FROM_CRC = struct.Struct(">hiqqqhii")  # attributes .. count
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_CONTROL = 0x20
_UNBOUNDED = 1 << 30

assert _HEAD.size == BATCH_HEADER_BYTES == CRC_FROM + _FROM_CRC.size


def seal_batch(
    messages: Sequence[NewMessage],
    *,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compression: str = "none",
) -> bytes:
    """Return one sealed batch of ``messages`` with base offset 0.

    Raises:
        InvalidArgument: nothing to seal, or a compression that is not available.
        TooLarge: too many messages, or a key or headers over their bounds.
    """
    check_messages(messages)
    if compression not in COMPRESSIONS:
        raise InvalidArgument(f"compression {compression!r} is not one of {COMPRESSIONS}")
    producer = (producer_id, producer_epoch, base_sequence)
    compiled = _compiled()
    seal = seal_plain if compiled is None else compiled[0]
    sealed = seal(messages, producer)
    if compression == "none":
        return sealed
    return _repack(sealed, COMPRESSIONS.index(compression))


def open_batch(batch: Buffer) -> list[Message]:
    """Return the messages of one batch, offsets from its head. A control batch holds none.

    Raises:
        CorruptBatch: the messages do not fit the head, in number or by their offsets.
        InvalidArgument: a compression that is not available here.
    """
    if len(batch) < BATCH_HEADER_BYTES or batch[16] != MAGIC:
        raise CorruptBatch("it has no head of format 2")
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_FROM)
    if attributes & _CONTROL:
        return []
    plain = bytes(batch)
    if attributes & COMPRESSION_MASK:
        plain = _unpack(plain, attributes & COMPRESSION_MASK)
    compiled = _compiled()
    opened = (open_plain if compiled is None else compiled[1])(plain)
    (count,) = struct.unpack_from(">i", plain, 57)
    if len(opened) != count:
        raise CorruptBatch(f"byte 57: count is {count}, {len(opened)} messages are there")
    base = int.from_bytes(plain[:8], "big")
    if [message.offset for message in opened] != [*range(base, base + count)]:
        raise CorruptBatch(f"{count} messages do not have the offsets from {base} on")
    return opened


def open_batches(buffer: Buffer) -> list[Message]:
    """Return the messages of all batches in ``buffer``, as a read returns them."""
    view = memoryview(buffer)
    return [
        message
        for start, length in split_batches(buffer)
        for message in open_batch(view[start : start + length])
    ]


def open_or_count(buffer: Buffer) -> list[Message]:
    """Return the messages of all batches; of one that nobody can read, empty ones.

    For code that must come past whatever clients sealed: the head and the checksum of every batch
    were checked when it came, what is inside was not.
    """
    view = memoryview(buffer)
    found: list[Message] = []
    for start, length in split_batches(buffer):
        batch = view[start : start + length]
        try:
            found += open_batch(batch)
        except (CorruptBatch, InvalidArgument):
            base, timestamp = struct.unpack_from(">q19xq", batch)
            (count,) = struct.unpack_from(">i", batch, 57)
            found += [Message(base + at, timestamp, None, None, ()) for at in range(count)]
    return found


def codec_name() -> str:
    """Say which codec is in use: "compiled" or "plain"."""
    return "plain" if _compiled() is None else "compiled"


def seal_plain(messages: Sequence[NewMessage], producer: tuple[int, int, int]) -> bytes:
    """Seal without the compiled codec."""
    base_timestamp = messages[0][3]
    body = bytearray()
    for delta, (key, value, headers, timestamp_ms) in enumerate(messages):
        one = bytearray(1)
        put_varint(one, timestamp_ms - base_timestamp)
        put_varint(one, delta)
        _put_bytes(one, key)
        _put_bytes(one, value)
        put_varint(one, len(headers))
        for name, content in headers:
            _put_bytes(one, name.encode())
            _put_bytes(one, content)
        put_varint(body, len(one))
        body += one
    max_timestamp = max(message[3] for message in messages)
    last = len(messages) - 1
    tail = _FROM_CRC.pack(0, last, base_timestamp, max_timestamp, *producer, last + 1) + body
    length = CRC_FROM - LENGTH_FROM + len(tail)
    return struct.pack(">qiibI", 0, length, -1, MAGIC, crc32c(tail)) + tail


def open_plain(batch: bytes) -> list[Message]:
    """Open an uncompressed batch without the compiled codec."""
    base_offset, base_timestamp = struct.unpack_from(">q19xq", batch)
    (count,) = struct.unpack_from(">i", batch, 57)
    messages: list[Message] = []
    position = BATCH_HEADER_BYTES
    try:
        for _ in range(count):
            message, position = _open_one(batch, position, base_offset, base_timestamp)
            messages.append(message)
    except (ValueError, IndexError) as error:  # UnicodeDecodeError is a ValueError
        raise CorruptBatch(f"message {len(messages)}: {error}") from error
    if position != len(batch):
        raise CorruptBatch(f"byte {position}: {len(batch) - position} bytes are left over")
    return messages


def _open_one(
    batch: bytes, position: int, base_offset: int, base_timestamp: int
) -> tuple[Message, int]:
    length, position = get_varint(batch, position)
    end = position + length
    if not position < end <= len(batch):
        raise ValueError(f"byte {position}: a message of {length} bytes does not fit")
    timestamp_delta, position = get_varint(batch, position + 1)
    offset_delta, position = get_varint(batch, position)
    key, position = _get_bytes(batch, position, end)
    value, position = _get_bytes(batch, position, end)
    header_count, position = get_varint(batch, position)
    headers: list[Header] = []
    for _ in range(header_count):
        name, position = _get_bytes(batch, position, end)
        content, position = _get_bytes(batch, position, end)
        if name is None:
            raise ValueError(f"byte {position}: a header without a name")
        headers.append((name.decode(), content))
    if position != end:
        raise ValueError(f"byte {position}: the message should end at {end}")
    offset, timestamp_ms = base_offset + offset_delta, base_timestamp + timestamp_delta
    return Message(offset, timestamp_ms, key, value, tuple(headers)), end


def _put_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # -1
        return
    put_varint(out, len(value))
    out += value


def _get_bytes(batch: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = get_varint(batch, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise ValueError(f"byte {position}: {length} bytes do not fit the message")
    return batch[position : position + length], position + length


def check_messages(messages: Sequence[NewMessage]) -> None:
    """Refuse what cannot be sealed. Raises InvalidArgument, TooLarge."""
    if not messages:
        raise InvalidArgument("a batch needs at least one message")
    if len(messages) > BATCH_MESSAGES_MAX:
        raise TooLarge("messages in one batch", len(messages), BATCH_MESSAGES_MAX)
    for key, _, headers, _ in messages:
        if key is not None and len(key) > KEY_BYTES_MAX:
            raise TooLarge("bytes of a key", len(key), KEY_BYTES_MAX)
        if headers:
            if len(headers) > HEADERS_MAX:
                raise TooLarge("headers of a message", len(headers), HEADERS_MAX)
            size = sum(len(name) + len(content or b"") for name, content in headers)
            if size > HEADER_BYTES_MAX:
                raise TooLarge("bytes of a message's headers", size, HEADER_BYTES_MAX)


def _repack(sealed: bytes, compression: int) -> bytes:
    """Compress the messages of a sealed batch."""
    fields = _HEAD.unpack_from(sealed)
    body = compress(COMPRESSIONS[compression], memoryview(sealed)[BATCH_HEADER_BYTES:])
    return _reseal(fields, compression, body)


def _unpack(batch: bytes, compression: int) -> bytes:
    """Return the same batch with its messages uncompressed."""
    fields = _HEAD.unpack_from(batch)
    body = decompress(COMPRESSIONS[compression], memoryview(batch)[BATCH_HEADER_BYTES:])
    return _reseal(fields, 0, body)


def _reseal(fields: tuple[Any, ...], compression: int, body: bytes) -> bytes:
    base_offset, _, epoch, magic, _, attributes, *rest = fields
    tail = _FROM_CRC.pack(attributes & ~COMPRESSION_MASK | compression, *rest) + body
    length = CRC_FROM - LENGTH_FROM + len(tail)
    return struct.pack(">qiibI", base_offset, length, epoch, magic, crc32c(tail)) + tail


Seal = Callable[[Sequence[NewMessage], tuple[int, int, int]], bytes]
Open = Callable[[bytes], list[Message]]


@cache
def _compiled() -> tuple[Seal, Open] | None:
    """Load the compiled codec; None where there is none."""
    try:
        codec: Any = importlib.import_module("raftline.model.compiled_codec")
        builder, reader = codec.Builder, codec.Reader
        errors = (codec.CorruptRecord, ValueError)
    except (ImportError, AttributeError):
        return None

    def seal(messages: Sequence[NewMessage], producer: tuple[int, int, int]) -> bytes:
        build = builder(MAGIC, 0, 0, *producer, _UNBOUNDED)
        append = build.append
        none: list[Header] = []
        for delta, (key, value, headers, timestamp_ms) in enumerate(messages):
            append(delta, timestamp_ms, key, value, list(headers) if headers else none)
        return bytes(build.build())

    def open_(batch: bytes) -> list[Message]:
        try:
            return [
                Message(r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                for r in reader(batch)
            ]
        except errors as error:
            raise CorruptBatch(str(error)) from error
        except (OverflowError, MemoryError):  # a length near 2^63: it adds before it compares
            return open_plain(batch)

    return seal, open_
