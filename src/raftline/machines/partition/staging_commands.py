"""Commands about staged writes in the log of a partition, and their bytes.

A query (a job that writes in numbered batches) *stages* chunks that nobody sees, then *publishes*
a batch: it names the chunks that count. All commands begin ``B 0x06  B kind``, little-endian::

    1 Stage     H name bytes  I chunk  q at_ms  q keep_ms  q batch  q task  q attempt
                q max_timestamp  I count  I extra bytes                                  64 bytes
                name of the query; extras as a sealed batch of one message (may be none); one batch
    2 Piece     H name bytes  I dropped  q at_ms  q batch  I first  I end  H kind  6x    48 bytes
                name of the query; then nothing (kind 0), an Append (1) or a Schedule (2), tag and
                all: the messages of the chunks ``[first, end)`` of the batch being published,
                without ``dropped`` of them, whose dedup keys are remembered
    3 others    a tagged msgpack struct: Publish | Abandon | ForgetQuery

``keep_ms`` is the topic's setting as the leader knew it: so long an idle query keeps its chunks.

The layout and the tags are permanent: golden bytes in tests/unit/machines/golden.
"""

import struct

import msgspec

from raftline.machines.partition.commands import AppendView, Malformed, decode_append
from raftline.machines.partition.waiting_commands import Schedule, decode_waiting
from raftline.model.batch import Buffer
from raftline.model.limits import ENTRY_BYTES_MAX, OFFSET_MAX, QUERY_NAME_CHARS_MAX

STAGING_TAG = 0x06
STAGE, PIECE, OTHERS = 1, 2, 3
STORING = (STAGE, PIECE)  # the kinds that bring messages to the disk
NOTHING, APPENDS, SCHEDULES = 0, 1, 2  # what a piece holds
CRC_AT = 17  # in a batch

_STAGE = struct.Struct("<BBHIqqqqqqII")
_PIECE = struct.Struct("<BBHIqqIIH14x")
_PREFIX = bytes([STAGING_TAG, OTHERS])

ChunkKey = tuple[int, int, int, int]  # batch, task, attempt, chunk
Winner = tuple[int, int, int]  # task, attempt, how many chunks it staged here


class Stage(msgspec.Struct, frozen=True):
    """Keep a chunk, invisible. Extras and batch stay where they are in the entry's data."""

    at_ms: int
    keep_ms: int
    query: str
    key: ChunkKey
    count: int
    max_timestamp: int
    extra: int  # where the extras begin
    body: int  # where the batch begins; ``extra`` if there are none
    end: int
    crc: int = 0  # of the batch, as its head says


class Piece(msgspec.Struct, frozen=True):
    """Move chunks ``[first, end)`` of the batch being published to where readers find them."""

    at_ms: int
    query: str
    batch: int
    first: int
    end: int
    dropped: int
    append: AppendView | None = None
    schedule: Schedule | None = None


class Publish(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """Decide which chunks of a batch count; all others of the query up to it are dropped."""

    at_ms: int
    query: str
    batch: int
    winners: list[Winner]


class PublishAfter(Publish, frozen=True, array_like=True, tag="q"):
    """The same if the fence of the query stands at ``after``; else nothing is decided."""

    after: int


class Abandon(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """Drop the chunks of a query up to and with ``batch``. Its fence stays where it is."""

    at_ms: int
    query: str
    batch: int


class ForgetQuery(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """Drop chunks and fence of a query."""

    at_ms: int
    query: str


Others = Publish | PublishAfter | Abandon | ForgetQuery
Command = Stage | Piece | Others


def encode_stage(
    at_ms: int,
    keep_ms: int,
    query: str,
    key: ChunkKey,
    batch: Buffer,
    count: int,
    max_timestamp: int,
    extras: bytes = b"",
) -> bytes:
    """Return the entry data that stages ``batch``; ``extras`` is a sealed batch, or nothing."""
    name = query.encode()
    number, task, attempt, chunk = key
    head = _STAGE.pack(
        STAGING_TAG,
        STAGE,
        len(name),
        chunk,
        at_ms,
        keep_ms,
        number,
        task,
        attempt,
        max_timestamp,
        count,
        len(extras),
    )
    return b"".join((head, name, extras, batch))


def encode_piece(
    at_ms: int,
    query: str,
    batch: int,
    span: tuple[int, int],
    kind: int = NOTHING,
    data: bytes = b"",
    dropped: int = 0,
) -> bytes:
    """Return the entry data of a piece; ``data``: what encode_append or encode_schedule gave."""
    name = query.encode()
    head = _PIECE.pack(STAGING_TAG, PIECE, len(name), dropped, at_ms, batch, *span, kind)
    return b"".join((head, name, data))


def encode_staging(command: Others) -> bytes:
    """Return the entry data of a command without messages."""
    return _PREFIX + _encoder.encode(command)


def decode_staging(data: bytes) -> Command:
    """Read a command about staged writes.

    Raises:
        Malformed: the parts do not add up to ``data``, or a value is out of bounds.
    """
    if len(data) > ENTRY_BYTES_MAX:
        raise Malformed(f"{len(data)} bytes about staged writes")
    try:
        match data[1]:
            case 1:
                return _decode_stage(data)
            case 2:
                return _decode_piece(data)
            case 3:
                return _decode_others(data)
            case kind:
                raise Malformed(f"no command about staged writes is of kind {kind}")
    except (struct.error, IndexError, ValueError, msgspec.MsgspecError) as error:
        raise Malformed(f"{len(data)} bytes about staged writes: {error}") from error


def stores_staged(data: bytes) -> bool:
    """Say whether an entry about staged writes brings messages to the disk."""
    return len(data) > 1 and data[1] in STORING


def _decode_stage(data: bytes) -> Stage:
    (
        _,
        _,
        name_bytes,
        chunk,
        at_ms,
        keep_ms,
        batch,
        task,
        attempt,
        max_timestamp,
        count,
        extra_bytes,
    ) = _STAGE.unpack_from(data)
    extra = _STAGE.size + name_bytes
    body = extra + extra_bytes
    if not count or body >= len(data) or min(batch, task, attempt) < 0 or keep_ms < 0:
        raise Malformed(f"a Stage of {len(data)} bytes with {count} messages")
    key = (batch, task, attempt, chunk)
    name = _name(data[_STAGE.size : extra])
    crc = int.from_bytes(data[body + CRC_AT : body + CRC_AT + 4], "big")
    return Stage(at_ms, keep_ms, name, key, count, max_timestamp, extra, body, len(data), crc)


def _decode_piece(data: bytes) -> Piece:
    _, _, name_bytes, dropped, at_ms, batch, first, end, kind = _PIECE.unpack_from(data)
    start = _PIECE.size + name_bytes
    if start > len(data) or first >= end or (kind == NOTHING) != (start == len(data)):
        raise Malformed(f"a Piece of {len(data)} bytes with chunks {first} to {end}")
    append = schedule = None
    if kind == APPENDS:
        append = decode_append(data, start)
    elif kind == SCHEDULES:
        found = decode_waiting(data[start:])
        if not isinstance(found, Schedule):
            raise Malformed("a Piece with a command that schedules nothing")
        schedule = msgspec.structs.replace(found, body=found.body + start)
    elif kind != NOTHING:
        raise Malformed(f"a Piece of kind {kind}")
    name = _name(data[_PIECE.size : start])
    return Piece(at_ms, name, batch, first, end, dropped, append, schedule)


def _decode_others(data: bytes) -> Others:
    command = _decoder.decode(memoryview(data)[2:])
    if not 0 < len(command.query) <= QUERY_NAME_CHARS_MAX:
        raise Malformed(f"a query's name of {len(command.query)} characters")
    if isinstance(command, Publish | Abandon) and not -1 <= command.batch <= OFFSET_MAX:
        raise Malformed(f"batch {command.batch}")
    return command


def _name(data: bytes) -> str:
    name = data.decode()
    if not 0 < len(name) <= QUERY_NAME_CHARS_MAX:
        raise Malformed(f"a query's name of {len(name)} characters")
    return name


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Others] = msgspec.msgpack.Decoder(Others)

assert _STAGE.size == 64
assert _PIECE.size == 48
